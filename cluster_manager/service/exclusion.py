"""Excludes nodes, as the leader of the cluster manager."""

from __future__ import annotations

from cluster_manager.domain.cluster import decide_exclude
from cluster_manager.domain.exclusions import ExcludeNode
from cluster_manager.service.leader_term import LeaderTerm
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb


async def exclude_node(
    term: LeaderTerm, request: cluster_pb.ExcludeNodeRequest, leader_id: str
) -> cluster_pb.ExcludeNodeResponse:
    """Exclude a node, or none; return all excluded ones once that is committed.

    Raises:
        Refused: NOT_ALLOWED: it is this one; INVALID_NAME; LIMIT_EXCEEDED.
        NotLeader, Overloaded, ProposalLost: See ``LeaderTerm.propose``.
    """
    if request.node_id:
        decision = decide_exclude(term.pending, ExcludeNode(request.node_id, leader_id))
        await term.commit_decision(decision, "node excluded", node=request.node_id)
    else:
        await term.confirm()
    present = sorted(term.pending.exclusions.node_ids)
    return cluster_pb.ExcludeNodeResponse(excluded_nodes=present)
