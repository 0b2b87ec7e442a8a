"""Wishes of operators for replicas and shard nodes, as the leader of the cluster manager."""

from __future__ import annotations

import structlog

from cluster_manager import wire
from cluster_manager.domain.cluster import decide_change_replicas, decide_node_state
from cluster_manager.domain.membership import NodeState, SetNodeState
from cluster_manager.domain.replica_changes import Change
from cluster_manager.ports import Clock
from cluster_manager.service.leader_term import LeaderTerm
from cluster_manager.service.replica_balancer import ReplicaBalancer
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.governance.service_settings import REPLICAS_BALANCE
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb

_ASKED_FOR = {
    state.value: state for state in (NodeState.ACTIVE, NodeState.LEAVING, NodeState.REMOVED)
}
"""The states that an operator may set: whether a node is lost is found out."""

_logger = structlog.get_logger(__name__)


async def change_replicas(
    term: LeaderTerm, balancer: ReplicaBalancer, request: cluster_pb.ChangeReplicasRequest
) -> cluster_pb.ChangeReplicasResponse:
    """Add an operator's wish to the shard map; return once that is committed.

    Raises:
        Refused: The change is not possible, or replicas are placed by themselves; the message has
            the reason.
        InvalidRequest: This release does not know the kind of change.
        Unavailable: Not every shard of the first map has been led.
        NotLeader, Overloaded, ProposalLost: See ``LeaderTerm.propose``.
    """
    command = wire.change_from_proto(request, term.connected_shard_nodes())
    decision = decide_change_replicas(term.pending, command)
    if isinstance(decision, Rejected):
        await term.confirm()
        raise Refused(decision.code, decision.message)
    if decision.events:
        if balancer.settings.balance and command.change is not Change.CANCEL:
            await term.confirm()
            raise Refused(
                RejectionCode.NOT_ALLOWED,
                "replicas are placed by themselves, which would undo this: turn that off first "
                f"with 'nextgen brokers settings set {REPLICAS_BALANCE}=false', or drain a node",
            )
        term.check_every_shard_was_led()
        _logger.info(
            "replicas change",
            shard=command.shard_id,
            node=command.node_id,
            change=command.change.value,
        )
        term.propose(decision.events)
    shard_map = term.pending.shard_map
    assert shard_map is not None, "a change was accepted without a map"
    await term.confirm()
    placement = shard_map.placement(command.shard_id)
    assert placement is not None, f"shard {command.shard_id} was changed and is not in the map"
    return cluster_pb.ChangeReplicasResponse(
        placement=wire.placement_to_proto(placement), shard_map_version=shard_map.version
    )


async def set_node_state(
    term: LeaderTerm,
    balancer: ReplicaBalancer,
    request: cluster_pb.SetNodeStateRequest,
    clock: Clock,
) -> cluster_pb.SetNodeStateResponse:
    """Set the state of a shard node; return the node once that is committed.

    Raises:
        Refused: NOT_FOUND: the node never joined; NOT_ALLOWED: it is no shard node, it is excluded,
            or too few active nodes would be left; or a replica does not know such events.
        InvalidRequest: It is no state that an operator sets.
        NotLeader, Overloaded, ProposalLost: See ``LeaderTerm.propose``.
    """
    state = _ASKED_FOR.get(request.state)
    if state is None:
        raise InvalidRequest(f"{request.state!r} is no state to set, {', '.join(_ASKED_FOR)} are")
    command = SetNodeState(
        request.node_id,
        state,
        clock.unix_ms(),
        term.connected_shard_nodes(),
        balancer.replication_factor,
    )
    decision = decide_node_state(term.pending, command)
    await term.commit_decision(decision, "shard node", node=request.node_id, state=state.value)
    node = next(each for each in balancer.nodes() if each.node_id == request.node_id)
    return cluster_pb.SetNodeStateResponse(node=node)


async def balance_replicas(
    term: LeaderTerm, balancer: ReplicaBalancer, request: cluster_pb.BalanceReplicasRequest
) -> cluster_pb.ReplicaPlan:
    """Place replicas until nothing is left to move, or stop that; return what is left.

    Raises:
        NotLeader, ProposalLost: Leadership moved.
    """
    await term.confirm()
    balancer.request(stop=request.stop)
    return balancer.plan()


async def replica_plan(term: LeaderTerm, balancer: ReplicaBalancer) -> cluster_pb.ReplicaPlan:
    """Return the shard nodes and the replicas that are to move.

    Raises:
        NotLeader, ProposalLost: Leadership moved.
    """
    await term.confirm()
    return balancer.plan()
