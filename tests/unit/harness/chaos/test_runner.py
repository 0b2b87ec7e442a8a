"""Lanes of faults: one at a time in each group, and everything waits for the restart of all."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest

from nextgen.harness.chaos import runner as runner_module
from nextgen.harness.chaos.faults.happened import Happened
from nextgen.harness.chaos.faults.targets import Target
from nextgen.harness.chaos.runner import LATE_MS_MAX, ScheduleRunner
from nextgen.harness.chaos.schedule import FaultKind, FaultStep, Group, Schedule
from nextgen.kernel.errors import DeadlineExceeded, Unavailable
from tests.support.simulated.virtual_time import run_virtual

TURNS_OF_A_FAULT = 20


class RecordingMaker:
    """Notes when each fault begins, and when its group is well again."""

    def __init__(self, refuses: FaultStep | None = None, ill: FaultStep | None = None) -> None:
        self.spans: list[tuple[Group, int, int]] = []
        self._refuses = refuses
        self._ill = ill
        self._moments = itertools.count()
        self._begun: dict[Group, int] = {}
        self._last: FaultStep | None = None

    async def carry_out(self, step: FaultStep) -> Happened:
        if step == self._refuses:
            raise Unavailable("no shard has a leader at the moment")
        self._last = step
        self._begun[step.group] = next(self._moments)
        await self._turns()
        return Happened(step, Target("node"), 0, 1, took_hold=True)

    async def wait_well(self, group: Group) -> None:
        await self._turns()
        self.spans.append((group, self._begun[group], next(self._moments)))
        if self._last == self._ill:
            raise DeadlineExceeded("not well")

    async def _turns(self) -> None:
        for _ in range(TURNS_OF_A_FAULT):
            await asyncio.sleep(0)


async def run(steps: list[FaultStep], maker: RecordingMaker) -> ScheduleRunner:
    runner = ScheduleRunner(Schedule(1, 1, tuple(steps)), maker, lambda happened: None)
    await runner.run()
    return runner


def kill(group: Group, pick: int = 0) -> FaultStep:
    return FaultStep(0, 0, FaultKind.KILL, group, pick=pick)


ALL = FaultStep(0, 0, FaultKind.RESTART_ALL, Group.ALL)


def meet(one: tuple[Group, int, int], other: tuple[Group, int, int]) -> bool:
    return one[1] < other[2] and other[1] < one[2]


async def test_faults_of_one_group_never_meet_and_those_of_others_may():
    steps = [kill(group, n) for group in (Group.SHARD_NODE, Group.BROKER) for n in range(4)]
    maker = RecordingMaker()

    runner = await run(steps, maker)

    pairs = list(itertools.combinations(maker.spans, 2))
    assert len(runner.happened) == len(steps)
    assert not any(meet(a, b) for a, b in pairs if a[0] == b[0])
    assert any(meet(a, b) for a, b in pairs if a[0] != b[0])


async def test_the_restart_of_everything_meets_no_other_fault():
    steps = [kill(group, n) for group in (Group.SHARD_NODE, Group.MANAGER) for n in range(3)]
    maker = RecordingMaker()

    await run([*steps, ALL], maker)

    restart = next(span for span in maker.spans if span[0] is Group.ALL)
    assert not any(meet(restart, span) for span in maker.spans if span is not restart)


async def test_a_fault_without_a_target_is_skipped_and_reported():
    nobody, then = kill(Group.BROKER, 1), kill(Group.BROKER, 2)

    runner = await run([nobody, then], RecordingMaker(refuses=nobody))

    assert [one.step for one in runner.happened] == [then]
    assert runner.left_out == 1
    assert "no shard has a leader" in runner.complaints[0]


async def test_a_group_that_does_not_recover_is_reported():
    step = kill(Group.MANAGER)

    runner = await run([step], RecordingMaker(ill=step))

    assert len(runner.happened) == 1
    assert "not well" in runner.complaints[0]


async def run_late(maker: RecordingMaker, *steps: FaultStep) -> ScheduleRunner:
    """Run a schedule that ends as it begins: each step comes too late."""
    runner = ScheduleRunner(Schedule(1, 0.01, steps), maker, lambda happened: None)
    await runner.run()
    return runner


async def test_a_fault_that_comes_too_late_is_left_out_if_its_kind_has_happened():
    first, second = kill(Group.BROKER, 1), kill(Group.BROKER, 2)

    runner = await run_late(RecordingMaker(), first, second)

    assert [one.step for one in runner.happened] == [first]
    assert runner.left_out == 1


def test_what_happened_to_others_is_not_enough_for_brokers(monkeypatch: pytest.MonkeyPatch):
    """In virtual time: what begins a millisecond later begins when the first has happened."""
    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(runner_module, "time", clock)
    others, broker = kill(Group.SHARD_NODE), replace(kill(Group.BROKER), at_ms=1)
    broker_first, others_later = kill(Group.BROKER), replace(kill(Group.SHARD_NODE), at_ms=1)

    both = run_virtual(lambda: run_late(RecordingMaker(), others, broker))
    one = run_virtual(lambda: run_late(RecordingMaker(), broker_first, others_later))

    assert [each.step for each in both.happened] == [others, broker]
    assert [each.step for each in one.happened] == [broker_first]


async def test_a_fault_that_nobody_noticed_is_needed_still():
    class UnnoticedMaker(RecordingMaker):
        async def carry_out(self, step: FaultStep) -> Happened:
            return replace(await super().carry_out(step), took_hold=step.pick > 3)

    first, second, third = (kill(Group.BROKER, pick) for pick in (1, 4, 5))

    runner = await run_late(UnnoticedMaker(), first, second, third)

    assert [one.step.pick for one in runner.happened] == [1, 2, 4]
    assert runner.left_out == 1


async def test_no_fault_comes_later_than_so_long_behind_the_end(monkeypatch: pytest.MonkeyPatch):
    moments = iter([0.0, 0.0, 60 + LATE_MS_MAX / 1000 + 0.1])
    monkeypatch.setattr(runner_module, "time", SimpleNamespace(monotonic=lambda: next(moments)))

    runner = await run([kill(Group.BROKER)], RecordingMaker())

    assert (runner.happened, runner.left_out) == ([], 1)


async def test_a_fault_that_nobody_noticed_is_made_once_more():
    class UnnoticedMaker(RecordingMaker):
        async def carry_out(self, step: FaultStep) -> Happened:
            happened = await super().carry_out(step)
            return replace(happened, took_hold=step.pick > 3)

    runner = await run([kill(Group.BROKER, 3)], UnnoticedMaker())

    assert [(one.step.pick, one.took_hold) for one in runner.happened] == [(3, False), (4, True)]
