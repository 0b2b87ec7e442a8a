"""What the leased watch on the shared stream does to the cache of answers."""

import asyncio

import pytest

from discovery.adapters.shard_changes.leased_assignments import LeasedAssignments
from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import AnswerCache
from discovery.domain.partition_counts import PartitionCounts
from discovery.wire import answer_facts, encoded_answer, encoded_answer_facts
from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.cluster import LOOKUP_STALENESS_MS_MAX, WATCH_TTL_MARGIN_MS
from nextgen.kernel.limits.discovery import LEASES_UNUSED_MS
from nextgen.kernel.routing.ids import mint_id
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.events_pb2 import (
    Event,
    SlotRange,
    SlotsReleased,
    TopicAssigned,
    TopicUnassigned,
)
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from tests.support.discovery.absent_names import absent_names

SHARD = 1
TOPIC = "persistent://t/n/x"
TTL_MS = 2_000


class FakeStream:
    """The shared stream of a shard: remembers what is added."""

    def __init__(self) -> None:
        self.shard_id = SHARD
        self.subscriber_id = "discovery-1"
        self.is_current = True
        self.added: list[dict] = []
        self.removed = 0
        self.renewals = 0
        self.rests = False

    def add(self, listener, **watch) -> int:
        self.added.append(watch)
        return len(self.added)

    def remove(self, watch_id: int) -> None:
        self.removed += 1

    def let_creations_wait_with(self, may_wait) -> None:
        self.may_creations_wait = may_wait

    def let_lease_rest_with(self, may_rest) -> None:
        self.may_rest = may_rest

    def renew_lease(self) -> None:
        self.renewals += 1


@pytest.fixture
def cache() -> AnswerCache:
    return AnswerCache(encoded_answer_facts, answers_max=10, aliases_max=10, deltas_max=10)


@pytest.fixture
def absent() -> AbsentNames:
    return absent_names()


@pytest.fixture
def counts() -> PartitionCounts:
    return PartitionCounts(counts_max=10)


class Uses:
    """Counts what was asked of the process."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        return self.count


@pytest.fixture
def uses() -> Uses:
    return Uses()


@pytest.fixture
async def watch(cache, absent, counts, uses) -> LeasedAssignments:
    return LeasedAssignments(FakeStream(), cache, absent, counts, uses)


def answer(epoch: int = 1, position: int = 20) -> LookupAnswer:
    return LookupAnswer(
        topic=TOPIC,
        broker_id="b-1",
        session_id="s-1",
        epoch=epoch,
        topic_id="id",
        position=position,
    )


def assigned(position: int, epoch: int) -> Event:
    payload = TopicAssigned(
        topic_id="id", name=TOPIC, epoch=epoch, broker_id="b-2", session_id="s-2"
    )
    return Event(position=position, topic_assigned=payload)


def put(cache: AnswerCache, message: LookupAnswer) -> bool:
    return cache.insert(SHARD, encoded_answer(message), answer_facts(message))


def begin(watch: LeasedAssignments, position: int = 10) -> None:
    watch.on_reset()
    watch.on_position(position)


async def test_an_answer_may_be_given_for_the_time_to_live_from_the_question_on(watch, cache):
    begin(watch)
    assert put(cache, answer())
    assert not cache.has_answer(TOPIC, 5.0), "nothing was confirmed yet"

    watch._renew(5_000, TTL_MS)

    last = 5.0 + (TTL_MS - WATCH_TTL_MARGIN_MS) / 1_000
    assert cache.has_answer(TOPIC, last - 0.001)
    assert not cache.has_answer(TOPIC, last)
    assert watch.heard_at > float("-inf")


async def test_a_longer_time_to_live_makes_no_answer_older(watch, cache):
    begin(watch)
    put(cache, answer())

    watch._renew(5_000, 10 * TTL_MS)

    last = 5.0 + LOOKUP_STALENESS_MS_MAX / 1_000
    assert cache.has_answer(TOPIC, last - 0.001)
    assert not cache.has_answer(TOPIC, last)


async def test_a_change_takes_the_answer_away_before_its_position_is_known(watch, cache):
    begin(watch)
    put(cache, answer())
    watch._renew(5_000, TTL_MS)

    watch.on_events([assigned(21, 2)])

    assert not cache.has_answer(TOPIC, 5.0)
    assert cache.position(SHARD) == 21
    assert not put(cache, answer()), "an answer that the change overtook"


async def test_an_assignment_that_ends_takes_the_answer_away(watch, cache):
    begin(watch)
    put(cache, answer())
    watch._renew(5_000, TTL_MS)
    ended = TopicUnassigned(topic_id="id", name=TOPIC, epoch=1)
    watch.on_events([Event(position=21, topic_unassigned=ended)])
    assert not cache.has_answer(TOPIC, 5.0)


async def test_a_reset_takes_every_answer_away_at_once_and_begins_with_the_present(watch, cache):
    begin(watch)
    put(cache, answer())
    watch._renew(5_000, TTL_MS)

    watch.on_reset()
    assert not cache.has_answer(TOPIC, 5.0), "before the present is known"

    watch.on_position(90)
    watch._renew(5_100, TTL_MS)
    assert not put(cache, answer(position=89)), "it may be older than what is not known"
    assert put(cache, answer(position=90))
    assert cache.has_answer(TOPIC, 5.2)
    assert watch.resets == 2


@pytest.mark.parametrize(
    ("topic_id", "first", "last", "stays"),
    [
        (mint_id(700, bytes(10)), 701, 16_383, True),
        (mint_id(700, bytes(10)), 0, 699, True),
        (mint_id(700, bytes(10)), 700, 700, False),
        ("not-an-id", 0, 0, False),
    ],
)
async def test_a_release_of_slots_ends_the_answers_of_these_slots_alone(
    watch, cache, topic_id, first, last, stays
):
    begin(watch)
    message = answer()
    message.topic_id = topic_id
    put(cache, message)
    watch._renew(5_000, TTL_MS)
    assert cache.has_answer(TOPIC, 5.1)

    released = SlotsReleased(move_id=1, ranges=[SlotRange(first=first, last=last)], to_shard=2)
    watch.on_events([Event(position=30, slots_released=released)])

    assert cache.has_answer(TOPIC, 5.1) is stays
    assert cache.position(SHARD) == 30
    assert not put(cache, message), "it is from before the release"


async def test_it_resumes_where_the_cache_is_and_again_when_the_watch_ends(watch, cache):
    stream = watch._stream
    begin(watch, 30)
    running = asyncio.create_task(watch.run())
    await asyncio.sleep(0)
    watch.on_position(31)
    watch.on_ended(Overloaded("too many subscribers"))
    async with timeout(30):
        while len(stream.added) < 2:
            await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert [added["from_position"] for added in stream.added] == [30, 31]
    assert all(added["leased"] and added["without_snapshot"] for added in stream.added)
    assert stream.removed == 2


async def test_a_named_topic_loses_its_cached_number_of_partitions(watch, counts):
    begin(watch)
    counts.put(TOPIC, 4, now=0.0, until=100.0)
    counts.put("another", 4, now=0.0, until=100.0)

    watch._take_creations([TOPIC])

    assert counts.get(TOPIC, 5.0) is None
    assert counts.get("another", 5.0) == 4


async def test_a_reset_drops_every_number_of_partitions(watch, counts):
    begin(watch)
    counts.put(TOPIC, 4, now=0.0, until=100.0)

    watch.on_reset()

    assert counts.get(TOPIC, 5.0) is None


async def test_creations_may_wait_until_something_is_remembered_that_they_would_end(
    watch, absent, counts
):
    stream, now = watch._stream, asyncio.get_running_loop().time()
    begin(watch)
    watch._take_creations([])
    assert stream.may_creations_wait()

    absent.put(SHARD, TOPIC, TOPIC, b"absent", position=10, now=now)
    assert (stream.may_creations_wait(), stream.renewals) == (False, 1), "the shard hears of it"

    absent.reset(SHARD)
    assert stream.may_creations_wait()

    counts.put(TOPIC, 4, now=now, until=now + 100)
    assert (stream.may_creations_wait(), stream.renewals) == (False, 2)


async def test_a_lease_may_rest_leases_unused_ms_after_the_last_use(watch, uses, monkeypatch):
    stream, loop = watch._stream, asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    uses.count = 1
    assert not stream.may_rest()

    now += LEASES_UNUSED_MS / 1_000 - 0.001
    assert not stream.may_rest()
    now += 0.001
    assert stream.may_rest()

    uses.count = 2
    assert not stream.may_rest()


async def test_a_lease_does_not_rest_while_something_is_remembered(
    watch, counts, absent, monkeypatch
):
    stream, loop = watch._stream, asyncio.get_running_loop()
    now = loop.time() + LEASES_UNUSED_MS / 1_000
    monkeypatch.setattr(loop, "time", lambda: now)
    begin(watch)
    watch._take_creations([])
    assert stream.may_rest()

    absent.put(SHARD, TOPIC, TOPIC, b"absent", position=10, now=now)
    assert (stream.may_rest(), stream.renewals) == (False, 1)

    absent.reset(SHARD)
    assert stream.may_rest()
    counts.put(TOPIC, 4, now=now, until=now + 1)
    assert (stream.may_rest(), stream.renewals) == (False, 2)


async def test_only_a_lease_that_rests_is_woken_and_has_no_age(watch):
    begin(watch)
    watch._renew(5_000, TTL_MS)
    now = watch.heard_at + 3
    assert watch.age_s(now) == 3
    watch.wake()
    assert watch._stream.renewals == 0

    watch._stream.rests = True
    assert watch.age_s(now) == 0
    watch.wake()
    assert watch._stream.renewals == 1
