"""The agent against a scripted broker manager."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from brokers.domain.holding import Assignment, Holding, TenantMetadata, TopicMetadata, UnknownStep
from brokers.domain.session import Delivered, Delivery, Established
from brokers.ports.session import (
    DrainedSettled,
    DrainedUnit,
    FromManager,
    Greeting,
    HeartbeatEcho,
    LoadsRecorded,
    ManagerLocation,
    SegmentTraffic,
    StreamEnded,
    Timing,
    TurnedAway,
)
from brokers.service.session import agent as agent_module
from brokers.service.session.agent import BrokerAgent
from nextgen.kernel.governance.broker_load import BrokerLoad, Rates
from nextgen.kernel.limits.cluster import BROKER_RECONNECT_BACKOFF_MS_MAX
from nextgen.tasks.timeouts import timeout

TIMING = Timing(session_ttl_ms=3_000, heartbeat_ms=750)


class FakeConnection:
    """Plays ``script`` and then waits for ever; keeps what was reported on it.

    A number in the script lets so many milliseconds pass on ``cluster``'s clock.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        endpoint: str,
        resume: tuple[str, int],
        script: list[FromManager | int],
    ) -> None:
        self.cluster = cluster
        self.endpoint = endpoint
        self.resume = resume
        self.synced: list[int] = []
        self.loads: list[BrokerLoad | None] = []
        self.held: list[Holding] = []
        self.drains: list[int] = []
        self.idle: list[list[str]] = []
        self.drained: list[DrainedUnit] = []
        self.segments: list[SegmentTraffic] = []
        self.units_held = 0
        self.said_goodbye = False
        self.closed = False
        self.played = asyncio.Event()
        self._script = deque(script)

    async def receive(self) -> FromManager:
        while self._script:
            step = self._script.popleft()
            if not isinstance(step, int):
                return step
            self.cluster.now_ms += step
        self.played.set()
        await asyncio.Event().wait()
        raise AssertionError("nothing ever comes")

    def report_sync(self, sequence: int) -> None:
        self.synced.append(sequence)

    def heartbeat(self, load: BrokerLoad | None) -> None:
        self.loads.append(load)

    def report_held(self, holding: Holding) -> None:
        self.held.append(holding)

    def report_idle(self, units: Sequence[Assignment]) -> None:
        self.idle.append([unit.name for unit in units])

    def report_loads(self, segments: Sequence[SegmentTraffic]) -> None:
        self.segments += segments

    def report_drained(self, units: Sequence[DrainedUnit]) -> None:
        self.drained.extend(units)

    def ask_drain(self, units_per_second: int) -> None:
        self.drains.append(units_per_second)

    async def say_goodbye(self) -> None:
        self.said_goodbye = True

    def close(self) -> None:
        self.closed = True


class FakeCluster:
    """A dialer, a locator, a clock and a sleep in one; time passes only when slept."""

    def __init__(self, *scripts: list[FromManager | int]) -> None:
        self.now_ms = 0
        self.known: ManagerLocation | None = ManagerLocation("a:1", 1)
        self.connections: list[FakeConnection] = []
        self.pauses_ms: list[int] = []
        self.changed = asyncio.Event()
        self._scripts = deque(scripts)
        self.stuck = asyncio.Event()

    def dial(
        self, endpoint: str, session_id: str, last_sequence: int, units_held: int
    ) -> FakeConnection:
        script = self._scripts.popleft() if self._scripts else []
        connection = FakeConnection(self, endpoint, (session_id, last_sequence), script)
        connection.units_held = units_held
        self.connections.append(connection)
        return connection

    def location(self) -> ManagerLocation | None:
        return self.known

    async def wait_change(self, timeout_ms: int) -> None:
        if timeout_ms <= BROKER_RECONNECT_BACKOFF_MS_MAX:
            self.pauses_ms.append(timeout_ms)
            return
        await self.changed.wait()
        self.changed.clear()

    async def sleep(self, seconds: float) -> None:
        self.stuck.set()
        await asyncio.Event().wait()


class NappingCluster(FakeCluster):
    """Its sleeps take as long as ``naps_ms`` say, one after the other, and then for ever."""

    def __init__(self, naps_ms: Sequence[int], *scripts: list[FromManager | int]) -> None:
        super().__init__(*scripts)
        self._naps_ms = deque(naps_ms)

    async def sleep(self, seconds: float) -> None:
        if not self._naps_ms:
            await super().sleep(seconds)
        self.now_ms += self._naps_ms.popleft()
        await asyncio.sleep(0)


@asynccontextmanager
async def running(cluster: FakeCluster) -> AsyncIterator[BrokerAgent]:
    agent = BrokerAgent(
        dialer=cluster,
        locator=cluster,
        load_meter=lambda: BrokerLoad(memory_bytes=1),
        clock=lambda: cluster.now_ms,
        sleep=cluster.sleep,
    )
    task = asyncio.create_task(agent.run())
    try:
        yield agent
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def played(cluster: FakeCluster, number: int) -> FakeConnection:
    """Return the connection of that number once its script is played."""
    async with timeout(30):
        while len(cluster.connections) <= number:
            await asyncio.sleep(0)
        await cluster.connections[number].played.wait()
    return cluster.connections[number]


def greeting(session_id: str = "s-1", *, resumed: bool = False, next_sequence: int = 1) -> Greeting:
    return Greeting(Established(session_id, 1, resumed, next_sequence), TIMING)


def delivery(sequence: int) -> Delivered:
    return Delivered([Delivery(sequence, TenantMetadata("t", f"acme-{sequence}", {}, 1))], 0)


async def test_every_applied_batch_is_reported_and_the_load_is_sent_at_once():
    cluster = FakeCluster([greeting(), delivery(1), delivery(2)])
    async with running(cluster) as agent:
        connection = await played(cluster, 0)

        assert connection.synced == [1, 2]
        assert connection.loads == [BrokerLoad(memory_bytes=1)]
        assert agent.counters.deliveries_applied == 2


async def test_a_broken_connection_is_resumed_where_it_ended():
    cluster = FakeCluster(
        [greeting(), delivery(1), StreamEnded("reset")],
        [greeting(resumed=True, next_sequence=2), delivery(2)],
    )
    async with running(cluster) as agent:
        connection = await played(cluster, 1)

        assert connection.resume == ("s-1", 1)
        assert connection.synced == [1, 2]
        assert agent.counters.sessions_established == 1


async def test_a_new_manager_gets_the_number_of_held_units_and_the_load():
    topic = TopicMetadata("id-1", "persistent://t/n/x", 0, {}, 1)
    assigned = Delivered([Delivery(1, Assignment(topic, "", topic.name, 1, 1))], 0)
    cluster = FakeCluster(
        [greeting(), assigned, StreamEnded("reset")],
        [greeting(resumed=True, next_sequence=2)],
    )
    async with running(cluster):
        connection = await played(cluster, 1)
        await asyncio.sleep(0)

        assert [each.units_held for each in cluster.connections] == [0, 1]
        assert connection.loads == [BrokerLoad(units=1, memory_bytes=1)]


async def test_held_units_are_reported_to_a_manager_that_requests_them():
    cluster = FakeCluster(
        [greeting(), delivery(1), StreamEnded("reset")],
        [replace(greeting(resumed=True, next_sequence=2), wants_held=True)],
    )
    async with running(cluster) as agent:
        connection = await played(cluster, 1)

        assert cluster.connections[0].held == []
        assert connection.held == [agent.session.holding]
        assert list(agent.session.holding.tenants) == ["acme-1"]


async def test_a_drain_request_is_sent_again_to_the_next_manager():
    cluster = FakeCluster([greeting()], [greeting(resumed=True)])
    async with running(cluster) as agent:
        first = await played(cluster, 0)

        agent.ask_drain(300)
        cluster.known = ManagerLocation("b:2", 2)
        cluster.changed.set()
        second = await played(cluster, 1)

        assert (first.drains, second.drains) == ([300], [300])
        assert agent.units_held == 0


async def test_a_delivery_of_an_unknown_kind_is_skipped_and_counts_in_the_sequence():
    unknown = Delivered([Delivery(2, UnknownStep())], 0)
    cluster = FakeCluster([greeting(), delivery(1), unknown, unknown, delivery(3)])
    async with running(cluster) as agent:
        connection = await played(cluster, 0)

        assert connection.synced[-1] == 3
        assert agent.counters.deliveries_applied == 3
        assert agent.counters.deliveries_skipped == 1, "the repeat was applied already"
        assert sorted(agent.session.holding.tenants) == ["acme-1", "acme-3"]


async def test_a_leader_hint_is_followed_without_a_pause():
    cluster = FakeCluster([TurnedAway("NOT_LEADER", "no", "b:2")], [greeting()])
    async with running(cluster):
        connection = await played(cluster, 1)

        assert connection.endpoint == "b:2"
        assert cluster.pauses_ms == []


async def test_hints_that_go_round_are_followed_only_a_few_times_before_a_pause():
    away = [TurnedAway("NOT_LEADER", "no", "b:2")]
    cluster = FakeCluster(away, away, away, away, [greeting()])
    async with running(cluster):
        connection = await played(cluster, 4)

        assert connection.endpoint == "a:1"
        assert len(cluster.pauses_ms) == 1


async def test_a_connection_that_lasted_is_dialled_again_at_once_and_one_that_did_not_is_not():
    ended = StreamEnded("reset")
    cluster = FakeCluster(
        [greeting(), BROKER_RECONNECT_BACKOFF_MS_MAX, ended],
        [ended],
        [greeting(resumed=True), BROKER_RECONNECT_BACKOFF_MS_MAX - 1, ended],
        [greeting(resumed=True)],
    )
    async with running(cluster):
        await played(cluster, 3)

        assert cluster.pauses_ms == [20, 20], "after the second and the third connection"


async def test_pauses_between_attempts_grow_to_their_limit():
    cluster = FakeCluster(*[[StreamEnded("refused")]] * 6, [greeting()])
    async with running(cluster):
        await played(cluster, 6)

        assert cluster.pauses_ms == [20, 40, 80, 160, 200, 200]


async def test_a_session_is_kept_though_its_manager_leads_no_more():
    cluster = FakeCluster(
        [greeting(), delivery(1), TurnedAway("NOT_LEADER", "not here", "b:2")],
        [greeting(resumed=True, next_sequence=2)],
    )
    async with running(cluster) as agent:
        second = await played(cluster, 1)

        assert (second.endpoint, second.resume) == ("b:2", ("s-1", 1))
        assert agent.counters.sessions_voided == 0


async def test_an_expired_session_is_registered_anew():
    cluster = FakeCluster(
        [greeting(), delivery(1), TurnedAway("SESSION_EXPIRED", "gone", "")], [greeting("s-2")]
    )
    async with running(cluster) as agent:
        connection = await played(cluster, 1)

        assert connection.resume == ("", 0)
        assert agent.session.holding.tenants == {}
        assert agent.counters.sessions_voided == 1


@pytest.mark.parametrize("naps_ms", [[750] * 4, [3_500, 750], [3_500, 3_500]])
async def test_a_manager_that_is_silent_is_left(naps_ms: list[int]):
    cluster = NappingCluster(naps_ms, [greeting()], [greeting(resumed=True)])
    async with running(cluster):
        await played(cluster, 1)

        assert cluster.connections[0].closed


@pytest.mark.parametrize("naps_ms", [[750] * 3, [3_500]])
async def test_a_manager_is_not_left_because_the_broker_itself_stood_still(naps_ms: list[int]):
    cluster = NappingCluster(naps_ms, [greeting()])
    async with running(cluster):
        await cluster.stuck.wait()

        assert [connection.closed for connection in cluster.connections] == [False]


async def test_news_of_a_later_leader_moves_the_connection():
    cluster = FakeCluster([greeting(), HeartbeatEcho(0)], [greeting(resumed=True)])
    async with running(cluster):
        first = await played(cluster, 0)
        cluster.known = ManagerLocation("c:3", 2)
        cluster.changed.set()
        second = await played(cluster, 1)

        assert (first.closed, second.endpoint) == (True, "c:3")


async def test_a_manager_that_does_not_answer_is_left_for_a_later_leader(
    monkeypatch: pytest.MonkeyPatch,
):
    # As when its host vanished: it neither accepts the connection nor refuses it.
    monkeypatch.setattr(agent_module, "BROKER_GREETING_MS_MAX", 3_600_000)
    cluster = FakeCluster([greeting(), StreamEnded("reset")], [], [greeting(resumed=True)])
    async with running(cluster) as agent:
        silent = await played(cluster, 1)
        cluster.known = ManagerLocation("c:3", 2)
        cluster.changed.set()
        third = await played(cluster, 2)

        assert (silent.closed, third.endpoint) == (True, "c:3")
        assert third.resume == ("s-1", 0)
        assert agent.is_registered


async def test_old_news_of_another_leader_does_not_move_the_connection():
    cluster = FakeCluster([greeting()])
    async with running(cluster):
        await played(cluster, 0)
        cluster.known = ManagerLocation("c:3", 1)
        cluster.changed.set()
        # More turns of the loop than it takes to leave a manager and dial another.
        for _ in range(50):
            await asyncio.sleep(0)

        assert len(cluster.connections) == 1


async def test_a_clean_stop_says_goodbye():
    cluster = FakeCluster([greeting()])
    async with running(cluster):
        connection = await played(cluster, 0)

    assert (connection.said_goodbye, connection.closed) == (True, True)


async def test_a_stop_before_the_session_is_up_says_nothing():
    cluster = FakeCluster([])
    async with running(cluster):
        connection = await played(cluster, 0)

    assert (connection.said_goodbye, connection.closed) == (False, True)


DRAINED = DrainedUnit("id", "s3", "segment://t/n/x/0000-ffff-3", 7, "sub")


async def test_drained_units_are_reported_and_each_connection_is_announced_to_their_reporter():
    takes = replace(greeting(), takes_drained=True)
    cluster = FakeCluster([takes], [replace(takes, established=greeting(resumed=True).established)])
    async with running(cluster) as agent:
        first = await played(cluster, 0)
        agent.on_connected = lambda: agent.report_drained([DRAINED])

        agent.report_drained([DRAINED])
        cluster.known = ManagerLocation("b:2", 2)
        cluster.changed.set()
        second = await played(cluster, 1)

        assert (first.drained, second.drained) == ([DRAINED], [DRAINED])


async def test_what_a_manager_has_settled_reaches_the_reporter():
    settled: list[DrainedUnit] = []
    cluster = FakeCluster([greeting(), 1, DrainedSettled([DRAINED])])
    async with running(cluster) as agent:
        agent.on_drained_settled = settled.extend
        await played(cluster, 0)

    assert settled == [DRAINED]


async def test_a_manager_that_does_not_know_drained_units_is_sent_none():
    cluster = FakeCluster([greeting()])
    async with running(cluster) as agent:
        connection = await played(cluster, 0)

        agent.report_drained([DRAINED])

        assert connection.drained == []


LOAD = SegmentTraffic("id", "s3", "segment://t/n/x/0000-ffff-3", 7, Rates(1))


async def test_loads_are_reported_to_a_manager_that_takes_them_and_its_answers_passed_on():
    recorded: list[SegmentTraffic] = []
    takes = replace(greeting(), takes_loads=True)
    cluster = FakeCluster(
        [greeting()],
        [replace(takes, established=greeting(resumed=True).established), LoadsRecorded([LOAD])],
    )
    async with running(cluster) as agent:
        agent.on_loads_recorded = recorded.extend
        first = await played(cluster, 0)
        agent.report_loads([LOAD])
        cluster.known = ManagerLocation("b:2", 2)
        cluster.changed.set()
        second = await played(cluster, 1)
        agent.report_loads([LOAD])

        assert (first.segments, second.segments, recorded) == ([], [LOAD], [LOAD])
