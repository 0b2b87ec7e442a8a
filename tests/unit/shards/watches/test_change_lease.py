"""Leased watches: what a subscriber is sent, when, and how long it may use that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from discovery.domain.answer_cache import Delta
from discovery.wire import delta_of_event
from nextgen.kernel.errors import InvalidRequest, NotLeader
from nextgen.kernel.limits.cluster import (
    ASSIGNMENT_CREATIONS_MS,
    ASSIGNMENT_TTL_MS,
    ASSIGNMENT_UPDATE_MS,
)
from nextgen.kernel.limits.stream import ASSIGNMENT_REST_MS, WATCH_EVENTS_PER_UPDATE_MAX
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.events_pb2 import (
    Event,
    NamespaceCreated,
    PlacementDecision,
    PolicySet,
    TenantCreated,
)
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_TENANT,
    KIND_TOPIC,
)
from protos.nextgen.v1.shard_service_pb2 import WatchAdd, WatchShardUpdate
from shards.watches import change_delivery, change_hub
from tests.support.shards.leased_subscriber import (
    LeasedSubscriber,
    LeaseWorld,
    assigned,
    created,
    grown,
    in_lease_world,
    refusal_of,
    subscribed,
    unassigned,
)

TTL_S = ASSIGNMENT_TTL_MS / 1000
UPDATE_S = ASSIGNMENT_UPDATE_MS / 1000
REST_S = ASSIGNMENT_REST_MS / 1000
ROOT = "persistent://t/n"


def names(updates: list[WatchShardUpdate]) -> list[str]:
    return [delta.topic for update in updates for delta in deltas(update)]


def deltas(update: WatchShardUpdate) -> list[Delta]:
    """Return the changes of assignments in ``update`` as a discovery node reads them."""
    found = list(map(delta_of_event, update.events))
    assert None not in found, "only assignments are sent as events"
    return [delta for delta in found if delta is not None]


# What is sent, and when ---------------------------------------------------------------------------


def test_a_subscriber_starts_at_the_present_and_gets_its_lease_time() -> None:
    async def scenario(it: LeaseWorld) -> None:
        position = await it.commit(assigned("a"))

        subscriber = it.subscribe()
        first, second = await subscriber.take(), await subscriber.take()

        assert (first.position, list(first.events), first.ttl_ms) == (position, [], 2_000)
        assert second.ttl_ms == 0

    in_lease_world(scenario)


def test_deltas_come_in_order_with_their_positions() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)

        await it.commit(assigned("a"), created("x"), assigned("b", 2, "broker-2"))
        position = await it.commit(unassigned("a"))
        updates = await subscriber.until(position)

        found = [delta for update in updates for delta in deltas(update)]
        assert [(d.position, d.topic, d.epoch, d.broker_id) for d in found] == [
            (1, "a", 1, "broker-1"),
            (3, "b", 2, "broker-2"),
            (4, "a", 1, ""),
        ]
        assert updates[-1].position == position
        assert not await subscriber.has_update()

    in_lease_world(scenario)


def test_an_assignment_is_sent_without_its_placement_decision() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)

        event = assigned("a", 2)
        event.topic_assigned.decision.CopyFrom(PlacementDecision(candidates=7))
        await it.commit(event)
        update = await subscriber.take()

        assert not update.events[0].topic_assigned.HasField("decision")
        assert deltas(update)[0].broker_id == "broker-1"

    in_lease_world(scenario)


def test_an_event_is_made_once_for_all_leased_watches() -> None:
    async def scenario(it: LeaseWorld) -> None:
        one, two = await subscribed(it, "d-1"), await subscribed(it, "d-2")

        await it.commit(assigned("a", 2))
        await one.take()
        made = it.hub.source.leased_forms._latest
        await two.take()

        assert made is not None
        assert it.hub.source.leased_forms._latest is made
        assert it.hub.source.decoded.decoded == 1

    in_lease_world(scenario)


def test_other_events_move_the_position_and_wake_nobody() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)

        position = await it.commit(created("x"))

        assert not await subscriber.has_update()
        assert (await subscriber.take()).position == position

    in_lease_world(scenario)


def test_a_first_assignment_wakes_nobody_and_comes_with_what_does() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)

        await it.commit(assigned("a"))
        assert not await subscriber.has_update()
        await it.commit(assigned("b", 2))

        assert await subscriber.has_update()
        assert names([await subscriber.take()]) == ["a", "b"]

    in_lease_world(scenario)


def test_a_first_assignment_comes_with_the_next_confirmation_at_the_latest() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)
        began_at = asyncio.get_running_loop().time()

        await it.commit(assigned("a"))

        assert names([await subscriber.take()]) == ["a"]
        assert asyncio.get_running_loop().time() - began_at <= UPDATE_S

    in_lease_world(scenario)


@pytest.mark.parametrize("excess", [0, -1])
def test_first_assignments_that_fill_an_update_do_not_wait(excess: int) -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)

        for number in range(WATCH_EVENTS_PER_UPDATE_MAX + excess):
            await it.commit(assigned(f"t-{number}"))

        assert await subscriber.has_update() is (excess == 0)

    in_lease_world(scenario)


@pytest.mark.parametrize("event", [assigned("a", 2), unassigned("a")])
def test_what_ends_an_answer_is_told_at_once(event: Event) -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)

        await it.commit(event)

        assert await subscriber.has_update()

    in_lease_world(scenario)


@pytest.mark.parametrize("waits_first", [True, False])
def test_a_first_assignment_with_a_waiter_is_sent_at_once(waits_first: bool) -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        subscriber = await subscribed(it)
        if waits_first:
            waiting = it.wait_moved(1)
            await asyncio.sleep(0)

        position = await it.commit(assigned("a"))
        if not waits_first:
            waiting = it.wait_moved(position)
        assert await subscriber.has_update()
        assert (await subscriber.take()).position == position
        assert not waiting.done()
        subscriber.acknowledge(position)

        await waiting

    in_lease_world(scenario)


def test_an_update_that_was_sent_is_not_sent_again_to_one_who_has_not_acknowledged_it() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        subscriber = await subscribed(it)
        position = await it.commit(assigned("a", 2))
        assert (await subscriber.take()).position == position

        waiting = it.wait_moved(position)

        assert not await subscriber.has_update()
        subscriber.acknowledge(position)
        await waiting

    in_lease_world(scenario)


# Catching up --------------------------------------------------------------------------------------


def test_a_subscriber_that_returns_gets_what_it_missed_from_the_log() -> None:
    async def scenario(it: LeaseWorld) -> None:
        first = await it.commit(assigned("a"))
        await it.commit(assigned("b"))
        last = await it.commit(assigned("c"))

        subscriber = it.subscribe(from_position=first)
        updates = await subscriber.until(last)

        assert names(updates) == ["b", "c"]
        assert not any(update.reset for update in updates)

    in_lease_world(scenario)


def test_resuming_inside_a_record_sends_only_what_is_behind_the_position() -> None:
    async def scenario(it: LeaseWorld) -> None:
        last = await it.commit(assigned("a"), assigned("b"), assigned("c"))

        subscriber = it.subscribe(from_position=2)

        assert names(await subscriber.until(last)) == ["c"]

    in_lease_world(scenario)


def test_a_gap_that_the_log_cannot_fill_is_a_reset() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await it.commit(assigned("a"))
        await it.commit(assigned("b"))
        await it.log.compact()

        subscriber = it.subscribe(from_position=1)
        position = await it.commit(assigned("c"))
        updates = await subscriber.until(position)

        assert [update.reset for update in updates if update.position == position] == [True]
        assert names(updates) == []
        later = await it.commit(assigned("d"))
        assert names(await subscriber.until(later)) == ["d"]

    in_lease_world(scenario)


@pytest.mark.parametrize("excess", [0, 1])
def test_watch_backlog_events_max_first_assignments_wait_and_with_one_more_they_come_from_the_log(
    monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    monkeypatch.setattr(change_delivery, "WATCH_BACKLOG_EVENTS_MAX", 5)

    async def scenario(it: LeaseWorld) -> None:
        slow = it.subscribe()
        last = 0
        for number in range(5 + excess):
            last = await it.commit(assigned(f"t-{number}"))
        await asyncio.sleep(0)

        assert ("lagging=True" in repr(slow.stream)) is bool(excess)
        given = names(await slow.until(last))
        assert given == [f"t-{number}" for number in range(5 + excess)], "nothing is left out"

    in_lease_world(scenario)


@pytest.mark.parametrize("offset", [1, 1_000])
def test_a_subscriber_from_the_future_is_reset(offset: int) -> None:
    async def scenario(it: LeaseWorld) -> None:
        position = await it.commit(assigned("a"))

        update = await it.subscribe(from_position=position + offset).take()

        assert (update.reset, update.position) == (True, position)

    in_lease_world(scenario)


def test_a_subscriber_from_the_future_has_acknowledged_nothing_that_is_to_come() -> None:
    """It followed a log that had more, as before a restore."""

    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        await it.commit(assigned("a"))
        subscriber = it.subscribe(from_position=1_000)
        assert (await subscriber.take()).reset
        position = await it.commit(assigned("a", 2, "broker-2"))

        waiting = it.wait_moved(position)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        subscriber.acknowledge(position)
        await waiting

    in_lease_world(scenario)


def test_assignment_deltas_per_update_max_are_sent_at_once_and_more_in_the_next_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_delivery, "WATCH_BACKLOG_EVENTS_MAX", 2)
    monkeypatch.setattr(change_delivery, "WATCH_EVENTS_PER_SLICE", 3)

    async def scenario(it: LeaseWorld) -> None:
        slow = await subscribed(it)
        last = 0
        for number in range(20):
            last = await it.commit(assigned(f"t-{number}", 2))

        updates = await slow.until(last)

        assert names(updates) == [f"t-{number}" for number in range(20)]
        assert len(updates) >= 7

    in_lease_world(scenario)


@pytest.mark.parametrize(
    ("bound", "size_of"),
    [
        ("WATCH_EVENTS_PER_UPDATE_MAX", lambda update: len(update.events)),
        ("EVENTS_BATCH_BYTES_MAX", lambda update: update.ByteSize()),
    ],
)
@pytest.mark.parametrize("one_less", [0, 1])
def test_watch_events_per_update_max_and_events_batch_bytes_max_are_one_update_and_one_more_is_two(
    monkeypatch: pytest.MonkeyPatch,
    bound: str,
    size_of: Callable[[WatchShardUpdate], int],
    one_less: int,
) -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)
        await it.commit(*(assigned(f"t-{number}", 2) for number in range(6)))
        whole = await subscriber.take()
        monkeypatch.setattr(change_delivery, bound, size_of(whole) - one_less)

        last = await it.commit(*(assigned(f"t-{number}", 3) for number in range(6)))
        updates = await subscriber.until(last)

        assert len([update for update in updates if update.events]) == 1 + one_less
        assert names(updates) == [f"t-{number}" for number in range(6)]
        assert len(whole.events) == 6

    in_lease_world(scenario)


def test_events_beyond_an_update_follow_at_once_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_delivery, "WATCH_EVENTS_PER_UPDATE_MAX", 3)

    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)
        events = [assigned(f"t-{number}", 2) for number in range(7)]
        last = await it.commit(*events)

        taken = []
        while await subscriber.has_update():
            taken.append(await subscriber.take())

        assert [(update.position, len(update.events)) for update in taken] == [
            (last - 4, 3),
            (last - 1, 3),
            (last, 1),
        ]

    in_lease_world(scenario)


def test_a_subscriber_that_falls_behind_inside_a_record_is_sent_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_hub, "WATCH_EVENTS_PER_SLICE", 1)

    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)
        last = await it.commit(*(assigned(f"t-{number}", 2) for number in range(6)))
        first = await subscriber.take()
        assert first.position < last, "the scenario needs a record that is half sent"

        subscriber.stream.fall_behind()

        updates = [first, *await subscriber.until(last)]
        assert names(updates) == [f"t-{number}" for number in range(6)]

    in_lease_world(scenario)


def test_a_subscriber_that_catches_up_for_long_hears_of_its_stream_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing in the log concerns it for pages, and it gives its stream up after a silence."""
    monkeypatch.setattr(change_delivery, "WATCH_EVENTS_PER_SLICE", 1)

    async def scenario(it: LeaseWorld) -> None:
        loop = asyncio.get_running_loop()
        start = await it.commit(assigned("a"))
        for number in range(50):
            await it.commit(created(f"t-{number}"))
        it.hub.source.page_turn = SlowTurn()  # type: ignore[assignment]
        subscriber = it.subscribe(from_position=start)
        began_at = heard_at = loop.time()
        position = start
        while position < it.log.commit_position:
            position = (await subscriber.take()).position
            assert loop.time() - heard_at < TTL_S / 2
            heard_at = loop.time()

        assert heard_at - began_at > TTL_S, "the scenario needs a long way"

    in_lease_world(scenario)


class SlowTurn:
    """Stands for ``ChangeSource.page_turn``: each page takes its time."""

    async def __aenter__(self) -> None:
        await asyncio.sleep(0.1)

    async def __aexit__(self, *_: object) -> None: ...


# Confirmations ------------------------------------------------------------------------------------


def test_only_the_page_that_reaches_the_position_of_a_confirmation_prolongs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An earlier page may end before a move that became effective without the subscriber."""
    monkeypatch.setattr(change_delivery, "WATCH_EVENTS_PER_SLICE", 3)

    async def scenario(it: LeaseWorld) -> None:
        start = await it.commit(assigned("a"))
        for number in range(8):
            await it.commit(assigned(f"t-{number}"))
        moved = await it.commit(assigned("a", 2, "broker-2"))

        back = it.subscribe(from_position=start)
        back.acknowledge(start, asked_at_ms=1_000)
        updates = await back.until(moved)

        assert {4, 7, moved} <= {update.position for update in updates}
        prolonged = [update.position for update in updates if update.confirmed_at_ms]
        assert prolonged == [moved]
        assert updates[-1].confirmed_at_ms == 1_000

    in_lease_world(scenario)


def test_what_is_asked_while_leadership_is_confirmed_is_not_confirmed_by_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. A majority is asked. 2. A later question arrives. 3. The majority has answered."""

    async def scenario(it: LeaseWorld) -> None:
        is_asked, answers = asyncio.Event(), asyncio.Event()
        read_index = it.log.read_index

        async def slow_majority(*, asked_at: float | None = None) -> int:
            is_asked.set()
            await answers.wait()
            return await read_index()

        monkeypatch.setattr(it.log, "read_index", slow_majority)
        subscriber = it.subscribe()
        subscriber.acknowledge(0, asked_at_ms=1_000)
        await is_asked.wait()
        subscriber.acknowledge(0, asked_at_ms=2_000)
        await subscriber.drain()
        answers.set()

        assert (await subscriber.take()).confirmed_at_ms == 1_000
        assert (await subscriber.take()).confirmed_at_ms == 2_000

    in_lease_world(scenario)


def test_leadership_is_confirmed_for_the_time_at_which_the_question_arrived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(it: LeaseWorld) -> None:
        loop = asyncio.get_running_loop()
        asked: list[float | None] = []
        read_index = it.log.read_index

        async def noting(*, asked_at: float | None = None) -> int:
            asked.append(asked_at)
            return await read_index(asked_at=asked_at)

        monkeypatch.setattr(it.log, "read_index", noting)
        subscriber = it.subscribe()
        await subscriber.drain()
        await asyncio.sleep(0.1)
        arrived_at = loop.time()
        subscriber.acknowledge(0, asked_at_ms=1_000)

        assert (await subscriber.take()).confirmed_at_ms == 1_000
        assert asked == [None, arrived_at]
        assert loop.time() > arrived_at

    in_lease_world(scenario)


def test_a_leader_that_no_majority_confirms_prolongs_nothing() -> None:
    async def scenario(it: LeaseWorld) -> None:
        it.log.lose_quorum()
        subscriber = it.subscribe()
        subscriber.acknowledge(0, asked_at_ms=1_000)
        first = await subscriber.take()

        assert first.confirmed_at_ms == 0
        assert isinstance(await refusal_of(subscriber), NotLeader)

    in_lease_world(scenario)


def test_a_watch_ends_when_no_majority_confirms_its_leader_any_more() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)
        it.log.lose_quorum()

        async with timeout(UPDATE_S + 0.01):
            assert isinstance(await refusal_of(subscriber), NotLeader)
        assert it.hub.leased_count == 0

    in_lease_world(scenario)


def test_what_was_acknowledged_stays_acknowledged() -> None:
    """Acknowledgements of one stream may be repeated; a move that was effective stays so."""

    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)
        subscriber = await subscribed(it)
        position = await it.commit(assigned("a", 2))
        subscriber.acknowledge(position)

        subscriber.acknowledge(position - 1)

        async with timeout(0.001):
            await it.wait_moved(position)

    in_lease_world(scenario)


def test_a_subscriber_that_never_quite_catches_up_is_prolonged_as_of_what_it_has_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_delivery, "WATCH_EVENTS_PER_SLICE", 2)

    async def scenario(it: LeaseWorld) -> None:
        loop = asyncio.get_running_loop()
        start = await it.commit(assigned("a"))
        for _ in range(6):
            await it.commit(assigned("t"))
        back = it.subscribe(from_position=start)
        committed_at: dict[int, int] = {}
        """By the subscriber's time when it asked: what was committed by then."""
        for turn in range(1, 6):
            committed_at[turn] = it.log.commit_position
            back.acknowledge(0, asked_at_ms=turn)
            for _ in range(4):
                await it.commit(assigned("t"))
            until = loop.time() + UPDATE_S
            while loop.time() < until:
                update = await back.take()
                confirmed = update.confirmed_at_ms
                assert not confirmed or update.position >= committed_at[confirmed]
            assert confirmed >= turn - 1

    in_lease_world(scenario)


def test_a_confirmation_counts_what_was_committed_and_not_only_what_the_hub_has_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(it: LeaseWorld) -> None:
        await it.commit(assigned("a"))
        subscriber = await subscribed(it)
        it.hub._unsubscribe()
        monkeypatch.setattr(subscriber.stream, "_notice_commits", lambda: None)
        await it.commit(assigned("a", 2, "broker-2"))
        subscriber.acknowledge(1, asked_at_ms=1_000)

        await asyncio.sleep(2 * UPDATE_S)

        assert not await subscriber.has_update(), "none that it could carry is prolonged"

    in_lease_world(scenario)


def test_confirmations_of_a_subscriber_that_lags_for_long_are_bounded() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await it.commit(assigned("a"), created("b"))
        back = it.subscribe(from_position=1)
        assert back.stream._lease is not None
        for turn in range(1, 100):
            back.acknowledge(0, asked_at_ms=turn)
            await asyncio.sleep(UPDATE_S)

        assert len(back.stream._lease._unreached) == ASSIGNMENT_TTL_MS // ASSIGNMENT_UPDATE_MS
        assert (await back.until(2))[-1].confirmed_at_ms == 99

    in_lease_world(scenario)


# Creations ----------------------------------------------------------------------------------------


def test_a_topic_that_grows_is_named_among_those_that_are_created() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it, creations=True)

        await it.commit(created("a"), grown("x", 5))
        await asyncio.sleep(ASSIGNMENT_CREATIONS_MS / 1_000 + 0.001)

        assert await subscriber.has_update()
        update = await subscriber.take()
        assert (list(update.created), list(update.events)) == (["a", "x"], [])

    in_lease_world(scenario)


def test_creations_share_an_update_that_comes_within_the_time_they_wait() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it, creations=True)

        await it.commit(created("x"))
        await asyncio.sleep(ASSIGNMENT_CREATIONS_MS / 2_000)
        position = await it.commit(created("y"), created("z"))
        assert not await subscriber.has_update()
        await asyncio.sleep(ASSIGNMENT_CREATIONS_MS / 2_000 + 0.001)

        assert await subscriber.has_update()
        update = await subscriber.take()
        assert (list(update.created), list(update.events)) == (["x", "y", "z"], [])
        assert update.position == position
        assert update.names_creations

    in_lease_world(scenario)


def test_creations_are_not_named_to_a_subscriber_that_does_not_ask_for_them() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)

        await it.commit(created("x"))
        await asyncio.sleep(2 * ASSIGNMENT_CREATIONS_MS / 1_000)

        assert not await subscriber.has_update()
        update = await subscriber.take()
        assert (list(update.created), update.names_creations) == ([], False)

    in_lease_world(scenario)


def test_creations_that_a_subscriber_missed_come_from_the_log() -> None:
    async def scenario(it: LeaseWorld) -> None:
        first = await it.commit(created("x"))
        last = await it.commit(created("y"), assigned("y"))

        subscriber = it.subscribe(from_position=first, creations=True)
        updates = await subscriber.until(last)

        assert [name for update in updates for name in update.created] == ["y"]
        assert names(updates) == ["y"]

    in_lease_world(scenario)


def test_other_events_of_topics_are_not_sent_with_creations() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it, creations=True)

        policy = Event(policy_set=PolicySet(scope="topic", name=f"{ROOT}/x"))
        last = await it.commit(created(f"{ROOT}/x"), policy)
        updates = await subscriber.until(last)

        assert [name for update in updates for name in update.created] == [f"{ROOT}/x"]
        assert not any(update.events for update in updates)

    in_lease_world(scenario)


def test_an_effective_create_waits_until_subscribers_have_taken_the_creation_in() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it, creations=True)
        await asyncio.sleep(TTL_S)
        await subscriber.drain()
        position = await it.commit(created("x"))

        waiting = it.wait_moved(position)
        assert await subscriber.has_update(), "somebody waits: it goes out at once"
        assert list((await subscriber.take()).created) == ["x"]
        assert not waiting.done()

        subscriber.acknowledge(position)
        await waiting

    in_lease_world(scenario)


# Filters ------------------------------------------------------------------------------------------


UNIT = f"{ROOT}/x-partition-0"


@pytest.mark.parametrize(
    ("add", "sent"),
    [
        ({"prefix": f"{ROOT}/"}, [UNIT]),
        ({"names": [UNIT, f"{ROOT}/z"]}, [UNIT]),
        ({"prefix": "persistent://t/m/"}, ["persistent://t/m/y"]),
        ({}, [UNIT, "persistent://t/m/y"]),
    ],
)
@pytest.mark.parametrize("is_late", [True, False])
def test_a_leased_watch_is_sent_what_its_filter_selects(
    add: dict[str, object], sent: list[str], is_late: bool
) -> None:
    async def scenario(it: LeaseWorld) -> None:
        start = await it.commit(assigned("before"))
        subscriber = it.subscribe(from_position=start, **add)
        if not is_late:
            await subscriber.drain()
        last = await it.commit(assigned(UNIT, 2), assigned("persistent://t/m/y", 2))

        assert names(await subscriber.until(last)) == sent

    in_lease_world(scenario)


def test_a_leased_watch_may_be_of_any_kind() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it, kinds=[KIND_TENANT, KIND_ASSIGNMENT])

        tenant = Event(tenant_created=TenantCreated(name="acme"))
        namespace = Event(namespace_created=NamespaceCreated(name="acme/orders"))
        await it.commit(tenant, namespace, assigned("a"))
        update = await subscriber.take()

        payloads = [event.WhichOneof("payload") for event in update.events]
        assert payloads == ["tenant_created", "topic_assigned"]

    in_lease_world(scenario)


@pytest.mark.parametrize(
    ("add", "is_refused"),
    [
        ({"prefix": ""}, False),
        ({"prefix": f"{ROOT}/"}, False),
        ({"prefix": UNIT}, True),
        ({"names": [UNIT]}, True),
        ({"kinds": [KIND_ASSIGNMENT, KIND_TOPIC]}, True),
        ({"leased": False}, True),
    ],
)
def test_creations_are_named_where_the_filter_has_every_topic_of_its_units(
    add: dict[str, object], is_refused: bool
) -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = it.subscribe(creations=True, **add)

        if is_refused:
            assert isinstance(await refusal_of(subscriber), InvalidRequest)
        else:
            assert (await subscriber.take()).names_creations

    in_lease_world(scenario)


def test_a_stream_may_have_other_watches_beside_its_leased_one() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it)
        plain = WatchAdd(watch_id=2, kinds=[KIND_ASSIGNMENT], without_snapshot=True)
        subscriber.stream.add(plain)
        await subscriber.drain()

        last = await it.commit(assigned("a"))
        update = await subscriber.stream.next_update()
        while not update.events:
            update = await subscriber.stream.next_update()

        assert (update.watch_id, update.position) == (0, last), "the leased watch waits for others"
        assert names([await subscriber.take()]) == ["a"]

    in_lease_world(scenario)


# Rest ---------------------------------------------------------------------------------------------


async def _at_rest(it: LeaseWorld) -> LeasedSubscriber:
    """Return a subscriber whose lease was confirmed, and rests."""
    subscriber = await subscribed(it)
    subscriber.acknowledge(0, _now_ms(), may_rest=True)
    while not (await subscriber.take()).confirmed_at_ms:
        subscriber.acknowledge(0, _now_ms(), may_rest=True)
    return subscriber


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1_000)


async def _seconds_until_an_update(subscriber: LeasedSubscriber) -> float:
    began_at = asyncio.get_running_loop().time()
    await subscriber.take()
    return asyncio.get_running_loop().time() - began_at


def test_a_lease_that_rests_has_an_update_every_assignment_rest_ms() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await _at_rest(it)
        assert await _seconds_until_an_update(subscriber) <= UPDATE_S + 0.001, "it began before"

        assert await _seconds_until_an_update(subscriber) == pytest.approx(REST_S, abs=0.001)

        await it.commit(created("x"))
        assert await _seconds_until_an_update(subscriber) == pytest.approx(REST_S, abs=0.001)

    in_lease_world(scenario)


def test_a_lease_does_not_rest_before_it_was_confirmed() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = it.subscribe()
        subscriber.acknowledge(0, may_rest=True)

        for _ in range(3):
            assert await _seconds_until_an_update(subscriber) <= UPDATE_S + 0.001

    in_lease_world(scenario)


def test_a_lease_that_is_needed_again_is_confirmed_at_once() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await _at_rest(it)
        await subscriber.take()
        await asyncio.sleep(REST_S / 3)
        assert not await subscriber.has_update()

        asked_at_ms = _now_ms()
        subscriber.acknowledge(0, asked_at_ms)

        assert await subscriber.has_update()
        assert (await subscriber.take()).confirmed_at_ms == asked_at_ms
        assert await _seconds_until_an_update(subscriber) == pytest.approx(UPDATE_S, abs=0.001)

    in_lease_world(scenario)


def test_a_question_during_a_confirmation_ends_the_rest_that_follows() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await _at_rest(it)
        await subscriber.take()
        confirm, asked = it.log.read_index, asyncio.Event()

        async def confirm_slowly(*, asked_at: float | None = None) -> int:
            asked.set()
            await asyncio.sleep(0.01)
            return await confirm(asked_at=asked_at)

        it.log.read_index = confirm_slowly  # type: ignore[method-assign]
        await asked.wait()
        asked_at_ms = _now_ms()
        subscriber.acknowledge(0, asked_at_ms)

        await subscriber.take()
        assert await _seconds_until_an_update(subscriber) <= 0.02
        assert subscriber.stream._lease is not None
        assert subscriber.stream._lease._confirmed_at_ms == asked_at_ms

    in_lease_world(scenario)


def test_a_move_waits_for_a_lease_that_rests_no_longer_than_for_another() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(TTL_S)  # The leader has led for long enough.
        subscriber = await _at_rest(it)
        await subscriber.take()
        moved = await it.commit(assigned("a", 2))
        moving = it.wait_moved(moved, "a")

        assert (await subscriber.take()).position == moved
        assert not moving.done()
        subscriber.acknowledge(moved, may_rest=True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert moving.done()

        silent = it.wait_moved(await it.commit(assigned("a", 3)), "a")
        began_at = asyncio.get_running_loop().time()
        await silent
        assert asyncio.get_running_loop().time() - began_at == pytest.approx(TTL_S, abs=0.2)

    in_lease_world(scenario)
