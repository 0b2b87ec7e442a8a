"""The logs that an export reads: those of all shards, and the cluster manager's as shard 0."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc
import grpc.aio

from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.client.log.reader import EventPage, ShardLogReader, pin_log
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import Unauthenticated, Unavailable
from nextgen.kernel.limits.stream import EXPORT_PIN_TTL_MS
from nextgen.replication.ports import CLUSTER_MANAGER_GROUP_ID, Role
from protos.nextgen.v1.cluster_service_pb2 import (
    ClusterUpdate,
    GetManagerStatusRequest,
    ReplicaStatus,
)
from protos.nextgen.v1.cluster_service_pb2_grpc import ClusterServiceStub
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest
from protos.nextgen.v1.shard_service_pb2 import GetNodeStatusRequest, NodeStatus
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub

CALL_TIMEOUT_MS = 15_000
"""Time-out for an answer of any discovery node."""

STATUS_TIMEOUT_MS = 2_000
"""Time-out for one process to report its replicas' positions. A process that is down is skipped."""

POSITIONS_ATTEMPTS = 20
POSITIONS_PAUSE_MS = 500
"""Attempts, over ten seconds, until every shard has a leader."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A shard's commit position by its replicas' reports. ``position`` None: no replica reports."""

    position: int | None = None
    by_leader: bool = False
    """Whether the leader reported. A follower may not know the latest commit position."""

    def with_replica(self, position: int, *, is_leader: bool) -> Committed:
        """Return this merged with another replica's report."""
        return Committed(max(self.position or 0, position), self.by_leader or is_leader)


class LogSource(Protocol):
    """The logs of a cluster, by shard and position."""

    async def positions(self) -> Mapping[int, Committed]:
        """Return the commit position of each shard.

        Raises:
            MetadataError: The shards are not known.
        """

    def pages(
        self, shard_id: int, position: int, *, follow: bool, limit: int = 0
    ) -> AsyncGenerator[EventPage, None]:
        """Read one shard; see ``ShardLogReader.pages``."""

    async def pin(self, shard_id: int, reader_id: str, position: int) -> None:
        """Keep the log from ``position`` on, at every replica; see ``pin_log``."""


async def known_positions(log: LogSource, *, from_leaders: bool) -> dict[int, Committed]:
    """Return the commit position of every shard; with ``from_leaders``, as its leader knows it.

    For a shard without a leader in time, it is the highest position that other replicas report.

    Raises:
        Unavailable: No replica of some shard answers.
        MetadataError: The shards are not known.
    """
    for attempt in range(POSITIONS_ATTEMPTS):
        found = await log.positions()
        silent = sorted(shard_id for shard_id, each in found.items() if each.position is None)
        is_certain = not from_leaders or all(each.by_leader for each in found.values())
        is_last = attempt == POSITIONS_ATTEMPTS - 1
        if found and not silent and (is_certain or is_last):
            return dict(found)
        await asyncio.sleep(POSITIONS_PAUSE_MS / 1000)
    raise Unavailable(f"no replica of shards {silent} reports its position")


class ClusterLog:
    """A live cluster. Reads at followers, to spare leaders the load."""

    def __init__(self, discovery_endpoints: Sequence[str]) -> None:
        self._endpoints = tuple(discovery_endpoints)

    async def positions(self) -> Mapping[int, Committed]:
        nodes = DiscoveryNodes(self._endpoints, in_order=True)
        try:
            cluster = await nodes.call(
                "GetCluster", GetClusterRequest(), ClusterUpdate, timeout_ms=CALL_TIMEOUT_MS
            )
        finally:
            await nodes.close()
        found = {one.shard_id: Committed() for one in cluster.shard_map.shards}
        if not found:
            return found  # The discovery node has just started.
        found[CLUSTER_MANAGER_GROUP_ID] = Committed()
        for replica in await _replicas(cluster):
            if replica.group_id in found:
                found[replica.group_id] = found[replica.group_id].with_replica(
                    replica.commit_position, is_leader=replica.role == Role.LEADER
                )
        return found

    def pages(
        self, shard_id: int, position: int, *, follow: bool, limit: int = 0
    ) -> AsyncGenerator[EventPage, None]:
        reader = ShardLogReader(self._endpoints, shard_id, prefer_follower=True)
        return reader.pages(position, follow=follow, limit=limit)

    async def pin(self, shard_id: int, reader_id: str, position: int) -> None:
        await pin_log(self._endpoints, shard_id, reader_id, position, ttl_ms=EXPORT_PIN_TTL_MS)


async def _replicas(cluster: ClusterUpdate) -> list[ReplicaStatus]:
    """Return the status of every replica that answers."""
    addresses = [node.grpc for node in cluster.nodes if node.kind == "shard" and node.grpc]
    answers = await asyncio.gather(
        *(_ask(address, _node_replicas) for address in addresses),
        *(_ask(address, _manager_replica) for address in cluster.manager_endpoints),
    )
    return [replica for replicas in answers for replica in replicas]


async def _node_replicas(channel: grpc.aio.Channel) -> Sequence[ReplicaStatus]:
    stub = ShardServiceStub(channel)
    status: NodeStatus = await stub.GetNodeStatus(
        GetNodeStatusRequest(), timeout=STATUS_TIMEOUT_MS / 1000
    )
    return status.replicas


async def _manager_replica(channel: grpc.aio.Channel) -> Sequence[ReplicaStatus]:
    stub = ClusterServiceStub(channel)
    status: ReplicaStatus = await stub.GetManagerStatus(
        GetManagerStatusRequest(), timeout=STATUS_TIMEOUT_MS / 1000
    )
    return (status,)


async def _ask(
    endpoint: str, question: Callable[[grpc.aio.Channel], Awaitable[Sequence[ReplicaStatus]]]
) -> Sequence[ReplicaStatus]:
    channel = open_channel(endpoint)
    try:
        return await question(channel)
    except grpc.RpcError as error:
        reason = error_of_rpc(error)
        if isinstance(reason, Unauthenticated):
            raise reason from error
        return ()
    finally:
        await close_channel(channel)
