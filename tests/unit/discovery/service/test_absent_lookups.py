"""Lookups of absent names: what is answered without asking, and what never is (ADR 0061)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from discovery.domain.answer_cache import AnswerCache
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.lookup import LookupService
from discovery.wire import encoded_answer_facts
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest, LookupResponse, ShardPosition
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import ShardLookupResponse, ShardRequest, ShardResponse
from tests.support.discovery.absent_names import absent_names
from tests.support.discovery.fake_cluster import StaticLink
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

SHARD = 1
TOPIC = "persistent://t/n/x"
OTHER = "persistent://t/n/y"
BEGAN_AT = 10


class Shard:
    """A shard with topics; ``hold`` keeps its answers back, which are as of their question."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.position = BEGAN_AT
        self.asked: list[list[str]] = []
        self.held: asyncio.Event | None = None

    def shard_of_key(self, _key: str) -> int:
        return SHARD

    def create(self, name: str) -> int:
        self.topics.add(name)
        self.position += 1
        return self.position

    def delete(self, name: str) -> None:
        self.topics.discard(name)
        self.position += 1

    async def call(
        self, _shard_id: int, request: ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> ShardResponse:
        names = list(request.lookup.topics)
        self.asked.append(names)
        answers = [self._answer(name) for name in names]
        if self.held is not None:
            await self.held.wait()
        return ShardResponse(lookup=ShardLookupResponse(answers=answers))

    def _answer(self, name: str) -> LookupAnswer:
        if name in self.topics:
            return LookupAnswer(
                topic=name, topic_id="i", broker_id="b", session_id="s", epoch=1,
                position=self.position,
            )  # fmt: skip
        return LookupAnswer(topic=name, rejection_code="NOT_FOUND", position=self.position)


class World:
    def __init__(self) -> None:
        self.shard = Shard()
        cache = AnswerCache(encoded_answer_facts, answers_max=9, aliases_max=9, deltas_max=9)
        cache.reset(SHARD, BEGAN_AT)
        self.absent = absent_names()
        self.absent.created(SHARD, (), position=BEGAN_AT)
        clock = asyncio.get_running_loop().time
        for each in (cache, self.absent):
            each.renew(SHARD, clock() + 1e6)  # type: ignore[attr-defined]
        self.counters = DiscoveryCounters()
        self.service = LookupService(
            self.shard, StaticLink(), cache, self.absent, self.counters, clock
        )

    async def look_up(self, *topics: str, **request: Any) -> list[str]:
        """Return what each is refused for, "" for one that is served."""
        message = LookupRequest(topics=topics or [TOPIC], **request)
        data = await self.service.answer(message.SerializeToString(), 10_000)
        return [answer.rejection_code for answer in LookupResponse.FromString(data).answers]


def in_world(scenario: Any) -> None:
    async def main() -> None:
        world = World()
        await scenario(world)
        await world.service.stop()

    run: Coroutine[Any, Any, None] = main()
    run_virtual(lambda: run)


NOT_FOUND = [RejectionCode.NOT_FOUND.value]


@run_by(in_world)
async def test_a_name_that_was_absent_is_answered_without_asking_again(world: World) -> None:
    assert await world.look_up() == NOT_FOUND
    message = LookupRequest(topics=[TOPIC], request_id=7).SerializeToString()

    answer = world.service.answer_at_once(message)

    assert isinstance(answer, bytes), "no task, no wait"
    response = LookupResponse.FromString(answer)
    assert (response.request_id, response.answers[0].topic) == (7, TOPIC)
    assert response.answers[0].rejection_code == "NOT_FOUND"
    assert len(world.shard.asked) == 1
    assert world.absent.answered == 1


@run_by(in_world)
async def test_a_shard_is_asked_for_the_names_of_a_message_that_are_not_known_absent_only(
    world: World,
) -> None:
    await world.look_up(TOPIC)
    world.shard.create(OTHER)

    assert await world.look_up(TOPIC, OTHER) == ["NOT_FOUND", ""]
    assert world.shard.asked == [[TOPIC], [OTHER]]


@run_by(in_world)
async def test_that_a_segment_is_absent_is_not_remembered(world: World) -> None:
    """It may come with the next change of its layout, which no watch names (ADR 0125)."""
    segment = "segment://t/n/x/0000-7fff-1"
    assert await world.look_up(segment) == NOT_FOUND

    world.shard.create(segment)

    assert await world.look_up(segment) == [""]


@run_by(in_world)
async def test_another_spelling_of_an_absent_name_is_known_too(world: World) -> None:
    await world.look_up(TOPIC)

    assert await world.look_up("t/n/x") == NOT_FOUND
    assert len(world.shard.asked) == 1


@run_by(in_world)
async def test_a_created_topic_is_found_once_the_watch_has_named_it(world: World) -> None:
    await world.look_up()
    position = world.shard.create(TOPIC)

    world.absent.created(SHARD, [TOPIC], position=BEGAN_AT)
    world.absent.advance(SHARD, position)

    assert await world.look_up() == [""]


@run_by(in_world)
async def test_a_topic_that_was_deleted_and_created_again_is_found(world: World) -> None:
    world.shard.create(TOPIC)
    world.shard.delete(TOPIC)
    assert await world.look_up(fresh=True) == NOT_FOUND

    world.absent.created(SHARD, [TOPIC], position=BEGAN_AT)
    world.shard.create(TOPIC)
    world.absent.created(SHARD, [TOPIC], position=BEGAN_AT)

    assert await world.look_up() == [""]


@run_by(in_world)
async def test_fresh_lookups_and_demanded_epochs_ask_the_shard(world: World) -> None:
    await world.look_up()
    world.shard.create(TOPIC)

    assert await world.look_up(min_epochs=[1]) == [""]
    assert await world.look_up(fresh=True) == [""]
    assert len(world.shard.asked) == 3


@run_by(in_world)
async def test_a_topic_that_a_fresh_lookup_found_is_not_absent_afterwards(world: World) -> None:
    await world.look_up()
    world.shard.create(TOPIC)
    await world.look_up(fresh=True)

    assert world.absent.find(TOPIC, 0.0) is None


@run_by(in_world)
async def test_a_client_that_knows_of_a_creation_is_not_answered_from_before_it(
    world: World,
) -> None:
    await world.look_up()
    position = world.shard.create(TOPIC)
    positions = [ShardPosition(shard_id=SHARD, position=position)]

    assert await world.look_up(positions=positions) == [""]


@run_by(in_world)
async def test_a_client_that_knows_of_a_creation_joins_no_question_from_before_it(
    world: World,
) -> None:
    """1. Somebody asks, and the answer is long on its way. 2. The topic is created elsewhere.
    3. Its creator asks here."""
    world.shard.held = asyncio.Event()
    early = asyncio.ensure_future(world.look_up())
    await asyncio.sleep(0.1)
    positions = [ShardPosition(shard_id=SHARD, position=world.shard.create(TOPIC))]

    late = asyncio.ensure_future(world.look_up(positions=positions))
    await asyncio.sleep(0.1)
    world.shard.held.set()

    assert await late == [""]
    await early


@run_by(in_world)
async def test_an_absence_that_a_creation_here_overtook_is_not_remembered(world: World) -> None:
    world.shard.held = asyncio.Event()
    early = asyncio.ensure_future(world.look_up())
    await asyncio.sleep(0.1)
    world.absent.created_here(SHARD, world.shard.create(TOPIC), [TOPIC])
    world.shard.held.set()
    assert await early == NOT_FOUND, "it began before the create was answered"

    assert await world.look_up() == [""]


@run_by(in_world)
async def test_one_name_is_located_without_asking_again(world: World) -> None:
    name = parse_topic(TOPIC)
    for _ in range(2):
        assert (await world.service.locate(name)).rejection_code == "NOT_FOUND"

    assert len(world.shard.asked) == 1
