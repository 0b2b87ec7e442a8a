"""Watches of programs through discovery: placed on shards, bounded, resumed and ended by name."""

import asyncio

import pytest

from discovery.domain.watch_scope import WatchedKind
from discovery.service.watches import registry as watch_registry
from discovery.service.watches.public_watch import PublicWatch
from discovery.service.watches.registry import WatchRegistry
from discovery.service.watches.shard_feed import EncodedEvents
from nextgen.kernel.errors import (
    InvalidRequest,
    Overloaded,
    PositionAhead,
    Unavailable,
)
from nextgen.kernel.limits.stream import (
    PUBLIC_WATCH_BYTES,
    PUBLIC_WATCH_QUEUE_BYTES_MAX,
    PUBLIC_WATCH_QUEUE_UPDATES_MAX,
    WATCH_BACKLOG_EVENTS_MAX,
    WATCH_STALLED_MS_MAX,
)
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate
from protos.nextgen.v1.discovery_service_pb2 import ShardPosition, WatchRequest, WatchUpdate
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.shard_service_pb2 import WatchShardUpdate
from tests.support.discovery.fake_cluster import StaticLink, full_update, shard_map
from tests.support.discovery.fake_shard_changes import (
    FakeReader,
    FakeStreams,
    created,
    deleted,
    properties_set,
    topic_item,
)

PREFIX = "persistent://t/n/"


class World:
    """A registry between fake shards and a test that reads."""

    def __init__(self, shard_ids=(1, 2)) -> None:
        self.link = StaticLink(full_update(dict.fromkeys(shard_ids, "a:1")))
        self.streams = FakeStreams()
        self.reader = FakeReader()
        self.now = 100.0
        self.registry = WatchRegistry(self.link, self.streams, self.reader, lambda: self.now)
        self.link.on_change(lambda _view, _update: self.registry.cluster_changed())

    def open(self, known=(), kind=WatchedKind.TOPICS, **more) -> PublicWatch:
        if "names" not in more:
            more.setdefault("prefix", PREFIX)
        request = WatchRequest(**more)
        getattr(request, "from").extend(
            ShardPosition(shard_id=shard_id, position=position) for shard_id, position in known
        )
        return self.registry.open(kind, request)

    async def read(self, watch: PublicWatch) -> WatchUpdate:
        async with timeout(30):
            return WatchUpdate.FromString(await watch.take())

    async def until(self, condition) -> None:
        async with timeout(30):
            while not condition():
                await asyncio.sleep(0)

    async def reading(self, shard_id):
        def is_read():
            return any(r.is_open and r.shard_id == shard_id for r in self.reader.readings)

        await self.until(is_read)
        return self.reader.of_shard(shard_id)

    async def followed(self, shard_id):
        await self.until(lambda: self.streams.of_shard(shard_id))
        (added,) = self.streams.of_shard(shard_id)
        return added

    async def snapshot(self, shard_id, position, *names) -> None:
        """Let a shard give its snapshot, and the watch follow behind it."""
        reading = await self.reading(shard_id)
        items = [topic_item(name) for name in names]
        reading.updates.put_nowait(WatchShardUpdate(watch_id=1, items=items))
        reading.updates.put_nowait(
            WatchShardUpdate(watch_id=1, snapshot_complete=True, position=position)
        )
        await self.followed(shard_id)


@pytest.fixture
async def world():
    world = World()
    yield world
    await world.registry.stop()


@pytest.fixture
async def one_shard():
    world = World((1,))
    yield world
    await world.registry.stop()


def positions(update: WatchUpdate) -> dict[int, int]:
    return {place.shard_id: place.position for place in update.positions}


async def test_a_watch_begins_with_a_snapshot_and_follows_behind_it(one_shard):
    watch = one_shard.open()
    await one_shard.snapshot(1, 20, PREFIX + "a")
    added = await one_shard.followed(1)
    added.listener.on_events([created(22, PREFIX + "b")])

    updates = [await one_shard.read(watch) for _ in range(4)]

    assert (added.from_position, added.names) == (20, ())
    assert [update.shard_id for update in updates] == [1, 1, 1, 1]
    assert updates[0].reset
    assert [item.name for item in updates[1].items] == [PREFIX + "a"]
    assert updates[2].snapshot_complete
    assert positions(updates[2]) == {1: 20}
    assert [event.position for event in updates[3].events] == [22]
    assert positions(updates[3]) == {1: 22}
    assert not any(reading.is_open for reading in one_shard.reader.readings)


async def test_before_its_snapshot_is_complete_a_shard_cannot_be_resumed(one_shard):
    watch = one_shard.open()
    reading = await one_shard.reading(1)
    reading.updates.put_nowait(WatchShardUpdate(watch_id=1, items=[topic_item("a")]))
    await one_shard.read(watch)
    await one_shard.read(watch)
    watch.tick()
    assert watch.sent == {}


async def test_a_watch_resumes_each_shard_where_it_was_and_asks_for_no_snapshot(world):
    world.streams.positions = {1: 30, 2: 40}
    watch = world.open(known=[(1, 25), (2, 40)])

    first, second = await world.followed(1), await world.followed(2)
    first.listener.on_events([created(27, PREFIX + "a")])

    assert (first.from_position, second.from_position) == (25, 40)
    assert world.reader.readings == []
    assert [event.position for event in (await world.read(watch)).events] == [27]


async def test_a_shard_that_is_not_among_the_positions_begins_with_its_snapshot(world):
    world.streams.positions = {1: 30, 2: 40}
    world.open(known=[(1, 25)])
    await world.followed(1)
    assert (await world.reading(2)).from_position == 0


async def test_a_watch_that_is_far_behind_catches_up_on_a_stream_of_its_own(one_shard):
    one_shard.streams.positions = {1: 10 + WATCH_BACKLOG_EVENTS_MAX + 1}
    watch = one_shard.open(known=[(1, 10)])
    reading = await one_shard.reading(1)
    assert reading.from_position == 10
    assert one_shard.streams.watches == {}

    update = WatchShardUpdate(watch_id=1, events=[created(11, PREFIX + "a")], position=11)
    reading.updates.put_nowait(update)

    assert (await one_shard.followed(1)).from_position == 11
    assert positions(await one_shard.read(watch)) == {1: 11}


async def test_a_watch_that_is_a_little_behind_catches_up_on_the_shared_stream(one_shard):
    one_shard.streams.positions = {1: 10 + WATCH_BACKLOG_EVENTS_MAX}
    one_shard.open(known=[(1, 10)])
    assert (await one_shard.followed(1)).from_position == 10
    assert one_shard.reader.readings == []


async def test_without_a_snapshot_it_begins_with_the_present_and_says_where_that_is(one_shard):
    watch = one_shard.open(without_snapshot=True)
    added = await one_shard.followed(1)
    assert added.from_position == 0

    added.listener.on_reset()
    added.listener.on_position(17)

    assert positions(await one_shard.read(watch)) == {1: 17}
    assert len(one_shard.reader.readings) == 0


async def test_a_log_that_was_cut_gives_a_reset_and_a_snapshot(one_shard):
    one_shard.streams.positions = {1: 30}
    watch = one_shard.open(known=[(1, 25)])
    (await one_shard.followed(1)).listener.on_reset()

    await one_shard.snapshot(1, 90, PREFIX + "z")

    assert (await one_shard.read(watch)).reset
    assert [item.name for item in (await one_shard.read(watch)).items] == [PREFIX + "z"]
    assert positions(await one_shard.read(watch)) == {1: 90}
    assert (await one_shard.followed(1)).from_position == 90


async def test_a_snapshot_that_breaks_off_begins_anew_with_a_reset(one_shard):
    watch = one_shard.open()
    reading = await one_shard.reading(1)
    reading.updates.put_nowait(WatchShardUpdate(watch_id=1, items=[topic_item("a")]))
    reading.updates.put_nowait(Unavailable("the leader died"))
    await one_shard.until(lambda: not reading.is_open)

    await one_shard.snapshot(1, 20, "b")

    updates = [await one_shard.read(watch) for _ in range(5)]
    assert [update.reset for update in updates] == [True, False, True, False, False]
    assert [item.name for update in updates for item in update.items] == ["a", "b"]


async def test_a_change_repeated_after_a_reconnect_is_published_once(one_shard):
    one_shard.streams.positions = {1: 25}
    watch = one_shard.open(known=[(1, 25)])
    listener = (await one_shard.followed(1)).listener
    listener.on_events([created(26, "a"), created(27, "b")])
    listener.on_events([created(27, "b"), deleted(28, "b")])

    told = [event.position for _ in range(2) for event in (await one_shard.read(watch)).events]
    assert told == [26, 27, 28]


async def test_a_message_to_many_is_encoded_once_and_different_ones_stay_apart():
    encodings = EncodedEvents()
    a, b, c = created(6, "a"), created(7, "b"), created(8, "c")

    assert encodings.encoded(1, [a, b, c]) is encodings.encoded(1, [a, b, c])
    one, other = encodings.encoded(1, [a, c]), encodings.encoded(2, [a, c])
    for number in range(9, 9 + 100):
        encodings.encoded(1, [created(number, "x")])

    assert [event.position for event in WatchUpdate.FromString(one).events] == [6, 8]
    assert positions(WatchUpdate.FromString(one)) == {1: 8}
    assert positions(WatchUpdate.FromString(other)) == {2: 8}
    assert len(encodings._recent) == 64


async def test_catch_ups_at_once_max_are_read_and_one_more_waits(monkeypatch):
    monkeypatch.setattr(watch_registry, "CATCH_UPS_AT_ONCE_MAX", 2)
    world = World((1,))
    watches = [world.open() for _ in range(3)]
    await world.until(lambda: len(world.reader.readings) == 2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(world.reader.readings) == 2

    done = WatchShardUpdate(watch_id=1, snapshot_complete=True, position=50)
    world.reader.readings[0].updates.put_nowait(done)
    await world.until(lambda: len(world.reader.readings) == 3)
    await world.registry.stop()
    assert len(watches) == 3


async def test_a_watch_goes_on_when_its_stream_ends_for_a_while(one_shard):
    one_shard.streams.positions = {1: 25}
    watch = one_shard.open(known=[(1, 25)])
    first = await one_shard.followed(1)
    first.listener.on_events([created(26, "a")])
    first.listener.on_ended(Unavailable("no leader"))
    await one_shard.until(lambda: one_shard.streams.removed)

    second = await one_shard.followed(1)

    assert second.from_position == 26
    assert watch.error is None


async def test_a_mistake_of_ours_ends_the_watch_and_no_other(world, monkeypatch):
    world.streams.positions = {1: 5, 2: 5}
    other = world.open(known=[(1, 5), (2, 5)])
    await world.followed(2)

    def fail(*_arguments, **_more):
        raise ValueError("a mistake")

    monkeypatch.setattr(world.streams, "add", fail)
    watch = world.open(known=[(1, 5), (2, 5)])
    with pytest.raises(Unavailable, match="a mistake"):
        await world.read(watch)
    assert other.error is None


async def test_a_position_from_the_future_ends_the_watch_by_name(one_shard):
    one_shard.streams.positions = {1: 25}
    watch = one_shard.open(known=[(1, 1_000)])
    (await one_shard.followed(1)).listener.on_ended(PositionAhead(1_000, 25, is_final=True))
    with pytest.raises(PositionAhead, match="1000"):
        await one_shard.read(watch)


async def test_a_replica_behind_the_shards_published_position_is_asked_again(one_shard):
    one_shard.streams.positions = {1: 25}
    watch = one_shard.open(known=[(1, 25)])
    first = await one_shard.followed(1)
    first.listener.on_position(26)
    first.listener.on_ended(PositionAhead(26, 25, is_final=True))
    await one_shard.until(lambda: one_shard.streams.removed)

    assert (await one_shard.followed(1)).from_position == 26
    assert watch.error is None


async def test_namespaces_are_watched_at_the_shards_that_have_their_slots(world):
    names = [f"t/n-{number}" for number in range(20)]
    table = world.link.view.slot_table
    world.streams.positions = {1: 5, 2: 5}
    world.open(known=[(1, 5), (2, 5)], kind=WatchedKind.NAMESPACES, names=names)

    for shard_id in (1, 2):
        added = await world.followed(shard_id)
        assert set(added.names) == {name for name in names if table.shard_for_key(name) == shard_id}


async def test_a_namespace_concerns_no_other_shard(world):
    shard_id = world.link.view.slot_table.shard_for_key("t/n")
    world.open(kind=WatchedKind.NAMESPACES, names=["t/n"])
    await world.reading(shard_id)
    assert [reading.shard_id for reading in world.reader.readings] == [shard_id]


async def test_a_topic_is_watched_at_every_shard_because_it_may_have_been_renamed(world):
    world.streams.positions = {1: 5, 2: 5}
    watch = world.open(known=[(1, 5), (2, 5)], names=["t/n/new"])
    of_shard = {shard_id: await world.followed(shard_id) for shard_id in (1, 2)}
    assert {added.names for added in of_shard.values()} == {("persistent://t/n/new",)}

    for position, (shard_id, added) in enumerate(of_shard.items(), 6):
        event = Event(position=position)
        event.topic_renamed.name, event.topic_renamed.new_name = (
            ("persistent://t/n/old", "persistent://t/n/new")
            if shard_id == 1
            else ("persistent://t/n/new", "persistent://secret/n/newer")
        )
        added.listener.on_events([event])

    came, gone = [(await world.read(watch)).events[0] for _ in range(2)]
    assert came.topic_renamed.name == "persistent://t/n/old"
    assert gone.topic_deleted.name == "persistent://t/n/new"


async def test_a_shard_added_to_the_map_is_sent_in_whole(world):
    world.streams.positions = {1: 5, 2: 5}
    watch = world.open(known=[(1, 5), (2, 5)])
    await world.followed(1)
    await world.followed(2)

    moved = shard_map({1: ["node-1"], 2: ["node-2"], 3: ["node-3"]}, version=2)
    world.link.push(ClusterUpdate(shard_map=moved))

    forgotten = [await world.read(watch), await world.read(watch)]
    assert {update.shard_id for update in forgotten} == {1, 2}, "their slots are others"
    assert all(update.reset and update.snapshot_complete for update in forgotten)
    for shard_id in (1, 2, 3):
        assert (await world.reading(shard_id)).from_position == 0
    assert watch.error is None


async def test_slots_that_come_are_sent_in_whole_to_watches_that_began_before_them(world):
    """A former shard had said where they go. The shard there did not have their objects yet."""
    assert world.link.view.learn_move([(0, 16_383)], 2, 1)
    world.streams.positions = {1: 5, 2: 5}
    watch = world.open(known=[(1, 5), (2, 5)])
    world.open(known=[(1, 5)], kind=WatchedKind.NAMESPACES, names=[name_at(world, 1)])
    await world.until(lambda: len(world.streams.of_shard(1)) == 2)

    moved = shard_map({1: ["node-1"], 2: ["node-2"]}, version=2)
    moved.slot_owners = shard_map({2: ["node-2"]}).slot_owners
    world.link.push(ClusterUpdate(shard_map=moved))

    assert {(await world.read(watch)).shard_id for _ in range(2)} == {1, 2}
    await world.until(lambda: sum(r.shard_id == 2 for r in world.reader.readings) == 2)


def name_at(world, shard_id: int) -> str:
    """Return a namespace that the map has at a shard."""
    table = world.link.view.map_table
    names = (f"t/n-{number}" for number in range(100))
    return next(each for each in names if table.shard_for_key(each) == shard_id)


async def test_a_shard_that_leaves_the_map_is_forgotten(world):
    world.streams.positions = {1: 5, 2: 5}
    watch = world.open(known=[(1, 5), (2, 5)])
    await world.followed(1)
    await world.followed(2)

    world.link.push(ClusterUpdate(shard_map=shard_map({1: ["node-1"]}, version=2)))
    await world.read(watch)
    await world.read(watch)

    assert watch.sent == {}
    assert (await world.reading(1)).from_position == 0
    assert world.streams.watches == {}


async def test_a_new_leader_disturbs_no_watch(world):
    world.streams.positions = {1: 5, 2: 5}
    world.open(known=[(1, 5), (2, 5)])
    await world.followed(1)
    await world.followed(2)
    world.link.push_leader(1, 9, "b:1")
    await asyncio.sleep(0)
    assert len(world.streams.watches) == 2
    assert world.streams.removed == []


@pytest.mark.parametrize(
    ("known", "message"),
    [([(7, 5)], "no shard 7"), ([(0, 5)], "no shard 0"), ([(1, 5), (1, 6)], "two positions")],
)
async def test_a_place_to_resume_that_cannot_be_is_refused_by_name(world, known, message):
    with pytest.raises(InvalidRequest, match=message):
        world.open(known=known)
    assert not world.registry.open_watches()


async def test_a_name_of_wrong_form_is_refused_and_opens_nothing(world):
    with pytest.raises(InvalidRequest, match="a/b"):
        world.open(names=["t/n/x", "a/b"])
    with pytest.raises(InvalidRequest, match="not both"):
        world.open(names=["t/n/x"], prefix=PREFIX)
    assert not world.registry.open_watches()


async def test_a_watcher_that_does_not_read_is_ended_and_the_others_are_not(world):
    world.streams.positions = {1: 5, 2: 5}
    slow = world.open(known=[(1, 5), (2, 5)])
    slow_listener = (await world.followed(1)).listener
    other = world.open(known=[(1, 5), (2, 5)])
    await world.until(lambda: len(world.streams.of_shard(1)) == 2)
    other_listener = world.streams.of_shard(1)[1].listener

    for position in range(6, 6 + PUBLIC_WATCH_QUEUE_UPDATES_MAX):
        slow_listener.on_events([created(position, "a")])
    assert slow.error is None
    slow_listener.on_events([created(6 + PUBLIC_WATCH_QUEUE_UPDATES_MAX, "a")])
    other_listener.on_events([created(6, "a")])

    assert isinstance(slow.error, Overloaded)
    assert slow.sent == {1: 5, 2: 5}, "it resumes where it read last"
    assert (await world.read(other)).events[0].position == 6
    await world.registry.close(slow)
    assert world.registry.ended_as_slow == {"topics": 1}
    assert len(world.streams.of_shard(1)) == 1


async def test_what_waits_for_a_watcher_is_bounded_in_bytes(one_shard):
    one_shard.streams.positions = {1: 5}
    watch = one_shard.open(known=[(1, 5)])
    listener = (await one_shard.followed(1)).listener
    big = "x" * (PUBLIC_WATCH_QUEUE_BYTES_MAX // 8)
    for position in range(6, 13):
        listener.on_events([properties_set(position, "a", key=big)])
    assert watch.error is None
    assert watch.queue.bytes <= PUBLIC_WATCH_QUEUE_BYTES_MAX
    listener.on_events([properties_set(13, "a", key=big)])
    assert isinstance(watch.error, Overloaded)


async def test_a_snapshot_waits_for_its_reader_and_is_no_reason_to_end_it(one_shard):
    watch = one_shard.open()
    reading = await one_shard.reading(1)
    big = "x" * (PUBLIC_WATCH_QUEUE_BYTES_MAX // 16)
    for number in range(100):
        item = topic_item(f"{PREFIX}{number:03}", key=big)
        reading.updates.put_nowait(WatchShardUpdate(watch_id=1, items=[item]))
    reading.updates.put_nowait(WatchShardUpdate(watch_id=1, snapshot_complete=True, position=50))
    await one_shard.until(lambda: not watch.queue.is_calm)
    assert reading.taken < 12, "the rest stays with the shard"

    names = []
    while not positions(update := await one_shard.read(watch)):
        names += [item.name for item in update.items]
        assert watch.queue.bytes <= PUBLIC_WATCH_QUEUE_BYTES_MAX

    assert names == [f"{PREFIX}{number:03}" for number in range(100)]
    assert watch.error is None


async def test_a_stream_that_takes_nothing_is_ended(one_shard):
    one_shard.streams.positions = {1: 5}
    watch = one_shard.open(known=[(1, 5)])
    watch.stalls.begin()
    one_shard.now += WATCH_STALLED_MS_MAX / 1_000
    watch.tick()
    assert watch.error is None
    one_shard.now += 0.001
    watch.tick()
    assert isinstance(watch.error, Overloaded)


async def test_a_stream_that_is_idle_is_not_stalled(one_shard):
    one_shard.streams.positions = {1: 5}
    watch = one_shard.open(known=[(1, 5)])
    watch.stalls.begin()
    watch.stalls.end()
    one_shard.now += 10 * WATCH_STALLED_MS_MAX
    watch.tick()
    assert watch.error is None


async def test_progress_is_published_for_all_shards_together_and_only_if_any(world):
    world.streams.positions = {1: 5, 2: 5}
    watch = world.open(known=[(1, 5), (2, 5)])
    (await world.followed(1)).listener.on_position(8)
    (await world.followed(2)).listener.on_position(9)

    watch.tick()
    update = await world.read(watch)
    watch.tick()

    assert positions(update) == {1: 8, 2: 9}
    assert len(watch.queue) == 0


@pytest.mark.parametrize("more", [0, 1])
async def test_public_watch_progress_max_are_due_at_a_time_and_one_more_takes_turns(
    one_shard, monkeypatch, more
):
    monkeypatch.setattr(watch_registry, "PUBLIC_WATCH_PROGRESS_MAX", 3)
    ticked: list[PublicWatch] = []
    monkeypatch.setattr(PublicWatch, "tick", lambda watch: ticked.append(watch))
    watches = [one_shard.open() for _ in range(3 + more)]
    one_shard.registry.tick()
    assert ticked == watches[:3]
    one_shard.registry.tick()
    assert ticked[3:] == (watches[3:] + watches)[:3]
    assert one_shard.registry.open_watches()[WatchedKind.TOPICS.value] == len(watches)


async def test_progress_waits_behind_what_is_to_be_read_first(one_shard):
    """A position must not overtake an event that it covers."""
    one_shard.streams.positions = {1: 5}
    watch = one_shard.open(known=[(1, 5)])
    listener = (await one_shard.followed(1)).listener
    listener.on_events([created(6, "a")])
    listener.on_position(9)
    watch.tick()

    assert positions(await one_shard.read(watch)) == {1: 6}
    watch.tick()
    assert positions(await one_shard.read(watch)) == {1: 9}


async def test_public_watches_bytes_max_are_taken_and_one_watch_more_is_refused(
    one_shard, monkeypatch
):
    monkeypatch.setattr(watch_registry, "PUBLIC_WATCHES_BYTES_MAX", 3 * PUBLIC_WATCH_BYTES)
    one_shard.streams.positions = {1: 5}
    watches = [one_shard.open(known=[(1, 5)]) for _ in range(3)]
    with pytest.raises(Overloaded, match="3 watches"):
        one_shard.open(known=[(1, 5)])
    assert one_shard.registry.counts()["watches_refused"] == 1
    await one_shard.registry.close(watches[0])
    one_shard.open(known=[(1, 5)])


async def test_what_waits_for_watchers_takes_the_memory_of_further_watches(one_shard, monkeypatch):
    monkeypatch.setattr(watch_registry, "PUBLIC_WATCHES_BYTES_MAX", 2 * PUBLIC_WATCH_BYTES)
    one_shard.open(known=[(1, 5)])
    (await one_shard.followed(1)).listener.on_events([created(6, PREFIX + "a")])
    with pytest.raises(Overloaded, match="1 watches"):
        one_shard.open(known=[(1, 5)])
    assert one_shard.registry.gauges()["watch_bytes"] > PUBLIC_WATCH_BYTES


async def test_a_node_that_stops_ends_its_watches_and_takes_no_more(one_shard):
    one_shard.streams.positions = {1: 5}
    watch = one_shard.open(known=[(1, 5)])
    one_shard.registry.drain()
    with pytest.raises(Unavailable, match="stops"):
        await one_shard.read(watch)
    with pytest.raises(Unavailable, match="stops"):
        one_shard.open()
    assert one_shard.registry.ended_as_slow == {}


async def test_without_a_shard_map_nothing_can_be_watched():
    world = World()
    registry = WatchRegistry(StaticLink(), world.streams, world.reader, lambda: 0.0)
    with pytest.raises(Unavailable, match="no shard map"):
        registry.open(WatchedKind.TENANTS, WatchRequest())


async def test_the_shard_map_comes_whole_and_then_what_changes(world):
    watch = world.registry.open_shard_map(WatchRequest())
    first = WatchUpdate.FromString(await watch.take())
    assert first.shard_map.version == 1
    assert {leader.shard_id: leader.term for leader in first.leaders} == {1: 1, 2: 1}

    world.link.push_leader(2, 7, "c:1")
    world.link.push_leader(2, 8, "d:1")
    second = WatchUpdate.FromString(await watch.take())
    assert not second.HasField("shard_map")
    assert [(leader.shard_id, leader.term, leader.grpc) for leader in second.leaders] == [
        (2, 8, "d:1")
    ], "only the latest matters"

    world.link.push(ClusterUpdate(shard_map=shard_map({1: ["node-1"]}, version=2)))
    assert WatchUpdate.FromString(await watch.take()).shard_map.version == 2


async def test_a_watch_of_the_shard_map_has_nothing_to_choose(world):
    for request in (WatchRequest(prefix="a"), WatchRequest(without_snapshot=True)):
        with pytest.raises(InvalidRequest, match="shard map"):
            world.registry.open_shard_map(request)


async def test_what_is_relayed_and_how_far_watchers_are_behind_is_counted(one_shard):
    one_shard.streams.positions = {1: 5}
    watch = one_shard.open(known=[(1, 5)])
    listener = (await one_shard.followed(1)).listener
    listener.on_events([created(6, "a"), created(7, "b")])
    one_shard.streams.positions[1] = 9
    one_shard.now += 0.25

    assert one_shard.registry.events_relayed == {"topics": 2}
    assert one_shard.registry.open_watches() == {"topics": 1}
    lag = one_shard.registry.lag()
    assert (lag.positions, lag.wait_ms) == (4, 250)

    await one_shard.read(watch)
    listener.on_position(9)
    lag = one_shard.registry.lag()
    assert (lag.positions, lag.wait_ms) == (0, 0)
