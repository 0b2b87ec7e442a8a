"""Fakes of the cluster manager's ports, and a manager on an in-memory log."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

from cluster_manager.adapters.stored_view import StoredView, open_view_store
from cluster_manager.domain.cluster import FirstMapPlan
from cluster_manager.service.connection import NodeConnection
from cluster_manager.service.replica import ClusterManager
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.service_settings import REPLICAS_BALANCE
from nextgen.replication.ports import CLUSTER_MANAGER_GROUP_ID, NodeId
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb
from protos.nextgen.v1 import events_pb2 as events_pb
from tests.support.logs.memory_log import MemoryLog

ENDPOINTS = {f"cm-{number}": f"127.0.0.1:{7_000 + number}" for number in (1, 2, 3)}


class FakeClock:
    """Time moves when a test says so."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self._ahead_ms = 0
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self._keys = itertools.count()

    def unix_ms(self) -> int:
        return self.now_ms + self._ahead_ms

    def leap(self, by_ms: int) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._ahead_ms += by_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> Callable[[], None]:
        key = next(self._keys)
        heapq.heappush(self._timers, (monotonic_ms, key, callback))
        return lambda: self._cancelled.add(key)

    def advance(self, by_ms: int) -> None:
        """Let time pass, calling what becomes due in its order."""
        end_ms = self.now_ms + by_ms
        while self._timers and self._timers[0][0] <= end_ms:
            at_ms, key, callback = heapq.heappop(self._timers)
            self.now_ms = max(self.now_ms, at_ms)
            if key not in self._cancelled:
                callback()
        self.now_ms = end_ms


class FakeGrantor:
    """Grants everything, unless a broker is in ``failing``; counts what it was asked."""

    def __init__(self) -> None:
        self.failing: dict[str, MetadataError] = {}
        self.asked: list[tuple[str, str, int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def grant(self, *, broker_id: str, session_id: str, units: int) -> int:
        self.asked.append((broker_id, session_id, units))
        await self.gate.wait()
        if broker_id in self.failing:
            raise self.failing[broker_id]
        return units


class ManagerUnderTest:
    """A manager that leads a log in memory; ``updates`` is what was pushed to its own view."""

    def __init__(
        self,
        directory: Path,
        *,
        leads: bool = True,
        initial_shard_nodes: int = 2,
        shards: int = 2,
        replication_factor: int = 2,
        endpoints: Mapping[str, str] = ENDPOINTS,
    ) -> None:
        self.clock = FakeClock()
        self.grantor = FakeGrantor()
        self.updates: list[cluster_pb.ClusterUpdate] = []
        self.store = open_view_store(directory)
        self.log = MemoryLog(
            self.store,
            group_id=CLUSTER_MANAGER_GROUP_ID,
            node_id=NodeId("cm-1"),
            members=[NodeId(node_id) for node_id in endpoints],
            leads=leads,
        )
        self.manager = ClusterManager(
            node_id="cm-1",
            cluster_id="test",
            endpoints=endpoints,
            plan=FirstMapPlan(initial_shard_nodes, shards, replication_factor),
            log=self.log,
            view=StoredView(self.store),
            grantor=self.grantor,
            clock=self.clock,
            on_update=self.updates.append,
        )
        self.manager.start()

    async def join_shard_nodes(self) -> tuple[NodeConnection, NodeConnection]:
        """Join both shard nodes and let the first map be committed."""
        first = await self.manager.join(hello("a"))
        second = await self.manager.join(hello("b"))
        await settle()
        return first, second


async def balance(manager: ClusterManager, *, on: bool) -> None:
    """Turn on or off that replicas are placed by themselves."""
    present = (await manager.configuration()).configuration
    changed = events_pb.ConfigurationSet(
        version=present.version + 1,
        settings=[events_pb.Setting(name=REPLICAS_BALANCE, value=str(on).lower())],
    )
    await manager.set_configuration(cluster_pb.SetConfigurationRequest(configuration=changed))


def hello(node_id: str, kind: str = "shard", cluster_id: str = "test") -> cluster_pb.Hello:
    return cluster_pb.Hello(
        cluster_id=cluster_id,
        node_id=node_id,
        kind=kind,
        grpc=f"{node_id}:1",
        raft_host=node_id,
        raft_port=2,
    )


def broker(
    broker_id: str = "broker-1", session_id: str = "s-1", epoch: int = 1, is_live: bool = True
) -> cluster_pb.NodeMessage:
    recorded = events_pb.BrokerRecorded(
        broker_id=broker_id,
        session_id=session_id,
        epoch=epoch,
        is_live=is_live,
        endpoints=events_pb.BrokerEndpoints(grpc=f"{broker_id}:1"),
        capacity_units=80,
    )
    return cluster_pb.NodeMessage(broker=cluster_pb.BrokerReport(broker=recorded))


def leader(shard_id: int, term: int, node_id: str) -> cluster_pb.NodeMessage:
    report = cluster_pb.LeaderReport(
        shard_id=shard_id, term=term, node_id=node_id, grpc=f"{node_id}:1"
    )
    return cluster_pb.NodeMessage(leader=report)


def heartbeat(sequence: int) -> cluster_pb.NodeMessage:
    return cluster_pb.NodeMessage(heartbeat=cluster_pb.NodeHeartbeat(sequence=sequence))


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def taken(connection: NodeConnection) -> list[cluster_pb.ClusterUpdate]:
    """Return the updates that wait for a node."""
    updates = []
    while True:
        try:
            async with timeout(0):
                update = await connection.next_update()
        except TimeoutError:
            return updates
        if update is None:
            return updates
        updates.append(update)
