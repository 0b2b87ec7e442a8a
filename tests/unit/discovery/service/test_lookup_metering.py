"""Which lookups count, as what: by gRPC, by the Pulsar protocol and over HTTP."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp.test_utils import make_mocked_request

from discovery.adapters.resources.lookups import Lookups
from discovery.adapters.rest.frame import RestFrame
from discovery.domain.answer_cache import AnswerCache
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups import command_dispatcher
from discovery.service.lookups.command_dispatcher import CommandDispatcher
from discovery.service.lookups.lookup import LookupService
from discovery.wire import encoded_answer_facts
from nextgen.kernel.errors import NotLeader, Overloaded, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.lookup_slo import LOOKUP_MS_MAX
from nextgen.pulsar.metadata_commands import Located, MetadataCommands
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import ShardLookupResponse, ShardResponse
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.support.discovery.absent_names import absent_names
from tests.support.discovery.fake_cluster import StaticLink


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class FakeShards:
    """Answers as ``codes`` says, after ``takes_s`` of the test's clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.takes_s = 0.0
        self.codes: dict[str, str] = {}
        self.error: Exception | None = None

    def shard_of_key(self, _key):
        return 1

    async def call(self, _shard_id, request, *, timeout_ms, idempotent=True):
        self.clock.now_s += self.takes_s
        if self.error is not None:
            raise self.error
        return ShardResponse(
            lookup=ShardLookupResponse(answers=map(self._answer, request.lookup.topics))
        )

    def _answer(self, name):
        code = self.codes.get(name.rpartition("/")[2], "")
        if not code:
            return LookupAnswer(topic=name, broker_id="b", session_id="s", epoch=1, position=10)
        retryable = code == RejectionCode.NO_CAPACITY
        return LookupAnswer(topic=name, rejection_code=code, retryable=retryable, position=10)


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.shards = FakeShards(self.clock)
        self.counters = DiscoveryCounters()
        cache = AnswerCache(encoded_answer_facts, answers_max=9, aliases_max=9, deltas_max=9)
        cache.reset(1, 10)
        cache.renew(1, 1e12)
        self.service = LookupService(
            self.shards, StaticLink(), cache, absent_names(), self.counters, self.clock
        )

    async def look_up(self, *names):
        topics = [f"persistent://a/b/{name}" for name in names]
        request = LookupRequest(topics=topics).SerializeToString()
        return await self.service.answer(request, 10_000)

    @property
    def seen(self):
        """Names by class of latency, where there are any, and those that we failed."""
        tally = self.counters.tally
        return {place: n for place, n in enumerate(tally.counts()) if n}, tally.errors


@pytest.fixture
async def world():
    made = World()
    yield made
    await made.service.stop()


async def test_a_cold_lookup_counts_by_the_time_it_took_and_a_warm_one_as_none(world):
    world.shards.takes_s = 0.15

    await world.look_up("t")
    await world.look_up("t")

    assert world.seen == ({0: 1, 7: 1}, 0)


async def test_names_of_one_message_have_its_latency(world):
    await world.look_up("warm")
    world.shards.takes_s = 0.15

    await world.look_up("warm", "cold")

    assert world.seen == ({0: 1, 7: 2}, 0)


async def test_a_topic_that_does_not_exist_is_no_failure_of_ours(world):
    world.shards.codes = {"gone": RejectionCode.NOT_FOUND, "full": RejectionCode.NO_CAPACITY}

    await world.look_up("gone", "full", "fine")

    assert world.seen == ({0: 3}, 1)


async def test_a_name_that_is_none_is_answered(world):
    request = LookupRequest(topics=["persistent://a"]).SerializeToString()
    await world.service.answer(request, 10_000)

    assert world.seen == ({0: 1}, 0)


async def test_a_shard_without_a_leader_is_a_failure_of_ours(world):
    world.shards.error = NotLeader(1)

    await world.look_up("t")

    assert world.seen == ({0: 1}, 1)


async def test_what_takes_too_long_was_failed_whatever_the_answer(world):
    world.shards.takes_s = LOOKUP_MS_MAX / 1_000 + 0.001

    await world.look_up("t")

    assert world.seen == ({12: 1}, 1)


# The Pulsar protocol and HTTP -------------------------------------------------------------------


class Directory:
    """Raises ``error``, or says where the topic is."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    async def locate(self, name, *, create):
        if self.error is not None:
            raise self.error
        return Located(name.text, "b", "s", "pulsar://b:6650", "id", "", 1)

    def any_broker_url(self, topic):
        return None


class Asker:
    waiting_commands = 0

    def send_command(self, command):
        pass


class Front:
    def __init__(self) -> None:
        self.directory = Directory()
        self.counters = DiscoveryCounters()
        self.dispatcher = CommandDispatcher(MetadataCommands(self.directory), self.counters)

    async def take(self, topic="t", kind=BaseCommand.LOOKUP):
        command = BaseCommand(type=kind)
        if kind == BaseCommand.LOOKUP:
            command.lookupTopic.CopyFrom(pulsar.CommandLookupTopic(topic=topic, request_id=1))
        else:
            asked = pulsar.CommandGetTopicsOfNamespace(namespace=topic, request_id=1)
            command.getTopicsOfNamespace.CopyFrom(asked)
        self.dispatcher.take(Asker(), command)
        while self.dispatcher.waiting:
            await asyncio.sleep(0)

    @property
    def seen(self):
        tally = self.counters.tally
        return sum(tally.counts()), tally.errors


@pytest.fixture
async def front(monkeypatch):
    """On a loop whose clock stands: nothing takes too long though this process stands still."""
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 0.0)
    return Front()


OUTCOMES = [
    (None, 0),
    (Refused(RejectionCode.PARENT_NOT_FOUND, "no namespace"), 0),
    (Refused(RejectionCode.NO_BROKER, "none lives"), 1),
    (Unavailable("no shard map"), 1),
]


@pytest.mark.parametrize(("error", "failed"), OUTCOMES)
async def test_a_command_counts_once_and_only_our_trouble_as_failed(front, error, failed):
    front.directory.error = error

    await front.take()

    assert front.seen == (1, failed)


async def test_a_bad_name_in_a_command_is_answered_and_other_commands_are_no_lookups(front):
    await front.take("persistent://one")
    await front.take("no/such/namespace", BaseCommand.GET_TOPICS_OF_NAMESPACE)

    assert front.seen == (1, 0)


async def test_a_command_for_which_there_is_no_room_is_a_failure_of_ours(front, monkeypatch):
    monkeypatch.setattr(command_dispatcher, "DISCOVERY_COMMANDS_WAITING_MAX", 0)

    await front.take()

    assert front.seen == (1, 1)


async def looked_up_over_http(front):
    routes = Lookups(front.directory, StaticLink()).routes()
    frame = RestFrame(routes, front.dispatcher, front.counters)
    return await frame.handle(make_mocked_request("GET", "/lookup/v2/topic/persistent/a/b/t"))


@pytest.mark.parametrize(("error", "failed"), OUTCOMES)
async def test_a_lookup_over_http_counts_like_the_others(front, error, failed):
    front.directory.error = error

    await looked_up_over_http(front)

    assert front.seen == (1, failed)


@pytest.mark.parametrize(("retry_after_ms", "header"), [(0, "1"), (1, "1"), (1_001, "2")])
async def test_a_refusal_over_http_says_when_to_come_back(front, retry_after_ms, header):
    front.directory.error = Overloaded("too many names wait", retry_after_ms)

    response = await looked_up_over_http(front)

    assert (response.status, response.headers.get("Retry-After")) == (503, header)
