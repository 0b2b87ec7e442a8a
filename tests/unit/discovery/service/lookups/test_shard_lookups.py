"""Cold lookups: batches, single flight, and answers whatever happens."""

import asyncio

import pytest

from discovery.domain.answer_cache import AnswerCache, Delta
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups import line as lookup_line
from discovery.service.lookups import shard_lookups
from discovery.service.lookups.shard_lookups import ShardLookups
from discovery.wire import decoded_answer, encoded_answer_facts
from nextgen.kernel.errors import NotLeader, StaleShardMap
from nextgen.kernel.limits.cluster import (
    LOOKUP_BATCHES_IN_FLIGHT_MAX,
    LOOKUP_QUEUE_MS_MAX,
)
from nextgen.kernel.limits.discovery import LOOKUP_TENANT_NAMES_WAITING_MAX
from nextgen.kernel.limits.stream import MOVED_HOPS_MAX
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import ShardLookupResponse, ShardResponse
from tests.support.discovery.absent_names import absent_names
from tests.support.discovery.fake_cluster import StaticLink
from tests.support.simulated.virtual_time import run_virtual


class FakeShards:
    """Answers when the test releases it."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.asked_of: list[int] = []
        self.released = asyncio.Event()
        self.released.set()
        self.error: Exception | None = None
        self.forgets_one = False
        self.epoch = 1
        self.times_without_broker = 0
        self.moved: dict[str, int] = {}
        """Names that their first shard does not have any more, with the shard that has them."""
        self.is_lost = False
        """Set: nobody knows where they are."""
        self.nowhere: set[str] = set()
        """Names that no broker may have."""

    def shard_of_key(self, routing_key):
        return 1 if self.is_lost else self.moved.get(f"persistent://{routing_key}", 1)

    async def call(self, shard_id, request, *, timeout_ms, idempotent=True):
        names = list(request.lookup.topics)
        self.asked.append(names)
        self.asked_of.append(shard_id)
        epoch = self.epoch
        await self.released.wait()
        if self.error is not None:
            raise self.error
        if any(self.moved.get(name, shard_id) != shard_id for name in names):
            raise StaleShardMap("a slot is elsewhere", moved_to=2)
        if self.times_without_broker:
            self.times_without_broker -= 1
            refused = {"rejection_code": "NO_BROKER", "retryable": True}
            answers = [LookupAnswer(topic=name, position=10, **refused) for name in names]
            return ShardResponse(lookup=ShardLookupResponse(answers=answers))
        answers = [
            LookupAnswer(topic=name, position=10, rejection_code="NO_BROKER", retryable=True)
            if name in self.nowhere
            else LookupAnswer(topic=name, broker_id="b", session_id="s", epoch=epoch, position=10)
            for name in names[self.forgets_one :]
        ]
        return ShardResponse(lookup=ShardLookupResponse(answers=answers))


@pytest.fixture
def shards():
    return FakeShards()


@pytest.fixture
def cache():
    cache = AnswerCache(encoded_answer_facts, answers_max=100, aliases_max=10, deltas_max=10)
    cache.reset(1, 10)
    cache.renew(1, 1e12)
    return cache


@pytest.fixture
async def lookups(shards, cache):
    clock = asyncio.get_running_loop().time
    lookups = ShardLookups(shards, StaticLink(), cache, absent_names(), DiscoveryCounters(), clock)
    yield lookups
    await lookups.stop()


async def test_names_that_come_together_share_a_request_and_one_flight(
    lookups, shards, monkeypatch
):
    # However long this process stands still, the line has not stood for too long.
    monkeypatch.setattr(lookup_line, "LOOKUP_QUEUE_MS_MAX", 60_000)
    flights = [lookups.ask(1, name) for name in ("a", "b", "a", "c")]

    answers = [decoded_answer(await flight).topic for flight in flights]

    assert answers == ["a", "b", "a", "c"]
    assert shards.asked == [["a", "b", "c"]]


async def test_shards_are_asked_apart(lookups, shards):
    await asyncio.wait({lookups.ask(1, "a"), lookups.ask(2, "b")})

    assert sorted(shards.asked) == [["a"], ["b"]]


async def test_what_was_answered_is_in_the_cache(lookups, cache):
    await lookups.ask(1, "a")

    assert cache.lookup(["a"], 0.0)[1] == []


async def test_a_request_has_no_more_names_than_are_allowed(lookups, shards, monkeypatch):
    monkeypatch.setattr(lookup_line, "NAMES_PER_LOOKUP_MAX", 10)

    await asyncio.wait({lookups.ask(1, f"t{number}") for number in range(11)})

    assert [len(batch) for batch in shards.asked] == [10, 1]


async def test_lookup_tenant_names_waiting_max_wait_and_one_more_is_refused(lookups, shards):
    shards.released.clear()
    of_tenant = [f"persistent://a/n/{n}" for n in range(LOOKUP_TENANT_NAMES_WAITING_MAX + 1)]
    flights = [lookups.ask(1, name) for name in of_tenant]
    other = lookups.ask(1, "persistent://b/n/x")

    assert not any(flight.done() for flight in flights[:-1])
    refused = decoded_answer(flights[-1].result())
    assert (refused.rejection_code, refused.retryable) == ("OVERLOADED", True)
    assert refused.retry_after_ms == LOOKUP_QUEUE_MS_MAX
    assert not other.done()
    await lookups.stop()


async def test_an_operator_sets_how_many_names_of_a_tenant_wait(shards, cache):
    clock = asyncio.get_running_loop().time
    counters = DiscoveryCounters()
    lookups = ShardLookups(shards, StaticLink(), cache, absent_names(), counters, clock, 3)
    shards.released.clear()

    flights = [lookups.ask(1, f"persistent://a/n/{number}") for number in range(4)]

    assert [flight.done() for flight in flights] == [False, False, False, True]
    await lookups.stop()


async def test_a_flood_of_one_tenant_does_not_keep_another_waiting(lookups, shards):
    """1. A tenant asks for more than may be under way, and gets no answers. 2. Another one asks."""
    shards.released.clear()
    for number in range(3_000):
        lookups.ask(1, f"persistent://flood/n/{number}")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked = len(shards.asked)

    lookups.ask(1, "persistent://quiet/n/x")
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert shards.asked[asked:] == [["persistent://quiet/n/x"]]
    await lookups.stop()


async def test_beyond_so_many_requests_names_wait_and_share_the_next(lookups, shards):
    shards.released.clear()
    flights = []
    for number in range(LOOKUP_BATCHES_IN_FLIGHT_MAX + 5):
        flights.append(lookups.ask(1, f"t{number}"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(shards.asked) == LOOKUP_BATCHES_IN_FLIGHT_MAX

    shards.released.set()
    await asyncio.wait(set(flights))

    assert len(shards.asked) == LOOKUP_BATCHES_IN_FLIGHT_MAX + 1
    assert len(shards.asked[-1]) == 5


async def test_trouble_is_an_answer_that_may_be_retried_and_the_next_one_asks_again(
    lookups, shards
):
    shards.error = NotLeader(1)
    answer = decoded_answer(await lookups.ask(1, "a"))
    shards.error = None

    assert (answer.rejection_code, answer.retryable) == ("NOT_LEADER", True)
    assert decoded_answer(await lookups.ask(1, "a")).broker_id == "b"


async def test_a_shard_that_leaves_an_answer_out_is_trouble(lookups, shards):
    shards.forgets_one = True

    answer = decoded_answer(await lookups.ask(1, "a"))

    assert answer.retryable
    assert "0 answers to 1 names" in answer.message


async def test_too_many_names_waiting_are_refused(lookups, shards, monkeypatch):
    monkeypatch.setattr(shard_lookups, "LOOKUP_NAMES_WAITING_MAX", 2)
    shards.released.clear()
    flights = [lookups.ask(1, name) for name in ("a", "b", "c")]

    assert decoded_answer(await flights[2]).rejection_code == "OVERLOADED"
    shards.released.set()
    assert decoded_answer(await flights[0]).broker_id == "b"


@pytest.mark.parametrize(("allowed", "asked_at_once"), [(2, [2]), (3, [3]), (4, [3])])
async def test_lookup_names_in_flight_max_are_sent_to_a_shard_and_one_more_waits(
    lookups, shards, monkeypatch, allowed, asked_at_once
):
    monkeypatch.setattr(lookup_line, "LOOKUP_NAMES_IN_FLIGHT_MAX", allowed)
    shards.released.clear()
    flights = [lookups.ask(1, name) for name in ("a", "b", "c")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [len(names) for names in shards.asked] == asked_at_once

    shards.released.set()

    for flight in flights:
        assert decoded_answer(await flight).broker_id == "b"
    assert sum(len(names) for names in shards.asked) == 3


async def test_a_name_that_cannot_be_asked_for_in_time_is_refused_and_the_next_ones_are_not(
    lookups, shards, monkeypatch
):
    monkeypatch.setattr(lookup_line, "LOOKUP_NAMES_IN_FLIGHT_MAX", 1)
    monkeypatch.setattr(shard_lookups, "LOOKUP_WAIT_MS_MAX", 1)
    shards.released.clear()
    asked = lookups.ask(1, "a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting = [lookups.ask(1, name) for name in ("b", "c")]

    for flight in waiting:
        answer = decoded_answer(await flight)
        assert (answer.rejection_code, answer.retryable) == ("OVERLOADED", True)
    shards.released.set()

    assert decoded_answer(await asked).broker_id == "b"
    assert decoded_answer(await lookups.ask(1, "d")).broker_id == "b"
    assert shards.asked == [["a"], ["d"]]


@pytest.mark.parametrize(("stood_ms", "next_asked"), [(500, ["b"]), (501, ["d"])])
async def test_behind_a_line_that_stood_for_too_long_the_latest_go_first(
    cache, shards, monkeypatch, stood_ms, next_asked
):
    monkeypatch.setattr(lookup_line, "LOOKUP_NAMES_IN_FLIGHT_MAX", 1)
    now = [0.0]
    lookups = ShardLookups(
        shards, StaticLink(), cache, absent_names(), DiscoveryCounters(), lambda: now[0]
    )
    shards.released.clear()
    flights = [lookups.ask(1, "a")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    flights += [lookups.ask(1, name) for name in ("b", "c", "d")]
    now[0] = stood_ms / 1_000

    shards.released.set()

    for flight in flights:
        assert decoded_answer(await flight).broker_id == "b"
    assert shards.asked[:2] == [["a"], next_asked]
    assert sorted(shards.asked) == [["a"], ["b"], ["c"], ["d"]]


async def test_a_stop_answers_all_waiters(lookups, shards):
    shards.released.clear()
    flight = lookups.ask(1, "a")
    await asyncio.sleep(0)

    await lookups.stop()

    assert decoded_answer(await flight).rejection_code == "UNAVAILABLE"


async def test_an_answer_that_a_change_overtook_is_asked_for_again(lookups, shards, cache):
    """1. A name is asked for. 2. It moves, and the move is acknowledged. 3. Somebody asks, and
    shares the question that is on its way. 4. Its answer is from before the move."""
    shards.released.clear()
    early = lookups.ask(1, "a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cache.apply(1, 20, [Delta(20, "a", "", 2, "b2", "s2")])
    late = lookups.ask(1, "a")
    shards.epoch = 2

    shards.released.set()

    assert decoded_answer(await late).epoch == 2
    assert decoded_answer(await early).epoch == 2
    assert shards.asked == [["a"], ["a"]]


async def test_a_name_whose_broker_died_meanwhile_is_asked_for_again(lookups, shards):
    shards.times_without_broker = 2

    answer = decoded_answer(await lookups.ask(1, "a"))

    assert answer.broker_id == "b"
    assert shards.asked == [["a"]] * 3


async def test_a_missing_broker_is_reported_in_the_end(lookups, shards, monkeypatch):
    monkeypatch.setattr(shard_lookups, "_PAUSES_MS", (1, 1, 1))
    shards.times_without_broker = 100

    answer = decoded_answer(await lookups.ask(1, "a"))

    assert (answer.rejection_code, answer.retryable) == ("NO_BROKER", True)
    assert shards.asked == [["a"]] * 4


def test_names_that_no_broker_may_have_keep_no_others_waiting(shards, cache):
    """1. One name in each of so many requests has no broker. 2. Others are asked for meanwhile."""
    bad = [f"bad-{number}" for number in range(LOOKUP_BATCHES_IN_FLIGHT_MAX)]
    shards.nowhere.update(bad)

    async def main():
        clock = asyncio.get_running_loop().time
        lookups = ShardLookups(
            shards, StaticLink(), cache, absent_names(), DiscoveryCounters(), clock
        )
        flights = []
        for name in bad:
            flights.append(lookups.ask(1, name))
            await asyncio.sleep(0.001)
        began = clock()

        good = decoded_answer(await lookups.ask(1, "good"))
        assert good.broker_id == "b"
        assert clock() - began < 0.001

        answers = [decoded_answer(await flight) for flight in flights]
        assert {answer.rejection_code for answer in answers} == {"NO_BROKER"}
        assert [shards.asked.count([name]) for name in bad] == [4] * len(bad)
        await lookups.stop()

    run_virtual(main)


@pytest.mark.parametrize("names_free", [0, 1])
def test_names_that_are_asked_for_again_count_among_those_in_flight(
    shards, cache, monkeypatch, names_free
):
    monkeypatch.setattr(lookup_line, "LOOKUP_NAMES_IN_FLIGHT_MAX", 3)
    bad = [f"bad-{number}" for number in range(3 - names_free)]
    shards.nowhere.update(bad)

    async def main():
        clock = asyncio.get_running_loop().time
        lookups = ShardLookups(
            shards, StaticLink(), cache, absent_names(), DiscoveryCounters(), clock
        )
        for name in bad:
            lookups.ask(1, name)
        await asyncio.sleep(0.001)

        good = lookups.ask(1, "good")
        await asyncio.sleep(0.001)
        assert good.done() is bool(names_free)
        await good
        assert all(len(names) <= 3 for names in shards.asked)
        await lookups.stop()

    run_virtual(main)


class FailingLater(FakeShards):
    """Fails when it is asked again for what no broker may have; the rest waits for ``released``."""

    async def call(self, shard_id, request, *, timeout_ms, idempotent=True):
        names = list(request.lookup.topics)
        if names == ["bad"]:
            raise NotLeader(1)
        return await super().call(shard_id, request, timeout_ms=timeout_ms)


def test_a_failure_is_told_to_those_names_alone_that_were_asked_for_by_it(cache):
    """1. Of two names one is answered. 2. It is asked for anew. 3. Asking for the other fails."""
    shards = FailingLater()
    shards.nowhere.add("bad")

    async def main():
        clock = asyncio.get_running_loop().time
        counters = DiscoveryCounters()
        lookups = ShardLookups(shards, StaticLink(), cache, absent_names(), counters, clock)
        first, bad = lookups.ask(1, "a"), lookups.ask(1, "bad")
        assert decoded_answer(await first).broker_id == "b"
        shards.released.clear()
        second = lookups.ask(1, "a")

        assert decoded_answer(await bad).rejection_code == NotLeader.reason
        assert not second.done()
        assert counters.lookups_by_result[NotLeader.reason] == 1
        shards.released.set()
        assert decoded_answer(await second).broker_id == "b"
        await lookups.stop()

    run_virtual(main)


async def test_names_of_a_batch_go_to_the_shards_that_have_them(lookups, shards, cache):
    cache.reset(2, 10)
    cache.renew(2, 1e12)
    stays, moves = "persistent://t/n/stays", "persistent://t/n/moves"
    shards.moved = {stays: 1, moves: 2}

    answers = await asyncio.gather(lookups.ask(1, stays), lookups.ask(1, moves))

    assert [decoded_answer(each).broker_id for each in answers] == ["b", "b"]
    assert sorted(zip(shards.asked_of[1:], shards.asked[1:], strict=True)) == [
        (1, [stays]),
        (2, [moves]),
    ]
    assert cache.lookup([stays, moves], 0.0)[1] == []
    cache.reset(2, 11)
    assert cache.lookup([stays, moves], 0.0)[1] == [1], "its answer belongs to the other shard"


async def test_a_name_that_no_shard_has_is_answered_at_last(lookups, shards):
    shards.moved = {"persistent://t/n/x": 2}
    shards.is_lost = True

    answer = decoded_answer(await lookups.ask(1, "persistent://t/n/x"))

    assert (answer.rejection_code, answer.retryable) == ("STALE_SHARD_MAP", True)
    assert shards.asked_of == [1] * (MOVED_HOPS_MAX + 1)
