"""Requests a change of replicas from the cluster manager, and waits until the shard has made it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.cli.shards.replica_list import gather_replicas
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import (
    DeadlineExceeded,
    Indefinite,
    MetadataError,
    NotLeader,
    Overloaded,
    Refused,
    Unavailable,
)
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1.cluster_service_pb2 import (
    ChangeReplicasRequest,
    ChangeReplicasResponse,
    ClusterUpdate,
)
from protos.nextgen.v1.cluster_service_pb2_grpc import ClusterServiceStub
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest
from protos.nextgen.v1.events_pb2 import ShardPlacement

ATTEMPT_TIMEOUT_MS = 4_000
"""Time-out of one ``ChangeReplicas`` call; the cluster manager itself gives up a little earlier."""

ASK_MS_MAX = 20_000
"""Time-out for recording the wish: several elections of cluster managers fit in."""

PAUSE_MS = 250
"""Pause between attempts, and between checks of the map."""

_CHANGES = {
    "add": ChangeReplicasRequest.CHANGE_ADD,
    "remove": ChangeReplicasRequest.CHANGE_REMOVE,
    "cancel": ChangeReplicasRequest.CHANGE_CANCEL,
}
_RETRIED = (NotLeader, Unavailable, Overloaded, Indefinite)


class ReplicaChanger:
    """Changes replicas one after the other within ``timeout_ms``. A context manager."""

    def __init__(self, discovery_endpoints: Sequence[str], *, timeout_ms: int) -> None:
        self._endpoints = tuple(discovery_endpoints)
        self._timeout_ms = timeout_ms
        self._deadline = 0.0
        self._discovery = DiscoveryClient(discovery_endpoints)

    async def __aenter__(self) -> ReplicaChanger:
        self._deadline = asyncio.get_running_loop().time() + self._timeout_ms / 1_000
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._discovery.__aexit__()

    async def shard_ids(self, change: str, shard_id: int | None, node_id: str) -> list[int]:
        """Return the named shard, or all shards that need the change."""
        if shard_id is not None:
            return [shard_id]
        cluster = await self._cluster()
        return [
            placement.shard_id
            for placement in cluster.shard_map.shards
            if not is_done(change, placement, node_id)
        ]

    async def change(
        self, change: str, shard_id: int, node_id: str, *, wait: bool
    ) -> dict[str, Any]:
        """Record the wish and, with ``wait``, return when the shard has completed it.

        Raises:
            Refused: The change is not possible, or it was cancelled meanwhile.
            DeadlineExceeded: It is not completed yet; the message has the reason.
            MetadataError: No cluster manager could be reached.
        """
        started_at = asyncio.get_running_loop().time()
        response = await self._ask(change, shard_id, node_id)
        done = is_done(change, response.placement, node_id)
        version = response.shard_map_version
        if wait and not done:
            version = await self._wait_done(change, shard_id, node_id, version)
            done = True
        return {
            "shard_id": shard_id,
            "node_id": node_id,
            "change": change,
            "done": done,
            "shard_map_version": version,
            "took_ms": round((asyncio.get_running_loop().time() - started_at) * 1_000),
        }

    # Inside -----------------------------------------------------------------------------------

    async def _cluster(self) -> ClusterUpdate:
        cluster: ClusterUpdate = await self._discovery.call("GetCluster", GetClusterRequest())
        return cluster

    async def _ask(self, change: str, shard_id: int, node_id: str) -> ChangeReplicasResponse:
        """Have the cluster manager's leader record the wish; the same wish twice is harmless."""
        managers = list((await self._cluster()).manager_endpoints)
        if not managers:
            raise Unavailable("discovery knows no cluster manager yet")
        request = ChangeReplicasRequest(shard_id=shard_id, node_id=node_id, change=_CHANGES[change])
        ask_until = asyncio.get_running_loop().time() + ASK_MS_MAX / 1_000
        ask_until = min(ask_until, self._deadline)
        hint: str | None = None
        may_be_recorded = False
        turn = 0
        while True:
            endpoint, hint = hint or managers[turn % len(managers)], None
            turn += 1
            try:
                return await _ask_one(endpoint, request)
            except _RETRIED as error:
                may_be_recorded |= isinstance(error, Indefinite)
                hint = error.leader_hint if isinstance(error, NotLeader) else None
                if asyncio.get_running_loop().time() >= ask_until:
                    raise
            except Refused:
                # An earlier attempt whose answer was lost may have completed the change.
                recorded = await self._recorded(change, shard_id, node_id)
                if not may_be_recorded or recorded is None:
                    raise
                return recorded
            if hint is None:
                await asyncio.sleep(PAUSE_MS / 1_000)

    async def _recorded(
        self, change: str, shard_id: int, node_id: str
    ) -> ChangeReplicasResponse | None:
        cluster = await self._cluster()
        placement = _placement(cluster, shard_id)
        if placement is None or not is_done(change, placement, node_id):
            return None
        return ChangeReplicasResponse(
            placement=placement, shard_map_version=cluster.shard_map.version
        )

    async def _wait_done(self, change: str, shard_id: int, node_id: str, version: int) -> int:
        """Wait until the change is complete; return the map's version."""
        while asyncio.get_running_loop().time() < self._deadline:
            cluster = await self._cluster()
            placement = _placement(cluster, shard_id)
            if placement is not None and cluster.shard_map.version >= version:
                if is_done(change, placement, node_id):
                    return int(cluster.shard_map.version)
                _check_not_cancelled(change, placement, node_id)
            await asyncio.sleep(PAUSE_MS / 1_000)
        raise DeadlineExceeded(
            f"shard {shard_id}: '{change} {node_id}' is recorded and goes on, but is not done "
            f"after {self._timeout_ms} ms: {await self._why(shard_id, node_id)}"
        )

    async def _why(self, shard_id: int, node_id: str) -> str:
        try:
            gathered = await gather_replicas(self._endpoints, shard_id)
        except MetadataError as error:
            return str(error)
        (shard,) = gathered["shards"]
        replica = next((each for each in shard["replicas"] if each["node_id"] == node_id), None)
        if not shard["leader"]:
            return "the shard has no leader"
        if replica is None or replica["is_connected"] is None:
            return f"{shard['leader']}, which leads the shard, has not begun"
        if not replica["is_connected"]:
            return f"{node_id} is not connected to {shard['leader']}"
        return f"{node_id} is {replica['role']}, {replica['lag_entries']} entries behind"


def is_done(change: str, placement: ShardPlacement, node_id: str) -> bool:
    """Return whether the map has no pending change for this node."""
    if change == "add":
        return node_id in placement.replicas and node_id not in placement.leaving
    if change == "remove":
        return node_id not in (*placement.replicas, *placement.joining, *placement.leaving)
    return node_id not in (*placement.joining, *placement.leaving)


def _check_not_cancelled(change: str, placement: ShardPlacement, node_id: str) -> None:
    wanted = placement.joining if change == "add" else placement.leaving
    if change != "cancel" and node_id not in wanted:
        raise Refused(
            RejectionCode.NOT_ALLOWED,
            f"shard {placement.shard_id}: '{change} {node_id}' was cancelled",
        )


def _placement(cluster: ClusterUpdate, shard_id: int) -> ShardPlacement | None:
    return next((each for each in cluster.shard_map.shards if each.shard_id == shard_id), None)


async def _ask_one(endpoint: str, request: ChangeReplicasRequest) -> ChangeReplicasResponse:
    channel = open_channel(endpoint)
    try:
        stub: Any = ClusterServiceStub(channel)
        response: ChangeReplicasResponse = await stub.ChangeReplicas(
            request, timeout=ATTEMPT_TIMEOUT_MS / 1_000
        )
    except grpc.RpcError as error:
        raise error_of_rpc(error) from error
    finally:
        await close_channel(channel)
    return response
