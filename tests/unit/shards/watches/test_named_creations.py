"""The names of created topics as leased watches get them: all, in order, and none claimed early."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.limits.cluster import ASSIGNMENT_CREATIONS_MS, ASSIGNMENT_TTL_MS
from nextgen.kernel.limits.stream import WATCH_EVENTS_PER_SLICE, WATCH_EVENTS_PER_UPDATE_MAX
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from protos.nextgen.v1.shard_service_pb2 import WatchAdd, WatchShardUpdate
from shards.watches import change_delivery
from shards.wire.leased_form import creations_apart
from tests.support.shards.leased_subscriber import (
    LeaseWorld,
    assigned,
    created,
    in_lease_world,
    subscribed,
)

ROOT = "persistent://t/n"
CREATIONS_S = ASSIGNMENT_CREATIONS_MS / 1_000


def named(updates: list[WatchShardUpdate]) -> list[str]:
    return [name for update in updates for name in update.created]


def numbered(count: int, root: str = ROOT) -> list[str]:
    return [f"{root}/t-{number}" for number in range(count)]


@pytest.mark.parametrize("backlog_max", [3, 100])
@pytest.mark.parametrize("is_late", [True, False])
def test_no_update_claims_a_creation_that_was_not_named(
    monkeypatch: pytest.MonkeyPatch, *, backlog_max: int, is_late: bool
) -> None:
    """An absence is remembered if it is as recent as the watch's position (ADR 0061)."""
    monkeypatch.setattr(change_delivery, "WATCH_BACKLOG_EVENTS_MAX", backlog_max)
    monkeypatch.setattr(change_delivery, "WATCH_EVENTS_PER_UPDATE_MAX", 2)
    monkeypatch.setattr(change_delivery, "WATCH_EVENTS_PER_SLICE", 2)
    wanted = numbered(9)

    async def scenario(it: LeaseWorld) -> None:
        start = await it.commit(assigned("before"))
        subscriber = it.subscribe(from_position=start, creations=True)
        if not is_late:
            await subscriber.drain()
        positions: dict[str, int] = {}
        for first in range(0, 9, 3):
            block = wanted[first : first + 3]
            last = await it.commit(*map(created, block), assigned(f"a-{first}", 2))
            positions.update(zip(block, range(last - 3, last), strict=True))
            await asyncio.sleep(0.001)
        updates = await subscriber.until(last)

        so_far: list[str] = []
        for update in updates:
            so_far += update.created
            assert so_far == [name for name in wanted if positions[name] <= update.position]
        assert so_far == wanted

    in_lease_world(scenario)


@pytest.mark.parametrize("may_wait", [True, False])
def test_watch_events_per_update_max_creations_are_sent_at_once_and_one_less_waits(
    *, may_wait: bool
) -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it, creations=True)
        subscriber.acknowledge(0, creations_may_wait=may_wait)
        block = numbered(WATCH_EVENTS_PER_UPDATE_MAX)

        await it.commit(*map(created, block[1:]))
        assert not await subscriber.has_update()
        last = await it.commit(created(block[0]))
        assert await subscriber.has_update()

        assert named(await subscriber.until(last)) == [*block[1:], block[0]]

    in_lease_world(scenario)


def test_creations_that_may_wait_go_with_the_regular_update() -> None:
    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it, creations=True)
        subscriber.acknowledge(0, creations_may_wait=True)

        last = await it.commit(created(ROOT))
        await asyncio.sleep(2 * CREATIONS_S)
        assert not await subscriber.has_update()
        update = await subscriber.take()

        assert (list(update.created), update.position) == ([ROOT], last)
        assert update.confirmed_at_ms == 0, "no message asked for more time"
        assert not await subscriber.has_update(), "one update has both"

    in_lease_world(scenario)


@pytest.mark.parametrize("is_first", [True, False])
def test_creations_that_may_not_wait_any_more_are_named_soon(*, is_first: bool) -> None:
    """The subscriber looks an absent name up, before or behind a creation that waits."""

    async def scenario(it: LeaseWorld) -> None:
        subscriber = await subscribed(it, creations=True)
        subscriber.acknowledge(0, creations_may_wait=True)

        if is_first:
            await it.commit(created(ROOT))
            await asyncio.sleep(CREATIONS_S)
        subscriber.acknowledge(0)
        if not is_first:
            await it.commit(created(ROOT))
        await asyncio.sleep(CREATIONS_S / 2)
        assert not await subscriber.has_update()
        await asyncio.sleep(CREATIONS_S / 2 + 0.001)

        assert await subscriber.has_update()
        assert named([await subscriber.take()]) == [ROOT]

    in_lease_world(scenario)


def test_an_effective_create_waits_for_no_regular_update() -> None:
    async def scenario(it: LeaseWorld) -> None:
        await asyncio.sleep(ASSIGNMENT_TTL_MS / 1_000)
        subscriber = await subscribed(it, creations=True)
        subscriber.acknowledge(0, creations_may_wait=True)
        position = await it.commit(created(ROOT))

        waiting = it.wait_moved(position)
        assert await subscriber.has_update()
        assert named([await subscriber.take()]) == [ROOT]
        subscriber.acknowledge(position, creations_may_wait=True)
        await waiting

    in_lease_world(scenario)


@pytest.mark.parametrize("excess", [0, 1])
def test_watch_backlog_events_max_creations_wait_and_with_one_more_they_come_from_the_log(
    monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    monkeypatch.setattr(change_delivery, "WATCH_BACKLOG_EVENTS_MAX", 5)

    async def scenario(it: LeaseWorld) -> None:
        slow = it.subscribe(creations=True)
        for block, count in enumerate([5 + excess, 5, 5]):
            wanted = numbered(count, f"{ROOT}/{block}")
            await it.commit(*map(created, wanted[:2]))
            last = await it.commit(*map(created, wanted[2:]))
            await asyncio.sleep(0.001)

            # What was taken, or dropped, before does not count any more.
            assert ("lagging=True" in repr(slow.stream)) is (count > 5)
            assert named(await slow.until(last)) == wanted

    in_lease_world(scenario)


@pytest.mark.parametrize("is_late", [True, False])
def test_creations_below_the_prefix_alone_are_named(*, is_late: bool) -> None:
    async def scenario(it: LeaseWorld) -> None:
        start = await it.commit(assigned("before"))
        subscriber = it.subscribe(from_position=start, creations=True, prefix=f"{ROOT}/")
        if not is_late:
            await subscriber.drain()
        others = numbered(2, "persistent://t/m")
        await it.commit(created(others[0]), *map(created, numbered(3)), created(others[1]))
        last = await it.commit(*map(created, others))

        assert named(await subscriber.until(last)) == numbered(3)

    in_lease_world(scenario)


@pytest.mark.parametrize(
    ("filter_", "wanted"),
    [({"prefix": f"{ROOT}/t-1"}, ["t-1"]), ({"names": [f"{ROOT}/t-2"]}, ["t-2"])],
)
def test_creations_reach_watches_of_topics_beside_leased_ones(
    filter_: dict[str, object], wanted: list[str]
) -> None:
    async def scenario(it: LeaseWorld) -> None:
        leased = await subscribed(it, creations=True)
        beside = it.hub.open("beside")
        beside.add(
            WatchAdd(watch_id=1, kinds=[KIND_TOPIC], without_snapshot=True, **filter_)  # type: ignore[arg-type]
        )
        while (await beside.next_update()).watch_id != 1:
            pass

        last = await it.commit(*map(created, numbered(3)))
        events: list[Event] = []
        position = 0
        while position < last:
            update = await beside.next_update()
            events += update.events
            position = update.position

        assert [event.topic_created.name for event in events] == [
            f"{ROOT}/{name}" for name in wanted
        ]
        assert named(await leased.until(last)) == numbered(3)

    in_lease_world(scenario)


def test_adjacent_creations_are_one_run_of_a_bounded_length() -> None:
    events = [assigned("a"), *map(created, numbered(WATCH_EVENTS_PER_SLICE + 1)), assigned("b")]
    for position, event in enumerate(events, 1):
        event.position = position

    runs = list(creations_apart(events))

    assert [event for run, _ in runs for event in run] == events
    assert [len(run) for run, _ in runs] == [1, WATCH_EVENTS_PER_SLICE, 1, 1]
    creations = [found for _, found in runs if found is not None]
    assert [(each.first_position, each.position) for each in creations] == [
        (2, WATCH_EVENTS_PER_SLICE + 1),
        (WATCH_EVENTS_PER_SLICE + 2, WATCH_EVENTS_PER_SLICE + 2),
    ]
    assert [name for each in creations for name in each.names] == numbered(
        WATCH_EVENTS_PER_SLICE + 1
    )


def test_names_that_lead_to_a_topic_from_now_on_count_as_created() -> None:
    """Discovery drops what it remembers of them: that they are absent, how many partitions."""
    pointed, renamed, freed = Event(), Event(), Event()
    pointed.topic_name_pointed.name = "p"
    renamed.topic_renamed.name, renamed.topic_renamed.new_name = "old", "new"
    freed.topic_name_freed.name = "f"
    events = [created("c"), pointed, renamed, freed]
    for position, event in enumerate(events, 5):
        event.position = position

    runs = list(creations_apart(events))

    assert [len(run) for run, _ in runs] == [3, 1]
    creations, none = [found for _, found in runs]
    assert none is None
    assert creations is not None
    assert creations.names == ("c", "p", "old", "new")
    assert (creations.first_position, creations.position) == (5, 7)
