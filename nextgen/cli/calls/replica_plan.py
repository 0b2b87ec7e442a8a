"""The shard nodes and where replicas should be: asks the cluster manager's leader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nextgen.cli.calls.manager_leader import ask_manager_leader
from protos.nextgen.v1.cluster_service_pb2 import (
    BalanceReplicasRequest,
    GetReplicaPlanRequest,
    ReplicaMove,
    ReplicaPlan,
    SetNodeStateRequest,
    SetNodeStateResponse,
    ShardNode,
)

ATTEMPT_TIMEOUT_MS = 4_000
"""Time-out of one call; the cluster manager itself gives up a little earlier."""


async def replica_plan(discovery_endpoints: Sequence[str]) -> ReplicaPlan:
    """Return the shard nodes, the replicas that are to move and those that are moving.

    Raises:
        MetadataError: No cluster manager could be reached.
    """

    async def ask(stub: Any) -> ReplicaPlan:
        plan: ReplicaPlan = await stub.GetReplicaPlan(
            GetReplicaPlanRequest(), timeout=ATTEMPT_TIMEOUT_MS / 1_000
        )
        return plan

    return await ask_manager_leader(discovery_endpoints, ask)


async def balance_replicas(discovery_endpoints: Sequence[str], *, stop: bool) -> ReplicaPlan:
    """Have replicas moved to where they should be, or stop that; return what is left.

    Raises:
        MetadataError: No cluster manager could be reached.
    """

    async def ask(stub: Any) -> ReplicaPlan:
        plan: ReplicaPlan = await stub.BalanceReplicas(
            BalanceReplicasRequest(stop=stop), timeout=ATTEMPT_TIMEOUT_MS / 1_000
        )
        return plan

    return await ask_manager_leader(discovery_endpoints, ask)


async def set_node_state(discovery_endpoints: Sequence[str], node_id: str, state: str) -> ShardNode:
    """Set the state of a shard node; return the node once that is committed.

    Raises:
        Refused: The message has the reason.
        MetadataError: No cluster manager could be reached.
    """
    request = SetNodeStateRequest(node_id=node_id, state=state)

    async def ask(stub: Any) -> SetNodeStateResponse:
        response: SetNodeStateResponse = await stub.SetNodeState(
            request, timeout=ATTEMPT_TIMEOUT_MS / 1_000
        )
        return response

    return (await ask_manager_leader(discovery_endpoints, ask)).node


def described(plan: ReplicaPlan) -> dict[str, Any]:
    """Return the plan as a JSON object."""
    return {
        "nodes": [described_node(node) for node in plan.nodes],
        "moves": [_move(move) for move in plan.moves],
        "under_way": [_move(move) for move in plan.under_way],
        "is_on": plan.is_on,
        "is_requested": plan.is_requested,
        "waits_for": plan.waits_for,
        "replication_factor": plan.replication_factor,
    }


def described_node(node: ShardNode) -> dict[str, Any]:
    """Return a shard node as a JSON object."""
    return {
        "node_id": node.node_id,
        "zone": node.zone,
        "state": node.state,
        "since_ms": node.since_ms,
        "is_connected": node.is_connected,
        "replicas": node.replicas,
        "joining": node.joining,
        "leaving": node.leaving,
        "leaders": node.leaders,
    }


def sentence(move: ReplicaMove) -> str:
    """Return one move as a line for people."""
    if not move.source:
        return f"shard {move.shard_id}: a replica on {move.target}"
    if not move.target:
        return f"shard {move.shard_id}: none on {move.source} any more"
    return f"shard {move.shard_id}: {move.source} to {move.target}"


def _move(move: ReplicaMove) -> dict[str, Any]:
    return {"shard_id": move.shard_id, "source": move.source, "target": move.target}
