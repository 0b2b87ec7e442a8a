"""Asks the cluster manager's leader for plans of moves of slots, and follows them to their end."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from nextgen.cli.calls.manager_leader import ask_manager_leader
from nextgen.client.log.reader import log_readers
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1.cluster_service_pb2 import (
    GetPlansRequest,
    GetPlansResponse,
    PlanSlotsRequest,
    PlanSlotsResponse,
    SlotPlan,
    StopPlanRequest,
    StopPlanResponse,
)

ATTEMPT_TIMEOUT_MS = 4_000
"""Time-out of one call; the cluster manager itself gives up a little earlier."""

POLL_MS = 500
"""Between two looks at a plan that is waited for."""

PLANS_LOOKED_AT = 10
"""The last plans among which a followed one is looked for: the others began behind its end."""

DONE, STOPPED = "done", "stopped"

OnProgress = Callable[[SlotPlan], None]


async def plan_slots(endpoints: Sequence[str], request: PlanSlotsRequest) -> SlotPlan:
    """Make a plan, or with ``dry_run`` learn what it would be.

    Raises:
        Refused, InvalidRequest: It is not possible; the message has the reason.
        MetadataError: No cluster manager could be reached.
    """
    # A repeated attempt finds the plan that the first one made.
    request.request_id = uuid.uuid4().hex

    async def ask(stub: Any) -> PlanSlotsResponse:
        response: PlanSlotsResponse = await stub.PlanSlots(
            request, timeout=ATTEMPT_TIMEOUT_MS / 1_000
        )
        return response

    return (await ask_manager_leader(endpoints, ask)).plan


async def get_plans(endpoints: Sequence[str], plans_max: int = 0) -> GetPlansResponse:
    """Return the last plans, the newest first, and the shards.

    Raises:
        MetadataError: No cluster manager could be reached.
    """

    async def ask(stub: Any) -> GetPlansResponse:
        response: GetPlansResponse = await stub.GetPlans(
            GetPlansRequest(plans_max=plans_max), timeout=ATTEMPT_TIMEOUT_MS / 1_000
        )
        return response

    return await ask_manager_leader(endpoints, ask)


async def stop_plan(endpoints: Sequence[str], plan_id: int) -> SlotPlan:
    """Stop a plan, 0: the one under way.

    Raises:
        Refused: There is none, or it is done.
        MetadataError: No cluster manager could be reached.
    """

    async def ask(stub: Any) -> StopPlanResponse:
        response: StopPlanResponse = await stub.StopPlan(
            StopPlanRequest(plan_id=plan_id), timeout=ATTEMPT_TIMEOUT_MS / 1_000
        )
        return response

    return (await ask_manager_leader(endpoints, ask)).plan


async def check_no_readers(endpoints: Sequence[str], shard_id: int) -> None:
    """Check that a shard without slots, which is to be removed, has no named readers.

    Raises:
        Refused: It has some; the message says where they are in its log.
        MetadataError: No cluster manager or none of the shard's replicas could be reached.
    """
    shards = {each.shard_id: each for each in (await get_plans(endpoints, 1)).shards}
    if shard_id not in shards or shards[shard_id].slots:
        return
    answers = (await log_readers(endpoints, shard_id)).values()
    errors = [answer for answer in answers if isinstance(answer, MetadataError)]
    if len(errors) == len(answers):
        raise errors[0] if errors else Unavailable(f"shard {shard_id} has no replica")
    readers: dict[str, int] = {}
    for answer in answers:
        for reader in () if isinstance(answer, MetadataError) else answer.readers:
            readers[reader.reader_id] = max(reader.position, readers.get(reader.reader_id, 0))
    if readers:
        shown = ", ".join(f"{name} at {position}" for name, position in sorted(readers.items()))
        raise Refused(
            RejectionCode.NOT_ALLOWED,
            f"the log of shard {shard_id} has readers: {shown}. Wait until they are at its end; "
            "with --force they lose what they have not read",
        )


async def follow(
    endpoints: Sequence[str], plan_id: int, timeout_ms: int, on_progress: OnProgress
) -> SlotPlan:
    """Return the plan when it has ended.

    Raises:
        Refused: It was stopped; the message has the reason.
        DeadlineExceeded: It goes on after ``timeout_ms``.
        MetadataError: No cluster manager could be reached for all of this time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1_000
    while True:
        try:
            plan = await _plan(endpoints, plan_id)
        except MetadataError:
            # A plan outlives an election, so waiting for it does too.
            if loop.time() >= deadline:
                raise
            plan = None
        if plan is not None:
            on_progress(plan)
            if plan.plan.phase == DONE:
                return plan
            if plan.plan.phase == STOPPED:
                raise Refused(
                    RejectionCode.NOT_ALLOWED,
                    f"plan {plan_id} was stopped with {plan.slots_left} slots left: "
                    f"{plan.plan.reason}",
                )
            if loop.time() >= deadline:
                raise DeadlineExceeded(
                    f"plan {plan_id} goes on, {plan.slots_left} slots are left after "
                    f"{timeout_ms} ms{f': {plan.waits_for}' if plan.waits_for else ''}"
                )
        await asyncio.sleep(POLL_MS / 1_000)


async def _plan(endpoints: Sequence[str], plan_id: int) -> SlotPlan | None:
    gathered = await get_plans(endpoints, PLANS_LOOKED_AT)
    return next((each for each in gathered.plans if each.plan.plan_id == plan_id), None)
