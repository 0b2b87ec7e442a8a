"""How old an answer may be, and that no topic goes back: see ADR 0051."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from discovery.domain.answer_cache import AnswerCache, Delta
from discovery.service.counters import DiscoveryCounters
from discovery.service.lookups.lookup import LookupService
from discovery.service.lookups.shard_lookups import ShardLookups
from discovery.wire import decoded_answer, encoded_answer_facts
from nextgen.kernel.errors import InvalidRequest, NotLeader
from nextgen.kernel.limits.cluster import LOOKUP_STALENESS_MS_MAX
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest, LookupResponse
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
"""The position at which the cache began to follow the shard."""

STALENESS_S = LOOKUP_STALENESS_MS_MAX / 1_000


class SlowShard:
    """A shard whose answers, read when the question comes, arrive when the test says so."""

    def __init__(self) -> None:
        self.epoch = 1
        self.position = BEGAN_AT
        self.waiting: list[asyncio.Future[ShardResponse]] = []
        self._read: list[ShardResponse] = []
        self.asked: list[list[str]] = []

    def shard_of_key(self, _key: str) -> int:
        return SHARD

    async def call(
        self, _shard_id: int, request: ShardRequest, *, timeout_ms: int, idempotent: bool = True
    ) -> ShardResponse:
        names = list(request.lookup.topics)
        self.asked.append(names)
        answers = [
            LookupAnswer(
                topic=name,
                topic_id="id",
                broker_id=f"b-{self.epoch}",
                session_id=f"s-{self.epoch}",
                epoch=self.epoch,
                position=self.position,
            )
            for name in names
        ]
        self._read.append(ShardResponse(lookup=ShardLookupResponse(answers=answers)))
        self.waiting.append(asyncio.get_running_loop().create_future())
        return await self.waiting[-1]

    def move(self) -> Delta:
        self.epoch += 1
        self.position += 1
        broker, session = f"b-{self.epoch}", f"s-{self.epoch}"
        return Delta(self.position, TOPIC, "id", self.epoch, broker, session)

    def answer(self, number: int) -> None:
        """Have the answer to the question of this number arrive."""
        self.waiting[number].set_result(self._read[number])

    def fail(self, number: int) -> None:
        self.waiting[number].set_exception(NotLeader(SHARD))


class World:
    def __init__(self) -> None:
        self.shard = SlowShard()
        self.cache = AnswerCache(encoded_answer_facts, answers_max=9, aliases_max=9, deltas_max=9)
        self.cache.reset(SHARD, BEGAN_AT)
        clock = asyncio.get_running_loop().time
        counters = DiscoveryCounters()
        self.absent = absent_names()
        self.lookups = ShardLookups(
            self.shard, StaticLink(), self.cache, self.absent, counters, clock
        )  # type: ignore[arg-type]
        self.service = LookupService(
            self.shard, StaticLink(), self.cache, self.absent, counters, clock
        )  # type: ignore[arg-type]

    async def ask(self, **how: bool) -> asyncio.Future[bytes]:
        """Ask for the topic, and let what has to be sent be sent."""
        flight = self.lookups.ask(SHARD, TOPIC, **how)
        await settle()
        return flight

    async def warm(self) -> None:
        """Have the topic in the cache, at epoch 1."""
        self.cache.renew(SHARD, asyncio.get_running_loop().time() + 1e6)
        looking = asyncio.ensure_future(self.look_up(topics=[TOPIC]))
        await settle()
        self.shard.answer(-1)
        await looking

    async def look_up(self, **request: Any) -> LookupResponse:
        data = LookupRequest(**request).SerializeToString()
        return LookupResponse.FromString(await self.service.answer(data, 10_000))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def epoch_of(flight: asyncio.Future[bytes]) -> int:
    return decoded_answer(flight.result()).epoch


def in_world(scenario: Any) -> None:
    async def main() -> None:
        world = World()
        await scenario(world)
        await world.lookups.stop()
        await world.service.stop()

    run: Coroutine[Any, Any, None] = main()
    run_virtual(lambda: run)


# Joining a question ------------------------------------------------------------------------------


@pytest.mark.parametrize(("later_s", "questions"), [(0.0, 1), (1.5, 1), (1.51, 2)])
def test_a_lookup_joins_a_question_that_is_no_older_than_an_answer_may_be(
    later_s: float, questions: int
) -> None:
    async def scenario(world: World) -> None:
        early = await world.ask()
        await asyncio.sleep(later_s)
        late = await world.ask()

        assert len(world.shard.asked) == questions
        assert (late is early) == (questions == 1)

    assert STALENESS_S == 1.5
    in_world(scenario)


@run_by(in_world)
async def test_a_fresh_lookup_joins_no_question_that_was_sent(world: World) -> None:
    early = await world.ask()
    world.shard.move()
    fresh = await world.ask(is_fresh=True)
    world.shard.answer(0)
    await settle()
    assert epoch_of(early) == 1
    assert not fresh.done()

    world.shard.answer(1)
    await settle()
    assert epoch_of(fresh) == 2


@run_by(in_world)
async def test_fresh_lookups_share_a_question_that_was_not_sent_yet(world: World) -> None:
    flights = {world.lookups.ask(SHARD, TOPIC, is_fresh=True) for _ in range(100)}
    await settle()

    assert len(flights) == len(world.shard.asked) == 1


@run_by(in_world)
async def test_a_question_between_two_attempts_may_be_joined_by_anybody(world: World) -> None:
    early = await world.ask()
    world.cache.apply(SHARD, BEGAN_AT + 1, [world.shard.move()])
    world.shard.answer(0)
    await settle()
    assert not early.done(), "its answer was overtaken by a change"

    assert await world.ask(is_fresh=True) is early
    await asyncio.sleep(0.1)
    assert len(world.shard.asked) == 2
    assert await world.ask(is_fresh=True) is not early


# Never back --------------------------------------------------------------------------------------


@run_by(in_world)
async def test_an_early_answer_that_arrives_last_is_not_given(world: World) -> None:
    early = await world.ask()
    world.shard.move()
    fresh = await world.ask(is_fresh=True)
    world.shard.answer(1)
    await settle()
    assert epoch_of(fresh) == 2
    assert epoch_of(early) == 2, "whoever waits for the early one gets what is known"

    world.shard.answer(0)
    await settle()
    world.cache.renew(SHARD, 1e9)
    (cached,), missing = world.cache.lookup([TOPIC], 0.0)
    assert not missing
    assert decoded_answer(cached).epoch == 2


@run_by(in_world)
async def test_a_superseded_question_is_not_asked_again_and_gets_the_later_answer(
    world: World,
) -> None:
    """Asked again it would overtake the one that superseded it, which then goes back."""
    early = await world.ask()
    world.cache.apply(SHARD, BEGAN_AT + 1, [world.shard.move()])
    fresh = await world.ask(is_fresh=True)
    world.shard.move()
    world.shard.answer(0)
    await asyncio.sleep(1)
    assert len(world.shard.asked) == 2
    assert not early.done()

    world.shard.answer(1)
    await settle()
    assert (epoch_of(early), epoch_of(fresh)) == (2, 2)


@run_by(in_world)
async def test_trouble_of_a_later_question_ends_the_wait_for_an_overtaken_one(world: World) -> None:
    early = await world.ask()
    world.cache.apply(SHARD, BEGAN_AT + 1, [world.shard.move()])
    fresh = await world.ask(is_fresh=True)
    world.shard.answer(0)
    await settle()
    world.shard.fail(1)
    await settle()

    for flight in (early, fresh):
        assert decoded_answer(flight.result()).rejection_code == NotLeader.reason


@run_by(in_world)
async def test_questions_that_supersede_each_other_without_end_are_not_remembered(
    world: World,
) -> None:
    for number in range(50):
        await world.ask(is_fresh=True)
        if number:
            world.shard.answer(number - 1)
            await settle()

    flight = world.lookups._flights[TOPIC]
    length = 0
    while flight.older is not None:
        flight, length = flight.older, length + 1
    assert length <= 1


@run_by(in_world)
async def test_an_answer_from_before_a_reset_is_asked_for_again(world: World) -> None:
    """What happened up to a reset was acknowledged: an effective move may be among it."""
    early = await world.ask()
    world.shard.move()
    world.cache.reset(SHARD, world.shard.position)
    world.shard.answer(0)
    await asyncio.sleep(0.1)
    assert not early.done()
    world.shard.answer(1)
    await settle()

    assert epoch_of(early) == 2


class Ordeal:
    """One topic, one process: lookups of every kind, answers in any order, moves that are heard of
    late, resets and leases that end. No answer may be of before an answer that came before it."""

    def __init__(self, world: World, chance: Random) -> None:
        self.world = world
        self.chance = chance
        self.pending: list[int] = []
        self.changes: list[Delta] = []
        self.delivered = 0
        self.highest = 0
        self.looking: set[asyncio.Task[None]] = set()
        self.answers = 0

    async def step(self) -> None:
        often = [self.look_up, self.look_up, self.arrives, self.arrives]
        rarely = [self.move, self.hears, self.reset, self.pause, self.renew, self.fails]
        self.chance.choice(3 * often + rarely)()
        await settle()
        self.pending = [n for n, each in enumerate(self.world.shard.waiting) if not each.done()]

    def look_up(self) -> None:
        demand: dict[str, Any] = self.chance.choice(
            ({}, {}, {"fresh": True}, {"min_epochs": [self.chance.randint(1, 9)]})
        )
        began_behind = self.highest
        self.looking.add(asyncio.ensure_future(self._look_up(demand, began_behind)))

    async def _look_up(self, demand: dict[str, Any], began_behind: int) -> None:
        response = await self.world.look_up(topics=[TOPIC], **demand)
        (answer,) = response.answers
        if answer.rejection_code:
            return
        self.answers += 1
        assert answer.epoch >= began_behind, f"{answer.epoch} after {began_behind}"
        self.highest = max(self.highest, answer.epoch)

    def arrives(self) -> None:
        if self.pending:
            self.world.shard.answer(self.chance.choice(self.pending))

    def fails(self) -> None:
        if self.pending:
            self.world.shard.fail(self.chance.choice(self.pending))

    def move(self) -> None:
        self.changes.append(self.world.shard.move())

    def hears(self) -> None:
        until = self.chance.randint(self.delivered, len(self.changes))
        heard, self.delivered = self.changes[self.delivered : until], until
        self.world.cache.apply(SHARD, BEGAN_AT + until, heard)
        self.renew()

    def renew(self) -> None:
        now = asyncio.get_running_loop().time()
        self.world.cache.renew(SHARD, now + self.chance.choice((0.0, 1.5)))

    def reset(self) -> None:
        self.delivered = self.chance.randint(self.delivered, len(self.changes))
        self.world.cache.reset(SHARD, BEGAN_AT + self.delivered)

    def pause(self) -> None:
        self.looking.add(asyncio.ensure_future(asyncio.sleep(self.chance.choice((0.05, 1.0)))))


def test_whatever_happens_in_whatever_order_no_topic_goes_back() -> None:
    answers = 0

    for seed in range(150):

        async def scenario(world: World, seed: int = seed) -> None:
            nonlocal answers
            ordeal = Ordeal(world, Random(seed))
            for _ in range(80):
                await ordeal.step()
                if ordeal.chance.random() < 0.2:
                    await asyncio.sleep(ordeal.chance.choice((0.1, 0.5, 2.0)))
                for task in [task for task in ordeal.looking if task.done()]:
                    ordeal.looking.discard(task)
                    assert task.exception() is None, f"seed {seed}: {task.exception()}"
            answers += ordeal.answers
            for task in ordeal.looking:
                task.cancel()
            await asyncio.gather(*ordeal.looking, return_exceptions=True)

        in_world(scenario)

    assert answers > 2_000, "an ordeal without answers proves nothing"


# What a request demands --------------------------------------------------------------------------


@run_by(in_world)
async def test_a_fresh_lookup_is_not_answered_from_the_cache(world: World) -> None:
    await world.warm()
    world.shard.move()
    fresh = asyncio.ensure_future(world.look_up(topics=[TOPIC], fresh=True))
    await settle()
    assert not fresh.done()
    world.shard.answer(1)

    response = await fresh
    assert [answer.epoch for answer in response.answers] == [2]
    assert response.fresh


@pytest.mark.parametrize(("min_epoch", "epoch"), [(0, 1), (1, 1), (2, 2), (3, 2)])
@run_by(in_world)
async def test_an_answer_of_an_earlier_epoch_than_is_demanded_is_asked_for(
    world: World, *, min_epoch: int, epoch: int
) -> None:
    await world.warm()
    world.shard.move()
    looking = asyncio.ensure_future(world.look_up(topics=[TOPIC], min_epochs=[min_epoch]))
    await settle()
    if epoch > 1:
        world.shard.answer(1)

    response = await looking
    assert [answer.epoch for answer in response.answers] == [epoch]
    assert response.fresh


@run_by(in_world)
async def test_only_the_names_with_a_demand_are_asked_for_anew(world: World) -> None:
    await world.warm()
    looking = asyncio.ensure_future(
        world.look_up(topics=[TOPIC, OTHER, TOPIC], min_epochs=[2, 0, 0])
    )
    await settle()
    assert world.shard.asked[1:] == [[TOPIC, OTHER]]
    world.shard.answer(1)

    response = await looking
    assert [answer.topic for answer in response.answers] == [TOPIC, OTHER, TOPIC]


@pytest.mark.parametrize("demand", [{"min_epochs": [2]}, {"fresh": True}])
@run_by(in_world)
async def test_a_demand_joins_no_question_that_was_sent_before_it(
    world: World, *, demand: dict[str, Any]
) -> None:
    early = asyncio.ensure_future(world.look_up(topics=[TOPIC]))
    await settle()
    world.shard.move()
    looking = asyncio.ensure_future(world.look_up(topics=[TOPIC], **demand))
    await settle()
    world.shard.answer(0)
    world.shard.answer(1)

    assert [answer.epoch for answer in (await looking).answers] == [2]
    await early


@run_by(in_world)
async def test_a_lookup_without_demands_is_answered_as_before(world: World) -> None:
    await world.warm()
    world.shard.move()

    response = await world.look_up(topics=[TOPIC])

    assert [answer.epoch for answer in response.answers] == [1]
    assert not response.fresh


@run_by(in_world)
async def test_epochs_for_some_of_the_names_only_are_refused(world: World) -> None:
    with pytest.raises(InvalidRequest, match="2 topics has 1 min_epochs"):
        await world.look_up(topics=[TOPIC, OTHER], min_epochs=[1])
