"""Lists that watchers share: what is read, what is kept, what is refused, who gets which change."""

from __future__ import annotations

import asyncio
import random

import pytest

from nextgen.client.topic_lists import namespace_changes, shared_list
from nextgen.client.topic_lists.shared_list import SharedList
from nextgen.kernel.errors import Overloaded, Refused, Unavailable
from nextgen.kernel.limits.listing import (
    TOPIC_LIST_CHANGE_NAMES_MAX,
    TOPIC_LIST_OVERHEAD_BYTES,
    TOPIC_LIST_PENDING_NAMES_MAX,
    TOPIC_LIST_WATCHER_BYTES,
)
from nextgen.kernel.limits.pulsar import TOPIC_LIST_BYTES_MAX
from nextgen.kernel.routing.names import NamespaceName
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.pulsar.topic_lists.pattern import TopicPattern, compile_pattern
from nextgen.pulsar.topic_lists.ports import ListQuestion, Refresh, TopicList, TopicListChange
from nextgen.tasks.timeouts import timeout
from tests.support.discovery.topic_list_world import NAMESPACE, PREFIX, LoggedShards, Node
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


async def test_a_list_that_nobody_watches_makes_room_for_another(shards):
    node = Node(shards, bytes_max=TOPIC_LIST_OVERHEAD_BYTES + TOPIC_LIST_WATCHER_BYTES)
    (await node.watch("t/n/a.*")).close()
    place = await node.watch("t/n/b.*")
    assert node.lists.gauges()["topic_lists"] == 1
    place.close()
    await node.lists.stop()
    assert node.lists.gauges()["topic_list_bytes"] == 0


async def test_topic_list_pending_names_max_waits_and_one_more_reads_the_list_again(shards, node):
    place = await node.watch(".*")
    create(shards, "a", partitions=TOPIC_LIST_PENDING_NAMES_MAX)
    assert len((await change_at(node, place)).created) == TOPIC_LIST_PENDING_NAMES_MAX
    shards.of_topic(f"{PREFIX}a").delete(f"{PREFIX}a")
    create(shards, "b")
    node.streams.advance()
    assert await place.next_change() is Refresh.REFRESH
    assert place.names() == [f"{PREFIX}b"]
    assert place.hash == topics_hash(place.names())


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
