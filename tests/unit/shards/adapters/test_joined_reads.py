"""Reads that are asked for about the same time go as one, and none is older than its request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence

import pytest

from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Unavailable
from nextgen.kernel.limits.placement import READ_ROUND_MS
from nextgen.tasks.background import join
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, Item, Kind
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from shards.adapters.joined_reads import JoinedReads
from tests.support.scenarios import run_by
from tests.support.shards.home_shards import SilentHomes
from tests.support.simulated.virtual_time import run_virtual

ROUND_S = READ_ROUND_MS / 1_000
TIMEOUT_MS = 1_000
ELSEWHERE = "other/place"


class Homes(SilentHomes):
    def home_of(self, kind: Kind, name: str, object_id: str = "") -> int:
        return 2 if name == ELSEWHERE else 1


class HeldReader:
    """Answers when the test says so, with what is true at that moment."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self._answers: list[asyncio.Future[MetadataError | None]] = []

    async def read(
        self, names: Sequence[ObjectName], *, timeout_ms: int, subscriber_id: str = ""
    ) -> Sequence[Item]:
        self.asked.append([name.name for name in names])
        answer: asyncio.Future[MetadataError | None] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        error = await answer
        if error is not None:
            raise error
        return [Item(name=name.name) for name in names]

    def answer(self, number: int, error: MetadataError | None = None) -> None:
        self._answers[number].set_result(error)


class World:
    def __init__(self) -> None:
        self.reader = HeldReader()
        self.joined = JoinedReads(self.reader, Homes())

    def ask(
        self, *names: str, timeout_ms: int = TIMEOUT_MS, subscriber_id: str = "node-1"
    ) -> asyncio.Task[list[str]]:
        async def read() -> list[str]:
            wanted = [ObjectName(kind=KIND_NAMESPACE, name=name) for name in names]
            items = await self.joined.read(
                wanted, timeout_ms=timeout_ms, subscriber_id=subscriber_id
            )
            return [item.name for item in items]

        return join(read())


def in_world(scenario: Callable[[World], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        await scenario(World())

    run_virtual(main)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@run_by(in_world)
async def test_who_asks_at_the_same_time_is_answered_by_one_read(world: World) -> None:
    asked = [world.ask("a/one", "a/two"), world.ask("a/two"), world.ask("a/three", "a/one")]
    await turns()
    assert world.reader.asked == [["a/one", "a/two", "a/three"]]

    world.reader.answer(0)

    assert await asyncio.gather(*asked) == [["a/one", "a/two"], ["a/two"], ["a/three", "a/one"]]


@run_by(in_world)
async def test_a_read_that_has_left_answers_nobody_who_asks_later(world: World) -> None:
    first = world.ask("a/one")
    await turns()
    later = [world.ask("a/one") for _ in range(3)]
    await turns()
    assert world.reader.asked == [["a/one"]]

    world.reader.answer(0)
    await turns()

    assert first.done()
    assert not any(each.done() for each in later), "what they need is not read yet"
    assert world.reader.asked == [["a/one"], ["a/one"]]
    world.reader.answer(1)
    assert await asyncio.gather(*later) == [["a/one"]] * 3


@run_by(in_world)
async def test_a_slow_read_holds_up_the_next_one_for_a_moment_only(world: World) -> None:
    world.ask("a/one")
    await turns()
    later = world.ask("a/two")

    await asyncio.sleep(0.9 * ROUND_S)
    assert len(world.reader.asked) == 1
    await asyncio.sleep(0.2 * ROUND_S)

    assert world.reader.asked == [["a/one"], ["a/two"]]
    world.reader.answer(1)
    assert await later == ["a/two"]


@run_by(in_world)
async def test_many_requests_are_few_reads_while_a_home_shard_is_silent(world: World) -> None:
    for number in range(1_000):
        world.ask(f"a/{number}", timeout_ms=60_000)
        await asyncio.sleep(0.001)

    assert len(world.reader.asked) == 5, "at once, and after 50, 150, 350 and 750 ms"
    world.reader.answer(0)
    world.reader.answer(1)
    world.reader.answer(2)
    world.reader.answer(3)
    await turns()
    assert len(world.reader.asked) == 6, "one that comes back lets the next one go"


@run_by(in_world)
async def test_home_shards_and_subscribers_do_not_wait_for_each_other(world: World) -> None:
    world.ask("a/one")
    await turns()

    elsewhere, another = world.ask(ELSEWHERE), world.ask("a/one", subscriber_id="node-2")
    both = world.ask("a/one", ELSEWHERE)
    await turns()

    assert world.reader.asked == [["a/one"], [ELSEWHERE], ["a/one"]]
    for number in range(3):
        world.reader.answer(number)
    await turns()
    assert (await elsewhere, await another) == ([ELSEWHERE], ["a/one"])
    assert world.reader.asked[3:] == [["a/one"]]
    world.reader.answer(3)
    assert await both == ["a/one", ELSEWHERE]


@run_by(in_world)
async def test_an_error_is_that_of_its_round(world: World) -> None:
    asked = [world.ask("a/one"), world.ask("a/two")]
    await turns()
    later = world.ask("a/one")

    world.reader.answer(0, Unavailable("no leader"))

    for each in asked:
        with pytest.raises(Unavailable, match="no leader"):
            await each
    world.reader.answer(1)
    assert await later == ["a/one"]


@run_by(in_world)
async def test_who_gives_up_takes_nothing_from_the_others(world: World) -> None:
    impatient, cancelled = world.ask("a/one", timeout_ms=10), world.ask("a/one")
    stays = world.ask("a/one")
    await turns()
    cancelled.cancel()

    with pytest.raises(DeadlineExceeded, match="within 10 ms"):
        await impatient
    world.reader.answer(0)

    assert await stays == ["a/one"]
