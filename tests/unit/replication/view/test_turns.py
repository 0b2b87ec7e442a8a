"""One thread for all views of a process, and another only while it keeps them waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

import pytest

from nextgen.kernel.limits.cluster import VIEW_TURN_WAIT_MS
from nextgen.replication.view.turns import ViewTurns
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import VirtualWorker, run_virtual

WORK_MS = 10.0


class TurnsWorld:
    """Turns whose work takes ``work_ms``, and a record of what was done when."""

    def __init__(self) -> None:
        self.work_ms = WORK_MS
        self.workers: list[VirtualWorker] = []
        self.done: list[str] = []
        self.done_at_ms: dict[str, float] = {}
        self.turns = ViewTurns(self._make_executor)
        self._began_at = asyncio.get_running_loop().time()

    def start(self, name: str, *, is_awaited: bool = False) -> asyncio.Task[str]:
        """Ask for a turn now."""

        async def run() -> str:
            return await self.turns.run(self._work, name, is_awaited=lambda: is_awaited)

        return asyncio.ensure_future(run())

    def _make_executor(self) -> Executor:
        self.workers.append(VirtualWorker(lambda: self.work_ms))
        return self.workers[-1]

    def _work(self, name: str) -> str:
        if name == "broken":
            raise ValueError(name)
        self.done.append(name)
        now = asyncio.get_running_loop().time()
        self.done_at_ms[name] = (now - self._began_at) * 1000
        return name


def run(scenario: Callable[[TurnsWorld], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await scenario(TurnsWorld())

    run_virtual(main)


@run_by(run)
async def test_the_work_of_all_groups_is_done_by_one_thread_in_order(world: TurnsWorld) -> None:
    names = ["a", "b", "c"]

    assert await asyncio.gather(*map(world.start, names)) == names

    assert world.done == names
    assert len(world.workers) == world.turns.threads == 1


@run_by(run)
async def test_awaited_work_goes_first(world: TurnsWorld) -> None:
    tasks = [world.start("running"), world.start("later")]
    tasks.append(world.start("awaited", is_awaited=True))

    await asyncio.gather(*tasks)

    assert world.done == ["running", "awaited", "later"]


@pytest.mark.parametrize("is_longer", [False, True])
def test_view_turn_wait_ms_pass_before_there_is_another_thread(is_longer: bool) -> None:
    async def scenario(world: TurnsWorld) -> None:
        world.work_ms = VIEW_TURN_WAIT_MS + (1 if is_longer else -1)
        first = world.start("first")
        await asyncio.sleep(0)
        second = world.start("second")
        await asyncio.gather(first, second)

        assert len(world.workers) == 1 + is_longer
        assert world.turns.threads == 1

    run(scenario)


@run_by(run)
async def test_a_view_that_hangs_holds_up_no_other(world: TurnsWorld) -> None:
    world.work_ms = 60_000
    hanging = world.start("hanging")
    await asyncio.sleep(1)
    world.work_ms = WORK_MS

    await asyncio.gather(*map(world.start, ["a", "b"]))

    assert world.done_at_ms["a"] == pytest.approx(1_000 + VIEW_TURN_WAIT_MS + WORK_MS)
    assert world.done_at_ms["b"] == pytest.approx(world.done_at_ms["a"] + WORK_MS)
    assert world.turns.threads == 2
    await hanging
    assert world.turns.threads == 1


@run_by(run)
async def test_views_that_hang_get_a_thread_each_and_no_more(world: TurnsWorld) -> None:
    world.work_ms = 60_000
    tasks = [world.start(name) for name in "abcd"]
    await asyncio.sleep(10)

    assert world.turns.threads == len(tasks)
    await asyncio.gather(*tasks)
    assert world.turns.threads == 1


@run_by(run)
async def test_a_thread_is_busy_until_its_work_ends_though_nobody_waits_for_it(
    world: TurnsWorld,
) -> None:
    world.work_ms = 1_000
    given_up = world.start("given up")
    await asyncio.sleep(0.001)
    given_up.cancel()
    await asyncio.sleep(0.001)
    world.work_ms = WORK_MS
    await world.start("next")

    assert world.done_at_ms["next"] < 100
    await asyncio.sleep(1)
    assert world.done == ["next", "given up"]
    assert world.turns.threads == 1


@run_by(run)
async def test_a_turn_that_is_given_up_before_it_began_is_skipped(world: TurnsWorld) -> None:
    first, second, third = map(world.start, ["first", "second", "third"])
    await asyncio.sleep(0.001)
    second.cancel()
    with suppress(asyncio.CancelledError):
        await second
    await asyncio.gather(first, third)

    assert world.done == ["first", "third"]


@run_by(run)
async def test_an_error_is_the_callers_and_the_thread_goes_on(world: TurnsWorld) -> None:
    with pytest.raises(ValueError, match="broken"):
        await world.start("broken")
    await world.start("next")

    assert len(world.workers) == 1


@run_by(run)
async def test_close_ends_the_threads(world: TurnsWorld) -> None:
    await world.start("only")
    world.turns.close()

    assert world.turns.threads == 0
