"""What an export reads: the logs of all shards of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc

from nextgen.client.channel import close_channel, open_channel
from nextgen.client.discovery_nodes import DiscoveryNodes
from nextgen.client.event_log import EventPage, ShardLogReader, pin_log
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.stream_limits import EXPORT_PIN_TTL_MS
from nextgen.replication.ports import Role
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest
from protos.nextgen.v1.shard_service_pb2 import GetNodeStatusRequest, NodeStatus
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub

CALL_TIMEOUT_MS = 15_000
"""For some discovery node to answer."""

STATUS_TIMEOUT_MS = 2_000
"""For one shard node to say how far its replicas are; one that is down is left out."""

POSITIONS_ATTEMPTS = 20
POSITIONS_PAUSE_MS = 500
"""Ten seconds for every shard to have a leader."""


@dataclass(frozen=True, slots=True)
class Committed:
    """How far a shard's log is, as far as its replicas say. ``position`` None: none does."""

    position: int | None = None
    by_leader: bool = False
    """Only a leader knows everything that is committed."""

    def with_replica(self, position: int, *, is_leader: bool) -> Committed:
        """Return what is known with another replica's word."""
        return Committed(max(self.position or 0, position), self.by_leader or is_leader)


class LogSource(Protocol):
    """The logs of a cluster, by shard and position."""

    async def positions(self) -> Mapping[int, Committed]:
        """Return how far each shard is.

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
    """Return how far every shard is, waiting for its leader's word if ``from_leaders``.

    A shard that gets no leader in time is told as its other replicas know it.

    Raises:
        Unavailable: No replica of some shard says anything.
        MetadataError: The shards are not known.
    """
    for attempt in range(POSITIONS_ATTEMPTS):
        found = await log.positions()
        silent = sorted(shard_id for shard_id, told in found.items() if told.position is None)
        is_certain = not from_leaders or all(told.by_leader for told in found.values())
        is_last = attempt == POSITIONS_ATTEMPTS - 1
        if found and not silent and (is_certain or is_last):
            return dict(found)
        await asyncio.sleep(POSITIONS_PAUSE_MS / 1000)
    raise Unavailable(f"no replica of shards {silent} says how far it is")


class ClusterLog:
    """A live cluster. Reads at followers, so that leaders do not pay for it."""

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
        addresses = [node.grpc for node in cluster.nodes if node.kind == "shard" and node.grpc]
        found = {one.shard_id: Committed() for one in cluster.shard_map.shards}
        for answer in await asyncio.gather(*map(_status, addresses)):
            for replica in answer.replicas if answer is not None else ():
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


async def _status(endpoint: str) -> NodeStatus | None:
    channel = open_channel(endpoint)
    try:
        status: NodeStatus = await ShardServiceStub(channel).GetNodeStatus(
            GetNodeStatusRequest(), timeout=STATUS_TIMEOUT_MS / 1000
        )
    except grpc.RpcError:
        return None
    finally:
        await close_channel(channel)
    return status
