"""Plans that move slots between shards while everything else breaks.

    split   a shard gives half of its slots to a new shard
    merge   a shard that was added gives all of its slots to another, and is empty then
    move    some slots of one shard go to another one
    stop    a split that is stopped half way: what has moved stays, the rest is taken back

A cluster has at most ``SHARDS_ADDED_MAX`` more shards with slots than it began with. A plan of an
earlier fault that goes on is waited for: there is one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from nextgen.cli.shards import slot_plans
from nextgen.cli.shards.slot_plans import DONE, STOPPED
from nextgen.harness.chaos.faults.targets import Target
from nextgen.harness.chaos.schedule import FaultStep
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Unavailable
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import (
    GetPlansResponse,
    PlanSlotsRequest,
    SlotPlan,
    SlotShard,
)
from protos.nextgen.v1.events_pb2 import SlotRange

SHARDS_ADDED_MAX = 2
SLOTS_MOVED = 400
"""Slots that one ``move`` gives to a shard. A split moves half of a shard's slots, a merge all."""

PLAN_TIMEOUT_MS = 60_000
"""Time for a plan whose shards lose their leaders every other second."""

LOOK_MS = 300

SPLIT, MERGE, MOVE = "split", "merge", "move_slots"


class Plans(Protocol):
    """The part of ``slot_plans`` that is used here."""

    async def plan_slots(self, endpoints: Sequence[str], request: PlanSlotsRequest) -> SlotPlan: ...

    async def get_plans(self, endpoints: Sequence[str]) -> GetPlansResponse: ...

    async def stop_plan(self, endpoints: Sequence[str], plan_id: int) -> SlotPlan: ...


class SlotFaults:
    """Makes plans of the cluster behind ``endpoints`` and waits until each has ended."""

    def __init__(self, endpoints: Sequence[str], plans: Plans = slot_plans) -> None:
        self._endpoints = endpoints
        self._plans = plans
        self._shards_at_first = 0

    async def carry_out(self, step: FaultStep) -> tuple[Target, bool, str]:
        """Make one plan; return its shard, whether slots moved, and a description.

        Raises:
            Refused: The cluster does not accept the plan.
            DeadlineExceeded: It did not end.
            MetadataError: No cluster manager answered.
        """
        shards = await self._idle_shards()
        self._shards_at_first = self._shards_at_first or len(shards)
        request = wish(shards, step.pick, self._shards_at_first)
        plan = await self._plans.plan_slots(self._endpoints, request)
        is_stopped = request.kind == SPLIT and step.pick % 3 == 0
        if is_stopped:
            await asyncio.sleep(LOOK_MS / 1000)
            await self._stop(plan.plan.plan_id)
        ended = await self._ended(plan.plan.plan_id)
        moved = ended.slots - ended.slots_left
        shard_id = request.shard_id or request.into_shard
        detail = f"{request.kind} of shard {shard_id}: {moved} of {ended.slots} slots moved"
        if ended.plan.phase == STOPPED:
            detail += f", then it was stopped: {ended.plan.reason}"
        return Target("shards", (shard_id,)), moved > 0, detail

    async def _idle_shards(self) -> list[SlotShard]:
        """Return the shards with slots, as soon as no plan is under way."""
        try:
            async with timeout(PLAN_TIMEOUT_MS / 1000):
                while True:
                    gathered = await self._plans.get_plans(self._endpoints)
                    if all(each.plan.phase in (DONE, STOPPED) for each in gathered.plans):
                        break
                    await asyncio.sleep(LOOK_MS / 1000)
        except TimeoutError:
            raise DeadlineExceeded("the plan of an earlier fault does not end") from None
        shards = [each for each in gathered.shards if each.slots]
        if len(shards) < 2:
            raise Unavailable(f"{len(shards)} shards have slots, at least two are needed")
        return shards

    async def _stop(self, plan_id: int) -> None:
        try:
            await self._plans.stop_plan(self._endpoints, plan_id)
        except MetadataError as error:
            # It may have ended already.
            if (await self._plan(plan_id)).plan.phase not in (DONE, STOPPED):
                raise error

    async def _ended(self, plan_id: int) -> SlotPlan:
        plan: SlotPlan | None = None
        try:
            async with timeout(PLAN_TIMEOUT_MS / 1000):
                while plan is None or plan.plan.phase not in (DONE, STOPPED):
                    await asyncio.sleep(LOOK_MS / 1000)
                    try:
                        plan = await self._plan(plan_id)
                    except Unavailable:
                        continue
        except TimeoutError:
            left = "" if plan is None else f", {plan.slots_left} slots are left: {plan.waits_for}"
            raise DeadlineExceeded(
                f"plan {plan_id} has not ended after {PLAN_TIMEOUT_MS} ms{left}"
            ) from None
        return plan

    async def _plan(self, plan_id: int) -> SlotPlan:
        try:
            plans = (await self._plans.get_plans(self._endpoints)).plans
        except MetadataError as error:
            raise Unavailable(f"no cluster manager said how far plan {plan_id} is") from error
        for each in plans:
            if each.plan.plan_id == plan_id:
                return each
        raise Unavailable(f"plan {plan_id} is not known")


def wish(shards: Sequence[SlotShard], pick: int, shards_at_first: int) -> PlanSlotsRequest:
    """Return the plan that ``pick`` means for these shards, at least two, all with slots."""
    ordered = sorted(shards, key=lambda each: each.shard_id)
    one = ordered[pick % len(ordered)]
    if pick % 2:
        first = pick * 16 % (SLOT_COUNT - SLOTS_MOVED)
        ranges = [SlotRange(first=first, last=first + SLOTS_MOVED - 1)]
        return PlanSlotsRequest(kind=MOVE, into_shard=one.shard_id, ranges=ranges)
    if len(ordered) < shards_at_first + SHARDS_ADDED_MAX:
        biggest = max(ordered, key=lambda each: each.slots)
        return PlanSlotsRequest(kind=SPLIT, shard_id=biggest.shard_id)
    last = ordered[-1]
    into = min(ordered[:-1], key=lambda each: each.slots)
    return PlanSlotsRequest(kind=MERGE, shard_id=last.shard_id, into_shard=into.shard_id)
