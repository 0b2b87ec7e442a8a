"""Invalid or excessive requests on change streams are refused by name, and other streams go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nextgen.kernel.errors import MetadataError, Overloaded, Unavailable
from protos.nextgen.v1.inventory_pb2 import KIND_ASSIGNMENT, KIND_TENANT, KIND_TOPIC
from shards.domain import topic
from shards.watches import change_hub, change_stream, change_watch
from tests.support.scenarios import run_by
from tests.support.shards.events import TIME_MS
from tests.support.shards.watch_world import Subscriber, WatchWorld, in_watch_world


def created(name: str) -> topic.TopicCreated:
    full = f"persistent://acme/orders/{name}"
    return topic.TopicCreated(f"id-of-{name}", full, 0, "ns-1", TIME_MS)


def names(subscriber: Subscriber) -> list[int]:
    return [update.watch_id for update in subscriber.updates]


@pytest.mark.parametrize(
    ("add", "says"),
    [
        ({"kinds": []}, "has no kinds"),
        ({"kinds": [99]}, "cannot be watched"),
        ({"kinds": [0]}, "cannot be watched"),
        ({"kinds": [KIND_TOPIC], "prefix": "a", "names": ["a"]}, "names and a prefix"),
        ({"kinds": [KIND_TOPIC], "names": [""]}, "an empty name"),
        ({"kinds": [KIND_TOPIC], "names": ["x" * 2_049]}, "2049 characters"),
        ({"kinds": [KIND_TOPIC], "prefix": "x" * 2_049}, "2049 characters"),
        ({"kinds": [KIND_ASSIGNMENT], "leased": True}, "not the leader"),
        ({"kinds": [KIND_ASSIGNMENT], "leased": True, "prefix": "a"}, "not the leader"),
        ({"kinds": [KIND_ASSIGNMENT], "leased": True, "acknowledged": True}, "goes with it"),
        ({"kinds": [KIND_ASSIGNMENT], "creations": True}, "is not leased"),
        ({"kinds": [KIND_ASSIGNMENT], "leased": True, "creations": True, "prefix": "a"}, "a slash"),
    ],
)
@run_by(in_watch_world)
async def test_a_watch_that_makes_no_sense_is_refused_by_name_and_the_others_go_on(
    world: WatchWorld, *, add: dict[str, object], says: str
) -> None:
    subscriber = world.subscriber()
    sound = subscriber.watch(kinds=[KIND_TOPIC], without_snapshot=True)
    subscriber.ask(watch_id=2, **add)
    await subscriber.until(lambda: 1 in names(subscriber))
    (refused,) = [update for update in subscriber.updates if update.HasField("error")]
    assert refused.watch_id == 2
    assert says in refused.error.message
    last = await world.commit(created("a"))
    await subscriber.until_position(last)
    assert sound.positions == [last]


@run_by(in_watch_world)
async def test_a_watch_id_is_used_once(world: WatchWorld) -> None:
    subscriber = world.subscriber()
    subscriber.ask(watch_id=5, kinds=[KIND_TOPIC])
    subscriber.ask(watch_id=5, kinds=[KIND_TENANT])
    update = await subscriber.step()
    assert (update.watch_id, update.error.reason) == (5, "INVALID_REQUEST")
    assert "was used" in update.error.message
    assert world.hub.watch_count == 0
    with pytest.raises(MetadataError, match="begin at 1"):
        subscriber.ask(watch_id=0, kinds=[KIND_TOPIC])


def test_ids_with_gaps_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_watch, "WATCHES_PER_STREAM_MAX", 3)
    used = change_watch.UsedIds()
    assert [used.take(watch_id) for watch_id in (1, 2, 3, 4, 5)] == [True] * 5
    assert [used.take(watch_id) for watch_id in (10, 12, 14)] == [True] * 3
    assert not used.take(12)
    with pytest.raises(Overloaded):
        used.take(16)


@pytest.mark.parametrize("excess", [0, 1])
def test_watches_streams_and_names_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    monkeypatch.setattr(change_stream, "WATCHES_PER_STREAM_MAX", 3)
    monkeypatch.setattr(change_hub, "WATCH_STREAMS_PER_SHARD_MAX", 2)
    monkeypatch.setattr(change_watch, "WATCH_NAMES_MAX", 4)

    async def scenario(world: WatchWorld) -> None:
        subscriber = world.subscriber("one")
        world.subscriber("two")
        for watch_id in range(1, 4 + excess):
            subscriber.ask(watch_id=watch_id, kinds=[KIND_TOPIC], without_snapshot=True)
        assert world.hub.watch_count == 3
        refusals = [await subscriber.step() for _ in range(excess)]
        assert [update.error.reason for update in refusals] == ["OVERLOADED"] * excess
        if excess:
            with pytest.raises(Overloaded):
                world.subscriber("three")
        named = world.subscriber("two")
        named.ask(watch_id=1, kinds=[KIND_TOPIC], names=[f"n-{n}" for n in range(4 + excess)])
        assert world.hub.watch_count == 3 + (not excess)

    in_watch_world(tmp_path, scenario)


@run_by(in_watch_world)
async def test_an_older_stream_of_the_same_subscriber_ends(world: WatchWorld) -> None:
    older = world.subscriber("one")
    newer = world.subscriber("one")
    with pytest.raises(Unavailable, match="another stream"):
        await older.step()
    await newer.step()
    older.disconnect()
    assert world.hub.stream_count == 1


@run_by(in_watch_world)
async def test_a_replica_that_must_not_be_served_ends_its_streams_and_takes_no_more(
    world: WatchWorld,
) -> None:
    subscriber = world.subscriber()
    subscriber.watch(kinds=[KIND_TOPIC])
    world.hub.close(Unavailable("the view of shard 1 differs from the others'"))
    with pytest.raises(Unavailable, match="differs"):
        await subscriber.step()
    with pytest.raises(Unavailable, match="differs"):
        world.hub.open("another")
    assert (world.hub.stream_count, world.hub.watch_count) == (0, 0)


def test_below_watch_updates_waiting_max_a_subscriber_is_read_and_with_one_more_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_stream, "WATCH_UPDATES_WAITING_MAX", 3)

    async def scenario(world: WatchWorld) -> None:
        subscriber = world.subscriber()
        assert subscriber.stream is not None
        for watch_id in (1, 2):
            subscriber.ask(watch_id=watch_id, kinds=[])
            await subscriber.stream.wait_room()
        subscriber.ask(watch_id=3, kinds=[])
        waiting = asyncio.create_task(subscriber.stream.wait_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        await subscriber.step()
        await waiting

    in_watch_world(tmp_path, scenario)


@run_by(in_watch_world)
async def test_a_listener_that_raises_ends_its_own_watch_only(world: WatchWorld) -> None:
    class Broken:
        watch_id = 0
        ended: MetadataError | None = None

        def on_reset(self) -> None: ...
        def on_items(self, items: object) -> None: ...
        def on_snapshot_complete(self, position: int) -> None: ...
        def on_position(self, position: int) -> None: ...
        def on_events(self, events: object) -> None:
            raise ZeroDivisionError("a mistake")

        def on_ended(self, error: MetadataError) -> None:
            self.ended = error

    subscriber = world.subscriber()
    broken = subscriber.watch(Broken(), kinds=[KIND_TOPIC], without_snapshot=True)
    sound = subscriber.watch(kinds=[KIND_TOPIC], without_snapshot=True)
    await subscriber.until(lambda: 2 in names(subscriber))
    last = await world.commit(created("a"))
    await subscriber.until_position(last)
    assert sound.positions == [last]
    assert isinstance(broken.ended, Unavailable)
    assert "a mistake" in str(broken.ended)
    assert world.hub.watch_count == 1
