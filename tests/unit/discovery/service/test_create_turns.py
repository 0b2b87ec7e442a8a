"""Creates that one discovery process sends to a shard: so many at a time, then tenants in turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from discovery.service.admin.inventory import InventoryService
from discovery.service.counters import DiscoveryCounters
from nextgen.kernel.errors import Overloaded, Unavailable
from nextgen.kernel.limits.write import WRITE_REQUEST_COST, WRITES_SENT_MAX
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1 import shard_service_pb2 as shard_pb
from tests.support.discovery.fake_cluster import StaticLink, full_update
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

SENT_MAX = -(-WRITES_SENT_MAX // (WRITE_REQUEST_COST + 1))
"""Creates of one topic that are sent at a time."""


class Shard:
    """The only shard. It answers a create when it is let go."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.timeouts_ms: list[int] = []
        self.error: Unavailable | None = None
        self._unanswered: list[asyncio.Event] = []

    def shard_of_key(self, _key: str) -> int:
        return 1

    async def call(
        self, _shard_id: int, request: shard_pb.ShardRequest, *, timeout_ms: int
    ) -> shard_pb.ShardResponse:
        topics = request.execute.commands[0].create_topics.topics
        self.sent.append("+".join(parse_topic(topic.name).tenant for topic in topics))
        self.timeouts_ms.append(timeout_ms)
        answered = asyncio.Event()
        self._unanswered.append(answered)
        await answered.wait()
        if self.error is not None:
            raise self.error
        response = shard_pb.ShardResponse()
        result = response.execute.results.add()
        for _ in topics:
            result.topics.add(topic_id="id")
        return response

    def answer(self, count: int) -> None:
        first, self._unanswered = self._unanswered[:count], self._unanswered[count:]
        for each in first:
            each.set()

    async def answer_all(self) -> None:
        while self._unanswered:
            self.answer(len(self._unanswered))
            await asyncio.sleep(0.001)


async def nothing() -> None:
    return None


class World:
    def __init__(self) -> None:
        self.shard = Shard()
        made: Any = self.shard
        link = StaticLink(full_update({1: "node-1:1"}))
        self._service = InventoryService(
            made, link, DiscoveryCounters(), nothing, lambda *_created: None
        )

    async def create(
        self, tenant: str, count: int, timeout_ms: int = 5_000
    ) -> list[asyncio.Task[pb.CreateTopicsResponse]]:
        """Send creates of one topic each and let them get as far as they get.

        "a+b" stands for a topic of each of the two tenants.
        """
        tasks = []
        for number in range(count):
            request = pb.CreateTopicsRequest()
            for each in tenant.split("+"):
                request.topics.add(name=f"persistent://{each}/n/t-{number}")
            tasks.append(asyncio.create_task(self._service.create_topics(request, timeout_ms)))
        await asyncio.sleep(0.001)
        return tasks


@run_by(run_virtual)
async def test_writes_sent_max_are_sent_and_one_more_waits_for_an_answer() -> None:
    world = World()

    tasks = await world.create("acme", SENT_MAX + 1)

    assert len(world.shard.sent) == SENT_MAX
    world.shard.answer(1)
    await asyncio.sleep(0.001)
    assert len(world.shard.sent) == SENT_MAX + 1
    await world.shard.answer_all()
    await asyncio.gather(*tasks)


@run_by(run_virtual)
async def test_a_create_of_another_tenant_is_sent_before_the_backlog() -> None:
    world = World()
    noisy = await world.create("noisy", SENT_MAX + 500)
    quiet = await world.create("quiet", 1)

    world.shard.answer(2)
    await asyncio.sleep(0.001)

    assert world.shard.sent[SENT_MAX:] == ["noisy", "quiet"]
    await world.shard.answer_all()
    await asyncio.gather(*noisy, *quiet)


@run_by(run_virtual)
async def test_a_create_for_two_tenants_is_not_sent_before_the_backlog_of_either() -> None:
    """The first name decides nothing: a client chooses the order of names."""
    world = World()
    noisy = await world.create("noisy", SENT_MAX + 5)
    mixed = await world.create("quiet+noisy", 1)
    quiet = await world.create("quiet", 1)

    for _ in range(7):
        world.shard.answer(1)
        await asyncio.sleep(0.001)
    await world.shard.answer_all()
    await asyncio.gather(*noisy, *mixed, *quiet)

    behind = world.shard.sent[SENT_MAX:]
    assert behind == ["noisy", "noisy", "quiet", "noisy", "noisy", "noisy", "quiet+noisy"]


@run_by(run_virtual)
async def test_a_create_that_waited_has_so_much_less_time_at_the_shard() -> None:
    world = World()
    tasks = await world.create("acme", SENT_MAX + 1, timeout_ms=5_000)
    await asyncio.sleep(2)

    world.shard.answer(1)
    await asyncio.sleep(0.001)

    assert world.shard.timeouts_ms[-1] <= 3_000
    await world.shard.answer_all()
    await asyncio.gather(*tasks)


@run_by(run_virtual)
async def test_a_create_whose_turn_does_not_come_in_time_is_refused_as_not_sent() -> None:
    world = World()
    tasks = await world.create("acme", SENT_MAX)
    (late,) = await world.create("acme", 1, timeout_ms=100)

    with pytest.raises(Overloaded, match="waited 100 ms for shard 1"):
        await late

    assert len(world.shard.sent) == SENT_MAX
    await world.shard.answer_all()
    await asyncio.gather(*tasks)


@run_by(run_virtual)
async def test_a_failed_create_makes_room_like_any_other() -> None:
    world = World()
    world.shard.error = Unavailable("no leader")
    tasks = await world.create("acme", SENT_MAX)
    await world.shard.answer_all()
    await asyncio.gather(*tasks, return_exceptions=True)
    sent = len(world.shard.sent)

    more = await world.create("acme", SENT_MAX)

    assert len(world.shard.sent) == sent + SENT_MAX
    await world.shard.answer_all()
    await asyncio.gather(*more, return_exceptions=True)
