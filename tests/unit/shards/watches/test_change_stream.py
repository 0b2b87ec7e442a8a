"""Change streams: a snapshot, then what concerns a watch, each event once and in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nextgen.client.wire.errors import from_detail
from nextgen.kernel.errors import PositionAhead
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_NAMESPACE,
    KIND_SCALABLE_TOPIC,
    KIND_TENANT,
    KIND_TOPIC,
    Kind,
)
from shards.domain import assignment, tenant, topic
from shards.domain.scalable import events as scalable
from shards.watches import change_delivery, change_hub, change_joining, change_lease
from tests.support.scenarios import run_by
from tests.support.shards.events import (
    CAME,
    HISTORY,
    RENAMED_AGAIN,
    RENAMED_AND_CAME,
    RESTORED,
    SCALABLE,
    SHADOW,
    SOURCE,
    TIME_MS,
    TOPIC,
)
from tests.support.shards.watch_world import Subscriber, WatchWorld, concerning, in_watch_world

ALL_KINDS = (KIND_TENANT, KIND_NAMESPACE, KIND_TOPIC, KIND_ASSIGNMENT, KIND_SCALABLE_TOPIC)
ROOT = "persistent://acme/orders"


def created(name: str) -> topic.TopicCreated:
    return topic.TopicCreated(f"id-of-{name}", f"{ROOT}/{name}", 0, "ns-1", TIME_MS)


def changed(name: str, value: str = "1") -> topic.TopicPropertiesSet:
    return topic.TopicPropertiesSet(f"{ROOT}/{name}", (("value", value),))


def deleted(name: str) -> topic.TopicDeleted:
    return topic.TopicDeleted(f"{ROOT}/{name}", f"id-of-{name}")


def names(subscriber: Subscriber, kind: Kind = KIND_TOPIC) -> list[int]:
    return [update.watch_id for update in subscriber.updates]


@run_by(in_watch_world)
async def test_a_watch_begins_with_the_items_of_one_position_and_goes_on_behind_it(
    world: WatchWorld,
) -> None:
    position = await world.commit(created("a"), created("b"), changed("b"))
    subscriber = world.subscriber()
    seen = subscriber.watch(kinds=[KIND_TOPIC], prefix=f"{ROOT}/")
    await subscriber.until_position(position)
    assert [item.name for item in seen.items] == [f"{ROOT}/a", f"{ROOT}/b"]
    assert [item.topic.version for item in seen.items] == [1, 2]
    assert (seen.snapshot_position, seen.events) == (position, [])

    last = await world.commit(created("c"), deleted("a"))
    await subscriber.until_position(last)

    assert seen.positions == [position + 1, position + 2]
    assert seen.events[0].topic_created.name == f"{ROOT}/c"
    assert seen.events[0].shard_id == 1
    assert seen.position == last


@run_by(in_watch_world)
async def test_a_snapshot_shows_what_was_committed_before_the_watch_began(
    world: WatchWorld,
) -> None:
    """The view folds a tenth of a second late; an object that was deleted is not shown."""
    await world.commit(created("a"))
    world.log.hold_applies()
    position = await world.commit(created("b"), deleted("a"))
    subscriber = world.subscriber()
    seen = subscriber.watch(kinds=[KIND_TOPIC], prefix=f"{ROOT}/")
    told = asyncio.create_task(subscriber.until_position(position))
    await asyncio.sleep(0.05)
    assert not subscriber.updates

    world.log.release_applies()
    await told

    assert [item.name for item in seen.items] == [f"{ROOT}/b"]
    assert (seen.snapshot_position, seen.events) == (position, [])


@run_by(in_watch_world)
async def test_every_kind_is_in_the_snapshot_and_follows(world: WatchWorld) -> None:
    position = await world.commit(*HISTORY)
    subscriber = world.subscriber()
    seen = subscriber.watch(kinds=ALL_KINDS)
    await subscriber.until_position(position)

    assert [(item.kind, item.name) for item in seen.items] == [
        (KIND_TENANT, "acme"),
        (KIND_NAMESPACE, "acme/orders"),
        (KIND_NAMESPACE, "globex/lab"),
        (KIND_TOPIC, CAME),
        (KIND_TOPIC, TOPIC),
        (KIND_TOPIC, RENAMED_AND_CAME),
        (KIND_TOPIC, SHADOW),
        (KIND_TOPIC, SOURCE),
        (KIND_TOPIC, RENAMED_AGAIN),
        (KIND_TOPIC, RESTORED),
        (KIND_TOPIC, SCALABLE),
        (KIND_ASSIGNMENT, f"{CAME}-partition-0"),
        (KIND_ASSIGNMENT, f"{TOPIC}-partition-0"),
        (KIND_ASSIGNMENT, f"{RENAMED_AGAIN}-partition-1"),
        (KIND_SCALABLE_TOPIC, RESTORED),
        (KIND_SCALABLE_TOPIC, SCALABLE),
    ]
    layout = seen.items[-1].scalable_topic
    assert (layout.topic_id, layout.epoch, layout.operation.operation_id) == ("topic-3", 2, 3)
    unit = seen.items[-4].assignment
    assert (unit.epoch, unit.broker_id, unit.session_id, unit.unit) == (
        2,
        "broker-1",
        "s-2",
        "p0",
    )


@run_by(in_watch_world)
async def test_a_layout_is_followed_by_name_where_nobody_watches_topics(world: WatchWorld) -> None:
    """Creations that nobody watches are left out whole; a changed layout is none of them."""
    subscriber = world.subscriber()
    seen = subscriber.watch(kinds=[KIND_SCALABLE_TOPIC], names=[SCALABLE])
    await subscriber.until_position(await world.commit(created("a")))
    before = next(n for n, each in enumerate(HISTORY) if isinstance(each, scalable.LayoutChanged))
    await subscriber.until_position(await world.commit(*HISTORY[:before]))
    await subscriber.until_position(await world.commit(*HISTORY[before:]))

    epochs = [each.layout_changed.epoch for each in seen.events if each.HasField("layout_changed")]
    assert epochs == [each.epoch for each in HISTORY if isinstance(each, scalable.LayoutChanged)]


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        (TOPIC, [f"{TOPIC}-partition-0"]),
        (f"{TOPIC}-par", [f"{TOPIC}-partition-0"]),
        (f"{TOPIC}-partition-", [f"{TOPIC}-partition-0"]),
        (f"{TOPIC}-partition-0", [f"{TOPIC}-partition-0"]),
        (f"{TOPIC}-partition-1", []),
        ("persistent://acme/orders", [f"{CAME}-partition-0", f"{TOPIC}-partition-0"]),
        ("non-persistent://", []),
    ],
)
@run_by(in_watch_world)
async def test_assignments_are_found_by_any_prefix_of_their_units(
    world: WatchWorld, *, prefix: str, found: list[str]
) -> None:
    position = await world.commit(*HISTORY)
    subscriber = world.subscriber()
    seen = subscriber.watch(kinds=[KIND_ASSIGNMENT], prefix=prefix)
    await subscriber.until_position(position)
    assert [item.name for item in seen.items] == found


SCALED = "segment://acme/orders/scaled"


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        (f"{SCALED}/", [f"{SCALED}/0000-7fff-1", f"{SCALED}/up/0000-ffff-0"]),
        (f"{SCALED}/0000-", [f"{SCALED}/0000-7fff-1"]),
        (f"{SCALED}/up/", [f"{SCALED}/up/0000-ffff-0"]),
        (f"{SCALED}/up/0000-ffff-0", [f"{SCALED}/up/0000-ffff-0"]),
        ("segment://acme/orders/sca", [f"{SCALED}/0000-7fff-1", f"{SCALED}/up/0000-ffff-0"]),
        ("seg", [f"{SCALED}/0000-7fff-1", f"{SCALED}/up/0000-ffff-0"]),
        (f"{SCALED}/8000-", []),
        (f"{SCALABLE}/", []),
    ],
)
@run_by(in_watch_world)
async def test_segments_are_found_by_any_prefix_of_their_names(
    world: WatchWorld, *, prefix: str, found: list[str]
) -> None:
    """Their topics are of another domain, and one topic's name may begin with another's."""
    upper = f"{SCALABLE}/up"
    await world.commit(*HISTORY)
    position = await world.commit(
        topic.TopicCreated("topic-5", upper, 0, "ns-1", TIME_MS),
        assignment.TopicAssigned("topic-3", "s1", f"{SCALED}/0000-7fff-1", 1, "b", "s", "x"),
        assignment.TopicAssigned("topic-5", "s0", f"{SCALED}/up/0000-ffff-0", 1, "b", "s", "x"),
    )
    subscriber = world.subscriber()
    seen = subscriber.watch(kinds=[KIND_ASSIGNMENT], prefix=prefix)
    await subscriber.until_position(position)
    assert [item.name for item in seen.items] == found


@run_by(in_watch_world)
async def test_names_select_exactly_what_they_name(world: WatchWorld) -> None:
    await world.commit(*HISTORY)
    await world.commit(created("b"), created("bc"))
    subscriber = world.subscriber()
    wanted = ["acme", f"{ROOT}/b", f"{TOPIC}-partition-0", "no such thing"]
    seen = subscriber.watch(kinds=ALL_KINDS, names=wanted)
    await subscriber.until_position(len(HISTORY) + 2)
    assert [item.name for item in seen.items] == [
        "acme",
        f"{ROOT}/b",
        f"{TOPIC}-partition-0",
    ]

    last = await world.commit(changed("bc"), changed("b"))
    await subscriber.until_position(last)
    assert seen.positions == [last]


@run_by(in_watch_world)
async def test_a_snapshot_of_many_pages_is_as_of_one_position_while_the_shard_goes_on(
    world: WatchWorld, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await world.commit(*(created(f"t-{number:04}") for number in range(1_200)))
    subscriber = world.subscriber()
    seen = subscriber.watch(kinds=[KIND_TOPIC])
    await subscriber.until(lambda: bool(seen.items))
    assert len(seen.items) < 1_200
    last = await world.commit(deleted("t-0003"), deleted("t-1199"), created("t-new"))
    await subscriber.until_position(last)

    assert seen.snapshot_position == first
    assert [item.name for item in seen.items] == [f"{ROOT}/t-{n:04}" for n in range(1_200)]
    assert seen.positions == [first + 1, first + 2, first + 3]
    assert seen.resets == 1
    assert max(len(update.items) for update in subscriber.updates) <= 500


@run_by(in_watch_world)
async def test_a_watch_resumes_behind_its_position_without_a_snapshot(world: WatchWorld) -> None:
    await world.commit(created("a"), created("b"), created("c"))
    subscriber = world.subscriber()
    seen = subscriber.watch(kinds=[KIND_TOPIC], from_position=1)
    await subscriber.until_position(3)
    assert (seen.positions, seen.items, seen.resets) == ([2, 3], [], 0)

    subscriber.disconnect()
    await world.commit(created("d"), created("e"))
    subscriber.connect()
    await subscriber.until_position(5)
    assert seen.positions == [2, 3, 4, 5]


@pytest.mark.parametrize(("watches", "passes"), [(2, 1), (3, 2)])
def test_watch_joining_max_read_the_log_together_and_one_more_reads_it_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watches: int, passes: int
) -> None:
    monkeypatch.setattr(change_joining, "WATCH_JOINING_MAX", 2)
    begun: list[int] = []

    async def scenario(world: WatchWorld) -> None:
        await world.commit(created("a"), created("b"), created("c"))
        read = world.log.read
        monkeypatch.setattr(
            world.log, "read", lambda at, **named: [begun.append(at), *read(at, **named)][1:]
        )
        subscriber = world.subscriber()
        seen = [subscriber.watch(kinds=[KIND_TOPIC], from_position=1) for _ in range(watches)]
        await subscriber.until_position(3)

        assert [each.positions for each in seen] == [[2, 3]] * watches
        assert begun.count(2) == passes

    in_watch_world(tmp_path, scenario)


@run_by(in_watch_world)
async def test_without_a_snapshot_a_watch_begins_with_the_present(world: WatchWorld) -> None:
    await world.commit(created("a"))
    subscriber = world.subscriber()
    seen = subscriber.watch(kinds=[KIND_TOPIC], without_snapshot=True)
    await subscriber.until_position(1)
    last = await world.commit(created("b"))
    await subscriber.until_position(last)
    assert (seen.items, seen.positions, seen.resets) == ([], [last], 1)


@run_by(in_watch_world)
async def test_a_position_that_was_cut_off_is_a_reset_and_a_snapshot(world: WatchWorld) -> None:
    await world.commit(created("a"), created("b"))
    subscriber = world.subscriber()
    seen = subscriber.watch(kinds=[KIND_TOPIC], from_position=1)
    await subscriber.until_position(2)
    subscriber.disconnect()
    await world.commit(deleted("a"))
    last = await world.commit(created("c"))
    await world.log.compact()

    subscriber.connect()
    await subscriber.until_position(last)

    assert [item.name for item in seen.items] == [f"{ROOT}/b", f"{ROOT}/c"]
    assert (seen.resets, seen.snapshot_position, seen.events) == (1, last, [])
    assert world.counted("watch_resets") == 1
    assert subscriber.places.resets == 1


@run_by(in_watch_world)
async def test_a_position_in_the_future_ends_that_watch_by_name_and_no_other(
    world: WatchWorld,
) -> None:
    await world.commit(created("a"))
    subscriber = world.subscriber()
    sound = subscriber.watch(kinds=[KIND_TOPIC])
    ahead = subscriber.watch(kinds=[KIND_TOPIC], from_position=9)
    await subscriber.until(lambda: any(u.HasField("error") for u in subscriber.updates))

    (refused,) = [update for update in subscriber.updates if update.HasField("error")]
    error = from_detail(refused.error)
    assert refused.watch_id == ahead.watch_id
    assert isinstance(error, PositionAhead)
    assert (error.asked, error.last, error.is_final) == (9, 1, True)
    subscriber.places.remove(ahead.watch_id)
    last = await world.commit(created("b"))
    await subscriber.until_position(last)
    assert sound.positions == [last]


@run_by(in_watch_world)
async def test_a_follower_waits_for_a_position_that_it_does_not_know_yet(world: WatchWorld) -> None:
    await world.commit(created("a"))
    subscriber = world.subscriber()
    world.log.lose_leadership()
    seen = subscriber.watch(kinds=[KIND_TOPIC], from_position=2)
    await subscriber.step()
    world.log.become_leader()
    last = await world.commit(created("b"), created("c"))
    await subscriber.until_position(last)
    assert seen.positions == [3]


@run_by(in_watch_world)
async def test_what_concerns_nobody_is_sent_to_nobody(world: WatchWorld) -> None:
    one, other = world.subscriber("one"), world.subscriber("other")
    seen = one.watch(kinds=[KIND_TOPIC], names=[f"{ROOT}/a"])
    other.watch(kinds=[KIND_TENANT], prefix="zebra")
    await one.until_position(0)
    await other.until_position(0)
    await one.until(lambda: names(one).count(1) == 2)
    await other.until(lambda: names(other).count(1) == 2)
    before = world.counted("watch_events")

    last = await world.commit(created("a"), created("b"), tenant.TenantCreated("t", "zoo"))
    await one.until_position(last)
    await other.until_position(last)

    assert seen.positions == [1]
    assert world.counted("watch_events") - before == 1
    assert not any(update.events for update in other.updates)


@run_by(in_watch_world)
async def test_an_event_that_many_watches_of_a_stream_want_is_sent_once(world: WatchWorld) -> None:
    subscriber = world.subscriber()
    watchers = [subscriber.watch(kinds=[KIND_TOPIC], prefix=ROOT[:n]) for n in range(20)]
    watchers.append(subscriber.watch(kinds=[KIND_TOPIC], names=[f"{ROOT}/a"]))
    await subscriber.until(lambda: names(subscriber).count(21) == 2)
    before = world.counted("watch_events")
    last = await world.commit(created("a"))
    await subscriber.until_position(last)
    assert [seen.positions for seen in watchers] == [[last]] * 21
    assert world.counted("watch_events") - before == 1


@run_by(in_watch_world)
async def test_nothing_is_decoded_while_nobody_watches(world: WatchWorld) -> None:
    await world.commit(created("a"))
    assert (world.hub.source.decoded.decoded, world.log.expedited) == (0, 0)
    subscriber = world.subscriber()
    subscriber.watch(kinds=[KIND_TOPIC], without_snapshot=True)
    assert world.log.expedited == 1
    await subscriber.until_position(await world.commit(created("b")))
    assert world.hub.source.decoded.decoded == 1
    subscriber.disconnect()
    await world.commit(created("c"))
    await asyncio.sleep(0)
    assert (world.hub.source.decoded.decoded, world.log.expedited) == (1, 0)


@run_by(in_watch_world)
async def test_a_watch_that_joins_a_leased_one_misses_nothing(world: WatchWorld) -> None:
    world.lead()
    subscriber = world.subscriber()
    leased = subscriber.watch(kinds=[KIND_ASSIGNMENT], leased=True)
    first = await world.commit(created("a"))
    last = await world.commit(assignment.TopicAssigned("t", "", f"{ROOT}/a", 1, "b", "s", "x"))
    await subscriber.until_position(last)
    assert (leased.positions, world.hub.source.position) == ([last], last)

    joined = subscriber.watch(kinds=[KIND_TOPIC], from_position=first)
    last = await world.commit(created("b"))
    await subscriber.until_position(last)
    assert joined.positions == [last]


def test_the_position_is_sent_regularly_unless_the_only_watch_is_a_leased_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_delivery, "_PROGRESS_SECONDS", 0.001)
    monkeypatch.setattr(change_lease, "_UPDATE_SECONDS", 0.01)

    async def scenario(world: WatchWorld) -> None:
        world.lead()
        subscriber = world.subscriber()
        leased = subscriber.watch(kinds=[KIND_ASSIGNMENT], leased=True)
        last = await world.commit(created("a"))
        await subscriber.until_position(last)
        assert subscriber.places.position == last
        # The first one was due before the watch was there.
        await subscriber.until(lambda: names(subscriber)[-3:] == [leased.watch_id] * 3)
        subscriber.updates.clear()
        await subscriber.until(lambda: len(subscriber.updates) > 3)
        assert set(names(subscriber)) == {leased.watch_id}

        joined = subscriber.watch(kinds=[KIND_TOPIC], from_position=last)
        await subscriber.until(lambda: names(subscriber).count(0) > 3)
        assert subscriber.stream is not None
        for each in (joined, leased):
            subscriber.stream.remove(each.watch_id)
            subscriber.places.remove(each.watch_id)
        subscriber.updates.clear()
        await subscriber.until(lambda: names(subscriber).count(0) > 3)

    in_watch_world(tmp_path, scenario)


def test_what_waits_when_the_last_watch_goes_is_thrown_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_hub, "WATCH_EVENTS_PER_SLICE", 1)

    async def scenario(world: WatchWorld) -> None:
        subscriber = world.subscriber()
        gone = subscriber.watch(kinds=[KIND_TOPIC], without_snapshot=True)
        await subscriber.until(lambda: bool(subscriber.updates))
        position = await world.commit(*(created(name) for name in "abcdefgh"))
        assert subscriber.stream is not None
        subscriber.stream.remove(gone.watch_id)
        subscriber.places.remove(gone.watch_id)
        assert world.hub.source.position < position
        position = await world.commit(created("x"))
        assert f"position={position} streams=1 queued=0" in repr(world.hub)

        seen = subscriber.watch(kinds=[KIND_TOPIC], without_snapshot=True)
        last = await world.commit(created("y"))
        await subscriber.until_position(last)
        assert (gone.positions, seen.positions) == ([], [last])

    in_watch_world(tmp_path, scenario)


@run_by(in_watch_world)
async def test_leased_and_other_watches_decode_an_entry_once(world: WatchWorld) -> None:
    world.lead()
    world.subscriber("discovery-1").watch(kinds=[KIND_ASSIGNMENT], leased=True)
    subscriber = world.subscriber()
    seen = subscriber.watch(kinds=[KIND_ASSIGNMENT], without_snapshot=True)
    await subscriber.until(lambda: bool(subscriber.updates))
    last = await world.commit(assignment.TopicAssigned("t", "", f"{ROOT}/a", 1, "b", "s", "x"))
    await subscriber.until_position(last)
    assert seen.positions == [last]
    assert world.hub.source.decoded.decoded == 1


@pytest.mark.parametrize("excess", [0, 1])
def test_a_backlog_beyond_its_bound_is_read_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    monkeypatch.setattr(change_delivery, "WATCH_BACKLOG_EVENTS_MAX", 10)

    async def scenario(world: WatchWorld) -> None:
        slow, quick = world.subscriber("slow"), world.subscriber("quick")
        seen = slow.watch(kinds=[KIND_TOPIC], without_snapshot=True)
        also = quick.watch(kinds=[KIND_TOPIC], without_snapshot=True)
        for each in (slow, quick):
            await each.until(lambda each=each: 1 in names(each))
        last = 0
        for number in range(10 + excess):
            last = await world.commit(created(f"t-{number}"))
            await quick.until_position(last)
        assert ("lagging=True" in repr(slow.stream)) is bool(excess)
        await slow.until_position(last)
        assert seen.positions == also.positions == list(range(1, last + 1))
        later = await world.commit(created("later"))
        await slow.until_position(later)
        assert seen.positions[-1] == later
        assert "lagging=False" in repr(slow.stream)

    in_watch_world(tmp_path, scenario)


def test_a_stream_that_lags_behind_a_cut_begins_each_watch_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_delivery, "WATCH_BACKLOG_EVENTS_MAX", 2)

    async def scenario(world: WatchWorld) -> None:
        subscriber = world.subscriber()
        seen = subscriber.watch(kinds=[KIND_TOPIC], without_snapshot=True)
        other = subscriber.watch(kinds=[KIND_TOPIC], prefix=f"{ROOT}/t-1")
        await subscriber.until(lambda: names(subscriber).count(2) == 2)
        last = 0
        for number in range(4):
            last = await world.commit(created(f"t-{number}"))
            while world.hub.source.position < last:
                await asyncio.sleep(0)
        await world.log.compact()
        await subscriber.until_position(last)
        assert (seen.resets, seen.events, seen.position) == (2, [], last)
        assert [item.name for item in other.items] == [f"{ROOT}/t-1"]
        assert world.counted("watch_resets") == 2

    in_watch_world(tmp_path, scenario)


@pytest.mark.parametrize("excess", [0, 1])
def test_a_hub_that_cannot_keep_up_leaves_the_rest_to_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    monkeypatch.setattr(change_hub, "WATCH_HUB_EVENTS_MAX", 10)

    async def scenario(world: WatchWorld) -> None:
        subscriber = world.subscriber()
        seen = subscriber.watch(kinds=[KIND_TOPIC], without_snapshot=True)
        await subscriber.until(lambda: 1 in names(subscriber))
        last = await world.commit(*(created(f"t-{number}") for number in range(10 + excess)))
        assert ("lagging=True" in repr(subscriber.stream)) is bool(excess)
        await subscriber.until_position(last)
        assert seen.positions == list(range(1, last + 1))

    in_watch_world(tmp_path, scenario)


def test_progress_goes_on_while_a_watch_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_delivery, "_PROGRESS_SECONDS", 0.0)

    async def scenario(world: WatchWorld) -> None:
        last = 0
        for number in range(1_000):
            last = await world.commit(created(f"t-{number}"))
        subscriber = world.subscriber()
        level = subscriber.watch(kinds=[KIND_TENANT], without_snapshot=True)
        await subscriber.until(lambda: level.position == last)
        behind = subscriber.watch(kinds=[KIND_TOPIC], from_position=1)
        subscriber.updates.clear()
        await subscriber.until_position(last)

        ids = names(subscriber)
        assert 0 in ids[ids.index(2) : len(ids) - ids[::-1].index(2)]
        assert behind.positions == list(range(2, last + 1))

    in_watch_world(tmp_path, scenario)


@run_by(in_watch_world)
async def test_a_removed_watch_gets_no_more_changes(world: WatchWorld) -> None:
    subscriber = world.subscriber()
    gone = subscriber.watch(kinds=[KIND_TOPIC], without_snapshot=True)
    stays = subscriber.watch(kinds=[KIND_TOPIC], without_snapshot=True)
    await subscriber.until(lambda: 2 in names(subscriber))
    assert world.hub.watch_count == 2
    subscriber.places.remove(gone.watch_id)
    assert subscriber.stream is not None
    subscriber.stream.remove(gone.watch_id)
    subscriber.stream.remove(77)
    last = await world.commit(created("a"))
    await subscriber.until_position(last)
    assert (gone.positions, stays.positions) == ([], [last])
    assert world.hub.watch_count == 1


@run_by(in_watch_world)
async def test_the_whole_history_reaches_a_watch_of_everything(world: WatchWorld) -> None:
    last = 0
    for event in HISTORY:
        last = await world.commit(event)
    subscriber = world.subscriber()
    seen = subscriber.watch(kinds=ALL_KINDS, from_position=1)
    await subscriber.until_position(last)
    assert seen.positions == concerning(world.history()[1:], ALL_KINDS, "")
    kinds = {event.WhichOneof("payload") for event in seen.events}
    assert "parent_gate_opened" not in kinds
    assert "broker_session_ended" not in kinds


def test_what_was_read_from_the_log_is_not_offered_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_hub, "WATCH_EVENTS_PER_SLICE", 1)

    async def scenario(world: WatchWorld) -> None:
        await world.commit(created("a"))
        subscriber = world.subscriber()
        seen = subscriber.watch(kinds=[KIND_TOPIC], without_snapshot=True)
        await subscriber.until(lambda: 1 in names(subscriber))
        last = await world.commit(*(created(name) for name in "bcdef"))
        # The hub has not had all of its turns yet: the stream gets ahead of it.
        assert subscriber.stream is not None
        subscriber.stream.fall_behind()
        await subscriber.until(lambda: bool(seen.events))
        assert world.hub.source.position < last
        await subscriber.until_position(await world.commit(created("z")))
        assert seen.positions == [2, 3, 4, 5, 6, 7]

    in_watch_world(tmp_path, scenario)


def test_a_change_received_while_joining_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_hub, "WATCH_EVENTS_PER_SLICE", 1)

    async def scenario(world: WatchWorld) -> None:
        # With a watch of somebody the hub looks at each event, slowly.
        world.subscriber("somebody").watch(kinds=[KIND_TENANT])
        subscriber = world.subscriber()
        last = await world.commit(*(created(name) for name in "abcdef"))
        seen = subscriber.watch(kinds=[KIND_TOPIC], from_position=1)
        await subscriber.until(lambda: 1 in names(subscriber))
        assert world.hub.source.position < last
        await subscriber.until_position(await world.commit(created("z")))
        assert seen.positions == [2, 3, 4, 5, 6, 7]

    in_watch_world(tmp_path, scenario)
