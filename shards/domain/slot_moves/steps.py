"""What a shard's leader does next about a move of slots, and what it reports.

    B (target)   planned ─▶ COPY … adopted        stopping ─▶ REFUSE ─▶ REMOVE_ROWS
    A (source)   adopted ─▶ REMOVE_ROWS ─▶ cleaned     refused ─▶ RECLAIM ─▶ reclaimed

Both follow from the shard's own record and the phase that the cluster manager has recorded, so the
next leader simply continues. A source acts only on a phase that the target's log has decided:
``adopted`` and ``refused`` are recorded behind the target's commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

from shards.domain.shard import Shard
from shards.domain.slot_moves.decider import has_adopted, has_outgoing, incoming_of
from shards.domain.slots.events import SlotRanges, without


class MovePhase(StrEnum):
    """Of a move, as the cluster manager has recorded it."""

    PLANNED = "planned"
    STOPPING = "stopping"
    REFUSED = "refused"
    ADOPTED = "adopted"
    TAKEN_BACK = "taken_back"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class SlotMove:
    """A move as the cluster manager has recorded it."""

    move_id: int
    ranges: SlotRanges
    from_shard: int
    to_shard: int
    phase: MovePhase
    reason: str = ""


class MoveStep(Enum):
    NOTHING = auto()
    COPY = auto()
    REFUSE = auto()
    RECLAIM = auto()
    REMOVE_ROWS = auto()


_NOT_KNOWN = (MovePhase.PLANNED, MovePhase.STOPPING)
"""The cluster manager does not know how the target has decided."""


def next_step(shard_id: int, shard: Shard, move: SlotMove) -> MoveStep:
    """Return what the leader of ``shard_id`` does next about ``move``."""
    if move.to_shard == shard_id:
        return _target_step(shard, move)
    return _source_step(shard, move) if move.from_shard == shard_id else MoveStep.NOTHING


def due_report(shard_id: int, shard: Shard, move: SlotMove) -> str:
    """Return the phase to report to the cluster manager, "" if its record has it already."""
    is_over = move.move_id <= shard.settled_move_id
    if move.to_shard == shard_id:
        if move.phase not in _NOT_KNOWN or not is_over:
            return ""
        return "adopted" if has_adopted(shard, move.move_id) else "refused"
    if move.from_shard != shard_id or not is_over or has_outgoing(shard, move.move_id):
        return ""
    if move.phase is MovePhase.REFUSED:
        return "reclaimed"
    return "cleaned" if move.phase is MovePhase.ADOPTED else ""


def unrecorded(
    shard_id: int, shard: Shard, recorded: Collection[int], mapped: SlotRanges
) -> Iterator[SlotMove]:
    """Yield the moves that the shard's log has and the cluster manager does not: it was recovered
    from its last replica, which had not heard of them.

    ``recorded`` are the ids of the shard's moves that by its record are not over, ``mapped`` the
    slots that the shard has by its map.
    """
    for outgoing in shard.outgoing:
        if outgoing.move_id not in recorded:
            yield _lost(outgoing.move_id, outgoing.ranges, shard_id, outgoing.to_shard)
    for incoming in shard.incoming:
        if incoming.move_id not in recorded and not incoming.is_refused:
            yield _lost(incoming.move_id, incoming.ranges, incoming.from_shard, shard_id)
    elsewhere = without(shard.ranges, mapped)
    for came in reversed(shard.came):
        others = without(elsewhere, came.ranges)
        lost = without(elsewhere, others)
        if lost and came.move_id not in recorded:
            yield _lost(came.move_id, lost, came.from_shard, shard_id)
        elsewhere = others


def _lost(move_id: int, ranges: SlotRanges, from_shard: int, to_shard: int) -> SlotMove:
    return SlotMove(move_id, ranges, from_shard, to_shard, MovePhase.STOPPING)


def _target_step(shard: Shard, move: SlotMove) -> MoveStep:
    incoming = incoming_of(shard, move.move_id)
    if incoming is not None and incoming.is_refused:
        return MoveStep.REMOVE_ROWS
    if move.move_id <= shard.settled_move_id:
        return MoveStep.NOTHING
    if move.phase is MovePhase.STOPPING:
        return MoveStep.REFUSE
    return MoveStep.COPY if move.phase is MovePhase.PLANNED else MoveStep.NOTHING


def _source_step(shard: Shard, move: SlotMove) -> MoveStep:
    is_released = has_outgoing(shard, move.move_id)
    if move.phase is MovePhase.ADOPTED and is_released:
        return MoveStep.REMOVE_ROWS
    is_over = move.move_id <= shard.settled_move_id
    if move.phase is MovePhase.REFUSED and (is_released or not is_over):
        return MoveStep.RECLAIM
    return MoveStep.NOTHING
