"""Stand-ins for the cluster manager: a view source without a network, and a real Join server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from nextgen.client.cluster.link import ChangeListener
from nextgen.client.cluster.view import ClusterView
from nextgen.client.transport.member_gate import MemberGate
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.routing.slots import initial_table
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import cluster_service_pb2 as pb
from protos.nextgen.v1 import cluster_service_pb2_grpc
from protos.nextgen.v1.events_pb2 import (
    BrokerEndpoints,
    BrokerRecorded,
    NodeRegistered,
    ShardMapChanged,
    ShardPlacement,
)


def shard_map(replicas: Mapping[int, list[str]], *, version: int = 1) -> ShardMapChanged:
    """Return a map of these shards, by shard id the node ids of the replicas."""
    return ShardMapChanged(
        version=version,
        slot_owners=initial_table(replicas).to_bytes(),
        shards=[
            ShardPlacement(shard_id=shard_id, replicas=nodes)
            for shard_id, nodes in replicas.items()
        ],
    )


def broker(
    broker_id: str, session_id: str, *, epoch: int = 1, is_live: bool = True
) -> BrokerRecorded:
    return BrokerRecorded(
        broker_id=broker_id,
        session_id=session_id,
        epoch=epoch,
        is_live=is_live,
        endpoints=BrokerEndpoints(grpc=f"{broker_id}.example:7000"),
        capacity_units=1_000,
    )


def full_update(leaders: Mapping[int, str], *, term: int = 1) -> pb.ClusterUpdate:
    """Return a full update: each shard on one node of its own, led at the given endpoint."""
    return pb.ClusterUpdate(
        full=True,
        shard_map=shard_map({shard_id: [f"node-{shard_id}"] for shard_id in leaders}),
        leaders=[
            pb.LeaderReport(shard_id=shard_id, term=term, node_id=f"node-{shard_id}", grpc=endpoint)
            for shard_id, endpoint in leaders.items()
        ],
        nodes=[
            NodeRegistered(node_id=f"node-{shard_id}", kind="shard", grpc=endpoint)
            for shard_id, endpoint in leaders.items()
        ],
    )


class StaticLink:
    """A view that changes only when the test changes it."""

    def __init__(self, update: pb.ClusterUpdate | None = None) -> None:
        self.view = ClusterView()
        self.has_connected_once = True
        self.is_connected = True
        self._listeners: list[ChangeListener] = []
        self._changed = asyncio.Condition()
        self._waiting: set[asyncio.Future[None]] = set()
        if update is not None:
            self.view.apply(update)

    def on_change(self, listener: ChangeListener) -> None:
        self._listeners.append(listener)

    def push(self, update: pb.ClusterUpdate) -> None:
        self.view.apply(update)
        for listener in self._listeners:
            listener(self.view, update)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    def push_leader(self, shard_id: int, term: int, endpoint: str) -> None:
        report = pb.LeaderReport(shard_id=shard_id, term=term, grpc=endpoint)
        self.push(pb.ClusterUpdate(leaders=[report]))

    async def wait_until(
        self, predicate: Callable[[ClusterView], bool], timeout_ms: int | None = None
    ) -> bool:
        try:
            async with timeout(None if timeout_ms is None else timeout_ms / 1_000):
                while not predicate(self.view):
                    waiting = asyncio.get_running_loop().create_future()
                    self._waiting.add(waiting)
                    try:
                        await waiting
                    finally:
                        self._waiting.discard(waiting)
        except TimeoutError:
            return predicate(self.view)
        return True


class FakeClusterServer(cluster_service_pb2_grpc.ClusterServiceServicer):
    """One replica of a cluster manager over real gRPC; refuses with ``error`` if it is set."""

    def __init__(self, first: pb.ClusterUpdate | None = None) -> None:
        self.first = first or pb.ClusterUpdate(full=True)
        self.error: MetadataError | None = None
        self.echoes = True
        self.hellos: list[pb.Hello] = []
        self.received: list[pb.NodeMessage] = []
        self.gate = MemberGate(None)
        self.port = 0
        self._streams: list[asyncio.Queue[pb.ClusterUpdate]] = []
        self._server: GrpcServer | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self, port: int = 0) -> str:
        self._server = new_server([], interceptors=[self.gate])
        cluster_service_pb2_grpc.add_ClusterServiceServicer_to_server(self, self._server.server)
        self.port = await self._server.start("127.0.0.1", port, "a test")
        return self.endpoint

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace_ms=0)

    def push(self, update: pb.ClusterUpdate) -> None:
        for stream in self._streams:
            stream.put_nowait(update)

    async def Join(self, request_iterator: AsyncIterator[pb.NodeMessage], context: Any) -> None:
        hello = await anext(request_iterator)
        self.hellos.append(hello.hello)
        if self.error is not None:
            await context.write(pb.ClusterUpdate(error=to_detail(self.error)))
            return
        updates: asyncio.Queue[pb.ClusterUpdate] = asyncio.Queue()
        # Before the first one is sent: whoever has read that may push the next at once.
        self._streams.append(updates)
        reading = asyncio.create_task(self._read(request_iterator, updates))
        try:
            await context.write(self.first)
            while True:
                await context.write(await updates.get())
        finally:
            self._streams.remove(updates)
            reading.cancel()

    async def _read(
        self, requests: AsyncIterator[pb.NodeMessage], updates: asyncio.Queue[pb.ClusterUpdate]
    ) -> None:
        async for message in requests:
            self.received.append(message)
            if message.HasField("heartbeat") and self.echoes:
                sequence = message.heartbeat.sequence
                updates.put_nowait(pb.ClusterUpdate(heartbeat_sequence=sequence))

    async def LeaseCapacity(
        self, request: pb.LeaseCapacityRequest, context: Any
    ) -> pb.LeaseCapacityResponse:
        lease = pb.CapacityLease(broker_id="broker-1", units=request.units_wanted, ttl_ms=90_000)
        return pb.LeaseCapacityResponse(leases=[lease])
