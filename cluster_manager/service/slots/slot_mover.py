"""Carries out plans: begins moves, takes reports of them, and stops those that do not get on.

Nothing but the reports' progress is kept here: what is left of a plan follows from the map. So each
leader of the cluster manager goes on where the one before it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog

from cluster_manager import wire
from cluster_manager.domain.cluster import (
    ClusterEvent,
    ClusterState,
    decide_begin_move,
    decide_move_report,
    decide_stop_move,
    fold_events,
)
from cluster_manager.domain.slot_moves.driver import Next, next_moves
from cluster_manager.domain.slot_moves.moves import MovePhase, Report, StopMove
from cluster_manager.domain.slot_moves.plans import Plan, ended
from cluster_manager.ports import Clock
from cluster_manager.service.connection import NodeConnection
from cluster_manager.service.slots.size_board import SizeBoard
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import Accepted, Rejected
from nextgen.kernel.limits.placement import SHARD_SIZE_WAIT_MS, SLOT_MOVE_STALLED_MS
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb

LOOK_MS = 1_000
"""Between two looks while a plan or a move is under way and nothing changes: what could not be
proposed is tried again, and moves that do not get on are found."""

_logger = structlog.get_logger(__name__)


class Term(Protocol):
    """The part of the leader's term that is used here."""

    pending: ClusterState
    committed: ClusterState

    def propose(self, events: Sequence[ClusterEvent]) -> object: ...

    def led_shards(self) -> Mapping[int, str]:
        """Return the leading node of each shard that is known to have a leader."""
        ...


class SlotMover:
    """Moves slots as the present plan wants it. One instance per term."""

    def __init__(self, term: Term, clock: Clock) -> None:
        self._term = term
        self._clock = clock
        self.sizes = SizeBoard(clock)
        self._heard_ms: dict[int, int] = {}
        self._rows_copied: dict[int, int] = {}
        self._cancel_timer: Callable[[], None] | None = None
        self._is_stopped = False
        self._began_ms = clock.monotonic_ms()

    def __repr__(self) -> str:
        return f"<SlotMover moves={len(self._term.pending.slot_moves.under_way)} {self.sizes!r}>"

    def stop(self) -> None:
        """Propose nothing more."""
        self._is_stopped = True
        self._drop_timer()

    def rows_copied(self, move_id: int) -> int:
        """Return the rows that a move has copied, as last reported in this term."""
        return self._rows_copied.get(move_id, 0)

    def next_step(self, plan: Plan) -> Next:
        """Return what the plan needs next."""
        state = self._term.pending
        assert state.shard_map is not None, "a plan was made without a map"
        return next_moves(
            plan,
            state.slot_moves,
            state.shard_map,
            self._term.led_shards().keys(),
            self.sizes.rows(),
            needs_rows=self._clock.monotonic_ms() - self._began_ms < SHARD_SIZE_WAIT_MS,
        )

    def committed(self, before: ClusterState) -> None:
        """Look if a commit has changed anything here: ``before`` is the state without it."""
        after = self._term.committed
        if (
            after.plans is not before.plans
            or after.slot_moves is not before.slot_moves
            or after.shard_map is not before.shard_map
        ):
            self.look()

    def look(self) -> None:
        """Do what is due. Call it after each change of plans, moves, the map or leaders."""
        if self._is_stopped:
            return
        self._drop_timer()
        state = self._term.pending
        plan, moves = state.plans.present, state.slot_moves.under_way
        if plan is None and not moves:
            self._heard_ms.clear()
            self._rows_copied.clear()
            return
        self._cancel_timer = self._clock.call_at(self._clock.monotonic_ms() + LOOK_MS, self.look)
        events = self._stalled()
        if not events and plan is not None:
            events = self._planned(plan)
        if events:
            self._try_propose(events)

    def take_sizes(
        self, node_id: str, report: cluster_pb.ShardSizes, shard_ids: Sequence[int]
    ) -> None:
        """Take a node's report of sizes, which a plan may wait for."""
        had = self.sizes.rows().keys()
        self.sizes.take(node_id, report, shard_ids)
        if self.sizes.rows().keys() != had:
            self.look()

    def take_report(self, connection: NodeConnection, report: cluster_pb.SlotMoveReport) -> None:
        """Record a shard's report; the commit is pushed to nodes.

        What changes nothing is answered with the record, to the sender alone.

        Raises:
            InvalidRequest: It says something that this release does not know.
            NotLeader, Overloaded, Refused: Nothing was recorded; the sender must repeat the report.
        """
        command = wire.move_report_from_proto(report)
        move = self._term.pending.slot_moves.moves.get(command.move_id)
        if move is not None and command.shard_id in move.shards:
            self._heard_ms[command.move_id] = self._clock.monotonic_ms()
            if command.report is Report.COPYING:
                self._rows_copied[command.move_id] = report.rows_copied
        decision = decide_move_report(self._term.pending, command)
        if isinstance(decision, Rejected):
            _logger.warning(
                "report of a move refused",
                move=command.move_id,
                shard=command.shard_id,
                why=decision.message,
            )
        elif decision.events:
            _logger.info(
                "slots move",
                move=command.move_id,
                shard=command.shard_id,
                report=command.report.value,
                why=command.reason,
            )
            self._term.propose(decision.events)
            return
        if command.report is not Report.COPYING:
            self._answer(connection, command.move_id)

    # Inside -----------------------------------------------------------------------------------

    def _answer(self, connection: NodeConnection, move_id: int) -> None:
        recorded = self._term.committed.slot_moves.moves.get(move_id)
        if recorded is not None:
            moves = [wire.move_to_proto(recorded)]
            connection.push(cluster_pb.ClusterUpdate(slot_moves=moves))

    def _planned(self, plan: Plan) -> tuple[ClusterEvent, ...]:
        """Return the events of the moves that may begin, or of the plan's end."""
        step = self.next_step(plan)
        if step.has_ended:
            over = ended(plan, self._clock.unix_ms())
            _logger.info("plan ended", plan=plan.plan_id, phase=over.plan.phase.value)
            return (over,)
        state = self._term.pending
        events: list[ClusterEvent] = []
        for command in step.moves:
            decision = decide_begin_move(state, command)
            assert isinstance(decision, Accepted), f"the plan's move is impossible: {decision}"
            state = fold_events(state, decision.events)
            events.extend(decision.events)
        return tuple(events)

    def _stalled(self) -> tuple[ClusterEvent, ...]:
        """Return the events that stop the first move of which nothing was heard for too long."""
        now_ms = self._clock.monotonic_ms()
        for move in self._term.pending.slot_moves.under_way:
            heard_ms = self._heard_ms.setdefault(move.move_id, now_ms)
            if move.phase is not MovePhase.PLANNED or now_ms - heard_ms < SLOT_MOVE_STALLED_MS:
                continue
            reason = f"nothing was heard of move {move.move_id} for {SLOT_MOVE_STALLED_MS} ms"
            _logger.warning("move stopped", move=move.move_id, why=reason)
            decision = decide_stop_move(self._term.pending, StopMove(move.move_id, reason))
            assert isinstance(decision, Accepted), "a planned move can be stopped"
            return decision.events
        return ()

    def _try_propose(self, events: Sequence[ClusterEvent]) -> None:
        try:
            self._term.propose(events)
        except MetadataError as error:
            _logger.info("slots do not move yet", why=str(error))

    def _drop_timer(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None
