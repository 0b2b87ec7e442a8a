"""Plans: the owners that slots are to get, by moves that begin one after the other.

    running ──(every slot is where it should be)──▶ done
       └──(STOP, or a move that was refused)──▶ stopping ──(no move is under way)──▶ stopped

A plan says where slots should be, not by which moves: what is left of it is the difference between
that and the map. So whoever leads goes on with it, and a stop leaves nothing half done.

One plan runs at a time. ``retired`` shards get no slots by themselves: they are kept for the
history in their logs until they are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby

from cluster_manager.domain.slot_moves.ranges import SlotRanges
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.placement import SLOT_MOVE_REASON_CHARACTERS_MAX, SLOT_PLANS_KEPT
from nextgen.kernel.routing.slots import SlotRun


class PlanKind(StrEnum):
    """What a plan is for."""

    SPLIT = "split"
    MERGE = "merge"
    MOVE_SLOTS = "move_slots"
    REBALANCE = "rebalance"
    ADD_SHARDS = "add_shards"
    REMOVE_SHARD = "remove_shard"


class PlanPhase(StrEnum):
    """How far a plan is; see the module."""

    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"
    STOPPED = "stopped"


ENDED = frozenset({PlanPhase.DONE, PlanPhase.STOPPED})


@dataclass(frozen=True, slots=True)
class Plan:
    """One plan. ``wanted`` has the slots that change their owner, as runs in ascending order."""

    plan_id: int
    kind: PlanKind
    phase: PlanPhase = PlanPhase.RUNNING
    wanted: tuple[SlotRun, ...] = ()
    added: tuple[int, ...] = ()
    """Shards that the plan added to the map."""
    removed: tuple[int, ...] = ()
    """Shards that the plan took out of the map. None of them had a slot."""
    retired: tuple[int, ...] = ()
    """All shards that get no slots by themselves, of this plan and of earlier ones."""
    last_shard_id: int = 0
    """No shard has ever had a higher id: removed shards' ids are not used again."""
    is_automatic: bool = False
    request_id: str = ""
    """By which a repeated request finds its plan; chosen by the caller."""
    reason: str = ""
    """Why it was stopped, or, of an automatic plan that runs or is done, why it began."""
    began_at_ms: int = 0
    ended_at_ms: int = 0

    @property
    def has_ended(self) -> bool:
        return self.phase in ENDED


@dataclass(frozen=True, slots=True)
class PlanChanged:
    """The plan is as ``plan`` says from this event on."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Plans:
    """The last plans by id, oldest first. Never changed in place."""

    plans: Mapping[int, Plan] = field(default_factory=dict)

    @property
    def latest(self) -> Plan | None:
        return self.plans[max(self.plans)] if self.plans else None

    @property
    def present(self) -> Plan | None:
        """The plan that has not ended."""
        latest = self.latest
        return None if latest is None or latest.has_ended else latest

    @property
    def next_id(self) -> int:
        return max(self.plans, default=0) + 1

    @property
    def retired(self) -> tuple[int, ...]:
        """The shards that get no slots by themselves, ascending."""
        return self.latest.retired if self.latest is not None else ()

    def next_shard_id(self, shard_ids: Iterable[int]) -> int:
        """Return the id of the next new shard; ``shard_ids`` are those of the map."""
        last = self.latest.last_shard_id if self.latest is not None else 0
        return max((last, *shard_ids)) + 1

    def of_request(self, request_id: str) -> Plan | None:
        """Return the plan that a request made before, if it is still known."""
        found = (plan for plan in self.plans.values() if plan.request_id == request_id)
        return next(found, None) if request_id else None


INITIAL = Plans()


def decide_stop(state: Plans, plan_id: int, reason: str) -> Accepted[PlanChanged] | Rejected:
    """Stop a plan: no further move begins. ``plan_id`` 0 is the present one."""
    plan = state.plans.get(plan_id) if plan_id else state.present
    if plan is None:
        return Rejected(
            RejectionCode.NOT_FOUND,
            f"there is no plan {plan_id}" if plan_id else "no plan is under way",
        )
    if plan.phase is PlanPhase.DONE:
        return Rejected(RejectionCode.NOT_ALLOWED, f"plan {plan.plan_id} is done")
    if plan.phase is not PlanPhase.RUNNING:
        return Accepted(())
    short = reason[:SLOT_MOVE_REASON_CHARACTERS_MAX]
    return Accepted((PlanChanged(replace(plan, phase=PlanPhase.STOPPING, reason=short)),))


def ended(plan: Plan, now_ms: int) -> PlanChanged:
    """Return that a plan without moves under way has ended."""
    phase = PlanPhase.DONE if plan.phase is PlanPhase.RUNNING else PlanPhase.STOPPED
    return PlanChanged(replace(plan, phase=phase, ended_at_ms=now_ms))


def evolve(state: Plans, event: PlanChanged) -> Plans:
    """Return the plans after ``event``; the oldest beyond a bound are forgotten."""
    plans = {**state.plans, event.plan.plan_id: event.plan}
    for plan_id in forgotten(plans):
        del plans[plan_id]
    return Plans(plans)


def forgotten(plan_ids: Iterable[int]) -> list[int]:
    """Return the ids of the plans that are too many, the oldest first."""
    known = sorted(plan_ids)
    return known[: max(0, len(known) - SLOT_PLANS_KEPT)]


def ranges_between(
    wanted: Iterable[SlotRun], owners: tuple[int, ...]
) -> dict[tuple[int, int], SlotRanges]:
    """Return what is left of ``wanted``: the slots to move, by the shard that has and gets them."""
    left: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for run in wanted:
        first = run.first
        for owner, slots in groupby(owners[run.first : run.last + 1]):
            last = first + len(list(slots)) - 1
            if owner != run.shard_id:
                ranges = left.setdefault((owner, run.shard_id), [])
                # The run before may have ended here.
                joined = ranges.pop()[0] if ranges and ranges[-1][1] == first - 1 else first
                ranges.append((joined, last))
            first = last + 1
    return {pair: tuple(ranges) for pair, ranges in left.items()}
