"""Runs a schedule: each group has a lane, with one fault at a time, undone before the next.

A fault is skipped if it is too late, because earlier recoveries took longer than planned. But if
its kind has not happened often enough for a valid run, the run is extended instead. A fault without
a target is skipped too. Skipped faults are counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Protocol

from nextgen.harness.chaos.faults.happened import Happened
from nextgen.harness.chaos.schedule import FaultStep, Group, Role, Schedule
from nextgen.harness.chaos.validity import faults_needed
from nextgen.kernel.errors import MetadataError
from nextgen.tasks.groups import TaskGroup

ROOM_BEHIND_MS = 3_000
"""A fault that would begin closer to the end than this is too late."""

LATE_MS_MAX = 120_000
"""No fault begins later than this after the planned end, needed or not."""

OnHappened = Callable[[Happened], None]


class Maker(Protocol):
    """Starts and ends faults."""

    async def carry_out(self, step: FaultStep) -> Happened: ...

    async def wait_well(self, group: Group) -> None: ...


class ScheduleRunner:
    """See the module. ``happened``, ``left_out`` and ``complaints`` grow while it runs."""

    def __init__(self, schedule: Schedule, maker: Maker, on_happened: OnHappened) -> None:
        self.happened: list[Happened] = []
        self.left_out = 0
        self.complaints: list[str] = []
        self._schedule = schedule
        self._maker = maker
        self._on_happened = on_happened
        self._locks = {group: asyncio.Lock() for group in Group if group is not Group.ALL}
        self._began_at = 0.0

    async def run(self) -> None:
        """Return when every lane has ended."""
        self._began_at = time.monotonic()
        async with TaskGroup() as tasks:
            for group in Group:
                tasks.create_task(self._lane(group, self._schedule.lane(group)))

    async def _lane(self, group: Group, steps: Sequence[FaultStep]) -> None:
        for step in steps:
            await asyncio.sleep(max(0.0, step.at_ms / 1000 - self._elapsed_s()))
            async with AsyncExitStack() as held:
                for place in self._locks if group is Group.ALL else (group,):
                    await held.enter_async_context(self._locks[place])
                if self._is_too_late(step) or not await self._one(step):
                    self.left_out += 1

    def _is_too_late(self, step: FaultStep) -> bool:
        left_ms = (self._schedule.minutes * 60 - self._elapsed_s()) * 1000
        return left_ms < (-LATE_MS_MAX if self._is_needed(step) else ROOM_BEHIND_MS)

    def _is_needed(self, step: FaultStep) -> bool:
        """Return whether the run needs this fault to be valid. Brokers are counted separately."""
        made = (one.step for one in self.happened if one.took_hold)
        groups = (step.group,) if step.group is Group.BROKER else Group
        alike = [one for one in made if one.kind == step.kind and one.group in groups]
        return len(alike) < faults_needed(self._schedule.minutes)

    async def _one(self, step: FaultStep) -> bool:
        """Make one fault and wait until its group has recovered; return whether it happened."""
        try:
            happened = await self._carry_out(step)
        except MetadataError as error:
            self.complaints.append(f"{step.kind} of {step.group}: {error}")
            return False
        try:
            await self._maker.wait_well(step.group)
        except MetadataError as error:
            self.complaints.append(f"after {step.kind} of {happened.target.node_id}: {error}")
        return True

    async def _carry_out(self, step: FaultStep) -> Happened:
        """Make one fault; if it had no effect, make it once more, at the busiest node."""
        happened = await self._maker.carry_out(step)
        self._note(happened)
        if not happened.took_hold:
            role = Role.ANY if step.role is Role.ANY else Role.LEADER
            happened = await self._maker.carry_out(replace(step, pick=step.pick + 1, role=role))
            self._note(happened)
        return happened

    def _note(self, happened: Happened) -> None:
        self.happened.append(happened)
        self._on_happened(happened)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began_at
