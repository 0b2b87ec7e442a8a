"""The cluster manager's record of one move, and what it pushes: its part of the handshake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from protos.nextgen.v1.cluster_service_pb2 import SlotMoveReport
from shards.domain.slot_moves.steps import MovePhase, SlotMove

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
        move = self.moves[report.move_id]
        after = _AFTER.get((report.phase, move.phase))
        if after is not None:
            self._record(replace(move, phase=after))

    def push_all(self) -> None:
        if not self.is_away:
            for move in self.moves.values():
                self._push(move)

    def _record(self, move: SlotMove) -> None:
        self.moves[move.move_id] = move
        self.history.append((move.move_id, move.phase))
        self._push(move)
