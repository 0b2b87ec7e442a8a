"""What discovery tells about topics without asking, and until when."""

from typing import Any

import pytest

from discovery.domain.answer_cache import AnswerCache, AnswerFacts, Delta
from discovery.domain.partition_counts import PartitionCounts
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.topic_directory import DiscoveryTopicDirectory, KnownTopics
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.limits.pulsar import PARTITION_COUNT_TTL_MS
from nextgen.kernel.routing.names import parse_namespace, parse_topic
from nextgen.pulsar.lookups import lookup_answer_beginnings, partitions_answer_beginnings
from nextgen.pulsar.topic_lists.ports import ListQuestion
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from tests.support.discovery.absent_names import absent_names

SHARD = 1
TOPIC = "persistent://acme/orders/paid"
URL = "pulsar://broker-1:6650"
TTL_S = PARTITION_COUNT_TTL_MS / 1_000


class Behind:
    """The parts behind the directory: what the test put there, and what was requested."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.asked: list[str] = []
        self.created: list[str] = []
        self.answers: dict[str, LookupAnswer] = {}

    async def partitions(self, name, *, create):
        self.asked.append(name.text)
        if create:
            self.counts.setdefault(name.text, 0)
        if name.text not in self.counts:
            raise Refused("NOT_FOUND", "it does not exist")
        return self.counts[name.text]

    async def locate(self, name):
        return self.answers.get(name.text, LookupAnswer(rejection_code="NOT_FOUND"))

    async def look_up_created(self, name, lookup):
        self.created.append(name.text)
        self.answers[name.text] = LookupAnswer(broker_id="broker-1", broker_url=URL)
        return await lookup(name)

    async def topics_of_namespace(self, question):
        return [question.namespace.text, question.domain]

    async def read(self, name, version):
        return (name.text, version)


class World:
    def __init__(self) -> None:
        self.now = 10.0
        self.behind = Behind()
        self.counters = DiscoveryCounters()
        self.cache = AnswerCache(
            lambda encoded: FACTS[encoded],
            answers_max=100,
            aliases_max=10,
            deltas_max=10,
            route_of=lookup_answer_beginnings,
        )
        self.cache.reset(SHARD, 10)
        self.cache.renew(SHARD, 100.0)
        counts = self.counts = PartitionCounts(counts_max=100)
        self.absent = absent_names()
        self.brokers = [URL]
        self.known = KnownTopics(
            self.cache, counts, self.absent, lambda _: self.brokers[0] if self.brokers else None
        )
        parts: Any = self.behind
        self.directory = DiscoveryTopicDirectory(
            parts, parts, parts, parts, self.known, counts, self.counters, lambda: self.now
        )

    def assign(self, topic: str, url: str = URL) -> None:
        facts = AnswerFacts(topic, "id", 1, "broker-1", "s-1", 10, url)
        FACTS[topic.encode()] = facts
        assert self.cache.insert(SHARD, topic.encode(), facts)

    def unassign(self, topic: str) -> None:
        self.cache.apply(SHARD, 11, [Delta(11, topic, "id", 1, "", "")])

    async def count(self, topic: str = TOPIC, *, create: bool = False) -> int:
        return await self.directory.partitions(parse_topic(topic), create=create)


FACTS: dict[bytes, AnswerFacts] = {}


@pytest.fixture
def world():
    return World()


def test_an_assigned_topic_is_known_to_have_no_partitions_and_where_it_is(world):
    world.assign(TOPIC)

    assert world.known.partitions(TOPIC, 50.0) == partitions_answer_beginnings(0)
    assert world.known.lookup(TOPIC, 50.0) == lookup_answer_beginnings(URL)


def test_what_the_answer_cache_may_not_give_is_not_known(world):
    world.assign(TOPIC)

    assert world.known.partitions(TOPIC, 100.0) is None
    assert not world.known.lookup(TOPIC, 100.0)
    world.unassign(TOPIC)
    assert world.known.partitions(TOPIC, 50.0) is None
    assert not world.known.lookup(TOPIC, 50.0)


def test_a_broker_that_does_not_speak_pulsar_gives_no_lookup_and_yet_a_count(world):
    world.assign(TOPIC, url="")

    assert not world.known.lookup(TOPIC, 50.0)
    assert world.known.partitions(TOPIC, 50.0) == partitions_answer_beginnings(0)


async def test_a_count_is_read_once_in_its_time(world):
    world.behind.counts[TOPIC] = 12

    assert [await world.count() for _ in range(3)] == [12, 12, 12]

    assert world.behind.asked == [TOPIC]
    assert world.known.partitions(TOPIC, 10.0) == partitions_answer_beginnings(12)
    assert world.counters.pulsar_partition_reads == 3
    assert world.counters.pulsar_partition_reads_from_cache == 2


async def test_a_deletion_is_seen_within_the_time_to_live(world):
    world.behind.counts[TOPIC] = 12
    await world.count()
    del world.behind.counts[TOPIC]

    world.now += TTL_S - 0.001
    assert await world.count() == 12
    world.now += 0.001
    with pytest.raises(Refused):
        await world.count()


async def test_a_count_that_a_growth_overtook_is_answered_and_not_cached(world):
    """1. The count is read at the shard. 2. The watch names the topic. 3. The old count arrives."""
    world.behind.counts[TOPIC] = 4
    read = world.behind.partitions

    async def overtaken(name, *, create):
        count = await read(name, create=create)
        world.counts.forget([TOPIC])
        return count

    world.behind.partitions = overtaken
    assert await world.count() == 4
    world.behind.partitions = read
    world.behind.counts[TOPIC] = 6

    assert await world.count() == 6


async def test_the_time_to_live_begins_before_the_count_was_read(world):
    world.behind.counts[TOPIC] = 12
    read = world.behind.partitions

    async def slow(name, *, create):
        world.now += TTL_S
        return await read(name, create=create)

    world.behind.partitions = slow
    assert await world.count() == 12

    assert world.known.partitions(TOPIC, world.now) is None


async def test_that_a_topic_is_absent_is_never_remembered(world):
    with pytest.raises(Refused):
        await world.count()

    assert await world.count(create=True) == 0
    assert world.behind.asked == [TOPIC, TOPIC]


async def test_a_topic_that_a_lookup_finds_is_located_without_its_creation(world):
    world.behind.answers[TOPIC] = LookupAnswer(broker_id="broker-2", broker_url=URL, epoch=3)

    found = await world.directory.locate(parse_topic(TOPIC), create=True)

    assert (found.broker_id, found.broker_url, found.epoch) == ("broker-2", URL, 3)
    assert world.behind.created == []


async def test_an_absent_topic_is_created_and_looked_up_again_only_if_that_is_wanted(world):
    name = parse_topic(TOPIC)

    with pytest.raises(Refused):
        await world.directory.locate(name, create=False)
    assert world.behind.created == []
    assert (await world.directory.locate(name, create=True)).broker_id == "broker-1"
    assert world.behind.created == [TOPIC]


async def test_an_absent_partition_is_not_created_on_its_own(world):
    with pytest.raises(Refused):
        await world.directory.locate(parse_topic(f"{TOPIC}-partition-1"), create=True)
    assert world.behind.created == []


async def test_what_is_not_final_is_raised_as_retryable(world):
    world.behind.answers[TOPIC] = LookupAnswer(rejection_code="NO_BROKER", retryable=True)

    with pytest.raises(Unavailable):
        await world.directory.locate(parse_topic(TOPIC), create=True)


async def test_names_of_new_domains_are_not_found_by_classic_clients(world):
    with pytest.raises(Refused):
        await world.directory.locate(parse_topic("topic://acme/orders/paid"), create=True)
    assert world.behind.created == []


async def test_everything_else_is_asked_behind(world):
    name = parse_topic(TOPIC)

    assert world.directory.any_broker_url(TOPIC) == URL
    assert await world.directory.schema(name, b"v") == (TOPIC, b"v")
    assert await world.directory.topics_of_namespace(
        ListQuestion(parse_namespace("acme/orders"), domain="persistent")
    ) == ["acme/orders", "persistent"]


def test_a_remembered_absence_is_answered_with_any_broker_and_nothing_without_one():
    world = World()
    world.absent.created(SHARD, (), position=10)
    world.absent.renew(SHARD, 100.0)
    assert not world.known.lookup(TOPIC, world.now)

    world.absent.put(SHARD, TOPIC, TOPIC, b"absent", position=10, now=world.now)
    assert world.known.lookup(TOPIC, world.now) == lookup_answer_beginnings(URL)
    assert world.known.partitions(TOPIC, world.now) is None, "it may be created on demand"

    world.brokers.clear()
    assert not world.known.lookup(TOPIC, world.now)
