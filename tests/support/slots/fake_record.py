"""The cluster manager's record of one move, and what it pushes: its part of the handshake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from protos.nextgen.v1.cluster_service_pb2 import SlotMoveReport
from shards.domain.slot_moves.steps import MovePhase, SlotMove
from shards.domain.slots.events import SlotRanges, united, without
from shards.wire.slot_event import from_ranges

PUSH_EVERY_S = 2.0
"""A node that has missed a push is told all with the next connection."""

_AFTER = {
    ("adopted", MovePhase.PLANNED): MovePhase.ADOPTED,
    ("adopted", MovePhase.STOPPING): MovePhase.ADOPTED,
    ("refused", MovePhase.PLANNED): MovePhase.REFUSED,
    ("refused", MovePhase.STOPPING): MovePhase.REFUSED,
    ("reclaimed", MovePhase.REFUSED): MovePhase.TAKEN_BACK,
    ("cleaned", MovePhase.ADOPTED): MovePhase.DONE,
}


class FakeManager:
    """``push`` is called with a move whose record has changed. What it records is durable: while it
    is away it neither hears nor says anything."""

    def __init__(self, push: Callable[[SlotMove], None]) -> None:
        self.moves: dict[int, SlotMove] = {}
        self.is_away = False
        self.recoveries = 0
        self.reports: list[SlotMoveReport] = []
        self.history: list[tuple[int, MovePhase]] = []
        self._push = push

    def plan(self, move: SlotMove) -> None:
        self._record(move)

    def stop(self, move_id: int) -> bool:
        """Stop a move; return whether it was not too late."""
        move = self.moves[move_id]
        if self.is_away or move.phase is not MovePhase.PLANNED:
            return False
        self._record(replace(move, phase=MovePhase.STOPPING, reason="an operator stopped it"))
        return True

    def take(self, report: SlotMoveReport) -> None:
        if self.is_away:
            return
        self.reports.append(report)
        move = self.moves.get(report.move_id)
        if move is None:
            if self.recoveries and report.phase == "unrecorded":
                self._record(
                    SlotMove(
                        report.move_id,
                        from_ranges(report.ranges),
                        report.from_shard,
                        report.to_shard,
                        MovePhase.STOPPING,
                    )
                )
            return
        after = _AFTER.get((report.phase, move.phase))
        if after is not None:
            self._record(replace(move, phase=after))

    def recover(self) -> None:
        """Go on as one that was recovered from its last replica, which had no move yet."""
        self.moves.clear()
        self.recoveries += 1

    def slots_of(self, shard_id: int, first: SlotRanges) -> SlotRanges:
        """Return the slots of a shard by the map, in which it had ``first`` at the beginning."""
        slots = first
        for _, move in sorted(self.moves.items()):
            if move.phase in (MovePhase.ADOPTED, MovePhase.DONE):
                if move.to_shard == shard_id:
                    slots = united(slots, move.ranges)
                elif move.from_shard == shard_id:
                    slots = without(slots, move.ranges)
        return slots

    def push_all(self) -> None:
        if not self.is_away:
            for move in self.moves.values():
                self._push(move)

    def _record(self, move: SlotMove) -> None:
        self.moves[move.move_id] = move
        self.history.append((move.move_id, move.phase))
        self._push(move)
