"""A cluster as a verification sees it: real gRPC, and shards with scripted content."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import Unavailable
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from protos.nextgen.v1 import discovery_service_pb2_grpc, inventory_pb2, shard_service_pb2_grpc
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate, LeaderReport
from protos.nextgen.v1.events_pb2 import NodeRegistered, ShardMapChanged, ShardPlacement
from protos.nextgen.v1.inventory_pb2 import Item, UnitAssignment
from protos.nextgen.v1.shard_service_pb2 import WatchShardUpdate
from shards.domain.assignment import Assignment
from shards.domain.states import StateKind
from shards.domain.topic import Topic
from shards.wire.inventory import KINDS, item_message
from tests.support.spark.rebuilds import States

PAGE_ITEMS = 5
STEP_TIMEOUT_S = 20

Items = dict[int, list[Item]]


def items_of(states: States) -> Items:
    """Return what the change streams of these views begin with, by shard, layouts included."""
    found: Items = {}
    for shard_id, held in states.items():
        items = [
            item_message(inventory_pb2.Kind.ValueType(number), state.name, state)
            for number, kind in KINDS.items()
            for state in held[kind]
        ]
        topics = {topic.topic_id for topic in held[StateKind.TOPIC] if isinstance(topic, Topic)}
        units = [
            unit
            for unit in held[StateKind.ASSIGNMENT]
            if isinstance(unit, Assignment) and unit.broker_id and unit.topic_id in topics
        ]
        found[shard_id] = items + [
            Item(
                kind=inventory_pb2.KIND_ASSIGNMENT,
                name=unit.name,
                assignment=UnitAssignment(
                    topic_id=unit.topic_id,
                    unit=unit.unit,
                    name=unit.name,
                    epoch=unit.epoch,
                    broker_id=unit.broker_id,
                    session_id=unit.session_id,
                ),
            )
            for unit in units
        ]
    return found


class FakeCluster(
    discovery_service_pb2_grpc.DiscoveryServiceServicer,
    shard_service_pb2_grpc.ShardServiceServicer,
):
    """Every shard with one replica, all at one address.

    The first ``broken_off`` streams end half way, as those of a leader that dies.
    """

    def __init__(self, items: Mapping[int, Sequence[Item]], positions: Mapping[int, int]) -> None:
        self.items = items
        self.positions = positions
        self.broken_off = 0
        self.endpoint = ""

    async def GetCluster(self, request: Any, context: Any) -> ClusterUpdate:
        return ClusterUpdate(
            full=True,
            shard_map=ShardMapChanged(
                version=1,
                shards=[
                    ShardPlacement(shard_id=shard_id, replicas=["node-1"])
                    for shard_id in self.positions
                ],
            ),
            nodes=[NodeRegistered(node_id="node-1", kind="shard", grpc=self.endpoint)],
            leaders=[
                LeaderReport(shard_id=shard_id, term=1, node_id="node-1", grpc=self.endpoint)
                for shard_id in self.positions
            ],
        )

    async def Watch(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        opening = await anext(requests)
        adding = await anext(requests)
        shard_id, watch_id = opening.open.shard_id, adding.add.watch_id
        wanted = [it for it in self.items[shard_id] if it.kind in adding.add.kinds]
        yield WatchShardUpdate(watch_id=watch_id, reset=True)
        for start in range(0, len(wanted), PAGE_ITEMS):
            yield WatchShardUpdate(watch_id=watch_id, items=wanted[start : start + PAGE_ITEMS])
            if self.broken_off:
                self.broken_off -= 1
                yield WatchShardUpdate(error=to_detail(Unavailable("it dies")))
                return
        position = self.positions[shard_id]
        yield WatchShardUpdate(watch_id=watch_id, position=position, snapshot_complete=True)
        async for _ in requests:
            pass


@contextmanager
def serving(cluster: FakeCluster) -> Iterator[str]:
    """Serve ``cluster`` on a thread of its own; yield host:port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-cluster")
    thread.start()

    def run(step: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(step, loop).result(STEP_TIMEOUT_S)

    async def start() -> GrpcServer:
        server = new_server([])
        discovery_service_pb2_grpc.add_DiscoveryServiceServicer_to_server(cluster, server.server)
        shard_service_pb2_grpc.add_ShardServiceServicer_to_server(cluster, server.server)
        cluster.endpoint = f"127.0.0.1:{await server.start('127.0.0.1', 0, 'a test')}"
        return server

    server = run(start())
    try:
        yield cluster.endpoint
    finally:
        run(server.stop(grace_ms=0))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
