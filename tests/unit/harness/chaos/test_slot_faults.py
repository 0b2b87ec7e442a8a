"""Plans that chaos makes of a cluster's shards: which, one at a time, each to its end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nextgen.harness.chaos.faults import slot_faults
from nextgen.harness.chaos.faults.slot_faults import MERGE, MOVE, SPLIT, SlotFaults, wish
from nextgen.harness.chaos.schedule import FaultKind, FaultStep, Group
from nextgen.kernel.errors import DeadlineExceeded, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1.cluster_service_pb2 import (
    GetPlansResponse,
    PlanSlotsRequest,
    SlotPlan,
    SlotShard,
)
from protos.nextgen.v1.events_pb2 import PlanChanged


def shards_of(*slots: int) -> list[SlotShard]:
    return [SlotShard(shard_id=number, slots=each) for number, each in enumerate(slots, start=1)]


def step(pick: int) -> FaultStep:
    return FaultStep(0, 0, FaultKind.RESHARD, Group.SLOTS, pick=pick)


class FakePlans:
    """A cluster manager whose plans need some looks to end."""

    def __init__(self, shards: Sequence[SlotShard], looks: int = 2) -> None:
        self.shards = shards
        self.looks = looks
        self.asked: list[PlanSlotsRequest] = []
        self.stopped: list[int] = []
        self.plans: list[SlotPlan] = []
        self.silent = 0

    async def plan_slots(self, endpoints: Sequence[str], request: PlanSlotsRequest) -> SlotPlan:
        if any(each.plan.phase == "running" for each in self.plans):
            raise Refused(RejectionCode.NOT_ALLOWED, "another plan is running")
        self.asked.append(request)
        changed = PlanChanged(plan_id=len(self.plans) + 1, phase="running")
        self.plans.append(SlotPlan(plan=changed, slots=8, slots_left=8))
        return self.plans[-1]

    async def get_plans(self, endpoints: Sequence[str]) -> GetPlansResponse:
        if self.silent:
            self.silent -= 1
            raise Unavailable("no leader")
        if self.plans and self.plans[-1].plan.phase == "running":
            self.looks -= 1
            if self.looks <= 0:
                self.plans[-1].plan.phase = "done"
                self.plans[-1].slots_left = 0
        return GetPlansResponse(plans=self.plans, shards=self.shards)

    async def stop_plan(self, endpoints: Sequence[str], plan_id: int) -> SlotPlan:
        self.stopped.append(plan_id)
        self.plans[-1].plan.phase, self.plans[-1].plan.reason = "stopped", "asked"
        return self.plans[-1]


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_faults, "LOOK_MS", 1)


def test_shards_are_split_up_to_two_more_and_then_merged() -> None:
    split = wish(shards_of(10, 30), 2, shards_at_first=2)
    merged = wish(shards_of(10, 30, 7, 8), 2, shards_at_first=2)

    assert (split.kind, split.shard_id, split.into_shard) == (SPLIT, 2, 0)
    assert (merged.kind, merged.shard_id, merged.into_shard) == (MERGE, 4, 3)


def test_every_other_plan_moves_slots_of_whoever_has_them() -> None:
    moved = wish(shards_of(10, 30), 1, shards_at_first=2)

    assert (moved.kind, moved.shard_id, moved.into_shard) == (MOVE, 0, 2)
    assert [(each.first, each.last) for each in moved.ranges] == [(16, 415)]


async def test_a_plan_is_followed_to_its_end_over_an_election() -> None:
    plans = FakePlans(shards_of(10, 30))
    plans.looks = 4
    made = plans.plan_slots

    async def then_silent(endpoints: Sequence[str], request: PlanSlotsRequest) -> SlotPlan:
        plans.silent = 3
        return await made(endpoints, request)

    plans.plan_slots = then_silent  # type: ignore[method-assign]

    target, took_hold, detail = await SlotFaults(("x:1",), plans).carry_out(step(1))

    assert plans.silent == 0

    assert took_hold
    assert target.shards == (2,)
    assert detail == "move_slots of shard 2: 8 of 8 slots moved"


async def test_every_third_split_is_stopped() -> None:
    plans = FakePlans(shards_of(10, 30), looks=9)

    _, took_hold, detail = await SlotFaults(("x:1",), plans).carry_out(step(6))

    assert plans.stopped == [1]
    assert not took_hold
    assert detail.endswith("0 of 8 slots moved, then it was stopped: asked")


async def test_a_plan_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_faults, "PLAN_TIMEOUT_MS", 30)
    plans = FakePlans(shards_of(10, 30), looks=10**9)

    with pytest.raises(DeadlineExceeded, match="8 slots are left"):
        await SlotFaults(("x:1",), plans).carry_out(step(1))


async def test_one_shard_alone_gives_nothing_to_anybody() -> None:
    with pytest.raises(Unavailable, match="at least two"):
        await SlotFaults(("x:1",), FakePlans(shards_of(10))).carry_out(step(1))
