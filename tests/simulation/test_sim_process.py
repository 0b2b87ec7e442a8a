"""Processes of a simulation: frozen, killed, sent into the future."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.cluster_simulation.network import Network
from tests.support.cluster_simulation.outside_world import simulated_world
from tests.support.cluster_simulation.virtual_loop import SimulatedLoop
from tests.support.simulated import virtual_time
from tests.support.simulated.process import SimProcess
from tests.support.simulated.virtual_time import IsolatedLoop, VirtualTimeLoop, run_virtual


def now() -> float:
    return asyncio.get_running_loop().time()


def isolated(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(main, loop=IsolatedLoop)


async def tick_for_ever(ticks: list[float]) -> None:
    while True:
        await asyncio.sleep(1)
        ticks.append(now())


def test_a_frozen_process_does_nothing_and_then_everything_that_waited() -> None:
    async def main() -> None:
        process, ticks = SimProcess("p"), []
        began = now()
        process.run(asyncio.ensure_future, tick_for_ever(ticks))
        await asyncio.sleep(2.5)
        process.freeze()
        await asyncio.sleep(10)
        assert [at - began for at in ticks] == pytest.approx([1, 2])

        process.thaw()
        await asyncio.sleep(1.1)

        assert [at - began for at in ticks] == pytest.approx([1, 2, 12.5, 13.5])

    isolated(main)


def test_a_killed_process_never_runs_again_and_who_asked_it_hears_so() -> None:
    async def main() -> None:
        process, ticks = SimProcess("p"), []
        asking = asyncio.ensure_future(process.ask(lambda: tick_for_ever(ticks)))
        await asyncio.sleep(1.5)

        process.kill()

        with pytest.raises(ConnectionResetError):
            await asking
        await asyncio.sleep(10)
        assert len(ticks) == 1

    isolated(main)


def test_what_a_run_leaves_behind_ends_although_its_process_is_killed_meanwhile() -> None:
    ended: list[str] = []

    async def kill_at_the_end(process: SimProcess) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            process.kill()

    async def end_in_two_steps() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("ended")

    async def main() -> None:
        process = SimProcess("p")
        for left_behind in (kill_at_the_end(process), end_in_two_steps()):
            process.run(asyncio.ensure_future, left_behind)
        await asyncio.sleep(1)

    isolated(main)

    assert ended == ["ended"]


async def wait_without_end() -> None:
    while True:
        await asyncio.sleep(0)


async def refuse_to_end(seconds: float) -> None:
    """Ignore cancellation and continue with steps of this number of seconds."""
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(seconds)


@pytest.mark.parametrize("is_of_a_process", [True, False])
def test_run_without_progress_in_time_breaks(
    monkeypatch: pytest.MonkeyPatch, is_of_a_process: bool
) -> None:
    monkeypatch.setattr(virtual_time, "ROUNDS_AT_ONE_INSTANT_MAX", 1_000)

    async def main() -> None:
        if is_of_a_process:
            SimProcess("p").run(asyncio.ensure_future, wait_without_end())
        else:
            await wait_without_end()
        await asyncio.sleep(1)

    with pytest.raises(AssertionError, match="time stands still"):
        isolated(main)


@pytest.mark.parametrize("seconds", [0, 0.1])
def test_cancellation_that_never_ends_breaks_the_run(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(virtual_time, "ROUNDS_AT_ONE_INSTANT_MAX", 1_000)
    monkeypatch.setattr(virtual_time, "ROUNDS_MAX", 2_000)

    async def main() -> None:
        SimProcess("p").run(asyncio.ensure_future, refuse_to_end(seconds))
        await asyncio.sleep(0.01)

    with pytest.raises(AssertionError, match="never end" if seconds else "time stands still"):
        isolated(main)


def test_rounds_max_are_run_and_one_more_breaks_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[Any] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        for _ in range(10):
            await asyncio.sleep(1)

    isolated(main)
    rounds = loops[0].rounds

    monkeypatch.setattr(virtual_time, "ROUNDS_MAX", rounds)
    isolated(main)
    monkeypatch.setattr(virtual_time, "ROUNDS_MAX", rounds - 1)
    with pytest.raises(AssertionError, match="never end"):
        isolated(main)


def test_a_clock_that_leaps_ahead_makes_timers_due_and_no_others() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        leaping, other = SimProcess("leaping"), SimProcess("other")
        woken: list[tuple[str, float]] = []

        async def sleep(name: str) -> None:
            await asyncio.sleep(60)
            woken.append((name, loop.now_s - began))

        began = loop.now_s
        leaping.run(asyncio.ensure_future, sleep("leaping"))
        other.run(asyncio.ensure_future, sleep("other"))
        await asyncio.sleep(1)
        loop.leap(leaping, 50)
        await asyncio.sleep(60)

        assert woken == [("leaping", pytest.approx(10)), ("other", pytest.approx(60))]
        assert leaping.run(now) == pytest.approx(loop.now_s + 50)

    isolated(main)


def test_each_step_is_reported() -> None:
    async def main() -> None:
        steps: list[str] = []
        process = SimProcess("p", lambda found: steps.append(found.name))

        async def three_turns() -> str:
            await asyncio.sleep(0)
            await asyncio.sleep(1)
            return "done"

        assert await process.ask(three_turns) == "done"
        assert steps == ["p"] * process.steps
        assert process.steps >= 3

    isolated(main)


def test_other_threads_of_this_process_see_the_world_as_it_is() -> None:
    """A cluster that a fixture of other tests keeps runs by the real clock."""

    def clocks_are_real() -> bool:
        real = time.clock_gettime(time.CLOCK_MONOTONIC), time.clock_gettime(time.CLOCK_REALTIME)
        return (time.monotonic(), time.time()) == pytest.approx(real, abs=60)

    def chance() -> tuple[float, bytes]:
        return random.Random().random(), os.urandom(8)

    loop = SimulatedLoop(lambda: None)
    network = Network(loop, random.Random(1))
    drawn = []
    with ThreadPoolExecutor(1) as other_thread:
        assert other_thread.submit(clocks_are_real).result()
        for _ in range(2):
            with simulated_world(loop, network, seed=1):
                assert not clocks_are_real()
                assert other_thread.submit(clocks_are_real).result()
                others = other_thread.submit(chance).result()
                drawn.append((chance(), others))
    loop.close()

    (first, others_first), (second, others_second) = drawn
    assert first == second, "what another thread draws changes nothing"
    assert others_first != others_second


def test_timers_of_one_instant_run_in_the_order_in_which_they_were_set() -> None:
    async def main() -> None:
        loop, ran = asyncio.get_running_loop(), []
        at = loop.time() + 1
        timers = [loop.call_at(at, ran.append, number) for number in range(200)]
        for timer in timers[::3]:
            timer.cancel()

        await asyncio.sleep(2)

        assert ran == [number for number in range(200) if number % 3]

    isolated(main)


def test_cancelled_timers_are_thrown_away_and_the_others_run() -> None:
    async def main() -> None:
        loop, ran = asyncio.get_running_loop(), []
        for number in range(1_000):
            loop.call_later(60 + number, ran.append, number).cancel()
        loop.call_later(2, ran.append, "late")
        loop.call_later(1, ran.append, "early")
        await asyncio.sleep(3)

        assert ran == ["early", "late"]
        assert len(loop._scheduled) < 10  # type: ignore[attr-defined]

    isolated(main)
