"""Watches of topics by pattern through discovery: the list, its changes, what is refused."""

from __future__ import annotations

import asyncio
import random

import pytest

from discovery.domain.watch_scope import WatchedKind
from discovery.service.watches.registry import TOPIC_LIST, WatchRegistry
from discovery.service.watches.topic_list_watch import TopicListWatch
from nextgen.kernel.errors import InvalidRequest, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX
from nextgen.kernel.limits.listing import SUBSCRIPTION_PATTERN_CHARACTERS_MAX
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import TopicListUpdate, WatchRequest, WatchUpdate
from tests.support.discovery.fake_shard_changes import FakeReader, FakeStreams
from tests.support.discovery.topic_list_world import PREFIX, LoggedShards, Node


class World:
    """A registry with shared lists."""

    def __init__(self) -> None:
        self.shards = LoggedShards(2, random.Random(3), page_items=1_000)
        self.node = Node(self.shards)
        self.registry = WatchRegistry(self.shards.link, FakeStreams(), FakeReader(), lambda: 1.0)
        self.registry.topic_lists = self.node.lists

    def create(self, *locals_: str) -> None:
        for local in locals_:
            self.shards.of_topic(PREFIX + local).create(PREFIX + local)

    def open(self, pattern: str, known_hash: str = "") -> TopicListWatch:
        request = WatchRequest(pattern=pattern, known_hash=known_hash, prefix=PREFIX)
        watch = self.registry.open(WatchedKind.TOPICS, request)
        assert isinstance(watch, TopicListWatch)
        return watch

    async def read(self, watch: TopicListWatch) -> TopicListUpdate:
        taking = asyncio.ensure_future(watch.take())
        async with timeout(30):
            while not taking.done():
                self.node.streams.advance()
                await asyncio.sleep(0)
        return WatchUpdate.FromString(taking.result()).list


@pytest.fixture
async def world():
    world = World()
    yield world
    await world.registry.stop()
    await world.node.lists.stop()


async def test_a_watch_by_pattern_has_the_list_and_then_its_changes(world):
    world.create("a-1", "b-1")
    watch = world.open("t/n/a-.*")
    first = await world.read(watch)
    world.create("b-2", "a-2")
    second = await world.read(watch)
    world.shards.of_topic(PREFIX + "a-1").delete(PREFIX + "a-1")
    third = await world.read(watch)

    assert (first.whole, list(first.created)) == (True, [f"{PREFIX}a-1"])
    assert (second.whole, list(second.created)) == (False, [f"{PREFIX}a-2"])
    assert list(third.deleted) == [f"{PREFIX}a-1"]
    assert third.hash == topics_hash([f"{PREFIX}a-2"])
    assert world.registry.open_watches()[TOPIC_LIST] == 1
    await world.registry.close(watch)
    assert world.node.lists.gauges()["topic_list_watchers"] == 0


async def test_a_known_hash_that_holds_is_answered_without_names(world):
    world.create("a")
    update = await world.read(world.open("t/n/.*", topics_hash([f"{PREFIX}a"])))
    assert (update.whole, list(update.created)) == (False, [])
    assert update.hash == topics_hash([f"{PREFIX}a"])


async def test_a_long_list_comes_in_parts_and_the_last_has_the_hash(world):
    names = [f"{number:05}" for number in range(PAGE_ITEMS_MAX + 1)]
    world.create(*names)
    watch = world.open("t/n/.*")
    first, second = await world.read(watch), await world.read(watch)
    assert (len(first.created), first.whole, first.more) == (PAGE_ITEMS_MAX, True, True)
    assert (len(second.created), second.whole, second.more) == (1, False, False)
    assert (first.hash, second.hash) == ("", topics_hash(PREFIX + name for name in names))


LONGEST = "t/n/".ljust(SUBSCRIPTION_PATTERN_CHARACTERS_MAX, "a")


@pytest.mark.parametrize(
    "pattern", ["t/n/(", r"t/n/(a)\1", "t/n/(?!a).*", "topic://t/n/.*", "orders-.*", f"{LONGEST}a"]
)
async def test_patterns_that_are_none_are_refused(world, pattern):
    with pytest.raises(InvalidRequest):
        world.open(pattern)


@pytest.mark.parametrize("pattern", [LONGEST, "t/n/(a+)+$"])
async def test_a_pattern_may_be_long_and_would_explode_elsewhere(world, pattern):
    assert (await world.read(world.open(pattern))).whole


async def test_where_no_topic_list_is_watched_it_is_refused_by_name(world):
    world.registry.topic_lists = None
    with pytest.raises(Refused, match="cannot be watched here") as refused:
        world.open("t/n/.*")
    assert refused.value.code == RejectionCode.NOT_ALLOWED


async def test_only_topics_are_watched_by_pattern(world):
    with pytest.raises(InvalidRequest, match="only topics"):
        world.registry.open(WatchedKind.TENANTS, WatchRequest(pattern="t/n/.*"))


async def test_a_node_that_stops_ends_watches_by_pattern(world):
    watch = world.open("t/n/.*")
    await world.read(watch)
    waiting = asyncio.ensure_future(watch.take())
    await asyncio.sleep(0)
    world.registry.drain()
    with pytest.raises(Unavailable, match="stops"):
        await waiting
