"""Replicas of one shard's log over real gRPC, and a discovery node that knows where they are.

Each replica has its own idea of what is committed and where its log begins, and can fail in the
ways that a reader must survive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import grpc.aio

from nextgen.client.log import reader as event_log
from nextgen.client.log.event_bytes import EventFilter
from nextgen.client.transport.channel import wait_connected
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import MetadataError, PositionAhead, PositionCompacted
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from protos.nextgen.v1 import discovery_service_pb2_grpc, shard_service_pb2_grpc
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, LeaderReport
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest
from protos.nextgen.v1.events_pb2 import Event, NodeRegistered, ShardMapChanged, ShardPlacement

SHARD = 1
PAGE_EVENTS = 3
ANSWER_TIMEOUT_MS = 30_000


def event_at(position: int) -> Event:
    return Event(
        position=position, shard_id=SHARD, topic_created={"name": f"acme/orders/t-{position}"}
    )


class FakeLogReplica(shard_service_pb2_grpc.ShardServiceServicer):
    """Serves events 1 to ``committed``, from ``oldest`` on."""

    def __init__(self, node_id: str, committed: int = 0) -> None:
        self.node_id = node_id
        self.committed = committed
        self.oldest = 1
        self.leads = False
        self.asked: list[int] = []
        """Positions that readings began with here."""
        self.breaks_at: int | None = None
        """The stream breaks before this position, once."""
        self.refuses: MetadataError | None = None
        self.damage: Callable[[pb.EventBatch], None] | None = None
        self.pins: dict[str, tuple[int, int]] = {}
        self.endpoint = ""
        self._grew = asyncio.Event()

    def commit(self, position: int) -> None:
        self.committed = position
        self._grew.set()
        self._grew = asyncio.Event()

    async def ReadEvents(
        self, request: pb.ReadEventsRequest, context: Any
    ) -> AsyncIterator[pb.EventBatch]:
        position = max(1, request.from_position)
        self.asked.append(position)
        refused = self._refusal(position)
        if refused is not None:
            yield pb.EventBatch(error=to_detail(refused))
            return
        wanted = EventFilter(request.types, request.key_prefix)
        left = request.events_max or 10**9
        while left:
            end = min(self.committed + 1, position + PAGE_EVENTS)
            if self.breaks_at is not None and position >= self.breaks_at:
                self.breaks_at = None
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the replica went away")
            if position == end:
                if not request.follow:
                    return
                await self._grew.wait()
                continue
            found = [event_at(each) for each in range(position, end)]
            found = [each for each in found if wanted.accepts(each.SerializeToString())]
            if len(found) >= left:
                del found[left:]
                end = found[-1].position + 1
            left -= len(found)
            batch = pb.EventBatch(events=found, next_position=end, commit_position=self.committed)
            if self.damage is not None:
                self.damage(batch)
            yield batch
            position = end

    async def PinLog(self, request: pb.PinLogRequest, _context: Any) -> pb.PinLogResponse:
        if self.refuses is not None:
            return pb.PinLogResponse(error=to_detail(self.refuses))
        if request.position < self.oldest and request.reader_id:
            error = PositionCompacted(request.position, self.oldest)
            return pb.PinLogResponse(error=to_detail(error))
        if request.reader_id:
            self.pins[request.reader_id] = (request.position, request.ttl_ms)
        return pb.PinLogResponse(
            oldest_position=self.oldest,
            readers=[
                pb.LogReader(reader_id=name, position=position, expires_in_ms=ttl_ms)
                for name, (position, ttl_ms) in self.pins.items()
            ],
        )

    def _refusal(self, position: int) -> MetadataError | None:
        if self.refuses is not None:
            return self.refuses
        if position < self.oldest:
            return PositionCompacted(position, self.oldest, self.committed)
        if position > self.committed + 1:
            return PositionAhead(position, self.committed, is_final=self.leads)
        return None


class FakeLogDiscovery(discovery_service_pb2_grpc.DiscoveryServiceServicer):
    """Knows the replicas, and names the one that ``leads`` as the leader."""

    def __init__(self, replicas: Sequence[FakeLogReplica]) -> None:
        self.replicas = list(replicas)

    async def GetCluster(self, _request: GetClusterRequest, _context: Any) -> ClusterUpdate:
        nodes = [NodeRegistered(node_id=one.node_id, grpc=one.endpoint) for one in self.replicas]
        placement = ShardPlacement(shard_id=SHARD, replicas=[one.node_id for one in self.replicas])
        return ClusterUpdate(
            full=True,
            nodes=nodes,
            shard_map=ShardMapChanged(version=1, shards=[placement]),
            leaders=[
                LeaderReport(shard_id=SHARD, node_id=one.node_id, grpc=one.endpoint)
                for one in self.replicas
                if one.leads
            ],
        )


@asynccontextmanager
async def served(replicas: Sequence[FakeLogReplica]) -> AsyncIterator[str]:
    """Serve the replicas and a discovery node; yield that one's endpoint.

    Readers wait long for them meanwhile: none goes elsewhere because this process, which is the
    replicas too, stood still for a moment.
    """
    servers: list[GrpcServer] = []

    async def start(add: Callable[[grpc.aio.Server], None]) -> str:
        server = new_server([])
        add(server.server)
        port = await server.start("127.0.0.1", 0, "a test")
        servers.append(server)
        return f"127.0.0.1:{port}"

    connected = partial(wait_connected, timeout_ms=ANSWER_TIMEOUT_MS)
    try:
        for replica in replicas:
            replica.endpoint = await start(
                partial(shard_service_pb2_grpc.add_ShardServiceServicer_to_server, replica)
            )
        endpoint = await start(
            partial(
                discovery_service_pb2_grpc.add_DiscoveryServiceServicer_to_server,
                FakeLogDiscovery(replicas),
            )
        )
        with (
            patch.object(event_log, "wait_connected", connected),
            patch.object(event_log, "PIN_TIMEOUT_MS", ANSWER_TIMEOUT_MS),
        ):
            yield endpoint
    finally:
        await asyncio.gather(*(server.stop(grace_ms=0) for server in servers))
