"""Requests for plans of moves of slots, as the leader of the cluster manager answers them."""

from __future__ import annotations

from cluster_manager import wire
from cluster_manager.domain.cluster import (
    ClusterState,
    decide_plan_slots,
    decide_stop_plan,
    fold_events,
)
from cluster_manager.domain.slot_moves.driver import Left, left_of
from cluster_manager.domain.slot_moves.moves import FINISHED, MovePhase
from cluster_manager.domain.slot_moves.plans import Plan, PlanPhase
from cluster_manager.service.leader_term import LeaderTerm
from nextgen.kernel.events.decider import Accepted
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb

STOPPED_BY_OPERATOR = "an operator stopped it"


async def plan_slots(
    term: LeaderTerm, request: cluster_pb.PlanSlotsRequest
) -> cluster_pb.PlanSlotsResponse:
    """Make a plan, or with ``dry_run`` only say what it would be; return it once it is committed.

    Raises:
        Refused: The plan is not possible; the message has the reason.
        InvalidRequest: This release does not know the kind of plan.
        Unavailable: Not every shard of the first map has been led.
        NotLeader, Overloaded, ProposalLost: See ``LeaderTerm.propose``.
    """
    command = wire.plan_slots_from_proto(request)
    term.check_every_shard_was_led()
    decision = decide_plan_slots(term.pending, command, term.plan_context())
    known = term.pending.plans.of_request(command.request_id)
    if request.dry_run and isinstance(decision, Accepted) and decision.events:
        term.check_known(decision.events)
        planned = fold_events(term.pending, decision.events)
        await term.confirm()
    else:
        await term.commit_decision(
            decision,
            "slots planned",
            kind=command.kind.value,
            shard=command.shard_id,
            into=command.into_shard,
        )
        planned = term.pending
    plan = known or planned.plans.latest
    assert plan is not None, "a plan was accepted and is not there"
    return cluster_pb.PlanSlotsResponse(
        plan=described(term, planned, planned.plans.plans[plan.plan_id])
    )


async def get_plans(
    term: LeaderTerm, request: cluster_pb.GetPlansRequest
) -> cluster_pb.GetPlansResponse:
    """Return the last plans, the newest first, and the shards: committed, linearizable.

    Raises:
        NotLeader, ProposalLost: Leadership moved.
    """
    await term.confirm()
    state = term.committed
    newest = sorted(state.plans.plans.values(), key=lambda plan: -plan.plan_id)
    shown = newest[: request.plans_max] if request.plans_max else newest
    plans = [described(term, state, plan) for plan in shown]
    for plan in plans:
        # A hundred plans with thousands of runs each would not fit into one message.
        plan.plan.ClearField("wanted")
    return cluster_pb.GetPlansResponse(plans=plans, shards=_shards(term, state))


async def stop_plan(
    term: LeaderTerm, request: cluster_pb.StopPlanRequest
) -> cluster_pb.StopPlanResponse:
    """Stop a plan; return it once that is committed.

    Raises:
        Refused: NOT_FOUND: there is no such plan, or none is under way; NOT_ALLOWED: it is done.
        NotLeader, Overloaded, ProposalLost: See ``LeaderTerm.propose``.
    """
    present = term.pending.plans.present
    plan_id = request.plan_id or (present.plan_id if present is not None else 0)
    decision = decide_stop_plan(term.pending, plan_id, request.reason or STOPPED_BY_OPERATOR)
    await term.commit_decision(decision, "plan stopped", plan=plan_id)
    state = term.pending
    return cluster_pb.StopPlanResponse(plan=described(term, state, state.plans.plans[plan_id]))


def described(term: LeaderTerm, state: ClusterState, plan: Plan) -> cluster_pb.SlotPlan:
    """Return a plan of ``state`` and how far it is."""
    shard_map = state.shard_map
    assert shard_map is not None, "a plan was made without a map"
    moves = state.slot_moves.of_plan(plan.plan_id)
    is_done = plan.phase is PlanPhase.DONE
    left = Left() if is_done else left_of(plan, shard_map, term.slot_mover.sizes.rows())
    waits_for = "" if plan.has_ended else term.slot_mover.next_step(plan).waits_for
    return cluster_pb.SlotPlan(
        plan=wire.plan_to_proto(plan),
        slots=sum(run.last + 1 - run.first for run in plan.wanted),
        slots_left=left.slots,
        rows_left=left.rows,
        moves_left=left.moves,
        moves_done=sum(move.phase is MovePhase.DONE for move in moves),
        moves=[
            cluster_pb.SlotMoveProgress(
                move=wire.move_to_proto(move),
                rows_copied=term.slot_mover.rows_copied(move.move_id),
            )
            for move in moves
            if move.phase not in FINISHED or move.phase is MovePhase.TAKEN_BACK
        ],
        waits_for=waits_for,
        shard_map_version=shard_map.version,
        added=[
            wire.placement_to_proto(placement)
            for placement in shard_map.placements
            if placement.shard_id in plan.added
        ],
    )


def _shards(term: LeaderTerm, state: ClusterState) -> list[cluster_pb.SlotShard]:
    if state.shard_map is None:
        return []
    leaders, retired = term.led_shards(), state.plans.retired
    return [
        cluster_pb.SlotShard(
            shard_id=placement.shard_id,
            slots=len(state.shard_map.table.slots_of(placement.shard_id)),
            is_retired=placement.shard_id in retired,
            leader=leaders.get(placement.shard_id, ""),
            size=term.slot_mover.sizes.get(placement.shard_id),
            placement=wire.placement_to_proto(placement),
        )
        for placement in state.shard_map.placements
    ]
