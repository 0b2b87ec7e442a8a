"""Lists that watchers share: what is read, what is kept, what is refused, who gets which change."""

from __future__ import annotations

import asyncio
import random

import pytest

from nextgen.client.topic_lists import namespace_changes, shared_list
from nextgen.client.topic_lists import place as place_module
from nextgen.client.topic_lists.place import gathered
from nextgen.client.topic_lists.shared_list import SharedList
from nextgen.kernel.errors import Overloaded, Refused, Unavailable
from nextgen.kernel.limits.listing import (
    FILTERED_LISTS_READ_MAX,
    LIST_WALK_BYTES_MAX,
    TOPIC_LIST_CHANGE_NAMES_MAX,
    TOPIC_LIST_OVERHEAD_BYTES,
    TOPIC_LIST_PENDING_NAMES_MAX,
    TOPIC_LIST_WATCHER_BYTES,
)
from nextgen.kernel.limits.pulsar import TOPIC_LIST_BYTES_MAX
from nextgen.kernel.routing.names import NamespaceName
from nextgen.kernel.routing.property_filter import EVERY_TOPIC, parse_filter
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.pulsar.topic_lists.pattern import TopicPattern, compile_pattern
from nextgen.pulsar.topic_lists.ports import ListQuestion, TopicList, TopicListChange
from nextgen.tasks.timeouts import timeout
from tests.support.discovery.topic_list_world import (
    NAMESPACE,
    PREFIX,
    SCALABLE_PREFIX,
    ClientWatcher,
    LoggedShards,
    Node,
)
from tests.support.processes.kept_tasks import break_kept, has_begun_again


@pytest.fixture
def shards():
    return LoggedShards(3, random.Random(5), page_items=1_000)


@pytest.fixture
async def node(shards):
    node = Node(shards)
    yield node
    await node.lists.stop()


def create(shards: LoggedShards, *locals_: str, partitions: int = 0) -> None:
    for local in locals_:
        shards.of_topic(PREFIX + local).create(PREFIX + local, partitions)


async def change_at(node: Node, place) -> TopicListChange:
    node.streams.advance()
    async with timeout(30):
        change = await place.next_change()
    assert isinstance(change, TopicListChange)
    return change


async def settled(node: Node) -> None:
    """Let the list take all changes, while its places wait."""
    node.streams.advance()
    for _ in range(50):
        await asyncio.sleep(0)


async def ask(node: Node, known_hash: str = "", **more) -> TopicList:
    more.setdefault("domain", "persistent")
    question = ListQuestion(NAMESPACE, known_hash=known_hash, **more)
    asking = asyncio.ensure_future(node.lists.current(question))
    while not asking.done():
        node.streams.advance()
        await asyncio.sleep(0)
    return asking.result()


async def test_a_watcher_gets_creations_growth_and_deletion_as_partitions(shards, node):
    create(shards, "a-0")
    place = await node.watch("t/n/a.*")
    assert place.names() == [f"{PREFIX}a-0"]

    create(shards, "a-1", partitions=2)
    created = await change_at(node, place)
    shards.of_topic(f"{PREFIX}a-1").grow(f"{PREFIX}a-1", 3)
    grown = await change_at(node, place)
    shards.of_topic(f"{PREFIX}a-1").delete(f"{PREFIX}a-1")
    deleted = await change_at(node, place)

    units = [f"{PREFIX}a-1-partition-{number}" for number in range(3)]
    assert created == TopicListChange(topics_hash([f"{PREFIX}a-0", *units[:2]]), (*units[:2],), ())
    assert grown == TopicListChange(topics_hash([f"{PREFIX}a-0", *units]), (units[2],), ())
    assert deleted == TopicListChange(topics_hash([f"{PREFIX}a-0"]), (), tuple(units))
    assert place.names() == [f"{PREFIX}a-0"]


async def test_list_walk_bytes_max_are_shared_by_the_pages_of_all_shards(shards, node):
    create(shards, "a")

    await node.watch(".*")

    pages = [request.bytes_max for request in shards.requests]
    assert len(pages) == 3
    assert LIST_WALK_BYTES_MAX - 3 < sum(pages) <= LIST_WALK_BYTES_MAX


async def test_topics_of_pulsar_itself_and_of_other_namespaces_are_not_listed(shards, node):
    create(shards, "__change_events")
    place = await node.watch(".*")
    assert place.names() == []

    create(shards, "x__transaction_pending_ack", "x")
    shards.of_topic("persistent://t/n2/y").create("persistent://t/n2/y")
    assert (await change_at(node, place)).created == (f"{PREFIX}x",)


async def test_watchers_share_one_watch_per_shard_and_one_match_per_pattern(
    shards, node, monkeypatch
):
    matched: list[tuple[str, str]] = []
    matches_path = TopicPattern.matches_path

    def counting(self: TopicPattern, path: str) -> bool:
        matched.append((self.text, path))
        return matches_path(self, path)

    places = [await node.watch(pattern) for pattern in ("t/n/.*1", "t/n/.*", "t/n/.*1") * 20]
    monkeypatch.setattr(TopicPattern, "matches_path", counting)
    create(shards, "a-1")
    changes = [await change_at(node, place) for place in places]

    assert len(node.streams.watches) == len(shards.by_id)
    assert sorted(matched) == [("t/n/.*", "t/n/a-1"), ("t/n/.*1", "t/n/a-1")]
    assert {change.created for change in changes} == {(f"{PREFIX}a-1",)}
    assert len({id(change) for change in changes}) == 2


async def test_a_literal_beginning_is_read_from_the_index_and_matched_before_the_pattern(
    shards, node, monkeypatch
):
    create(shards, *(f"{letter}-{number}" for letter in "ab" for number in range(20)))
    place = await node.watch("persistent://t/n/a-1.*")

    assert {request.prefix for request in shards.requests} == {"a-1"}
    assert len(place.names()) == 11
    monkeypatch.setattr(TopicPattern, "matches_path", lambda *_: pytest.fail("it was matched"))
    create(shards, "b-21")
    node.streams.advance()
    await asyncio.sleep(0)


async def test_a_name_that_is_deleted_and_created_at_once_is_both(shards, node):
    create(shards, "a")
    place = await node.watch(".*")
    shards.of_topic(f"{PREFIX}a").delete(f"{PREFIX}a")
    create(shards, "a")

    first, second = await change_at(node, place), await change_at(node, place)
    assert (first.deleted, second.created) == ((f"{PREFIX}a",), (f"{PREFIX}a",))
    assert (first.hash, second.hash) == (topics_hash([]), topics_hash([f"{PREFIX}a"]))


@pytest.mark.parametrize("task", ["topic_lists", "topic_lists_kept"])
async def test_lists_follow_their_namespace_after_a_task_of_theirs_ended(shards, node, task):
    place = await node.watch(".*")
    await asyncio.sleep(0)

    broken = break_kept(task)
    async with timeout(30):
        while not has_begun_again(task, broken):
            await asyncio.sleep(0.01)

    create(shards, "a")
    assert (await change_at(node, place)).created == (f"{PREFIX}a",)


async def test_a_list_whose_worker_is_cancelled_in_a_step_ends_and_loses_nothing(
    shards, node, monkeypatch
):
    place = await node.watch(".*")
    take = SharedList.take

    async def cancelled(shared: SharedList, *step) -> None:
        monkeypatch.setattr(SharedList, "take", take)
        raise asyncio.CancelledError

    monkeypatch.setattr(SharedList, "take", cancelled)
    create(shards, "a")
    node.streams.advance()
    with pytest.raises(Unavailable, match="broke"):
        await place.next_change()

    after = await node.watch(".*", place)
    place.close()
    assert (await after.next_change()).created == (f"{PREFIX}a",)


async def test_names_are_those_of_the_last_change_that_was_taken(shards, node):
    create(shards, "a")
    place = await node.watch(".*")
    create(shards, "b")
    node.streams.advance()
    shards.of_topic(f"{PREFIX}a").delete(f"{PREFIX}a")
    node.streams.advance()
    for _ in range(5):
        await asyncio.sleep(0)

    assert place.names() == [f"{PREFIX}a"]
    assert place.hash == topics_hash(place.names())
    assert (await change_at(node, place)).created == (f"{PREFIX}b",)
    assert place.names() == [f"{PREFIX}a", f"{PREFIX}b"]


async def test_a_known_hash_is_answered_without_reading_names(shards, node):
    create(shards, "a", "b")
    pattern = compile_pattern("t/n/.*")
    listed = await ask(node, pattern=pattern)
    assert node.listed

    node.listed.clear()
    unchanged = await ask(node, listed.hash, pattern=pattern)
    read = len(shards.requests)
    again = await ask(node, listed.hash, pattern=pattern)
    create(shards, "c")
    node.streams.advance()
    for _ in range(5):
        await asyncio.sleep(0)
    changed = await ask(node, listed.hash, pattern=pattern)

    assert unchanged == again == TopicList(listed.hash, None)
    assert changed.names == [f"{PREFIX}a", f"{PREFIX}b", f"{PREFIX}c"]
    assert changed.hash == topics_hash(changed.names)
    assert (len(shards.requests), node.listed) == (read, [])
    assert node.lists.counts()["topic_lists_unchanged"] == 2


@pytest.mark.parametrize("more", [{"domain": ""}, {"properties": {"a": "b"}}])
async def test_other_domains_and_properties_are_read_from_the_shards(node, more):
    await ask(node, "00000000", **more)
    assert len(node.listed) == 1


async def test_a_list_whose_stream_is_broken_is_read_from_the_shards(shards, node):
    create(shards, "a")
    known = topics_hash([f"{PREFIX}a"])
    assert (await ask(node, known)).names is None
    node.streams.is_connected = False
    assert (await ask(node, known)).names == [f"{PREFIX}a"]


async def test_a_kept_list_too_big_for_an_answer_is_refused(node, monkeypatch):
    await ask(node, "00000000")
    monkeypatch.setattr(SharedList, "text_bytes", TOPIC_LIST_BYTES_MAX)
    assert (await ask(node, "12345678")).names == []
    monkeypatch.setattr(SharedList, "text_bytes", TOPIC_LIST_BYTES_MAX + 1)
    with pytest.raises(Refused, match="one answer"):
        await ask(node, "12345678")


async def test_topic_lists_bytes_max_refuses_watchers_and_keeps_those_there_are(shards):
    room = TOPIC_LIST_OVERHEAD_BYTES + 2 * TOPIC_LIST_WATCHER_BYTES
    node = Node(shards, bytes_max=room)
    first, second = [await node.watch(".*") for _ in range(2)]
    with pytest.raises(Overloaded, match="topic lists take"):
        await node.watch(".*")

    assert node.lists.counts()["topic_lists_refused"] == 1
    assert node.lists.gauges()["topic_list_watchers"] == 2
    create(shards, "a")
    assert [(await change_at(node, place)).created for place in (first, second)] == [
        (f"{PREFIX}a",)
    ] * 2
    first.close()
    first.close()
    second.close()
    assert node.lists.gauges()["topic_list_watchers"] == 0
    await node.lists.stop()


async def test_lists_grow_to_topic_lists_grown_bytes_max_and_one_more_ends_the_largest():
    sizes = []
    for short_bytes in (0, 0, 1):
        shards = LoggedShards(2, random.Random(5), page_items=1_000)
        limits = {"grown_bytes_max": sizes[0] - short_bytes} if sizes else {}
        node = Node(shards, bytes_max=1_000_000, **limits)
        large, small = await node.watch("t/n/a.*"), await node.watch("t/n/b.*")
        create(shards, *(f"a-{number}" for number in range(9)), "b")
        await settled(node)
        sizes.append(node.lists.gauges()["topic_list_bytes"])
        assert (await small.next_change()).created == (f"{PREFIX}b",)
        if short_bytes:
            with pytest.raises(Overloaded, match="have grown to"):
                await large.next_change()
            assert node.lists.counts()["topic_lists_refused"] == 1
            assert node.lists.gauges()["topic_list_watchers"] == 1
        else:
            assert len(large.names()) == 0
            assert (await large.next_change()).created
        await node.lists.stop()

    assert sizes[0] == sizes[1] > sizes[2]


async def test_lists_that_nobody_watches_end_before_those_that_have_grown(shards):
    room = 2 * TOPIC_LIST_OVERHEAD_BYTES + TOPIC_LIST_WATCHER_BYTES
    node = Node(shards, bytes_max=room, grown_bytes_max=room + 10)
    (await node.watch("t/n/a.*")).close()
    place = await node.watch("t/n/b.*")
    create(shards, "b")

    assert (await change_at(node, place)).created == (f"{PREFIX}b",)
    assert node.lists.gauges()["topic_lists"] == 1
    await node.lists.stop()


async def test_there_is_room_for_a_watcher_while_there_is_memory_or_a_list_that_can_go(shards):
    node = Node(shards, bytes_max=TOPIC_LIST_OVERHEAD_BYTES + TOPIC_LIST_WATCHER_BYTES)
    assert node.lists.has_room
    place = await node.watch("t/n/a.*")
    assert not node.lists.has_room
    place.close()
    assert node.lists.has_room
    await node.lists.stop()


async def test_a_list_that_nobody_watches_makes_room_for_another(shards):
    node = Node(shards, bytes_max=TOPIC_LIST_OVERHEAD_BYTES + TOPIC_LIST_WATCHER_BYTES)
    (await node.watch("t/n/a.*")).close()
    place = await node.watch("t/n/b.*")
    assert node.lists.gauges()["topic_lists"] == 1
    place.close()
    await node.lists.stop()
    assert node.lists.gauges()["topic_list_bytes"] == 0


async def test_topic_list_pending_names_max_wait_and_one_more_is_a_net_difference(shards, node):
    place = await node.watch(".*")
    create(shards, "a", partitions=TOPIC_LIST_PENDING_NAMES_MAX)
    assert len((await change_at(node, place)).created) == TOPIC_LIST_PENDING_NAMES_MAX
    assert node.lists.counts()["topic_list_refreshes"] == 0

    shards.of_topic(f"{PREFIX}a").delete(f"{PREFIX}a")
    node.streams.advance()
    create(shards, "b")
    node.streams.advance()
    create(shards, "c")
    shards.of_topic(f"{PREFIX}b").delete(f"{PREFIX}b")
    await settled(node)
    change = await place.next_change()

    assert (change.created, len(change.deleted)) == (
        (f"{PREFIX}c",),
        TOPIC_LIST_PENDING_NAMES_MAX,
    )
    assert change.hash == place.hash == topics_hash([f"{PREFIX}c"])
    assert node.lists.counts()["topic_list_refreshes"] == 1
    create(shards, "d")
    assert (await change_at(node, place)).created == (f"{PREFIX}d",)


@pytest.mark.parametrize("pending_max", [TOPIC_LIST_PENDING_NAMES_MAX, 2])
async def test_a_client_gets_what_was_deleted_in_a_log_that_was_cut(
    shards, node, monkeypatch, pending_max
):
    """1. a client watches. 2. topics are deleted. 3. the log is cut before the stream has read
    that. 4. the shard is read again, and the client applies what it is sent."""
    monkeypatch.setattr(shared_list, "TOPIC_LIST_PENDING_NAMES_MAX", pending_max)
    create(shards, *(f"a-{number}" for number in range(9)))
    client = ClientWatcher(".*")
    beginning = asyncio.ensure_future(client.begin(node))
    while not beginning.done():
        await settled(node)
    for number in range(0, 9, 2):
        shards.of_topic(f"{PREFIX}a-{number}").delete(f"{PREFIX}a-{number}")
    create(shards, "b")
    for stream in node.streams.streams():
        stream.cut()
    async with timeout(30):
        while client.hash != topics_hash(shards.names(client.pattern)):
            await settled(node)

    assert client.names == {PREFIX + local for local in ("a-1", "a-3", "a-5", "a-7", "b")}
    assert client.failure is None
    await client.leave()


async def test_names_of_a_place_that_is_behind_are_those_that_its_watcher_has(
    shards, node, monkeypatch
):
    monkeypatch.setattr(place_module, "TOPIC_LIST_PENDING_NAMES_MAX", 1)
    create(shards, "a")
    place = await node.watch(".*")
    shards.of_topic(f"{PREFIX}a").delete(f"{PREFIX}a")
    create(shards, "b", "c")
    await settled(node)

    assert place.names() == [f"{PREFIX}a"]
    assert place.hash == topics_hash([f"{PREFIX}a"])
    assert place.answer_bytes >= len(f"{PREFIX}a")
    change = await place.next_change()
    assert (set(change.created), change.deleted) == ({f"{PREFIX}b", f"{PREFIX}c"}, (f"{PREFIX}a",))


async def test_a_failed_list_does_not_take_the_next_one_with_it(shards, node):
    """1. two watchers wait for a list that fails. 2. the first one tries again before the second
    has heard of it."""

    async def watch(attempts: int):
        try:
            return await node.lists.watch(NAMESPACE, compile_pattern(".*"))
        except Unavailable:
            if attempts == 1:
                raise
            return await watch(attempts - 1)

    first, second = asyncio.ensure_future(watch(2)), asyncio.ensure_future(watch(1))
    await asyncio.sleep(0)
    node.streams.fail(Unavailable("the shard is gone"))
    while not (first.done() and second.done()):
        node.streams.advance()
        await asyncio.sleep(0)

    with pytest.raises(Unavailable, match="gone"):
        second.result()
    assert first.result().names() == []


async def test_a_watcher_that_is_cancelled_when_its_list_ends_is_cancelled(node):
    watching = asyncio.ensure_future(node.lists.watch(NAMESPACE, compile_pattern(".*")))
    await asyncio.sleep(0)
    node.streams.fail(Unavailable("the shard is gone"))
    await asyncio.sleep(0)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_what_came_and_went_while_a_place_was_behind_is_no_change(shards, node, monkeypatch):
    monkeypatch.setattr(place_module, "TOPIC_LIST_PENDING_NAMES_MAX", 1)
    place = await node.watch(".*")
    create(shards, "a", partitions=2)
    shards.of_topic(f"{PREFIX}a").delete(f"{PREFIX}a")
    await settled(node)
    create(shards, "b")

    assert (await change_at(node, place)).created == (f"{PREFIX}b",)


async def test_what_changes_while_a_difference_is_made_is_in_the_next_one(
    shards, node, monkeypatch
):
    """1. A place is behind. 2. Its watcher takes the difference, which takes turns. 3. The list
    changes meanwhile."""
    made = place_module.net_change

    async def made_slowly(*given):
        change = await made(*given)
        create(shards, "c")
        await settled(node)
        return change

    monkeypatch.setattr(place_module, "TOPIC_LIST_PENDING_NAMES_MAX", 1)
    place = await node.watch(".*")
    create(shards, "a", "b")
    await settled(node)
    with monkeypatch.context() as slow:
        slow.setattr(place_module, "net_change", made_slowly)
        assert set((await place.next_change()).created) == {f"{PREFIX}a", f"{PREFIX}b"}

    change = await place.next_change()
    assert change.created == (f"{PREFIX}c",)
    assert change.hash == topics_hash(place.names())


async def test_after_a_list_ended_its_watcher_gets_the_difference_of_the_next_one(shards, node):
    create(shards, "a", "b")
    place = await node.watch(".*")
    create(shards, "c")
    await settled(node)
    node.streams.fail(Unavailable("the shard is gone"))
    shards.of_topic(f"{PREFIX}a").delete(f"{PREFIX}a")
    create(shards, "d")
    with pytest.raises(Unavailable, match="gone"):
        await place.next_change()

    after = await node.watch(".*", place)
    place.close()

    assert after.names() == [f"{PREFIX}a", f"{PREFIX}b"]
    change = await after.next_change()
    assert (set(change.created), change.deleted) == ({f"{PREFIX}c", f"{PREFIX}d"}, (f"{PREFIX}a",))
    assert change.hash == topics_hash(after.names())


async def test_topic_list_change_names_max_divides_changes(shards, node):
    shards = LoggedShards(1, random.Random(5))
    node = Node(shards)
    place = await node.watch(".*")
    create(shards, *(f"{number:05}" for number in range(TOPIC_LIST_CHANGE_NAMES_MAX + 1)))
    first, second = await change_at(node, place), await change_at(node, place)
    assert (len(first.created), len(second.created)) == (TOPIC_LIST_CHANGE_NAMES_MAX, 1)
    await node.lists.stop()


async def test_beyond_topic_list_backlog_events_max_the_names_are_read_again(
    shards, node, monkeypatch
):
    place = await node.watch(".*")
    monkeypatch.setattr(namespace_changes, "TOPIC_LIST_BACKLOG_EVENTS_MAX", 3)
    shard = shards.of_topic(f"{PREFIX}a")
    read = len(shards.requests)
    create(shards, "a")
    for _ in range(2):
        shard.delete(f"{PREFIX}a")
        create(shards, "a")
    node.streams.advance(3)
    node.streams.advance(2)
    assert (await change_at(node, place)).created == (f"{PREFIX}a",)
    assert len(shards.requests) > read


async def test_a_list_that_is_not_read_in_topic_list_load_ms_max_is_refused(node, monkeypatch):
    monkeypatch.setattr(shared_list, "TOPIC_LIST_LOAD_MS_MAX", 1)
    watching = node.lists.watch(NamespaceName("t", "n"), compile_pattern(".*"))
    with pytest.raises(Unavailable, match="was not read in 1 ms"):
        await watching
    assert node.lists.gauges()["topic_lists"] == 0
    assert not node.streams.watches


async def test_a_new_table_of_slots_ends_the_lists(shards, node):
    place = await node.watch(".*")
    node.lists.cluster_changed()
    shards.link.view._apply_shard_map(moved_slots())
    node.lists.cluster_changed()
    with pytest.raises(Unavailable, match="shard map changed"):
        await place.next_change()
    assert not node.streams.watches


def moved_slots():
    from tests.support.discovery.fake_cluster import shard_map

    moved = shard_map({1: ["node-1"], 2: ["node-2"]}, version=2)
    moved.shards.add(shard_id=3, replicas=["node-3"])
    return moved


async def test_a_node_that_stops_ends_its_watchers(shards):
    node = Node(shards)
    place = await node.watch(".*")
    waiting = asyncio.ensure_future(place.next_change())
    await asyncio.sleep(0)
    await node.lists.stop()
    with pytest.raises(Unavailable, match="stops"):
        await waiting


# Scalable topics --------------------------------------------------------------------------


async def watch_scalable(node: Node, *filters: str):
    watching = asyncio.ensure_future(node.lists.watch_scalable(NAMESPACE, parse_filter(filters)))
    while not watching.done():
        node.streams.advance()
        await asyncio.sleep(0)
    return watching.result()


async def begun(node: Node) -> None:
    for _ in range(50):
        node.streams.advance()
        await asyncio.sleep(0)


async def test_lists_of_scalable_topics_share_watches_of_their_own_and_only_filters_read_objects(
    shards, node
):
    name = f"{SCALABLE_PREFIX}a"
    shards.of_topic(name).create(name, a="1")
    create(shards, "classic")
    classic = await node.watch(".*")
    places = [await watch_scalable(node) for _ in range(3)]
    names_only = [request.names_only for request in shards.requests]
    filtered = [await watch_scalable(node, "a=1"), await watch_scalable(node, "a=2")]

    assert all(names_only)
    assert [each.names_only for each in shards.requests[len(names_only) :]] == [False] * 6
    assert len(node.streams.watches) == 2 * len(shards.by_id)
    assert classic.names() == [f"{PREFIX}classic"]
    assert [list(place.renew()) for place in [*places, *filtered]] == [[name]] * 4 + [[]]
    assert node.lists.gauges()["topic_lists"] == 4


async def test_a_filtered_list_is_right_whether_shards_filter_or_answer_with_all_objects(
    shards, node
):
    """In a rolling upgrade some shards are of a release that ignores the properties."""
    shards.by_id[1].filters = False
    wanted = []
    for number in range(40):
        name = f"{SCALABLE_PREFIX}t-{number}"
        shards.of_topic(name).create(name, a=f"{number % 5}", b="x")
        wanted += [name] if number % 5 == 1 else []

    place = await watch_scalable(node, "a=1", "b=x")

    assert sorted(place.renew()) == sorted(wanted)
    assert {dict(each.properties).get("a") for each in shards.requests} == {"1"}


async def test_a_list_is_charged_for_its_filter(shards, node):
    await watch_scalable(node)
    plain = node.lists.gauges()["topic_list_bytes"]
    await watch_scalable(node, "a=" + "x" * 5_000)
    assert node.lists.gauges()["topic_list_bytes"] == 2 * plain + 5_001


async def test_filtered_lists_read_max_are_read_at_a_time_and_one_more_waits(shards, node):
    gate = asyncio.Event()
    call = shards.call
    reading: list[int] = []

    async def held(shard_id, request, **more):
        reading.append(shard_id)
        await gate.wait()
        return await call(shard_id, request, **more)

    shards.call = held
    watching = [
        asyncio.ensure_future(node.lists.watch_scalable(NAMESPACE, parse_filter([f"a={number}"])))
        for number in range(FILTERED_LISTS_READ_MAX + 1)
    ]
    await begun(node)
    assert len(reading) == len(shards.by_id) * FILTERED_LISTS_READ_MAX
    # A list without a filter is not held up.
    unfiltered = asyncio.ensure_future(node.lists.watch_scalable(NAMESPACE, EVERY_TOPIC))
    await begun(node)
    assert len(reading) == len(shards.by_id) * (FILTERED_LISTS_READ_MAX + 1)

    gate.set()
    while not all(each.done() for each in (*watching, unfiltered)):
        node.streams.advance()
        await asyncio.sleep(0)
    assert len(reading) == len(shards.by_id) * (FILTERED_LISTS_READ_MAX + 2)


def test_gathered_changes_say_what_differs_and_what_was_made_anew():
    def change(created: str, deleted: str) -> TopicListChange:
        return TopicListChange(f"{created}{deleted}", tuple(created), tuple(deleted))

    assert gathered([change("a", ""), change("", "a")]) == TopicListChange("a")
    assert gathered([change("", "a"), change("a", "")]) == TopicListChange("a", ("a",), ("a",))
    assert gathered([change("", "a"), change("a", ""), change("", "a")]).deleted == ("a",)
    assert gathered([change("", "a"), change("a", ""), change("", "a")]).created == ()
    assert gathered([change("ab", "c"), change("d", "a")]) == TopicListChange(
        "da", ("b", "d"), ("c",)
    )
