"""The sidecar between a scripted plug-in and a scripted broker manager."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from brokers.domain.holding import Assignment, Holding, Prepare, Release, TopicMetadata
from brokers.domain.session import Delivered, Delivery, Established
from brokers.ports.plugin import (
    AbsentReported,
    DeletedReported,
    ForeignClosed,
    FromPlugin,
    LoadMeasured,
    LookupRequest,
    Ping,
    PluginAlive,
    PluginFault,
    PluginGreeting,
    PluginLost,
    Synced,
    TopicsReported,
)
from brokers.ports.session import (
    DrainedUnit,
    FromManager,
    Greeting,
    HeartbeatEcho,
    ManagerConnection,
    ManagerLocation,
    SegmentTraffic,
    Timing,
)
from brokers.service.session.agent import BrokerAgent
from brokers.service.sidecar import stock_units as stock_units_module
from brokers.service.sidecar.handover import Handover
from brokers.service.sidecar.plugin_faults import PluginFaults
from brokers.service.sidecar.sidecar import ReportedLoad, Sidecar
from brokers.service.sidecar.stock_topics import StockTopics
from brokers.service.sidecar.topic_removals import TopicRemovals
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.governance.broker_load import BrokerLoad
from nextgen.kernel.limits.stream import (
    PLUGIN_CONFIRM_MS_MAX,
    PLUGIN_OBEYS_MS,
    PLUGIN_PROMPT_MS_MAX,
    PLUGIN_TOPICS_NAMED_MAX,
)
from nextgen.kernel.routing.names import TopicName
from nextgen.pulsar.metadata_commands import Located
from nextgen.tasks.timeouts import timeout

TOPIC = "persistent://acme/orders/eu"
ASSIGNMENT = Assignment(TopicMetadata("t-1", TOPIC, 0, {}, 1), "", TOPIC, epoch=5, shard_id=1)
RELEASE = Release("t-1", "", TOPIC, 5, "broker-2", 6, "", "pulsar://b2:6650")


class FakePlugin:
    """Keeps the calls, and plays what a test puts into ``arrivals``."""

    def __init__(self) -> None:
        self.greeting = PluginGreeting("b1:8080", "pulsar://b1:6650", "5.0.0-M1")
        self.calls: list[tuple[object, ...]] = []
        self.refusals: list[str] = []
        """The message of each refusal."""
        self.arrivals: asyncio.Queue[FromPlugin | PluginLost] = asyncio.Queue()
        self.changed = asyncio.Event()
        self.is_closed = False

    async def receive(self) -> FromPlugin:
        arrived = await self.arrivals.get()
        if isinstance(arrived, PluginLost):
            raise arrived
        return arrived

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        self.changed.set()

    async def until(self, *call: object) -> None:
        """Return once this call was made."""
        async with timeout(5):
            while call not in self.calls:
                self.changed.clear()
                await self.changed.wait()

    def session(self, session_id: str, epoch: int, ttl_ms: int) -> None:
        self._note("session", session_id, epoch, ttl_ms)

    def alive(self) -> None:
        self._note("alive")

    def assign(self, assignment: Assignment) -> None:
        self._note("assign", assignment.name, assignment.epoch)

    def prepare(self, assignment: Assignment) -> None:
        self._note("prepare", assignment.name)

    def release(self, release: Release) -> None:
        self._note("release", release.name, release.new_broker_url)

    def sync(self, number: int) -> None:
        self._note("sync", number)

    def pong(self, number: int) -> None:
        self._note("pong", number)

    def located(self, number: int, located: Located) -> None:
        self._note("located", number, located.broker_url)

    def refused(self, number: int, code: str, message: str, *, is_final: bool) -> None:
        self.refusals.append(message)
        self._note("refused", number, code, is_final)

    def list_open(self, number: int, namespace: str) -> None:
        self._note("list_open", number, namespace)

    def close_foreign(self, number: int, topics: Sequence[str]) -> None:
        self._note("close_foreign", number, tuple(topics))

    def close(self) -> None:
        self.is_closed = True


class FakePlugins:
    """Connects to one plug-in after the other, then to none."""

    def __init__(self, *plugins: FakePlugin) -> None:
        self._plugins = deque(plugins)

    async def connect(self) -> FakePlugin:
        if not self._plugins:
            await asyncio.Event().wait()
        return self._plugins.popleft()


class FakeManager:
    """Greets with a new session at each connection, and keeps what is reported."""

    def __init__(self) -> None:
        self.arrivals: asyncio.Queue[FromManager] = asyncio.Queue()
        self.synced: list[int] = []
        self.has_synced = asyncio.Event()
        self.loads: list[BrokerLoad | None] = []
        self.goodbyes = 0
        self.sessions = 0

    def dial(
        self, endpoint: str, session_id: str, last_sequence: int, units_held: int
    ) -> ManagerConnection:
        self.sessions += 1
        self.arrivals.put_nowait(
            Greeting(Established(f"s-{self.sessions}", self.sessions, False, 1), Timing(3_000, 750))
        )
        return self

    async def receive(self) -> FromManager:
        return await self.arrivals.get()

    def report_sync(self, sequence: int) -> None:
        self.synced.append(sequence)
        self.has_synced.set()

    def heartbeat(self, load: BrokerLoad | None) -> None:
        self.loads.append(load)

    def report_held(self, holding: Holding) -> None: ...

    def report_idle(self, units: Sequence[Assignment]) -> None: ...

    def report_drained(self, units: Sequence[DrainedUnit]) -> None: ...

    def report_loads(self, segments: Sequence[SegmentTraffic]) -> None: ...

    def ask_drain(self, units_per_second: int) -> None: ...

    async def say_goodbye(self) -> None:
        self.goodbyes += 1

    def close(self) -> None: ...

    def location(self) -> ManagerLocation:
        return ManagerLocation("manager", 1)

    async def wait_change(self, timeout_ms: int) -> None:
        await asyncio.sleep(0 if timeout_ms < 1_000 else timeout_ms)


class FakeDirectory:
    """Answers each lookup with what ``answers`` has next."""

    def __init__(self) -> None:
        self.answers: deque[Located | Exception] = deque()
        self.asked: list[str] = []

    async def claim(self, name: TopicName) -> Located:
        return await self.locate(name, create=True)

    async def locate(self, name: TopicName, *, create: bool) -> Located:
        self.asked.append(name.text)
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer


class World:
    def __init__(self, *plugins: FakePlugin) -> None:
        self.manager = FakeManager()
        self.directory = FakeDirectory()
        self.now_ms = 0
        self.faults = PluginFaults(lambda: 0)
        self.removed: list[str] = []
        load = ReportedLoad(lambda: 1_000)
        self.handover = Handover(self.directory)
        self.agent = BrokerAgent(
            dialer=self.manager, locator=self.manager, load_meter=load, clock=lambda: 0
        )
        self.topics = StockTopics(
            lambda: self.agent.session.holding, lambda: self.now_ms, lambda: 0
        )
        self.sidecar = Sidecar(
            plugins=FakePlugins(*plugins),
            managers=lambda _plugin: self.manager,
            agent=self.agent,
            directory=self.directory,  # type: ignore[arg-type]
            kind_of={"broker-2": "stock", "embedded-1": ""}.get,
            load=load,
            topics=self.topics,
            removals=TopicRemovals(self),
            faults=self.faults,
            clock=lambda: self.now_ms,
            handover=self.handover,
        )

    async def remove(self, name: TopicName) -> bool:
        self.removed.append(name.text)
        return True

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with timeout(5):
            while not is_so():
                await asyncio.sleep(0.001)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.sidecar.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def plugin() -> FakePlugin:
    return FakePlugin()


async def test_steps_reach_the_plugin_behind_their_session(plugin: FakePlugin) -> None:
    world = World(plugin)
    async with world.running():
        await plugin.until("session", "s-1", 1, 3_000)
        world.manager.arrivals.put_nowait(
            Delivered([Delivery(1, ASSIGNMENT), Delivery(2, RELEASE)], 0)
        )
        await plugin.until("release", TOPIC, "pulsar://b2:6650")

    told = [call for call in plugin.calls if call[0] in ("session", "assign", "release")]
    assert told == [
        ("session", "s-1", 1, 3_000),
        ("assign", TOPIC, 5),
        ("release", TOPIC, "pulsar://b2:6650"),
    ]


@pytest.mark.parametrize("step", [RELEASE, Prepare(ASSIGNMENT)])
async def test_a_sync_position_waits_until_the_plugin_has_carried_it_out(
    plugin: FakePlugin, step: Release | Prepare
) -> None:
    """That of the assignment behind it waits, too: a position covers what was before it."""
    world = World(plugin)
    async with world.running():
        await plugin.until("session", "s-1", 1, 3_000)
        world.manager.arrivals.put_nowait(Delivered([Delivery(1, step)], 0))
        world.manager.arrivals.put_nowait(Delivered([Delivery(2, ASSIGNMENT)], 0))
        await plugin.until("sync", 2)
        assert world.manager.synced == []

        plugin.arrivals.put_nowait(Synced(2))
        async with timeout(5):
            await world.manager.has_synced.wait()

    assert world.manager.synced == [1, 2]


@pytest.mark.parametrize("over", [0, 1])
async def test_plugin_prompt_ms_max(plugin: FakePlugin, over: int) -> None:
    """An assignment's position is reported once it is written, to a plug-in that is alive."""
    world = World(plugin)
    async with world.running():
        await plugin.until("session", "s-1", 1, 3_000)
        world.now_ms = PLUGIN_PROMPT_MS_MAX + over
        world.manager.arrivals.put_nowait(Delivered([Delivery(1, ASSIGNMENT)], 0))
        await plugin.until("sync", 1)

        assert world.manager.synced == [1][over:]
        assert plugin.calls[-2:] == [("assign", TOPIC, 5), ("sync", 1)]


async def test_a_ping_is_answered_behind_what_was_sent_before(plugin: FakePlugin) -> None:
    world = World(plugin)
    async with world.running():
        await plugin.until("session", "s-1", 1, 3_000)
        plugin.arrivals.put_nowait(Ping(4))
        await plugin.until("pong", 4)


async def test_a_heartbeat_of_the_manager_is_passed_on(plugin: FakePlugin) -> None:
    world = World(plugin)
    async with world.running():
        await plugin.until("session", "s-1", 1, 3_000)
        assert ("alive",) not in plugin.calls
        world.manager.arrivals.put_nowait(HeartbeatEcho(0))
        await plugin.until("alive")


async def test_questions_of_a_handover_reach_the_plugin_and_end_with_it(
    plugin: FakePlugin,
) -> None:
    world = World(plugin)
    async with world.running():
        await plugin.until("session", "s-1", 1, 3_000)
        first = asyncio.create_task(world.handover.close_foreign([TOPIC]))
        await plugin.until("close_foreign", 1, (TOPIC,))
        plugin.arrivals.put_nowait(ForeignClosed(1, 1, 0, 0))
        assert await first == ForeignClosed(1, 1, 0, 0)

        second = asyncio.create_task(world.handover.close_foreign([TOPIC]))
        await plugin.until("close_foreign", 2, (TOPIC,))
        plugin.arrivals.put_nowait(PluginLost("gone"))
        with pytest.raises(Unavailable, match="went away"):
            await second


async def test_a_broker_that_dies_loses_its_session_at_once(plugin: FakePlugin) -> None:
    second = FakePlugin()
    world = World(plugin, second)
    async with world.running():
        await plugin.until("session", "s-1", 1, 3_000)
        world.manager.arrivals.put_nowait(Delivered([Delivery(1, ASSIGNMENT)], 0))
        await plugin.until("sync", 1)

        plugin.arrivals.put_nowait(PluginLost("it closed the connection", PluginFault.CLOSED))
        await second.until("session", "s-2", 2, 3_000)

        assert world.manager.goodbyes == 1
        assert plugin.is_closed
        assert world.agent.units_held == 0
        assert world.faults.counts == {PluginFault.CLOSED: 1}


async def test_what_the_first_plugin_confirms_late_is_not_reported(plugin: FakePlugin) -> None:
    """The position of an ended session means nothing in the next one."""
    second = FakePlugin()
    world = World(plugin, second)
    async with world.running():
        await plugin.until("session", "s-1", 1, 3_000)
        world.manager.arrivals.put_nowait(Delivered([Delivery(1, Prepare(ASSIGNMENT))], 0))
        await plugin.until("sync", 1)
        plugin.arrivals.put_nowait(PluginLost("gone"))
        plugin.arrivals.put_nowait(Synced(1))
        await second.until("session", "s-2", 2, 3_000)

    assert world.manager.synced == []


@pytest.mark.parametrize(
    ("answer", "call"),
    [
        (
            Located(TOPIC, "broker-2", "s", "pulsar://b2:6650", "t-1", "", 6),
            ("located", 7, "pulsar://b2:6650"),
        ),
        (
            Located(TOPIC, "embedded-1", "s", "pulsar://e1:6650", "t-1", "", 6),
            ("refused", 7, "NOT_ALLOWED", True),
        ),
        (
            Located(TOPIC, "unheard-of", "s", "pulsar://u:6650", "t-1", "", 6),
            ("refused", 7, "NO_BROKER", False),
        ),
        (Refused("NOT_FOUND", "no such topic"), ("refused", 7, "NOT_FOUND", True)),
        (Unavailable("an election"), ("refused", 7, "UNAVAILABLE", False)),
    ],
)
async def test_a_lookup_gets_the_clusters_answer(
    plugin: FakePlugin, answer: Located | Exception, call: tuple[object, ...]
) -> None:
    world = World(plugin)
    world.directory.answers.append(answer)
    async with world.running():
        plugin.arrivals.put_nowait(LookupRequest(7, TOPIC))
        await plugin.until(*call)

    assert world.directory.asked == [TOPIC]


async def test_a_refusal_of_an_unknown_topic_names_what_brings_it(plugin: FakePlugin) -> None:
    """Of a namespace whose topics are created with partitions in Pulsar alone."""
    world = World(plugin)
    noted: list[str] = []
    world.faults.note = lambda fault, why: noted.append(f"{fault}: {why}")  # type: ignore[method-assign]
    async with world.running():
        for number in range(2):
            world.directory.answers.append(Refused("NOT_FOUND", "no such topic"))
            plugin.arrivals.put_nowait(LookupRequest(number, f"{TOPIC}-partition-{number}"))
        await world.until(lambda: len(plugin.refusals) == 2)

    sentence = "no such topic; if Pulsar has it, 'nextgen adopt run acme/orders' brings it"
    assert plugin.refusals == [sentence] * 2
    # The same sentence for each topic: of those that repeat, one is logged.
    assert len(set(noted)) == 1
    assert noted[0].startswith("unknown_topic: if Pulsar has it, 'nextgen adopt run acme/orders' ")


async def test_other_refusals_are_no_unknown_topics(plugin: FakePlugin) -> None:
    world = World(plugin)
    world.directory.answers.append(Refused("NO_CAPACITY", "all full"))
    async with world.running():
        plugin.arrivals.put_nowait(LookupRequest(7, TOPIC))
        await plugin.until("refused", 7, "NO_CAPACITY", True)

    assert world.faults.counts == {}


async def test_a_lookup_of_no_name_is_refused_for_good(plugin: FakePlugin) -> None:
    world = World(plugin)
    async with world.running():
        plugin.arrivals.put_nowait(LookupRequest(7, "persistent://acme"))
        await plugin.until("refused", 7, "INVALID_NAME", True)


@pytest.mark.parametrize("over", [0, 1])
async def test_plugin_lookups_max(
    plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch, over: int
) -> None:
    monkeypatch.setattr(stock_units_module, "PLUGIN_LOOKUPS_MAX", 3)
    world = World(plugin)
    async with world.running():
        for number in range(3 + over):
            plugin.arrivals.put_nowait(LookupRequest(number, TOPIC))
        plugin.arrivals.put_nowait(LookupRequest(9, TOPIC))
        await plugin.until("refused", 9, "OVERLOADED", False)

    refused = [call[1] for call in plugin.calls if call[0] == "refused"]
    assert refused == [*range(3, 3 + over), 9]


async def test_the_load_that_the_plugin_measured_goes_with_a_heartbeat(plugin: FakePlugin) -> None:
    plugin.arrivals.put_nowait(LoadMeasured(BrokerLoad(connections=4)))
    load = ReportedLoad(lambda: 1_000)
    load.take(BrokerLoad(connections=4))

    assert [load().measured_at_ms, load().measured_at_ms] == [1_000, 1_001]
    assert load().connections == 4


async def test_a_broker_that_does_not_confirm_loses_its_session(plugin: FakePlugin) -> None:
    second = FakePlugin()
    world = World(plugin, second)
    async with world.running():
        await plugin.until("session", "s-1", 1, 3_000)
        world.manager.arrivals.put_nowait(Delivered([Delivery(1, ASSIGNMENT)], 0))
        await plugin.until("sync", 1)
        world.now_ms = PLUGIN_CONFIRM_MS_MAX + 1
        plugin.arrivals.put_nowait(PluginAlive())
        await second.until("session", "s-2", 2, 3_000)

        assert world.faults.counts == {PluginFault.UNCONFIRMED: 1}
        assert world.manager.goodbyes == 1


async def test_a_broker_that_confirms_what_it_was_not_sent_loses_its_session(
    plugin: FakePlugin,
) -> None:
    second = FakePlugin()
    world = World(plugin, second)
    async with world.running():
        await plugin.until("session", "s-1", 1, 3_000)
        plugin.arrivals.put_nowait(Synced(99))
        await second.until("session", "s-2", 2, 3_000)

    assert world.faults.counts == {PluginFault.MALFORMED: 1}


async def test_a_broker_that_has_a_released_topic_open_is_told_again(plugin: FakePlugin) -> None:
    world = World(plugin)
    async with world.running():
        await plugin.until("session", "s-1", 1, 3_000)
        world.manager.arrivals.put_nowait(
            Delivered([Delivery(1, ASSIGNMENT), Delivery(2, RELEASE)], 0)
        )
        await plugin.until("release", TOPIC, "pulsar://b2:6650")
        plugin.arrivals.put_nowait(TopicsReported(True, True, used=[TOPIC]))
        plugin.arrivals.put_nowait(LoadMeasured(BrokerLoad()))
        await world.until(lambda: len(world.topics) == 1 and plugin.arrivals.empty())
        assert ("release", TOPIC, "") not in plugin.calls
        world.now_ms = PLUGIN_OBEYS_MS
        plugin.arrivals.put_nowait(LoadMeasured(BrokerLoad()))
        await plugin.until("release", TOPIC, "")

        assert world.faults.counts == {PluginFault.NOT_RELEASED: 1}
        assert world.agent.is_registered


async def test_what_pulsar_does_not_have_is_noted_and_what_it_deleted_is_removed(
    plugin: FakePlugin,
) -> None:
    world = World(plugin)
    async with world.running():
        plugin.arrivals.put_nowait(AbsentReported([TOPIC]))
        plugin.arrivals.put_nowait(DeletedReported([TOPIC]))
        await world.until(lambda: world.removed == [TOPIC])

        assert world.faults.counts == {PluginFault.ABSENT_TOPIC: 1}
        assert world.agent.is_registered


@pytest.mark.parametrize(("over", "shown"), [(0, False), (1, True)])
async def test_plugin_topics_named_max(plugin: FakePlugin, over: int, shown: bool) -> None:
    world = World(plugin)
    names = [f"persistent://acme/orders/{n}" for n in range(PLUGIN_TOPICS_NAMED_MAX + over)]
    noted: list[str] = []
    world.faults.note = lambda _fault, why: noted.append(why)  # type: ignore[method-assign]
    async with world.running():
        plugin.arrivals.put_nowait(AbsentReported(names))
        await world.until(lambda: len(noted) == 1)

    assert ("and 1 more" in noted[0]) is shown
    assert names[0] in noted[0]
