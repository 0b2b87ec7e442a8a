"""When a session ends without a close: by silence or a broken stream, and when neither counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from nextgen.kernel.errors import MetadataError, NotLeader, Overloaded, SessionExpired
from nextgen.kernel.limits.cluster import (
    BROKER_GREETING_MS_MAX,
    SESSION_HEARTBEAT_MS,
    SESSION_RESUME_MS,
    SESSION_RETURN_MS,
    SESSION_TTL_MS,
)
from nextgen.kernel.limits.placement import SESSIONS_STARTED_MAX
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from shards.domain.broker_session import SetDrain
from shards.ports import Cancellable
from shards.sessions import broker_sessions
from shards.sessions.broker_sessions import BrokerSessions
from tests.support.scenarios import run_by
from tests.support.shards.harness import FakeBroker, Harness, in_shard

RESUME_S = SESSION_RESUME_MS / 1000
RETURN_S = SESSION_RETURN_MS / 1000
TTL_S = SESSION_TTL_MS / 1000
HEARTBEAT_S = SESSION_HEARTBEAT_MS / 1000
RECORDING_S = 0.05
"""More than it takes to record an end in these tests."""


async def reasons(shard: Harness) -> list[str]:
    """Return why sessions ended, in order."""
    events = await shard.events("broker_session_ended")
    return [event.broker_session_ended.reason for event in events]


@run_by(in_shard)
async def test_a_silent_session_ends_after_its_time_and_not_before(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    await asyncio.sleep(10.0)
    assert shard.leader.brokers.sessions.count == 1

    broker.freeze()
    await asyncio.sleep(TTL_S - 0.8)
    assert await reasons(shard) == []
    await asyncio.sleep(1.0)

    assert await reasons(shard) == ["expired"]
    assert not shard.cluster.reports[-1].is_live


@run_by(in_shard)
async def test_a_session_whose_stream_broke_ends_soon_and_not_before(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    await asyncio.sleep(10.0)

    broker.vanish()
    await asyncio.sleep(RESUME_S - 0.001)
    assert await reasons(shard) == []
    assert shard.leader.brokers.sessions.count == 1
    await asyncio.sleep(RECORDING_S)

    assert await reasons(shard) == ["disconnected"]
    assert shard.leader.brokers.sessions.count == 0
    assert not shard.cluster.reports[-1].is_live


@run_by(in_shard)
async def test_a_broker_that_is_back_in_time_keeps_its_session(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    session_id = broker.session_id

    broker.vanish()
    await asyncio.sleep(RESUME_S - 0.001)
    await broker.connect()
    await asyncio.sleep(3 * TTL_S)

    assert (broker.resumed, broker.session_id) == (True, session_id)
    assert await reasons(shard) == []


@run_by(in_shard)
async def test_a_broker_that_is_back_too_late_registers_anew(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    session_id = broker.session_id

    broker.vanish()
    await asyncio.sleep(RESUME_S + RECORDING_S)
    await broker.connect()

    assert not broker.resumed
    assert broker.session_id != session_id
    assert await reasons(shard) == ["disconnected"]


@run_by(in_shard)
async def test_each_break_gives_the_broker_its_time_again(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")

    for _ in range(20):
        broker.vanish()
        await asyncio.sleep(0.6 * RESUME_S)
        await broker.connect()
    assert await reasons(shard) == []
    broker.vanish()
    await asyncio.sleep(RESUME_S + RECORDING_S)

    assert await reasons(shard) == ["disconnected"]


@run_by(in_shard)
async def test_a_broker_that_resumed_and_then_fell_silent_has_the_time_of_silence(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    broker.vanish()
    await broker.connect()

    broker.freeze()
    await asyncio.sleep(TTL_S - 0.01)
    assert await reasons(shard) == []
    await asyncio.sleep(0.01 + RECORDING_S)

    assert await reasons(shard) == ["expired"]


@run_by(in_shard)
async def test_a_stream_that_breaks_after_long_silence_adds_no_time(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    broker.freeze()
    await asyncio.sleep(TTL_S - 0.1)

    broker.vanish()
    await asyncio.sleep(0.1 + RECORDING_S)

    assert len(await reasons(shard)) == 1


@run_by(in_shard)
async def test_the_end_of_a_stream_that_was_replaced_ends_nothing(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    first = broker.connection
    assert first is not None
    await broker.connect()

    shard.leader.brokers.sessions.disconnect(first)
    await asyncio.sleep(2 * RESUME_S)

    assert isinstance(first.error, SessionExpired)
    assert await reasons(shard) == []
    assert broker.connection is not None
    assert broker.connection.error is None


@run_by(in_shard)
async def test_an_unannounced_leader_waits_the_silence_timeout_for_its_brokers(
    shard: Harness,
) -> None:
    await shard.start_broker("broker-1")
    await asyncio.sleep(5.0)
    shard.next_term()

    await asyncio.sleep(TTL_S - 0.01)
    assert await reasons(shard) == []
    await asyncio.sleep(0.01 + RECORDING_S)

    assert await reasons(shard) == ["expired"]


@run_by(in_shard)
async def test_brokers_that_do_not_reach_an_announced_leader_end_soon(
    shard: Harness,
) -> None:
    returning = await shard.start_broker("broker-1")
    await shard.start_broker("broker-2")
    await asyncio.sleep(5.0)
    shard.next_term()
    sessions = shard.leader.brokers.sessions
    sessions.note_announced()
    await returning.connect()

    await asyncio.sleep(RETURN_S - 0.01)
    # As after a reconnect to the cluster manager: it gives nobody more time.
    sessions.note_announced()
    assert await reasons(shard) == []
    await asyncio.sleep(0.01 + RECORDING_S)

    (ended,) = await shard.events("broker_session_ended")
    assert ended.broker_session_ended.broker_id == "broker-2"
    assert ended.broker_session_ended.reason == "disconnected"
    await asyncio.sleep(2 * TTL_S)
    assert returning.resumed
    assert [each.broker_id for each in sessions.statuses()] == ["broker-1"]


@run_by(in_shard)
async def test_a_broker_that_comes_to_a_new_leader_in_time_keeps_its_session(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    session_id = broker.session_id
    for _ in range(3):
        shard.next_term()
        shard.leader.brokers.sessions.note_announced()
        await asyncio.sleep(RETURN_S - 0.001)
        await broker.connect()
    await asyncio.sleep(2 * TTL_S)

    assert (broker.resumed, broker.session_id) == (True, session_id)
    assert await reasons(shard) == []

    broker.vanish()
    await asyncio.sleep(RESUME_S + RECORDING_S)
    assert await reasons(shard) == ["disconnected"]


@run_by(in_shard)
async def test_while_brokers_still_come_to_a_new_leader_the_others_are_waited_for(
    shard: Harness,
) -> None:
    brokers = [await shard.start_broker(f"broker-{number}") for number in range(3)]
    shard.next_term()
    shard.leader.brokers.sessions.note_announced()

    await asyncio.sleep(RETURN_S - 0.3)
    await brokers[0].connect()
    await asyncio.sleep(RETURN_S - 0.3)
    await brokers[1].connect()
    assert await reasons(shard) == []
    assert brokers[1].resumed

    # Silence bounds it.
    await asyncio.sleep(TTL_S - 2 * (RETURN_S - 0.3) + RECORDING_S)
    assert await reasons(shard) == ["disconnected"]


@run_by(in_shard)
async def test_a_new_leader_that_did_not_run_gives_brokers_their_time_to_come_again(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    shard.next_term()
    late_s = 2 * RESUME_S
    shard.leader.brokers.sessions._clock = LateClock(shard, late_s)
    shard.leader.brokers.sessions.note_announced()

    await asyncio.sleep(RETURN_S + late_s + RECORDING_S)
    await broker.connect()
    await asyncio.sleep(2 * TTL_S)

    assert broker.resumed
    assert await reasons(shard) == []


@run_by(in_shard)
async def test_a_leader_that_steps_down_ends_no_session_whose_stream_it_broke(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    sessions, connection = shard.leader.brokers.sessions, broker.connection
    assert connection is not None

    shard.log.become_leader()
    sessions.disconnect(connection)
    await broker.connect()
    await asyncio.sleep(2 * RESUME_S)

    assert isinstance(connection.error, NotLeader)
    assert broker.resumed
    assert await reasons(shard) == []


@run_by(in_shard)
async def test_a_session_that_was_closed_is_not_ended_again_by_its_stream(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    connection = broker.connection
    assert connection is not None
    goodbye = broker_pb.BrokerMessage(goodbye=broker_pb.BrokerGoodbye())
    shard.leader.brokers.sessions.receive(connection, goodbye)
    await asyncio.sleep(RECORDING_S)

    broker.vanish()
    await asyncio.sleep(2 * RESUME_S)

    assert await reasons(shard) == ["closed"]


@run_by(in_shard)
async def test_of_many_brokers_only_those_whose_streams_broke_end(shard: Harness) -> None:
    for number in range(20):
        await shard.start_broker(f"broker-{number}")
        await asyncio.sleep(0.07)
    gone = [shard.brokers[f"broker-{number}"] for number in (3, 7, 19)]

    for broker in gone:
        broker.vanish()
        await asyncio.sleep(0.1)
    await asyncio.sleep(RESUME_S + RECORDING_S)

    ended = await shard.events("broker_session_ended")
    assert [event.broker_session_ended.broker_id for event in ended] == [
        broker.broker_id for broker in gone
    ]
    assert shard.leader.brokers.sessions.count == 17


@run_by(in_shard)
async def test_an_end_that_cannot_be_recorded_is_tried_again(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    state = shard.leader.state
    propose = state.proposer.propose

    async def refuse(_events: object) -> None:
        raise Overloaded("too much is in flight")

    state.proposer.propose = refuse  # type: ignore[method-assign, assignment]
    broker.vanish()
    await asyncio.sleep(RESUME_S + RECORDING_S)
    state.proposer.propose = propose  # type: ignore[method-assign]
    await asyncio.sleep(RESUME_S)
    assert await reasons(shard) == []
    assert shard.leader.brokers.sessions.count == 1
    await asyncio.sleep(TTL_S)

    assert await reasons(shard) == ["disconnected"]


class LateClock:
    """The loop's time, except that its timers are called ``late_s`` late."""

    def __init__(self, shard: Harness, late_s: float) -> None:
        self._shard = shard
        self._late_s = late_s

    def monotonic(self) -> float:
        return self._shard.clock.monotonic()

    def wall_ms(self) -> int:
        return self._shard.clock.wall_ms()

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancellable:
        return self._shard.clock.call_at(when + self._late_s, callback)


@run_by(in_shard)
async def test_a_leader_that_did_not_run_gives_the_broker_its_time_again(shard: Harness) -> None:
    late_s = 2 * RESUME_S
    shard.leader.brokers.sessions._clock = LateClock(shard, late_s)
    broker = await shard.start_broker("broker-1")

    broker.vanish()
    await asyncio.sleep(RESUME_S + late_s + RECORDING_S)
    # As if its hello had waited to be read since the stream broke.
    await broker.connect()
    await asyncio.sleep(RESUME_S)

    assert broker.resumed
    assert await reasons(shard) == []


@run_by(in_shard)
async def test_a_leader_whose_timers_are_always_late_ends_the_session_by_silence(
    shard: Harness,
) -> None:
    shard.leader.brokers.sessions._clock = LateClock(shard, 2 * RESUME_S)
    broker = await shard.start_broker("broker-1")

    broker.vanish()
    await asyncio.sleep(TTL_S + 4 * RESUME_S)

    assert len(await reasons(shard)) == 1


@run_by(in_shard)
async def test_a_leader_that_did_not_run_looks_once_more_at_a_silent_broker(shard: Harness) -> None:
    late_s = 2 * RESUME_S
    sessions = shard.leader.brokers.sessions
    sessions._clock = LateClock(shard, late_s)
    broker = await shard.start_broker("broker-1")
    connection = broker.connection
    assert connection is not None

    broker.freeze()
    await asyncio.sleep(TTL_S + late_s + RECORDING_S)
    # As if it had waited to be read while the leader stood still.
    sessions.receive(connection, broker_pb.BrokerMessage(heartbeat=broker_pb.BrokerHeartbeat()))
    await asyncio.sleep(TTL_S - RECORDING_S)
    assert await reasons(shard) == []

    # It is silent for good, and the leader's timers are always late.
    await asyncio.sleep(HEARTBEAT_S + 3 * late_s)
    assert await reasons(shard) == ["expired"]


def planned_looks(sessions: BrokerSessions) -> int:
    return len(sessions._deadlines)


@run_by(in_shard)
async def test_streams_that_break_for_ever_plan_a_bounded_number_of_looks(shard: Harness) -> None:
    broker: FakeBroker = await shard.start_broker("broker-1")
    sessions = shard.leader.brokers.sessions
    most = 0

    for _ in range(1_000):
        broker.vanish()
        await asyncio.sleep(0.02)
        await broker.connect()
        most = max(most, planned_looks(sessions))

    # Those of the last resume time, and one of each session.
    assert most <= RESUME_S / 0.02 + 2
    assert await reasons(shard) == []


async def hang_up_too_early(shard: Harness, broker: FakeBroker) -> None:
    """Say hello and go away while the session is being recorded."""
    shard.log.hold_commits()
    with pytest.raises(TimeoutError):
        async with timeout(BROKER_GREETING_MS_MAX / 1000):
            await broker.connect()


@run_by(in_shard)
async def test_a_broker_that_goes_away_while_it_registers_leaves_a_session_that_ends(
    shard: Harness,
) -> None:
    await hang_up_too_early(shard, FakeBroker(shard, "broker-1"))
    shard.log.release_commits()
    await asyncio.sleep(TTL_S + RECORDING_S)

    assert await reasons(shard) == ["expired"]
    assert not shard.cluster.reports[-1].is_live


@run_by(in_shard)
async def test_a_session_that_was_replaced_is_over_though_its_successors_hello_was_given_up(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    first = broker.session_id

    await hang_up_too_early(shard, FakeBroker(shard, "broker-1"))
    shard.log.release_commits()
    await asyncio.sleep(0)
    await asyncio.sleep(RECORDING_S)

    assert await reasons(shard) == ["replaced"]
    assert isinstance(broker.error, SessionExpired)
    assert [each.session_id for each in shard.cluster.live()] != [first]
    await asyncio.sleep(TTL_S)
    assert await reasons(shard) == ["replaced", "expired"]
    assert shard.cluster.live() == []
    assert shard.leader.brokers.sessions.count == 0


@run_by(in_shard)
async def test_a_broker_that_asks_again_while_it_is_registered_has_begun_one_session(
    shard: Harness,
) -> None:
    """Commits that take long must not bring a broker into quarantine that never came and went."""
    broker = FakeBroker(shard, "broker-1")
    for _ in range(SESSIONS_STARTED_MAX + 1):
        await hang_up_too_early(shard, broker)

    asking = asyncio.create_task(broker.connect())
    await asyncio.sleep(RECORDING_S)
    shard.log.release_commits()
    await asking

    assert len(await shard.events("broker_session_established")) == 1
    assert shard.leader.brokers.sessions.count == 1
    assert broker.session_id == shard.cluster.reports[-1].session_id
    assert not shard.cluster.reports[-1].quarantined_until_ms
    await asyncio.sleep(2 * TTL_S)
    assert await reasons(shard) == []
    for task in broker._tasks:
        task.cancel()


@run_by(in_shard)
async def test_a_broker_that_registers_with_another_capacity_begins_another_session(
    shard: Harness,
) -> None:
    await hang_up_too_early(shard, FakeBroker(shard, "broker-1", capacity_units=100))
    asking = asyncio.create_task(shard.start_broker("broker-1", capacity_units=50))
    await asyncio.sleep(RECORDING_S)
    shard.log.release_commits()
    await asking

    assert await reasons(shard) == ["replaced"]
    assert [each.capacity_units for each in shard.cluster.live()] == [50]


@run_by(in_shard)
async def test_a_registration_fails_when_leadership_moves(shard: Harness) -> None:
    shard.log.hold_commits()
    asking = asyncio.create_task(FakeBroker(shard, "broker-1").connect())
    await asyncio.sleep(RECORDING_S)
    shard.log.lose_leadership()

    with pytest.raises(MetadataError):
        await asking


@run_by(in_shard)
async def test_a_message_on_the_stream_of_an_ended_session_does_not_reach_the_next(
    shard: Harness,
) -> None:
    await shard.start_broker("broker-2")
    broker = await shard.start_broker("broker-1")
    first = broker.connection
    assert first is not None
    broker.capacity_units += 1
    await broker.connect()
    assert isinstance(first.error, SessionExpired)

    wish = broker_pb.BrokerMessage(drain=broker_pb.DrainWish(units_per_second=10))
    shard.leader.brokers.sessions.receive(first, wish)
    await asyncio.sleep(RECORDING_S)

    assert await shard.events("broker_drain_set") == []


@run_by(in_shard)
async def test_of_two_that_register_at_the_same_time_one_has_a_session(shard: Harness) -> None:
    shard.log.hold_commits()
    first = asyncio.create_task(FakeBroker(shard, "broker-1", capacity_units=100).connect())
    await asyncio.sleep(RECORDING_S)
    second = asyncio.create_task(shard.start_broker("broker-1", capacity_units=50))
    await asyncio.sleep(RECORDING_S)

    shard.log.release_commits()

    with pytest.raises(SessionExpired):
        await first
    broker = await second
    sessions = shard.leader.brokers.sessions
    assert [each.session_id for each in sessions.statuses()] == [broker.session_id]


@run_by(in_shard)
async def test_a_registration_is_not_answered_with_a_session_that_has_ended(
    shard: Harness,
) -> None:
    """1. The session is committed. 2. The leader steps down. 3. Its broker would be answered."""
    sessions = shard.leader.brokers.sessions
    asking = asyncio.create_task(FakeBroker(shard, "broker-1").connect())
    while sessions.count == 0:
        await asyncio.sleep(0)

    sessions.close(NotLeader("it stepped down"))

    with pytest.raises(NotLeader):
        await asking


def test_sessions_per_shard_max_are_live_and_one_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_sessions, "SESSIONS_PER_SHARD_MAX", 2)

    async def scenario(shard: Harness) -> None:
        await shard.start_broker("broker-1")
        broker = await shard.start_broker("broker-2")

        with pytest.raises(Overloaded):
            await shard.start_broker("broker-3")
        await broker.connect()

        assert broker.resumed
        assert shard.leader.brokers.sessions.count == 2

    in_shard(tmp_path, scenario)


@run_by(in_shard)
async def test_a_new_leader_does_not_take_over_a_session_that_ended(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    broker = await shard.start_broker("broker-2")
    broker.vanish()
    await asyncio.sleep(RESUME_S + RECORDING_S)

    shard.next_term()

    statuses = shard.leader.brokers.sessions.statuses()
    assert [each.broker_id for each in statuses] == ["broker-1"]


@run_by(in_shard)
async def test_a_session_is_only_of_the_broker_that_began_it(shard: Harness) -> None:
    await shard.start_broker("broker-1")
    broker = await shard.start_broker("broker-2")

    with pytest.raises(SessionExpired):
        shard.leader.brokers.sessions.live("broker-1", broker.session_id)


@run_by(in_shard)
async def test_a_wait_for_a_broker_that_never_connects_ends_with_its_session(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    shard.next_term()
    sessions = shard.leader.brokers.sessions
    waiting = asyncio.create_task(sessions.attached("broker-1", broker.session_id))

    await asyncio.sleep(TTL_S + RECORDING_S)

    with pytest.raises(SessionExpired):
        await waiting


@run_by(in_shard)
async def test_each_revision_of_a_drain_is_reported_once_and_in_order(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    sessions = shard.leader.brokers.sessions
    wishes = [
        SetDrain("broker-1", broker.session_id, draining=draining)
        for draining in (True, True, False, False)
    ]
    shard.log.hold_commits()
    asking = []
    for wish in wishes:
        asking.append(asyncio.create_task(sessions.carry_out(wish)))
        await asyncio.sleep(RECORDING_S)

    shard.log.release_commits()
    await asyncio.gather(*asking)

    assert [each.revision for each in shard.cluster.reports if each.revision] == [1, 2]


@run_by(in_shard)
async def test_a_session_is_reported_again_once_it_is_committed_and_not_before(
    shard: Harness,
) -> None:
    shard.log.hold_commits()
    asking = asyncio.create_task(shard.start_broker("broker-1"))
    await asyncio.sleep(RECORDING_S)

    shard.cluster.reconnect()
    assert shard.cluster.reports == []
    shard.log.release_commits()
    broker = await asking

    assert [each.session_id for each in shard.cluster.reports] == [broker.session_id]


@run_by(in_shard)
async def test_a_leader_whose_term_is_over_reports_nothing_again(shard: Harness) -> None:
    """1. A commit is lost. 2. A cluster manager is back. 3. The leader hears that it is deposed."""
    await shard.start_broker("broker-1")
    shard.cluster.reports.clear()
    shard.leader.state.term.end()

    shard.cluster.reconnect()

    assert shard.cluster.reports == []
