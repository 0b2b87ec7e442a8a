"""One whole shard in one process: real leader, view and rules; fake log, brokers and ledger.

Runs in virtual time: see ``run_virtual``. Unless there are to be more ``shards``, this one has
all slots and is the home of every topic, namespace, tenant and broker.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from nextgen.client.cluster.view import ClusterView
from nextgen.client.wire.errors import from_detail
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, NotLeader, Unavailable
from nextgen.kernel.governance.service_settings import DEFAULT_SETTINGS, ServiceSettings
from nextgen.kernel.routing.slots import SlotTable, initial_table
from nextgen.replication.view.store import ViewStore
from nextgen.tasks.background import keep
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.cluster_service_pb2 import (
    CapacityLease,
    ClusterUpdate,
    LeaseCapacityRequest,
    LeaseCapacityResponse,
)
from protos.nextgen.v1.events_pb2 import (
    BrokerEndpoints,
    BrokerRecorded,
    Event,
    LoadReport,
    ShardMapChanged,
    ShardPlacement,
)
from protos.nextgen.v1.inventory_pb2 import Item, LookupAnswer
from shards.adapters.routed import RoutedParents
from shards.metrics import NodeMetrics, ShardMetrics
from shards.moves.balance_plans import BalancePlans
from shards.node.event_stream import stream_events
from shards.node.replica import Replica
from shards.node.request_dispatcher import RequestDispatcher
from shards.node.shard_leader import LeaderDependencies, ShardLeader
from shards.ports import Cancellable, HomeShards, SegmentBrokers
from shards.projections.fold import fold
from shards.projections.rows import query_of
from shards.projections.tables import METADATA
from shards.sessions.session_soft_state import BrokerConnection
from tests.support.logs.memory_log import MemoryLog
from tests.support.scalable.segments import NoSegments
from tests.support.shards.home_shards import CONTROLLERS, SilentHomes
from tests.support.shards.world import Entropy
from tests.support.simulated.virtual_time import run_virtual

SHARD = 1
"""The shard under test."""
NAMESPACE = "acme/orders"
T = TypeVar("T")


@lru_cache
def _table(shards: int) -> SlotTable:
    return initial_table(range(1, shards + 1))


def in_shard(
    directory: Path, scenario: Callable[[Harness], Coroutine[Any, Any, T]], **settings: Any
) -> T:
    """Run ``scenario`` with a fresh shard that leads, in virtual time."""

    async def main() -> T:
        harness = Harness(directory, **settings)
        try:
            return await scenario(harness)
        finally:
            await harness.close()

    return run_virtual(main)


class VirtualClock:
    """The loop's own time, which in these tests jumps."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1000)

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancellable:
        return asyncio.get_running_loop().call_at(when, callback)


class Cluster:
    """The cluster manager's part: broker directory and capacity, pushed at once."""

    def __init__(self, units: int) -> None:
        self.units = units
        self.lease_version = 1
        self.lease_ttl_ms = 90_000
        self.is_reachable = True
        self.answers_after_s = 0.0
        self.lease_attempts = 0
        """Requests for leases, those included that did not reach it."""
        self.lease_requests: list[LeaseCapacityRequest] = []
        self.reports: list[BrokerRecorded] = []
        self.loads: dict[str, LoadReport] = {}
        self.broker_units: dict[str, int] = {}
        """Leased of a broker, where it is not ``units``."""
        self.brokers_not_leased: set[str] = set()
        self.broker_quotas: dict[str, int] = {}
        self.tenant_quotas: dict[str, int] = {}
        self.service_settings = DEFAULT_SETTINGS
        """What is pushed with ``set_settings``."""
        self._brokers: dict[str, BrokerRecorded] = {}
        self._ended: set[str] = set()
        self._listeners: list[Callable[[], None]] = []
        self._reconnected: list[Callable[[], None]] = []

    def live(self) -> Sequence[BrokerRecorded]:
        return [broker for broker in self._brokers.values() if broker.is_live]

    def session(self, session_id: str) -> BrokerRecorded | None:
        return next((each for each in self.live() if each.session_id == session_id), None)

    def broker(self, broker_id: str) -> BrokerRecorded | None:
        found = self._brokers.get(broker_id)
        return found if found is not None and found.is_live else None

    def known_ids(self) -> Collection[str]:
        return self._brokers.keys()

    def has_ended(self, _broker_id: str, session_id: str) -> bool:
        return session_id in self._ended

    def load(self, session_id: str) -> LoadReport | None:
        return self.loads.get(session_id)

    def settings(self) -> ServiceSettings:
        return self.service_settings

    def set_settings(self, settings: ServiceSettings) -> None:
        """Push other settings."""
        self.service_settings = settings
        for listener in tuple(self._listeners):
            listener()

    def of_broker(self, broker_id: str) -> int | None:
        return self.broker_quotas.get(broker_id)

    def of_tenant(self, tenant: str) -> int | None:
        return self.tenant_quotas.get(tenant)

    def report_load(self, _broker_id: str, session_id: str, load: LoadReport) -> None:
        self.loads[session_id] = load

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def report(self, session: BrokerRecorded) -> None:
        self.reports.append(session)
        known = self._brokers.get(session.broker_id)
        if not session.is_live:
            self._ended.add(session.session_id)
        if known is None or known.epoch <= session.epoch:
            self._brokers[session.broker_id] = session
        for listener in tuple(self._listeners):
            listener()

    def forget(self) -> None:
        """Behave as the view of a node that knows of no broker yet."""
        self._brokers.clear()

    def on_reconnect(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._reconnected.append(listener)
        return lambda: self._reconnected.remove(listener)

    def reconnect(self) -> None:
        """Be another cluster manager, which knows nothing that is soft."""
        for listener in tuple(self._reconnected):
            listener()

    async def lease_capacity(self, request: LeaseCapacityRequest) -> LeaseCapacityResponse:
        self.lease_attempts += 1
        if not self.is_reachable:
            raise Unavailable("no cluster manager leads")
        self.lease_requests.append(request)
        leases = [
            CapacityLease(
                broker_id=broker.broker_id,
                session_id=broker.session_id,
                units=self.broker_units.get(broker.broker_id, self.units),
                ttl_ms=self.lease_ttl_ms,
                version=self.lease_version,
                units_to_keep=self._units_to_keep(broker),
            )
            for broker in self.live()
            if broker.broker_id not in self.brokers_not_leased
        ]
        if self.answers_after_s:
            await asyncio.sleep(self.answers_after_s)
        return LeaseCapacityResponse(leases=leases)

    def _units_to_keep(self, broker: BrokerRecorded) -> int | None:
        """Return the capacity where it was lowered: this shard is the only one."""
        units = self.broker_units.get(broker.broker_id, self.units)
        is_too_much = broker.announced_units and units > broker.capacity_units
        return broker.capacity_units if is_too_much else None


class LocalShard:
    """The other shards, as this one calls them: its own dispatcher answers."""

    def __init__(self) -> None:
        self.dispatcher: RequestDispatcher
        self.assign_error: MetadataError | None = None
        self.prepare_error: MetadataError | None = None
        self.release_error: MetadataError | None = None
        self.assigned: list[pb.AssignRequest] = []
        self.released: list[pb.ReleaseRequest] = []
        self.reads: list[str] = []
        self.on_read: Callable[[str], Awaitable[None]] | None = None
        """Awaited with the reader between a read and its answer."""
        self.before_step: Callable[[str, str], None] | None = None
        """Called with each request to a broker manager, and the broker that it is about."""

    async def call(
        self, shard_id: int, request: pb.ShardRequest, *, timeout_ms: int
    ) -> pb.ShardResponse:
        request.shard_id, request.timeout_ms = shard_id, timeout_ms
        response = await self.dispatcher.answer(request)
        if response.HasField("error"):
            raise from_detail(response.error)
        return response

    async def call_key(
        self, _key: str, request: pb.ShardRequest, *, timeout_ms: int
    ) -> pb.ShardResponse:
        return await self.call(SHARD, request, timeout_ms=timeout_ms)

    async def call_slot(
        self, _slot: int, request: pb.ShardRequest, *, timeout_ms: int
    ) -> pb.ShardResponse:
        return await self.call(SHARD, request, timeout_ms=timeout_ms)

    async def assign(self, request: pb.AssignRequest, *, timeout_ms: int) -> pb.AssignResponse:
        error = self.prepare_error if request.prepared else self.assign_error
        if error is not None:
            raise error
        if self.before_step is not None:
            self.before_step("prepare" if request.prepared else "assign", request.broker_id)
        self.assigned.append(request)
        wrapped = pb.ShardRequest(assign=request)
        return (await self.call(SHARD, wrapped, timeout_ms=timeout_ms)).assign

    async def release(self, request: pb.ReleaseRequest, *, timeout_ms: int) -> pb.ReleaseResponse:
        if self.release_error is not None:
            raise self.release_error
        if self.before_step is not None:
            self.before_step("announce" if request.announced else "release", request.broker_id)
        self.released.append(request)
        wrapped = pb.ShardRequest(release=request)
        return (await self.call(SHARD, wrapped, timeout_ms=timeout_ms)).release

    async def follow(
        self, shard_id: int, request: pb.FollowRequest, *, timeout_ms: int
    ) -> pb.FollowResponse:
        if shard_id != SHARD:
            return pb.FollowResponse()
        # Not by the dispatcher: tests count what comes there.
        return await self.dispatcher.replica(SHARD).leading().brokers.follow(request)

    async def unassign(
        self, shard_id: int, request: pb.UnassignRequest, *, timeout_ms: int
    ) -> pb.UnassignResponse:
        wrapped = pb.ShardRequest(unassign=request)
        return (await self.call(shard_id, wrapped, timeout_ms=timeout_ms)).unassign

    async def record_loads(
        self, shard_id: int, request: pb.RecordLoadsRequest, *, timeout_ms: int
    ) -> pb.RecordLoadsResponse:
        wrapped = pb.ShardRequest(record_loads=request)
        return (await self.call(shard_id, wrapped, timeout_ms=timeout_ms)).record_loads

    async def mark_drained(
        self, shard_id: int, request: pb.MarkDrainedRequest, *, timeout_ms: int
    ) -> pb.MarkDrainedResponse:
        wrapped = pb.ShardRequest(mark_drained=request)
        return (await self.call(shard_id, wrapped, timeout_ms=timeout_ms)).mark_drained

    async def read(
        self, names: Sequence[pb.ObjectName], *, timeout_ms: int, subscriber_id: str = ""
    ) -> Sequence[Item]:
        self.reads += [name.name for name in names]
        wanted = pb.GetRequest(names=names, subscriber_id=subscriber_id)
        answer = await self.call(SHARD, pb.ShardRequest(get=wanted), timeout_ms=timeout_ms)
        if self.on_read is not None:
            try:
                async with timeout(timeout_ms / 1000):
                    await self.on_read(subscriber_id)
            except TimeoutError:
                raise DeadlineExceeded("the answer did not come in time") from None
        return answer.get.items


class FakeBroker:
    """A broker that applies what it is sent, in order, unless the test makes it hang."""

    def __init__(self, harness: Harness, broker_id: str, capacity_units: int = 100) -> None:
        self._harness = harness
        self.broker_id = broker_id
        self.capacity_units = capacity_units
        self.kind = ""
        self.session_id = ""
        self.resumed = False
        self.is_asked_what_it_holds = False
        self.error: MetadataError | None = None
        self.deliveries: list[broker_pb.Delivery] = []
        self.applied = 0
        self.settled: list[broker_pb.DrainedUnit] = []
        """The drained units whose reports the manager has confirmed."""
        self.is_hanging = False
        self.hangs_at = ""
        """The kind of delivery that it never gets over: "prepare", "assign", "moving" ..."""
        self.connection: BrokerConnection | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def assigned(self) -> list[tuple[str, int]]:
        """What it was assigned, in order: name and epoch."""
        return [
            (each.assign.name, each.assign.epoch)
            for each in self.deliveries
            if each.HasField("assign") and not each.assign.take_over
        ]

    @property
    def taken_over(self) -> list[tuple[str, int]]:
        """The assignments that it was sent with the order to open them at once."""
        return [
            (each.assign.name, each.assign.epoch)
            for each in self.deliveries
            if each.assign.take_over
        ]

    @property
    def prepared(self) -> list[tuple[str, int]]:
        return [
            (each.prepare.name, each.prepare.epoch)
            for each in self.deliveries
            if each.HasField("prepare")
        ]

    @property
    def announced(self) -> list[tuple[str, int, str]]:
        return [
            (each.moving.name, each.moving.epoch, each.moving.new_broker_id)
            for each in self.deliveries
            if each.HasField("moving")
        ]

    @property
    def released(self) -> list[tuple[str, int, str]]:
        return [
            (each.release.name, each.release.epoch, each.release.new_broker_id)
            for each in self.deliveries
            if each.HasField("release")
        ]

    def hello(self) -> broker_pb.BrokerHello:
        held: set[str] = set()
        for each in self.deliveries:
            if each.HasField("assign"):
                held.add(each.assign.name)
            elif each.HasField("release"):
                held.discard(each.release.name)
        return broker_pb.BrokerHello(
            units_held=len(held),
            broker_id=self.broker_id,
            session_id=self.session_id,
            last_sequence=self.applied,
            endpoints=BrokerEndpoints(grpc=f"{self.broker_id}:1", pulsar_url="pulsar://it:2"),
            capacity_units=self.capacity_units,
            kind=self.kind,
        )

    async def connect(self) -> None:
        """Say hello, then apply and sync in the background and heartbeat like a broker."""
        sessions = self._harness.leader.brokers.sessions
        self.connection = await sessions.connect(self.hello())
        self._take(self.connection)
        self._tasks = [
            asyncio.create_task(self._listen(self.connection)),
            asyncio.create_task(self._heartbeat(self.connection)),
        ]

    def vanish(self) -> None:
        """Be gone without a word, as after SIGKILL: the stream breaks."""
        self.freeze()
        if self.connection is not None:
            self._harness.leader.brokers.sessions.disconnect(self.connection)
            self.connection = None

    def freeze(self) -> None:
        """Do nothing any more on a stream that stays, as after SIGSTOP."""
        for task in self._tasks:
            task.cancel()

    def wake(self) -> None:
        """Stop hanging."""
        self.is_hanging = False
        self.hangs_at = ""
        assert self.connection is not None
        self._sync(self.connection)

    async def _listen(self, connection: BrokerConnection) -> None:
        while connection.error is None:
            await connection.changed.wait()
            self._take(connection)
        self.error = connection.error

    def _take(self, connection: BrokerConnection) -> None:
        for message in connection.take_messages():
            if message.HasField("established"):
                self.session_id = message.established.session_id
                self.resumed = message.established.resumed
                self.is_asked_what_it_holds = message.established.report_held
                if not self.resumed:
                    self.deliveries.clear()
                self.applied = message.established.next_sequence - 1
            self.settled += message.drained_settled.units
            for delivery in message.deliveries.deliveries:
                assert delivery.sequence == self.applied + 1, "the sequence has a gap"
                self.applied = delivery.sequence
                self.deliveries.append(delivery)
        self._sync(connection)

    def _sync(self, connection: BrokerConnection) -> None:
        if self.hangs_at and any(each.HasField(self.hangs_at) for each in self.deliveries):
            return
        if not self.is_hanging and self.applied > connection.session.acked:
            sync = broker_pb.SyncPosition(sequence=self.applied)
            sessions = self._harness.leader.brokers.sessions
            sessions.receive(connection, broker_pb.BrokerMessage(sync=sync))

    async def _heartbeat(self, connection: BrokerConnection) -> None:
        beat = broker_pb.BrokerMessage(heartbeat=broker_pb.BrokerHeartbeat())
        while connection.error is None:
            await asyncio.sleep(0.75)
            self._harness.leader.brokers.sessions.receive(connection, beat)


class Harness:
    """The shard, its brokers and what a leader depends on. Make it with ``in_shard``."""

    def __init__(
        self,
        directory: Path,
        *,
        units: int = 50,
        shards: int = 1,
        homes: HomeShards | None = None,
        segments: SegmentBrokers | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self.cluster = Cluster(units)
        self.others = LocalShard()
        self.view = ViewStore(directory / "view", METADATA, fold)
        self.log = MemoryLog(self.view)
        self.node_metrics = NodeMetrics(CollectorRegistry())
        table = _table(shards)
        self.cluster_view = ClusterView()
        shard_map = ShardMapChanged(
            version=1,
            slot_owners=table.to_bytes(),
            shards=[ShardPlacement(shard_id=SHARD, replicas=["node-1"])],
        )
        self.cluster_view.apply(ClusterUpdate(shard_map=shard_map))
        draws = itertools.count()
        self._directory = directory
        self._table = table
        self._dependencies = LeaderDependencies(
            node_id="node-1",
            directory=self.cluster,
            managers=self.others,
            controllers=self.others,
            capacity=self.cluster,
            quotas=self.cluster,
            metadata=self.others,
            tenancy=self.others,
            homes=homes or SilentHomes(),
            controllers_id=CONTROLLERS,
            parents=RoutedParents(self.others, self.cluster_view),  # type: ignore[arg-type]
            reports=self.cluster,
            segments=segments or NoSegments(),
            clock=self.clock,
            entropy=Entropy(),
            draw=lambda: (next(draws), 0),
        )
        self.leads: list[int | None] = []
        self._planning: list[asyncio.Task[None]] = []
        self._begin()
        self.brokers: dict[str, FakeBroker] = {}
        self._deposed: list[Replica] = []

    def _begin(self) -> None:
        """Make a replica of the shard over the present log and view, at a node of its own."""
        self.plans = BalancePlans(self.cluster, self.clock, self.node_metrics)
        self._dependencies = replace(self._dependencies, balance=self.plans)
        self._planning.append(keep("balance_plans", self.plans.run))
        self.replica = Replica(
            SHARD,
            self.log,
            query_of(self.view.reader),
            self.view.read_transaction,
            lambda: self._table,
            self._dependencies,
            ShardMetrics(self.node_metrics, SHARD),
            hint=lambda _shard_id, leader_id: leader_id and f"{leader_id}:1",
            on_leading=self._on_leading,
        )
        self.replicas = {SHARD: self.replica}
        self.dispatcher = RequestDispatcher(self.replicas, self.cluster_view)
        self.others.dispatcher = self.dispatcher

    @property
    def leader(self) -> ShardLeader:
        return self.replica.leading()

    async def close(self) -> None:
        for broker in self.brokers.values():
            for task in broker._tasks:
                task.cancel()
        for planning in self._planning:
            planning.cancel()
        for replica in (*self._deposed, self.replica):
            await replica.stop()

    def next_term(self, term: int = 0) -> None:
        """Win another term, or ``term``: soft state is gone, and brokers have to register again."""
        for broker in self.brokers.values():
            broker.vanish()
        self.log._term = max(self.log._term, term - 1)
        self.log.become_leader()

    def depose(self) -> Callable[[], None]:
        """Let another replica lead, with all that is committed; brokers have to register there.

        The present leader goes on without knowing of it: it is not answered what it proposes and
        whether it leads, until the function that is returned is called.
        """
        for broker in self.brokers.values():
            broker.vanish()
        deposed = self.log
        self._deposed.append(self.replica)
        is_over = asyncio.Event()

        async def read_index(*, asked_at: float | None = None) -> int:
            await is_over.wait()
            raise NotLeader(SHARD)

        def end() -> None:
            is_over.set()
            deposed.lose_leadership()

        deposed.hold_commits()
        deposed.read_index = read_index  # type: ignore[method-assign]
        self.view = ViewStore(self._directory / f"view-{len(self._deposed)}", METADATA, fold)
        self.log = deposed.fork(self.view)
        self._dependencies = replace(self._dependencies, node_id=f"node-{len(self._deposed) + 1}")
        self.node_metrics = NodeMetrics(CollectorRegistry())
        self._begin()
        self.log.become_leader()
        return end

    # As a client ------------------------------------------------------------------------------

    async def ask(self, timeout_ms: int = 10_000, **body: Any) -> pb.ShardResponse:
        """Send one request through the dispatcher; raises the error of the answer."""
        request = pb.ShardRequest(**body)
        return await self.others.call(SHARD, request, timeout_ms=timeout_ms)

    async def execute(self, **command: Any) -> pb.CommandResult:
        commands = [pb.Command(**command)]
        response = await self.ask(execute=pb.ExecuteRequest(commands=commands))
        return response.execute.results[0]

    async def create_topics(self, *names: str, partitions: int = 0) -> list[str]:
        """Create topics in ``NAMESPACE``, and it first; return their canonical names."""
        tenant = NAMESPACE.partition("/")[0]
        await self.execute(create_tenant=pb.CreateTenant(name=tenant))
        await self.execute(create_namespace=pb.CreateNamespace(name=NAMESPACE))
        full = [f"persistent://{NAMESPACE}/{name}" for name in names]
        specs = [pb.TopicSpec(name=name, partitions=partitions) for name in full]
        result = await self.execute(create_topics=pb.CreateTopics(topics=specs))
        assert not any(outcome.rejection_code for outcome in result.topics)
        return full

    async def start_broker(
        self, broker_id: str, capacity_units: int = 100, *, kind: str = ""
    ) -> FakeBroker:
        broker = self.brokers[broker_id] = FakeBroker(self, broker_id, capacity_units)
        broker.kind = kind
        await broker.connect()
        return broker

    async def wait_ended(self, broker_id: str) -> None:
        """Wait until the session of a broker that vanished has ended."""
        while self.cluster.broker(broker_id) is not None:
            await asyncio.sleep(0.1)

    async def lookup(
        self, *topics: str, timeout_ms: int = 10_000, preferred: str = ""
    ) -> list[LookupAnswer]:
        request = pb.ShardLookupRequest(topics=topics, preferred_broker_id=preferred)
        response = await self.ask(timeout_ms, lookup=request)
        return list(response.lookup.answers)

    async def move(self, *moves: tuple[str, str], expected_epoch: int = 0) -> list[LookupAnswer]:
        """Move each topic to the broker beside it ("" any other)."""
        wanted = [
            pb.TopicMove(topic=topic, target_broker_id=target, expected_epoch=expected_epoch)
            for topic, target in moves
        ]
        response = await self.ask(move=pb.MoveRequest(moves=wanted))
        return list(response.move.answers)

    async def events(self, *types: str, from_position: int = 1) -> list[Event]:
        request = pb.ReadEventsRequest(from_position=from_position, types=types)
        return [
            event
            async for batch in stream_events(self.replica, request)
            for event in pb.EventBatch.FromString(batch.SerializeToString()).events
        ]

    def _on_leading(self, replica: Replica) -> None:
        self.leads.append(replica.leader.term if replica.leader is not None else None)
