"""Snapshots with which watches begin: shared, bounded, closed when their subscribers leave. What
watches are told of topics that are renamed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import TimeoutError as PoolTimeout

from nextgen.client.wire.errors import from_detail
from nextgen.kernel.errors import Overloaded, Unavailable
from nextgen.kernel.limits.stream import WATCH_SNAPSHOT_ITEMS_PER_PAGE
from nextgen.kernel.routing.ids import mint_id
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import KIND_ASSIGNMENT, KIND_TOPIC
from shards.domain import topic
from shards.domain.renames.names import OldName, TopicNameFreed, TopicNamePointed, TopicRenamed
from shards.watches import change_joining, change_source
from shards.watches.change_snapshot import SnapshotRun
from shards.watches.change_watch import Selection
from tests.support.scenarios import run_by
from tests.support.shards.events import TIME_MS
from tests.support.shards.watch_world import Recorder, Subscriber, WatchWorld, in_watch_world

EVERYTHING = Selection((KIND_TOPIC,), "", ())


def created(number: int) -> topic.TopicCreated:
    name = f"persistent://acme/orders/t-{number:05}"
    return topic.TopicCreated(f"id-{number}", name, 0, "ns-1", TIME_MS)


class CountedLooks:
    """Read transactions of a view, and how many are open."""

    def __init__(self, world: WatchWorld) -> None:
        self._world = world
        self.open = 0
        self.opened = 0
        self.open_max = 0

    @contextmanager
    def __call__(self) -> Iterator[Connection]:
        with self._world.view.read_transaction() as connection:
            self.open += 1
            self.opened += 1
            self.open_max = max(self.open, self.open_max)
            try:
                yield connection
            finally:
                self.open -= 1


@run_by(in_watch_world)
async def test_many_watches_share_a_look_at_the_view(world: WatchWorld) -> None:
    last = await world.commit(*(created(number) for number in range(20)))
    looks = world.hub.source.read_transaction = CountedLooks(world)
    subscriber = world.subscriber()
    seen = [
        subscriber.watch(kinds=[KIND_TOPIC], names=[created(number).name]) for number in range(20)
    ]
    await subscriber.until_position(last)
    assert [len(each.items) for each in seen] == [1] * 20
    assert (looks.opened, looks.open) == (1, 0)
    await subscriber.until(lambda: world.log.status.log_pins == 0)


@pytest.mark.parametrize("excess", [0, 1])
def test_watch_snapshots_per_read_max_watches_share_a_read_and_one_more_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    monkeypatch.setattr(change_joining, "WATCH_SNAPSHOTS_PER_READ_MAX", 4)

    async def scenario(world: WatchWorld) -> None:
        last = await world.commit(created(1))
        looks = world.hub.source.read_transaction = CountedLooks(world)
        subscriber = world.subscriber()
        for _ in range(4 + excess):
            subscriber.watch(kinds=[KIND_TOPIC])
        await subscriber.until_position(last)
        assert looks.opened == 1 + excess

    in_watch_world(tmp_path, scenario)


def test_watch_snapshots_open_max_streams_read_the_view_and_one_more_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_source, "WATCH_SNAPSHOTS_OPEN_MAX", 2)

    async def scenario(world: WatchWorld) -> None:
        last = await world.commit(*(created(number) for number in range(600)))
        looks = world.hub.source.read_transaction = CountedLooks(world)
        subscribers = [world.subscriber(f"subscriber-{number}") for number in range(3)]
        seen = [each.watch(kinds=[KIND_TOPIC]) for each in subscribers]
        for subscriber in subscribers:
            await subscriber.until(lambda each=subscriber: bool(each.updates))
        await subscribers[0].until(lambda: bool(seen[0].items))
        await subscribers[1].until(lambda: bool(seen[1].items))
        await subscribers[2].step()
        assert (looks.open, seen[2].items) == (2, [])
        for subscriber in subscribers:
            await subscriber.until_position(last)
        assert [len(each.items) for each in seen] == [600] * 3
        assert (looks.open, looks.open_max) == (0, 2)

    in_watch_world(tmp_path, scenario)


@run_by(in_watch_world)
async def test_a_snapshot_that_is_not_taken_in_time_ends_its_watch_and_lets_the_view_go(
    world: WatchWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = await world.commit(*(created(number) for number in range(1_100)))
    looks = world.hub.source.read_transaction = CountedLooks(world)
    subscriber = world.subscriber()
    slow = subscriber.watch(kinds=[KIND_TOPIC])
    sound = subscriber.watch(kinds=[KIND_TOPIC], names=[created(7).name])
    await subscriber.until(lambda: bool(slow.items))
    monkeypatch.setattr(change_joining, "WATCH_SNAPSHOT_MS_MAX", -1)
    await subscriber.until(lambda: any(u.HasField("error") for u in subscriber.updates))
    (refused,) = [update for update in subscriber.updates if update.HasField("error")]
    assert refused.watch_id == slow.watch_id
    assert isinstance(from_detail(refused.error), Overloaded)
    assert looks.open == 0
    monkeypatch.setattr(change_joining, "WATCH_SNAPSHOT_MS_MAX", 60_000)
    subscriber.places.remove(slow.watch_id)
    await subscriber.until_position(last)
    assert len(sound.items) == 1


@run_by(in_watch_world)
async def test_a_stream_that_goes_away_lets_the_view_and_the_log_go(world: WatchWorld) -> None:
    await world.commit(*(created(number) for number in range(1_100)))
    looks = world.hub.source.read_transaction = CountedLooks(world)
    subscriber = world.subscriber()
    seen = subscriber.watch(Recorder(), kinds=[KIND_TOPIC])
    await subscriber.until(lambda: bool(seen.items))
    assert (looks.open, world.log.status.log_pins) == (1, 1)
    subscriber.disconnect()
    assert (looks.open, world.log.status.log_pins) == (0, 0)
    assert not world.hub.source.snapshot_turns.locked()


@pytest.mark.parametrize("count", [0, 1, WATCH_SNAPSHOT_ITEMS_PER_PAGE - 3])
@run_by(in_watch_world)
async def test_a_snapshot_that_fits_a_page_ends_with_its_items(
    world: WatchWorld, *, count: int
) -> None:
    """Its items and its end are one part, and so one message; a second watch has its own."""
    await world.commit(*(created(number) for number in range(max(count, 1))))
    names = tuple(created(number).name for number in range(count)) or ("persistent://a/b/absent",)
    run: SnapshotRun[str] = SnapshotRun(
        world.view.read_transaction,
        [("one", Selection((KIND_TOPIC,), "", names)), ("two", Selection((KIND_TOPIC,), "x", ()))],
    )
    await run.open()
    try:
        parts = [(owner, len(items), is_last) for owner, items, is_last in await run.read()]
    finally:
        run.close()

    assert parts == [("one", count, True), ("two", 0, True)]


@run_by(in_watch_world)
async def test_a_snapshot_read_is_closed_once_its_thread_has_ended(world: WatchWorld) -> None:
    looks = CountedLooks(world)
    entered, go_on = threading.Event(), threading.Event()

    @contextmanager
    def slow() -> Iterator[Connection]:
        with looks() as connection:
            entered.set()
            go_on.wait(20)
            yield connection

    run: SnapshotRun[str] = SnapshotRun(slow, [("one", EVERYTHING)])
    opening = asyncio.create_task(run.open())
    await asyncio.to_thread(entered.wait, 20)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    run.close()
    assert looks.open == 1
    go_on.set()
    async with timeout(20):
        while looks.open:
            await asyncio.sleep(0.01)


@run_by(in_watch_world)
async def test_a_view_that_cannot_be_read_ends_the_stream_as_unavailable(world: WatchWorld) -> None:
    def busy() -> CountedLooks:
        raise PoolTimeout

    world.hub.source.read_transaction = busy  # type: ignore[assignment]
    subscriber = world.subscriber()
    subscriber.watch(kinds=[KIND_TOPIC])
    with pytest.raises(Unavailable, match="cannot be read"):
        await subscriber.until(lambda: False)
    assert not world.hub.source.snapshot_turns.locked()


# Renamed topics ---------------------------------------------------------------------------------

OLD, NEW = "persistent://acme/orders/old", "persistent://globex/lab/new"
ID, ELSEWHERE = mint_id(7, bytes(10)), mint_id(8, bytes(10))
CREATED = topic.TopicCreated(ID, OLD, 2, "ns-1", TIME_MS)
RENAMED = TopicRenamed(OLD, ID, NEW, "ns-2", (OldName(OLD, TIME_MS + 1),), (), 2, (), 2, TIME_MS)


def watches(subscriber: Subscriber, **more: int) -> dict[str, Recorder]:
    """Watch topics by prefix, each name, and all at once."""
    topics = {"kinds": [KIND_TOPIC], **more}
    return {
        "all": subscriber.watch(**topics),
        "acme": subscriber.watch(prefix="persistent://acme/", **topics),
        "globex": subscriber.watch(prefix="persistent://globex/", **topics),
        "old": subscriber.watch(names=[OLD], **topics),
        "new": subscriber.watch(names=[NEW], **topics),
        "both": subscriber.watch(names=[NEW, OLD], **topics),
    }


@pytest.mark.parametrize("is_late", [True, False])
@run_by(in_watch_world)
async def test_watchers_of_either_name_get_a_rename_once(
    world: WatchWorld, *, is_late: bool
) -> None:
    first = await world.commit(CREATED)
    subscriber = world.subscriber()
    seen = watches(subscriber, from_position=first)
    other = subscriber.watch(kinds=[KIND_TOPIC], names=[f"{OLD}er"], from_position=first)
    if not is_late:
        await subscriber.until_position(first)
    last = await world.commit(RENAMED)
    await subscriber.until_position(last)

    for which, each in seen.items():
        assert each.positions == [last], which
        assert each.events[0].topic_renamed.new_name == NEW
    assert not other.events


@run_by(in_watch_world)
async def test_a_snapshot_has_a_renamed_topic_by_its_name_and_leads_there_from_its_former_one(
    world: WatchWorld,
) -> None:
    last = await world.commit(CREATED, RENAMED)
    subscriber = world.subscriber()
    seen = watches(subscriber)
    units = subscriber.watch(kinds=[KIND_ASSIGNMENT], names=[OLD])
    await subscriber.until_position(last)

    names = {which: [item.name for item in each.items] for which, each in seen.items()}
    assert names == {
        "all": [NEW],
        "acme": [],
        "globex": [NEW],
        "old": [OLD],
        "new": [NEW],
        "both": [NEW, OLD],
    }
    (former,) = seen["old"].items
    assert (former.topic.name, former.topic.topic_id) == (NEW, ID)
    assert [(each.name, each.until_ms) for each in former.topic.former_names] == [
        (OLD, TIME_MS + 1)
    ]
    assert not units.items


@run_by(in_watch_world)
async def test_a_watch_by_name_is_told_of_a_pointer_and_when_it_comes_and_goes(
    world: WatchWorld,
) -> None:
    first = await world.commit(TopicNamePointed(NEW, ELSEWHERE))
    subscriber = world.subscriber()
    named = subscriber.watch(kinds=[KIND_TOPIC], names=[NEW, OLD])
    by_prefix = subscriber.watch(kinds=[KIND_TOPIC])
    await subscriber.until_position(first)
    last = await world.commit(TopicNamePointed(OLD, ELSEWHERE), TopicNameFreed(NEW, ELSEWHERE))
    await subscriber.until_position(last)

    assert [(item.name, item.pointer.topic_id) for item in named.items] == [(NEW, ELSEWHERE)]
    assert not by_prefix.items
    assert [event.WhichOneof("payload") for event in named.events] == [
        "topic_name_pointed",
        "topic_name_freed",
    ]
