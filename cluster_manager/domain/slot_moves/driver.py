"""The next moves of a plan: from where slots are now to where the plan wants them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from cluster_manager.domain.shard_map import ShardMap
from cluster_manager.domain.slot_moves.moves import PlanMove, SlotMoves
from cluster_manager.domain.slot_moves.plans import Plan, PlanPhase, ranges_between
from cluster_manager.domain.slot_moves.ranges import SlotRanges, count_of
from nextgen.kernel.limits.placement import (
    SLOT_MOVE_ROWS_MAX,
    SLOT_MOVE_SLOTS_MAX,
    SLOT_MOVES_AT_ONCE,
)


@dataclass(frozen=True, slots=True)
class Next:
    """What a plan needs next: moves to begin, or nothing any more."""

    moves: tuple[PlanMove, ...] = ()
    has_ended: bool = False
    waits_for: str = ""
    """Why no move begins although slots are left, "" if one does or all are under way."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of a plan: the slots, and their rows as far as shards report any."""

    slots: int = 0
    rows: int = 0
    moves: int = 0
    """Moves that have not begun, by estimate."""


def next_moves(
    plan: Plan,
    moves: SlotMoves,
    shard_map: ShardMap,
    led: AbstractSet[int],
    rows: Mapping[int, int],
    *,
    needs_rows: bool = False,
) -> Next:
    """Return the next moves, at most one for each shard, and whether the plan is at its end.

    ``led`` are the shards that are known to have a leader: the others could not move anything.
    ``rows`` are the rows of each shard that has reported them; with ``needs_rows`` no other shard
    gives slots, for it will report soon.
    """
    under_way = [move for move in moves.under_way if move.plan_id == plan.plan_id]
    left = {}
    if plan.phase is PlanPhase.RUNNING:
        left = ranges_between(plan.wanted, shard_map.table.owners)
        unled = sorted(set(plan.added) - led)
        if unled and not left:
            return Next(waits_for=f"shard {unled[0]} has no leader yet")
    if not left:
        return Next(has_ended=not under_way)
    busy = {shard_id for move in moves.under_way for shard_id in move.shards}
    begun: list[PlanMove] = []
    waits_for = ""
    for (source, target), ranges in sorted(left.items(), key=lambda found: found[0]):
        if len(moves.under_way) + len(begun) >= SLOT_MOVES_AT_ONCE:
            break
        if busy & {source, target}:
            continue
        unled = sorted({source, target} - led)
        if unled:
            waits_for = waits_for or f"shard {unled[0]} has no leader"
            continue
        if needs_rows and source not in rows:
            waits_for = waits_for or f"shard {source} has not reported its size"
            continue
        part = first_slots(ranges, slots_per_move(shard_map, source, rows))
        begun.append(PlanMove(part, source, target, plan.plan_id))
        busy |= {source, target}
    return Next(tuple(begun), waits_for="" if begun or under_way else waits_for)


def left_of(plan: Plan, shard_map: ShardMap, rows: Mapping[int, int]) -> Left:
    """Return what is left of a plan, whether it will go on or not."""
    slots_left = rows_left = moves_left = 0
    for (source, _), ranges in ranges_between(plan.wanted, shard_map.table.owners).items():
        slots = count_of(ranges)
        slots_left += slots
        rows_left += slots * rows.get(source, 0) // max(1, len(shard_map.table.slots_of(source)))
        moves_left += -(-slots // slots_per_move(shard_map, source, rows))
    return Left(slots_left, rows_left, moves_left)


def slots_per_move(shard_map: ShardMap, source: int, rows: Mapping[int, int]) -> int:
    """Return how many slots of a shard go at once: those with a bounded number of rows.

    A shard that has reported none counts as an empty one.
    """
    slots = len(shard_map.table.slots_of(source))
    fitting = SLOT_MOVE_ROWS_MAX * slots // max(1, rows.get(source, 0))
    return min(SLOT_MOVE_SLOTS_MAX, max(1, fitting))


def first_slots(ranges: SlotRanges, count: int) -> SlotRanges:
    """Return the first ``count`` slots of the ranges."""
    part: list[tuple[int, int]] = []
    for first, last in ranges:
        if count <= 0:
            break
        end = min(last, first + count - 1)
        part.append((first, end))
        count -= end + 1 - first
    return tuple(part)
