"""Carries on the moves of slots in which a shard takes part: one instance per leadership term.

    pushed, new leader, reconnected ──▶ look ──▶ one step ──▶ report ──▶ look …
                                          └─▶ has to wait: look again after LOOK_AGAIN_S

The only state between steps is the shard's log and the cluster manager's record, and both outlive
this process: if a leader dies, the next one makes the remaining steps. Which step that is says
``domain/slot_moves/steps``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.events.decider import Accepted
from nextgen.tasks.background import keep
from protos.nextgen.v1.cluster_service_pb2 import SlotMoveReport
from protos.nextgen.v1.events_pb2 import SlotsAdopted
from shards.domain.shard import Shard
from shards.domain.slot_moves.decider import ReclaimSlots, decide
from shards.domain.slot_moves.steps import (
    MovePhase,
    MoveStep,
    SlotMove,
    due_report,
    next_step,
    unrecorded,
)
from shards.domain.slots.events import SlotRanges
from shards.ports import Cancellable, Clock
from shards.projections.rows import Query
from shards.slots.adoption_record import find_adoption
from shards.slots.ports import SlotMoves
from shards.slots.row_removal import remove_rows
from shards.slots.slot_copy import MoveIsHopeless, SlotCopy
from shards.state.shard_state import ShardState
from shards.wire.slot_event import to_ranges

LOOK_AGAIN_S = 0.25
"""Seconds between two attempts at a step that has to wait."""

REPORT_AGAIN_S = 1.0
"""Seconds until a report is sent again that the cluster manager does not seem to have."""

_PROGRESS_EVERY_S = 2.0

_logger = structlog.get_logger(__name__)


class SlotKeeper:
    """Owned by the leader of ``state``'s shard. ``on_coming`` is called with slots in the step that
    proposes to have them, ``on_came`` when that is committed."""

    def __init__(
        self,
        state: ShardState,
        query: Query,
        moves: SlotMoves,
        clock: Clock,
        *,
        on_coming: Callable[[SlotRanges], None] = lambda _ranges: None,
        on_came: Callable[[SlotRanges], None] = lambda _ranges: None,
    ) -> None:
        self.waits_for = ""
        """What the next step waits for, empty if nothing does."""
        self._shard_id = state.shard_id
        self._state = state
        self._query = query
        self._moves = moves
        self._clock = clock
        self._on_coming = on_coming
        self._on_came = on_came
        self._changed = asyncio.Event()
        self._reported: dict[int, tuple[str, float]] = {}
        self._adopted: dict[int, tuple[int, SlotsAdopted]] = {}
        """By move: where this log adopted its slots, and the event."""
        self._reasons: dict[int, str] = {}
        """By move: why this leader has refused it. Its log has the reason too."""
        self._unsubscribe: Callable[[], None] | None = None
        self._timer: Cancellable | None = None
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<SlotKeeper shard={self._shard_id} {self.waits_for or 'idle'}>"

    def start(self) -> None:
        """Go on with what the log and the cluster manager say."""
        self._unsubscribe = self._moves.on_change(self._on_change)
        self._task = keep("slot_moves", self._run)
        self._changed.set()

    def close(self) -> asyncio.Task[None] | None:
        """Make no further step. Returns the cancelled task, which the caller may await."""
        self._drop_timer()
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        return task

    def _on_change(self) -> None:
        # The cluster manager may be another one: what was reported is reported again.
        self._reported.clear()
        self._changed.set()

    async def _run(self) -> None:
        while not self._state.term.is_over:
            await self._changed.wait()
            self._changed.clear()
            self._drop_timer()
            try:
                await self._approach()
            except MetadataError as error:
                if self._state.term.is_over:
                    return  # The next leader has a keeper of its own.
                self._wait(LOOK_AGAIN_S, str(error))

    async def _approach(self) -> None:
        """Make steps until none is left, or the next one has to wait."""
        await self._remove_refused()
        waits = ""
        for move in self._moves.of_shard(self._shard_id):
            try:
                while (step := next_step(self._shard_id, self._own(), move)) is not (
                    MoveStep.NOTHING
                ):
                    await self._make(step, move)
            except MetadataError as error:
                # One move that waits keeps no other from going on, or from being reported.
                self._state.term.check()
                waits = f"move {move.move_id}: {error}"
            await self._report(move)
        await self._describe_unrecorded()
        self._waiting_for(waits)
        if waits:
            self._wait(LOOK_AGAIN_S, waits)
        elif self._reported:
            self._wait(REPORT_AGAIN_S, "")

    async def _make(self, step: MoveStep, move: SlotMove) -> None:
        match step:
            case MoveStep.COPY:
                await self._copy(move)
            case MoveStep.REFUSE:
                await self._copy_of(move).refuse(move.reason or "it was stopped")
                await self._report(move)  # Before the rows go: its source waits for it.
            case MoveStep.RECLAIM:
                await self._reclaim(move)
            case MoveStep.REMOVE_ROWS:
                await self._report(move)
                await remove_rows(self._state, self._query, move.move_id, move.ranges)
            case _:
                raise AssertionError(f"{step} is no step")

    async def _copy(self, move: SlotMove) -> None:
        copy = self._copy_of(move)
        try:
            position = await copy.run()
        except MoveIsHopeless as error:
            self._reasons[move.move_id] = str(error)
            await copy.refuse(str(error))
            await self._report(move)
            return
        if position:
            _logger.info(
                "slots adopted",
                shard=self._shard_id,
                move=move.move_id,
                position=position,
                rows=copy.rows_copied,
                frozen_ms=round(copy.frozen_ms, 1),
            )
            self._on_came(move.ranges)

    async def _reclaim(self, move: SlotMove) -> None:
        decision = decide(self._own(), ReclaimSlots(move.move_id))
        if not isinstance(decision, Accepted):
            raise Refused(decision.code, decision.message)
        if decision.events:
            commit = self._state.proposer.propose(decision.events)
            self._on_coming(move.ranges)
            await commit
            self._on_came(move.ranges)

    async def _remove_refused(self) -> None:
        """Remove what earlier moves left, which the cluster manager may have forgotten."""
        for incoming in self._own().incoming:
            if incoming.is_refused:
                try:
                    await remove_rows(self._state, self._query, incoming.move_id, incoming.ranges)
                except MetadataError as error:
                    self._state.term.check()
                    self._wait(LOOK_AGAIN_S, str(error))
                    return

    def _copy_of(self, move: SlotMove) -> SlotCopy:
        last_s = self._clock.monotonic()

        def on_rows(rows: int) -> None:
            nonlocal last_s
            if self._clock.monotonic() - last_s >= _PROGRESS_EVERY_S:
                last_s = self._clock.monotonic()
                self._send(move, "copying", rows_copied=rows)

        return SlotCopy(
            move,
            self._state,
            self._query,
            self._moves,
            lambda: self._is_planned(move.move_id),
            on_rows=on_rows,
            on_coming=self._on_coming,
        )

    def _is_planned(self, move_id: int) -> bool:
        known = self._moves.of_shard(self._shard_id)
        return any(each.move_id == move_id and each.phase is MovePhase.PLANNED for each in known)

    # Reports ----------------------------------------------------------------------------------

    async def _report(self, move: SlotMove) -> None:
        """Tell the cluster manager what it does not know of ``move``, once in a while."""
        phase = due_report(self._shard_id, self._own(), move)
        if not phase:
            self._reported.pop(move.move_id, None)
            return
        now = self._clock.monotonic()
        before = self._reported.get(move.move_id)
        if before is not None and before[0] == phase and now < before[1] + REPORT_AGAIN_S:
            return
        if phase == "adopted":
            # Only what is committed is reported: the record may be an earlier leader's.
            await self._state.proposer.confirm()
            position, adopted = await self._adoption(move.move_id)
            came = next(each for each in self._own().came if each.move_id == move.move_id)
            self._send(
                move,
                phase,
                from_position=came.from_position,
                to_position=position,
                session_units=adopted.session_units,
            )
        else:
            await self._state.proposer.confirm()
            self._send(move, phase, reason=self._reasons.get(move.move_id) or move.reason)
        self._reported[move.move_id] = (phase, now)

    async def _describe_unrecorded(self) -> None:
        """Describe to the cluster manager the moves that it has lost, once in a while."""
        if not self._moves.map_version:
            return
        recorded = {each.move_id for each in self._moves.of_shard(self._shard_id)}
        mapped = self._moves.slots_of(self._shard_id)
        now = self._clock.monotonic()
        for move in tuple(unrecorded(self._shard_id, self._own(), recorded, mapped)):
            before = self._reported.get(move.move_id)
            if before is not None and now < before[1] + REPORT_AGAIN_S:
                continue
            await self._state.proposer.confirm()
            self._send(
                move,
                "unrecorded",
                ranges=to_ranges(move.ranges),
                from_shard=move.from_shard,
                to_shard=move.to_shard,
            )
            self._reported[move.move_id] = ("unrecorded", now)

    async def _adoption(self, move_id: int) -> tuple[int, SlotsAdopted]:
        if move_id not in self._adopted:
            self._adopted[move_id] = await find_adoption(self._state.log, move_id)
        return self._adopted[move_id]

    def _send(self, move: SlotMove, phase: str, **fields: object) -> None:
        report = SlotMoveReport(
            move_id=move.move_id,
            shard_id=self._shard_id,
            term=self._state.term.number,
            phase=phase,
            **fields,  # type: ignore[arg-type]
        )
        self._moves.report(report)

    # Waiting ----------------------------------------------------------------------------------

    def _own(self) -> Shard:
        own = self._state.reads.load_shard()
        assert own is not None, "a leader has adopted its slots"
        return own

    def _wait(self, seconds: float, why: str) -> None:
        self._waiting_for(why)
        self._drop_timer()
        due = self._clock.monotonic() + seconds
        self._timer = self._clock.call_at(due, self._changed.set)

    def _waiting_for(self, why: str) -> None:
        if why and why != self.waits_for:
            _logger.info("a move of slots waits", shard=self._shard_id, why=why)
        self.waits_for = why

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
