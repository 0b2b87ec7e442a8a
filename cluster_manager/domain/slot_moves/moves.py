"""Moves of slots from one shard to another, as the cluster manager records them.

    planned ──(adopted)──▶ adopted ──(cleaned)──▶ done
       │  ▲ (adopted: the stop came too late)
       │  └──────┐
       ├──STOP──▶ stopping
       └─(refused)──┴──▶ refused ──(reclaimed)──▶ taken_back

What is in parentheses is a report of a shard's leader. It says what is committed in the log of its
shard, so a report is true however late it comes and whichever leader sends it. The two logs decide:
a move has adopted or refused in the log of the shard that it leads to, never both, and the reports
follow.

A shard takes part in one move at a time.

A cluster manager that was recovered from its last replica may have lost the record of a move. The
shards, whose logs have it, describe it: it is recorded as one that is to be stopped, and ends by
the reports of how the logs have decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from cluster_manager.domain.shard_map import ShardMap
from cluster_manager.domain.slot_moves.ranges import (
    SlotRanges,
    mistake_in,
    shown,
    slots_of,
)
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.events.generations import generation_of
from nextgen.kernel.limits.cluster import STORED_INTEGER_MAX
from nextgen.kernel.limits.placement import (
    SLOT_MOVE_RANGES_MAX,
    SLOT_MOVE_REASON_CHARACTERS_MAX,
    SLOT_MOVES_KEPT,
)


class MovePhase(StrEnum):
    """How far a move is; see the module."""

    PLANNED = "planned"
    STOPPING = "stopping"
    ADOPTED = "adopted"
    DONE = "done"
    REFUSED = "refused"
    TAKEN_BACK = "taken_back"


FINISHED = frozenset({MovePhase.DONE, MovePhase.TAKEN_BACK})
"""Phases in which neither shard has anything left to do."""

OPEN = frozenset({MovePhase.PLANNED, MovePhase.STOPPING})
"""Phases in which the slots may still go either way."""


@dataclass(frozen=True, slots=True)
class SlotMove:
    """One move. The positions and the map's version are those of its adoption, 0 before that."""

    move_id: int
    ranges: SlotRanges
    from_shard: int
    to_shard: int
    phase: MovePhase = MovePhase.PLANNED
    reason: str = ""
    from_position: int = 0
    to_position: int = 0
    shard_map_version: int = 0
    plan_id: int = 0

    @property
    def is_finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def shards(self) -> tuple[int, int]:
        return self.from_shard, self.to_shard


@dataclass(frozen=True, slots=True)
class SlotMoveChanged:
    """The move is as ``move`` says from this event on."""

    move: SlotMove


@dataclass(frozen=True, slots=True)
class PlanMove:
    """Move slots that ``from_shard`` has. ``plan_id`` 0: for no plan."""

    ranges: SlotRanges
    from_shard: int
    to_shard: int
    plan_id: int = 0


@dataclass(frozen=True, slots=True)
class StopMove:
    """Take a move back unless its slots were adopted already."""

    move_id: int
    reason: str


class Report(StrEnum):
    """What a shard's leader says of a move. All but copying is committed in the shard's log."""

    COPYING = "copying"
    ADOPTED = "adopted"
    REFUSED = "refused"
    RELEASED = "released"
    RECLAIMED = "reclaimed"
    CLEANED = "cleaned"
    UNRECORDED = "unrecorded"


@dataclass(frozen=True, slots=True)
class TakeMoveReport:
    """A report of ``shard_id``. ``session_units`` are the leased units that came along;
    ``ranges`` and the shards are of a move that is not recorded."""

    move_id: int
    shard_id: int
    report: Report
    from_position: int = 0
    to_position: int = 0
    reason: str = ""
    session_units: Mapping[str, int] = field(default_factory=dict)
    ranges: SlotRanges = ()
    from_shard: int = 0
    to_shard: int = 0


@dataclass(frozen=True, slots=True)
class SlotMoves:
    """The moves by id: all that are not finished, and the last finished ones.

    The latest move is never forgotten, so an id is used once. Never changed in place.
    """

    moves: Mapping[int, SlotMove] = field(default_factory=dict)

    @property
    def under_way(self) -> tuple[SlotMove, ...]:
        """The moves that are not finished, by id."""
        return tuple(move for _, move in sorted(self.moves.items()) if not move.is_finished)

    @property
    def next_id(self) -> int:
        return max(self.moves, default=0) + 1

    def of_shard(self, shard_id: int) -> SlotMove | None:
        """Return the move under way in which the shard takes part."""
        return next((move for move in self.under_way if shard_id in move.shards), None)

    def of_plan(self, plan_id: int) -> tuple[SlotMove, ...]:
        """Return the moves of a plan that are still known, by id."""
        return tuple(move for _, move in sorted(self.moves.items()) if move.plan_id == plan_id)


INITIAL = SlotMoves()

LOST = "the cluster manager had lost its record"


@dataclass(frozen=True, slots=True)
class _Step:
    """A report's phase, and those in which it comes at the right time, or again."""

    before: frozenset[MovePhase]
    phase: MovePhase
    after: frozenset[MovePhase]


_STEPS = {
    Report.REFUSED: _Step(
        OPEN, MovePhase.REFUSED, frozenset({MovePhase.REFUSED, MovePhase.TAKEN_BACK})
    ),
    Report.RECLAIMED: _Step(
        frozenset({MovePhase.REFUSED}), MovePhase.TAKEN_BACK, frozenset({MovePhase.TAKEN_BACK})
    ),
    Report.CLEANED: _Step(
        frozenset({MovePhase.ADOPTED}), MovePhase.DONE, frozenset({MovePhase.DONE})
    ),
}
"""What the reports mean, except the adoption, which has positions too."""


def decide_plan(
    state: SlotMoves, shard_map: ShardMap | None, command: PlanMove
) -> Accepted[SlotMoveChanged] | Rejected:
    """Record a move, unless it is impossible or one of its shards is busy with another one."""
    refused = _refused(state, shard_map, command)
    if refused is not None:
        return refused
    move = SlotMove(
        state.next_id,
        command.ranges,
        command.from_shard,
        command.to_shard,
        plan_id=command.plan_id,
    )
    return Accepted((SlotMoveChanged(move),))


def decide_stop(state: SlotMoves, command: StopMove) -> Accepted[SlotMoveChanged] | Rejected:
    """Ask for a move to be taken back. A repeated wish changes nothing."""
    move = state.moves.get(command.move_id)
    if move is None:
        return _no_such_move(command.move_id)
    if move.phase in (MovePhase.STOPPING, MovePhase.REFUSED, MovePhase.TAKEN_BACK):
        return Accepted(())
    if move.phase not in OPEN:
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"shard {move.to_shard} has adopted the slots of move {move.move_id} already",
        )
    return _changed(move, phase=MovePhase.STOPPING, reason=_short(command.reason))


def decide_report(
    state: SlotMoves, command: TakeMoveReport, map_version: int
) -> Accepted[SlotMoveChanged] | Rejected:
    """Take a report; a repeated one changes nothing. An adoption gets ``map_version``.

    A report that cannot be true beside an earlier one is refused.
    """
    move = state.moves.get(command.move_id)
    if command.report is Report.UNRECORDED:
        return _decide_unrecorded(state, command)
    if move is None:
        return _no_such_move(command.move_id)
    is_target = command.report in (Report.COPYING, Report.ADOPTED, Report.REFUSED)
    sender = move.to_shard if is_target else move.from_shard
    if command.shard_id not in move.shards or (
        command.shard_id != sender and command.report is not Report.CLEANED
    ):
        return Rejected(
            RejectionCode.NOT_ALLOWED,
            f"shard {command.shard_id} cannot report move {move.move_id} as {command.report}",
        )
    if command.report is Report.ADOPTED:
        return _decide_adopted(move, command, map_version)
    if command.shard_id != sender or command.report not in _STEPS:
        # Of cleaning at a shard that refused nobody keeps a record.
        return Accepted(())
    step = _STEPS[command.report]
    if move.phase in step.before:
        reason = _short(command.reason) or move.reason
        return _changed(move, phase=step.phase, reason=reason)
    return Accepted(()) if move.phase in step.after else _contradiction(move, command)


def evolve(state: SlotMoves, event: SlotMoveChanged) -> SlotMoves:
    """Return the moves after ``event``; the oldest finished ones beyond a bound are forgotten."""
    moves = {**state.moves, event.move.move_id: event.move}
    for move_id in forgotten(moves.values()):
        del moves[move_id]
    return SlotMoves(moves)


def forgotten(moves: Iterable[SlotMove]) -> list[int]:
    """Return the ids of the finished moves that are too many, the oldest first."""
    finished = sorted(move.move_id for move in moves if move.is_finished)
    return finished[: max(0, len(finished) - SLOT_MOVES_KEPT)]


def _decide_unrecorded(
    state: SlotMoves, command: TakeMoveReport
) -> Accepted[SlotMoveChanged] | Rejected:
    """Record a move that lost replicas had recorded: its id is of an earlier generation. Others
    that are not known have finished and are forgotten."""
    if command.move_id in state.moves:
        return Accepted(())
    if generation_of(command.move_id) >= generation_of(state.next_id):
        return _no_such_move(command.move_id)
    mistake = mistake_in(command.ranges)
    if mistake or command.shard_id not in (command.from_shard, command.to_shard):
        why = mistake or f"shard {command.shard_id} takes no part in move {command.move_id}"
        return Rejected(RejectionCode.NOT_ALLOWED, why)
    move = SlotMove(
        command.move_id,
        command.ranges,
        command.from_shard,
        command.to_shard,
        MovePhase.STOPPING,
        LOST,
    )
    return Accepted((SlotMoveChanged(move),))


def _decide_adopted(
    move: SlotMove, command: TakeMoveReport, map_version: int
) -> Accepted[SlotMoveChanged] | Rejected:
    positions = (command.from_position, command.to_position)
    if not all(0 < position <= STORED_INTEGER_MAX for position in positions):
        return Rejected(
            RejectionCode.NOT_ALLOWED, f"move {move.move_id} was not adopted at {positions}"
        )
    if move.phase in OPEN:
        return _changed(
            move,
            phase=MovePhase.ADOPTED,
            reason="",
            from_position=command.from_position,
            to_position=command.to_position,
            shard_map_version=map_version,
        )
    if positions == (move.from_position, move.to_position):
        return Accepted(())
    return _contradiction(move, command)


def _refused(state: SlotMoves, shard_map: ShardMap | None, command: PlanMove) -> Rejected | None:
    mistake = mistake_in(command.ranges)
    if mistake:
        return Rejected(RejectionCode.NOT_ALLOWED, mistake)
    if len(command.ranges) > SLOT_MOVE_RANGES_MAX:
        return Rejected(
            RejectionCode.LIMIT_EXCEEDED,
            f"one move has {len(command.ranges)} ranges of slots, at most {SLOT_MOVE_RANGES_MAX} "
            "are allowed",
        )
    if command.from_shard == command.to_shard:
        return Rejected(
            RejectionCode.NOT_ALLOWED, f"shard {command.to_shard} has these slots already"
        )
    for shard_id in (command.from_shard, command.to_shard):
        if shard_map is None or shard_map.placement(shard_id) is None:
            return Rejected(RejectionCode.NOT_FOUND, f"there is no shard {shard_id} in the map")
        busy = state.of_shard(shard_id)
        if busy is not None:
            return Rejected(
                RejectionCode.NOT_ALLOWED,
                f"shard {shard_id} takes part in move {busy.move_id} of slots "
                f"{shown(busy.ranges)}: a shard moves slots once at a time",
            )
    assert shard_map is not None, "both shards are in it"
    owners = shard_map.table.owners
    for slot in slots_of(command.ranges):
        if owners[slot] != command.from_shard:
            return Rejected(
                RejectionCode.NOT_ALLOWED,
                f"shard {command.from_shard} cannot give slot {slot}, shard {owners[slot]} has it",
            )
    return None


def _changed(move: SlotMove, **values: Any) -> Accepted[SlotMoveChanged]:
    return Accepted((SlotMoveChanged(replace(move, **values)),))


def _short(reason: str) -> str:
    return reason[:SLOT_MOVE_REASON_CHARACTERS_MAX]


def _no_such_move(move_id: int) -> Rejected:
    return Rejected(RejectionCode.NOT_FOUND, f"there is no move {move_id} of slots")


def _contradiction(move: SlotMove, command: TakeMoveReport) -> Rejected:
    return Rejected(
        RejectionCode.STALE_EPOCH,
        f"shard {command.shard_id} reports move {move.move_id} as {command.report}, "
        f"but it is {move.phase}",
    )
