"""The feed: what a subscriber is sent, and when a position is effective everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from discovery.domain.answer_cache import Delta
from discovery.wire import delta_of_event
from nextgen.kernel.errors import NotLeader, Overloaded, Unavailable
from nextgen.kernel.limits.cluster import (
    ASSIGNMENT_CREATIONS_MS,
    ASSIGNMENT_SUBSCRIBERS_MAX,
    ASSIGNMENT_TTL_MS,
    ASSIGNMENT_UPDATE_MS,
)
from nextgen.replication.ports import AppliedPoint, Record
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.events_pb2 import (
    DecidedCommand,
    Event,
    TopicAssigned,
    TopicCreated,
    TopicUnassigned,
)
from protos.nextgen.v1.shard_service_pb2 import WatchShardUpdate
from shards.watches import assignment_feed
from shards.watches.assignment_feed import AssignmentFeed, LeasedCursor
from shards.watches.effective_writes import EffectiveWrites
from tests.support.dict_state_machine import DictStateMachine
from tests.support.memory_log import MemoryLog
from tests.support.shard_harness import VirtualClock
from tests.support.virtual_time import run_virtual

TTL_S = ASSIGNMENT_TTL_MS / 1000


class Feed:
    """A feed over a log in memory."""

    def __init__(self) -> None:
        self.machine = DictStateMachine()
        self.log = MemoryLog(self.machine)
        self.lead()

    def lead(self) -> None:
        """Begin a term: what waits for subscriptions, and the feed."""
        self.effective = EffectiveWrites(1, self.log, VirtualClock())
        self.feed = AssignmentFeed(1, self.log, VirtualClock(), self.effective)

    async def commit(self, *events: Event) -> int:
        """Commit one record and return the position of its last event."""
        payload = DecidedCommand(time_ms=1, events=events).SerializeToString()
        commit = await self.log.propose(Record(payload, len(events)))
        return commit.first_position + len(events) - 1


def assigned(name: str, epoch: int = 1, broker_id: str = "broker-1") -> Event:
    event = TopicAssigned(name=name, epoch=epoch, broker_id=broker_id, session_id="s", topic_id="i")
    return Event(topic_assigned=event)


def unassigned(name: str, epoch: int = 1) -> Event:
    return Event(topic_unassigned=TopicUnassigned(name=name, epoch=epoch, topic_id="i"))


def created(name: str) -> Event:
    return Event(topic_created=TopicCreated(name=name))


def names(subscription: LeasedCursor) -> list[str]:
    return [delta.topic for delta in deltas(subscription.take_update())]


def deltas(update: WatchShardUpdate) -> list[Delta]:
    """Return the changes of assignments in ``update`` as a discovery node reads them."""
    found = list(map(delta_of_event, update.events))
    assert None not in found, "only assignments are sent as events"
    return [delta for delta in found if delta is not None]


def with_feed(scenario: Callable[[Feed], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await scenario(Feed())

    run_virtual(main)


def test_a_subscriber_starts_at_the_present_and_is_told_its_time_to_live() -> None:
    async def scenario(it: Feed) -> None:
        position = await it.commit(assigned("a"))

        subscription = it.feed.subscribe("discovery-1", 0)
        first = subscription.take_update()
        second = subscription.take_update()

        assert (first.position, list(first.events), first.ttl_ms) == (position, [], 2_000)
        assert second.ttl_ms == 0

    with_feed(scenario)


def test_deltas_come_in_order_with_their_positions() -> None:
    async def scenario(it: Feed) -> None:
        subscription = it.feed.subscribe("discovery-1", 0)
        subscription.take_update()

        await it.commit(assigned("a"), created("x"), assigned("b", 2, "broker-2"))
        position = await it.commit(unassigned("a"))
        assert subscription.changed.is_set()
        update = subscription.take_update()

        assert [(d.position, d.topic, d.epoch, d.broker_id) for d in deltas(update)] == [
            (1, "a", 1, "broker-1"),
            (3, "b", 2, "broker-2"),
            (4, "a", 1, ""),
        ]
        assert update.position == position
        assert not subscription.changed.is_set()

    with_feed(scenario)


def test_other_events_move_the_position_and_wake_nobody() -> None:
    async def scenario(it: Feed) -> None:
        subscription = it.feed.subscribe("discovery-1", 0)
        subscription.take_update()

        position = await it.commit(created("x"))

        assert not subscription.changed.is_set()
        assert subscription.take_update().position == position

    with_feed(scenario)


def test_a_first_assignment_wakes_nobody_and_comes_with_what_does() -> None:
    async def scenario(it: Feed) -> None:
        subscription = it.feed.subscribe("discovery-1", 0)
        subscription.take_update()

        await it.commit(assigned("a"))
        assert not subscription.changed.is_set()
        await it.commit(assigned("b", 2))

        assert subscription.changed.is_set()
        assert names(subscription) == ["a", "b"]

    with_feed(scenario)


@pytest.mark.parametrize("event", [assigned("a", 2), unassigned("a")])
def test_what_ends_an_answer_is_told_at_once(event: Event) -> None:
    async def scenario(it: Feed) -> None:
        subscription = it.feed.subscribe("discovery-1", 0)
        subscription.take_update()

        await it.commit(event)

        assert subscription.changed.is_set()

    with_feed(scenario)


def test_a_first_assignment_that_is_waited_for_is_told_at_once() -> None:
    async def scenario(it: Feed) -> None:
        subscription = it.feed.subscribe("discovery-1", 0)
        subscription.take_update()
        await asyncio.sleep(3)
        waiting = asyncio.create_task(it.effective.wait_assigned(1))
        await asyncio.sleep(0)
        subscription.take_update()

        position = await it.commit(assigned("a"))
        assert subscription.changed.is_set()
        assert not waiting.done()
        subscription.acknowledge(position)

        await waiting

    with_feed(scenario)


def test_a_subscriber_that_returns_gets_what_it_missed_from_the_log() -> None:
    async def scenario(it: Feed) -> None:
        first = await it.commit(assigned("a"))
        await it.commit(assigned("b"))
        await it.commit(assigned("c"))

        subscription = it.feed.subscribe("discovery-1", first)

        assert names(subscription) == ["b", "c"]

    with_feed(scenario)


def test_resuming_inside_a_record_sends_only_what_is_behind_the_position() -> None:
    async def scenario(it: Feed) -> None:
        await it.commit(assigned("a"), assigned("b"), assigned("c"))

        subscription = it.feed.subscribe("discovery-1", 2)

        assert names(subscription) == ["c"]

    with_feed(scenario)


def test_a_gap_that_the_log_cannot_fill_is_a_reset() -> None:
    async def scenario(it: Feed) -> None:
        await it.commit(assigned("a"))
        position = await it.commit(assigned("b"))
        await it.log.take_snapshot()

        subscription = it.feed.subscribe("discovery-1", 1)
        await it.commit(assigned("c"))
        update = subscription.take_update()

        assert update.reset
        assert update.position == position + 1
        await it.commit(assigned("d"))
        assert names(subscription) == ["d"]

    with_feed(scenario)


def test_a_bounded_number_of_changes_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment_feed, "ASSIGNMENT_BACKLOG_MAX", 5)

    async def scenario(it: Feed) -> None:
        start = await it.commit(assigned("a"))
        slow = it.feed.subscribe("discovery-1", start)
        for number in range(40):
            await it.commit(assigned(f"t-{number}"))
            assert len(it.feed._recent) <= 2 * 5

        given = names(slow)
        while slow.cursor < it.feed.position:
            given += names(slow)
        assert given == [f"t-{number}" for number in range(40)], "the rest is read from the log"

    with_feed(scenario)


@pytest.mark.parametrize("excess", [0, 1])
def test_twice_assignment_backlog_max_changes_are_kept_and_with_one_more_the_latest_half(
    monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    monkeypatch.setattr(assignment_feed, "ASSIGNMENT_BACKLOG_MAX", 5)

    async def scenario(it: Feed) -> None:
        start = await it.commit(assigned("a"))
        slow = it.feed.subscribe("discovery-1", start)
        for number in range(10 + excess):
            await it.commit(assigned(f"t-{number}"))

        assert len(it.feed._recent) == (5 if excess else 10)
        given = names(slow)
        while slow.cursor < it.feed.position:
            given += names(slow)
        assert given == [f"t-{number}" for number in range(10 + excess)], "nothing is left out"

    with_feed(scenario)


def test_a_subscriber_from_the_future_is_reset() -> None:
    async def scenario(it: Feed) -> None:
        subscription = it.feed.subscribe("discovery-1", 1_000)

        assert subscription.take_update().reset

    with_feed(scenario)


def test_a_subscriber_from_the_future_has_acknowledged_nothing_that_is_to_come() -> None:
    """It followed a log that had more, as before a restore."""

    async def scenario(it: Feed) -> None:
        await asyncio.sleep(TTL_S)
        await it.commit(assigned("a"))
        subscription = it.feed.subscribe("discovery-1", 1_000)
        assert subscription.take_update().reset
        position = await it.commit(assigned("a", 2, "broker-2"))

        waiting = asyncio.create_task(it.effective.wait_assigned(position))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        subscription.acknowledge(position)
        await waiting

    with_feed(scenario)


def test_a_slow_subscriber_is_served_in_pieces_from_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assignment_feed, "ASSIGNMENT_BACKLOG_MAX", 2)
    monkeypatch.setattr(assignment_feed, "ASSIGNMENT_DELTAS_PER_UPDATE_MAX", 3)

    async def scenario(it: Feed) -> None:
        slow = it.feed.subscribe("discovery-1", 0)
        slow.take_update()
        for number in range(20):
            await it.commit(assigned(f"t-{number}", 2))

        got: list[str] = []
        updates = 0
        while slow.changed.is_set():
            got += names(slow)
            updates += 1

        assert got == [f"t-{number}" for number in range(20)]
        assert updates >= 7

    with_feed(scenario)


async def confirmed(subscription: LeasedCursor, asked_at_ms: int) -> None:
    subscription.asked_at_ms = asked_at_ms
    await subscription.confirm()


def test_only_the_page_that_reaches_the_position_of_a_confirmation_prolongs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An earlier page may end before a move that became effective without the subscriber."""
    monkeypatch.setattr(assignment_feed, "ASSIGNMENT_DELTAS_PER_UPDATE_MAX", 3)

    async def scenario(it: Feed) -> None:
        start = await it.commit(assigned("a"))
        for number in range(8):
            await it.commit(created(f"t-{number}"))
        moved = await it.commit(assigned("a", 2, "broker-2"))

        back = it.feed.subscribe("discovery-1", start)
        await confirmed(back, 1_000)
        updates = [back.take_update() for _ in range(4)]

        assert [update.confirmed_at_ms for update in updates] == [0, 0, 1_000, 1_000]
        assert [update.position for update in updates] == [4, 7, 10, 10]
        assert updates[2].position == moved

    with_feed(scenario)


def test_what_is_asked_while_leadership_is_confirmed_is_not_confirmed_by_that() -> None:
    """1. A majority is asked. 2. A later question arrives. 3. The majority has answered."""

    async def scenario(it: Feed) -> None:
        subscription = it.feed.subscribe("discovery-1", 0)
        subscription.asked_at_ms = 1_000
        confirming = asyncio.create_task(subscription.confirm())
        await asyncio.sleep(0)

        subscription.asked_at_ms = 2_000
        await confirming

        assert subscription.take_update().confirmed_at_ms == 1_000

    with_feed(scenario)


def test_a_leader_that_no_majority_confirms_prolongs_nothing() -> None:
    async def scenario(it: Feed) -> None:
        subscription = it.feed.subscribe("discovery-1", 0)
        it.log.lose_quorum()

        with pytest.raises(NotLeader):
            await confirmed(subscription, 1_000)

        assert subscription.take_update().confirmed_at_ms == 0

    with_feed(scenario)


def test_what_was_acknowledged_stays_acknowledged() -> None:
    """Acknowledgements of one stream may be repeated; a move that was let go of stays so."""

    async def scenario(it: Feed) -> None:
        await asyncio.sleep(TTL_S)
        subscription = it.feed.subscribe("discovery-1", 0)
        position = await it.commit(assigned("a", 2))
        subscription.acknowledge(position)

        subscription.acknowledge(position - 1)

        async with timeout(0.001):
            await it.effective.wait_assigned(position)

    with_feed(scenario)


def test_a_subscriber_that_never_quite_catches_up_is_prolonged_as_of_what_it_has_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assignment_feed, "ASSIGNMENT_DELTAS_PER_UPDATE_MAX", 2)

    async def scenario(it: Feed) -> None:
        start = await it.commit(assigned("a"))
        back = it.feed.subscribe("discovery-1", start)
        given = []
        for turn in range(1, 6):
            for _ in range(2):
                await it.commit(assigned("t"))
            await confirmed(back, 1_000 * turn)
            if turn > 1:
                given.append(back.take_update().confirmed_at_ms)

        assert given == [1_000, 2_000, 3_000, 4_000]

    with_feed(scenario)


def test_a_confirmation_counts_what_was_committed_and_not_only_what_the_feed_has_seen() -> None:
    async def scenario(it: Feed) -> None:
        await it.commit(assigned("a"))
        subscription = it.feed.subscribe("discovery-1", 0)
        it.feed._unsubscribe()
        await it.commit(assigned("a", 2, "broker-2"))

        await confirmed(subscription, 1_000)

        assert subscription.take_update().confirmed_at_ms == 0

    with_feed(scenario)


def test_confirmations_of_a_subscriber_that_lags_for_long_are_bounded() -> None:
    async def scenario(it: Feed) -> None:
        await it.commit(assigned("a"), created("b"))
        subscription = it.feed.subscribe("discovery-1", 1)
        for turn in range(1, 100):
            await confirmed(subscription, turn)

        assert len(subscription._unreached) == ASSIGNMENT_TTL_MS // ASSIGNMENT_UPDATE_MS
        assert subscription.take_update().confirmed_at_ms == 99

    with_feed(scenario)


def test_a_position_is_effective_when_every_subscriber_has_acknowledged_it() -> None:
    async def scenario(it: Feed) -> None:
        await asyncio.sleep(TTL_S)
        one, two = it.feed.subscribe("d-1", 0), it.feed.subscribe("d-2", 0)
        position = await it.commit(assigned("a"))
        waiting = asyncio.create_task(it.effective.wait_assigned(position))
        await asyncio.sleep(0.1)

        one.acknowledge(position)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        two.acknowledge(position)

        async with timeout(0.01):
            await waiting

    with_feed(scenario)


def test_without_subscribers_a_position_is_effective_at_once() -> None:
    async def scenario(it: Feed) -> None:
        await asyncio.sleep(TTL_S)

        async with timeout(0.01):
            await it.effective.wait_assigned(await it.commit(assigned("a")))

    with_feed(scenario)


def test_a_new_leader_waits_one_time_to_live_for_subscribers_of_the_old_one() -> None:
    async def scenario(it: Feed) -> None:
        position = await it.commit(assigned("a"))
        waiting = asyncio.create_task(it.effective.wait_assigned(position))

        await asyncio.sleep(TTL_S - 0.1)
        assert not waiting.done()
        await asyncio.sleep(0.2)

        assert waiting.done()

    with_feed(scenario)


def test_a_silent_subscriber_is_cut_off_after_one_time_to_live() -> None:
    async def scenario(it: Feed) -> None:
        await asyncio.sleep(TTL_S)
        silent = it.feed.subscribe("d-1", 0)
        position = await it.commit(assigned("a"))
        waiting = asyncio.create_task(it.effective.wait_assigned(position))

        await asyncio.sleep(TTL_S - 0.1)
        assert not waiting.done()
        await asyncio.sleep(0.3)

        assert waiting.done()
        with pytest.raises(Unavailable, match="not acknowledged position"):
            silent.take_update()

    with_feed(scenario)


def test_only_who_has_not_acknowledged_is_cut_off_and_not_before_a_late_update_is_there() -> None:
    """An update that left just before the change prolongs its subscriber a little later."""

    async def scenario(it: Feed) -> None:
        await asyncio.sleep(TTL_S)
        heard, silent = (it.feed.subscribe(f"discovery-{number}", 0) for number in (1, 2))
        position = await it.commit(assigned("a", 2))
        heard.acknowledge(position)
        waiting = asyncio.create_task(it.effective.wait_assigned(position))

        await asyncio.sleep(TTL_S + 0.05)
        assert not waiting.done()
        await waiting

        heard.take_update()
        with pytest.raises(Unavailable):
            silent.take_update()

    with_feed(scenario)


def test_a_subscriber_that_left_counts_for_one_more_time_to_live() -> None:
    async def scenario(it: Feed) -> None:
        await asyncio.sleep(TTL_S)
        it.feed.subscribe("d-1", 0).close()
        position = await it.commit(assigned("a"))
        waiting = asyncio.create_task(it.effective.wait_assigned(position))

        await asyncio.sleep(TTL_S - 0.1)
        assert not waiting.done()
        await asyncio.sleep(0.3)

        assert waiting.done()

    with_feed(scenario)


def test_a_subscriber_that_returns_is_waited_for_until_it_acknowledges() -> None:
    async def scenario(it: Feed) -> None:
        await asyncio.sleep(TTL_S)
        start = await it.commit(assigned("a"))
        it.feed.subscribe("d-1", 0).close()
        position = await it.commit(assigned("b"))
        waiting = asyncio.create_task(it.effective.wait_assigned(position))
        await asyncio.sleep(0.1)

        back = it.feed.subscribe("d-1", start)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        back.acknowledge(back.take_update().position)

        async with timeout(0.01):
            await waiting

    with_feed(scenario)


def test_subscribing_twice_ends_the_older_subscription() -> None:
    async def scenario(it: Feed) -> None:
        older = it.feed.subscribe("d-1", 0)

        newer = it.feed.subscribe("d-1", 0)
        older.close()

        with pytest.raises(Unavailable):
            older.take_update()
        assert it.feed.subscriber_count == 1
        newer.take_update()

    with_feed(scenario)


def test_there_is_a_limit_to_subscribers() -> None:
    async def scenario(it: Feed) -> None:
        for number in range(ASSIGNMENT_SUBSCRIBERS_MAX):
            it.feed.subscribe(f"d-{number}", 0)

        with pytest.raises(Overloaded):
            it.feed.subscribe("one-more", 0)

    with_feed(scenario)


def test_closing_ends_subscriptions_and_waits() -> None:
    async def scenario(it: Feed) -> None:
        subscription = it.feed.subscribe("d-1", 0)
        waiting = asyncio.create_task(it.effective.wait_assigned(1))
        await asyncio.sleep(0.1)

        it.effective.close(NotLeader(1, "elsewhere:1"))
        it.feed.close(NotLeader(1, "elsewhere:1"))

        with pytest.raises(NotLeader):
            await waiting
        with pytest.raises(NotLeader):
            subscription.take_update()
        assert subscription.changed.is_set()

    with_feed(scenario)


def test_a_feed_starts_behind_what_was_committed_before_its_term() -> None:
    machine = DictStateMachine()
    assert machine.applied() == AppliedPoint(0, 0, 0)

    async def scenario(it: Feed) -> None:
        before = await it.commit(assigned("a"))
        later = AssignmentFeed(1, it.log, VirtualClock(), it.effective)

        assert later.position == before

    with_feed(scenario)


# Creations ----------------------------------------------------------------------------------------


def test_creations_share_an_update_that_comes_within_the_time_they_wait() -> None:
    async def scenario(it: Feed) -> None:
        subscription = it.feed.subscribe("discovery-1", 0, names_creations=True)
        subscription.take_update()

        await it.commit(created("x"))
        await asyncio.sleep(ASSIGNMENT_CREATIONS_MS / 2_000)
        position = await it.commit(created("y"), created("z"))
        assert not subscription.changed.is_set()
        await asyncio.sleep(ASSIGNMENT_CREATIONS_MS / 2_000 + 0.001)

        assert subscription.changed.is_set()
        update = subscription.take_update()
        assert (list(update.created), list(update.events)) == (["x", "y", "z"], [])
        assert update.position == position

    with_feed(scenario)


def test_creations_are_not_named_to_a_subscriber_that_does_not_ask_for_them() -> None:
    async def scenario(it: Feed) -> None:
        subscription = it.feed.subscribe("discovery-1", 0)
        subscription.take_update()

        await it.commit(created("x"))
        await asyncio.sleep(2 * ASSIGNMENT_CREATIONS_MS / 1_000)

        assert not subscription.changed.is_set()
        assert list(subscription.take_update().created) == []

    with_feed(scenario)


def test_creations_that_a_subscriber_missed_come_from_the_log() -> None:
    async def scenario(it: Feed) -> None:
        first = await it.commit(created("x"))
        await it.commit(created("y"), assigned("y"))

        subscription = it.feed.subscribe("discovery-1", first, names_creations=True)
        update = subscription.take_update()

        assert list(update.created) == ["y"]
        assert [delta.topic for delta in deltas(update)] == ["y"]

    with_feed(scenario)


def test_an_effective_create_waits_until_subscribers_have_taken_the_creation_in() -> None:
    async def scenario(it: Feed) -> None:
        subscription = it.feed.subscribe("discovery-1", 0, names_creations=True)
        subscription.take_update()
        await asyncio.sleep(TTL_S)
        position = await it.commit(created("x"))

        waiting = asyncio.ensure_future(it.effective.wait_assigned(position))
        await asyncio.sleep(0)
        assert subscription.changed.is_set(), "somebody waits: it goes out at once"
        assert list(subscription.take_update().created) == ["x"]
        assert not waiting.done()

        subscription.acknowledge(position)
        await waiting

    with_feed(scenario)
