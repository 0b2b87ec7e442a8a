"""The target's part of one move of slots: copy, ask for the release, adopt.

    SlotsIncoming ─▶ SlotRowsCopied … ─▶ few changes are left ─▶ release ─▶ SlotsAdopted
                                                    ▲────── too early ──────┘

Where it stands is in the log, so the next leader goes on behind the last record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    PositionCompacted,
    Refused,
    Unavailable,
)
from nextgen.kernel.events.decider import Accepted
from nextgen.kernel.limits.snapshot import COPY_ROWS_MAX, RELEASE_KEYS_MAX
from protos.nextgen.v1 import events_pb2
from protos.nextgen.v1.shard_service_pb2 import (
    CopySlotsRequest,
    CopySlotsResponse,
    ReleaseSlotsRequest,
    ReleaseSlotsResponse,
)
from shards.domain.shard import Shard
from shards.domain.slot_moves.decider import (
    AdoptCame,
    BeginIncoming,
    CopyRows,
    RefuseSlots,
    SlotCommand,
    decide,
    has_adopted,
    incoming_of,
)
from shards.domain.slot_moves.keys import MOVING_KINDS
from shards.domain.slot_moves.steps import SlotMove
from shards.domain.slots.events import SCAN_DONE, IncomingSlots, SlotRanges, SlotRow, overlap
from shards.domain.states import StateKind
from shards.domain.topic import Topic
from shards.projections.rows import Query
from shards.slots.ports import SlotMoves
from shards.slots.slot_scan import SlotScan
from shards.state.shard_state import ShardState
from shards.wire.slot_event import UNITS, from_row, to_ranges

ANSWER_TIMEOUT_MS = 10_000
"""Time-out of one question to the source; a release waits for what is under way."""

PIN_TTL_MS = 120_000
_PIN_EVERY_S = 30.0
_EARLY_PAUSE_S = 0.25

_UNIT: StateKind = StateKind.ASSIGNMENT

_FINAL = (Refused, InvalidRequest, PositionCompacted)
"""What the source answers when asking again would not help."""

_logger = structlog.get_logger(__name__)


class MoveIsHopeless(Exception):
    """The move cannot go on: the target refuses it."""


class SlotCopy:
    """One move to this shard, for one term. ``is_wanted`` returns whether it still goes on, as far
    as the cluster manager has told; ``on_rows`` is told how many rows were copied in this
    term; ``on_coming`` is called in the step that proposes the adoption."""

    def __init__(
        self,
        move: SlotMove,
        state: ShardState,
        query: Query,
        moves: SlotMoves,
        is_wanted: Callable[[], bool],
        *,
        on_rows: Callable[[int], None] = lambda _rows: None,
        on_coming: Callable[[SlotRanges], None] = lambda _ranges: None,
    ) -> None:
        self.rows_copied = 0
        self.frozen_ms = 0.0
        """From the question for the release to the committed adoption: for less than this nobody
        decided about the slots."""
        self._move = move
        self._state = state
        self._moves = moves
        self._is_wanted = is_wanted
        self._on_rows = on_rows
        self._on_coming = on_coming
        self._scan = SlotScan(query, move.ranges)
        self._pin_at = 0.0

    def __repr__(self) -> str:
        return f"<SlotCopy move={self._move.move_id} rows={self.rows_copied}>"

    async def run(self) -> int:
        """Copy and adopt; return the position of ``SlotsAdopted``, 0 if that was in the log before.

        Raises:
            MoveIsHopeless: Refuse the move.
            MetadataError: For now: run again.
        """
        while True:
            self._check_wanted()
            own = self._own()
            if has_adopted(own, self._move.move_id):
                return 0
            incoming = incoming_of(own, self._move.move_id)
            if incoming is None:
                await self._begin()
                continue
            await self._pin(incoming.tail_position)
            answer = await self._copied(incoming)
            await self._take(answer)
            is_near = not answer.is_behind and len(answer.rows) <= RELEASE_KEYS_MAX
            if answer.scanned_kind != SCAN_DONE or not is_near:
                continue
            position = await self._adopt()
            if position:
                await self._unpin()
                return position
            await asyncio.sleep(_EARLY_PAUSE_S)

    async def refuse(self, reason: str) -> None:
        """Record that the slots are never adopted for this move.

        Raises:
            MetadataError: Not yet; or, ``Refused``, they are adopted.
        """
        await self._propose(RefuseSlots(self._move.move_id, reason))
        _logger.info(
            "slots refused", shard=self._state.shard_id, move=self._move.move_id, why=reason
        )
        await self._unpin()

    # Steps ------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        if overlap(self._move.ranges, self._own().ranges):
            raise MoveIsHopeless("this shard has slots of the move already")
        first = await self._ask_copy(CopySlotsRequest(move_id=self._move.move_id))
        if not first.tail_position:
            raise MoveIsHopeless("the source's log has no position")
        await self._pin(first.tail_position)
        self._check_wanted()
        await self._propose(
            BeginIncoming(
                self._move.move_id, self._move.ranges, self._move.from_shard, first.tail_position
            )
        )

    async def _copied(self, incoming: IncomingSlots) -> CopySlotsResponse:
        answer = await self._ask_copy(
            CopySlotsRequest(
                move_id=self._move.move_id,
                scanned_kind=incoming.scanned_kind,
                scanned_after=incoming.scanned_after,
                tail_position=incoming.tail_position,
                rows_max=COPY_ROWS_MAX,
            )
        )
        if answer.tail_position < incoming.tail_position:
            raise MoveIsHopeless(
                f"the source answers states of position {answer.tail_position}, those of "
                f"{incoming.tail_position} are here"
            )
        if _order(answer.scanned_kind, answer.scanned_after) < _order(
            incoming.scanned_kind or MOVING_KINDS[0].value, incoming.scanned_after
        ):
            raise MoveIsHopeless(f"the source's scan went back to {answer.scanned_kind}")
        return answer

    async def _take(self, answer: CopySlotsResponse) -> None:
        rows = self._rows(answer.rows)
        await self._propose(
            CopyRows(
                self._move.move_id,
                rows,
                answer.scanned_kind,
                answer.scanned_after,
                answer.tail_position,
            )
        )
        self.rows_copied += len(rows)
        self._on_rows(self.rows_copied)

    async def _adopt(self) -> int:
        """Have the slots released and adopt them; return where, 0 if it was too early."""
        trouble = self._state.log.status.disk_trouble
        if trouble:
            # Behind the release nobody decides about the slots before this log has taken a record.
            raise Unavailable(f"the slots wait for room on the disk: {trouble}")
        incoming = incoming_of(self._own(), self._move.move_id)
        assert incoming is not None, "rows were just copied"
        request = ReleaseSlotsRequest(
            move_id=self._move.move_id,
            ranges=to_ranges(self._move.ranges),
            to_shard=self._move.to_shard,
            tail_position=incoming.tail_position,
        )
        asked_at = self._state.monotonic()
        answer = await self._ask_release(request)
        if answer.is_early:
            return 0
        if not answer.from_position:
            raise MoveIsHopeless("the source names no position of its release")
        rows = self._rows(answer.rows)
        self._check_wanted()
        position = await self._propose(
            AdoptCame(
                self._move.move_id,
                rows,
                answer.from_position,
                self._moves.map_version,
                tuple([UNITS.from_stored(each) for each in answer.session_units]),
                tuple([UNITS.from_stored(each) for each in answer.tenant_units]),
                answer.least_epoch,
            )
        )
        self.frozen_ms = (self._state.monotonic() - asked_at) * 1_000
        return position

    # The source -------------------------------------------------------------------------------

    async def _ask_copy(self, request: CopySlotsRequest) -> CopySlotsResponse:
        request.ranges.extend(to_ranges(self._move.ranges))
        try:
            return await self._moves.copy(
                self._move.from_shard, request, timeout_ms=ANSWER_TIMEOUT_MS
            )
        except _FINAL as error:
            raise MoveIsHopeless(f"shard {self._move.from_shard}: {error}") from error

    async def _ask_release(self, request: ReleaseSlotsRequest) -> ReleaseSlotsResponse:
        try:
            return await self._moves.release(
                self._move.from_shard, request, timeout_ms=ANSWER_TIMEOUT_MS
            )
        except _FINAL as error:
            raise MoveIsHopeless(f"shard {self._move.from_shard}: {error}") from error

    async def _pin(self, position: int) -> None:
        now = self._state.monotonic()
        if now < self._pin_at:
            return
        self._pin_at = now + _PIN_EVERY_S
        await self._set_pin(position + 1, PIN_TTL_MS)

    async def _unpin(self) -> None:
        await self._set_pin(1, 0)

    async def _set_pin(self, position: int, ttl_ms: int) -> None:
        try:
            await self._moves.pin(
                self._move.from_shard, f"slots-{self._move.move_id}", position, ttl_ms
            )
        except MetadataError as error:
            # The log is long enough nearly always. If it is not, the source says so.
            _logger.info("the source's log is not pinned", move=self._move.move_id, why=str(error))

    # Rows -------------------------------------------------------------------------------------

    def _rows(self, stored: Sequence[events_pb2.SlotRow]) -> tuple[SlotRow, ...]:
        """Return the rows of an answer, and units of topics that are gone, each without a state."""
        rows: dict[tuple[StateKind, str], SlotRow] = {}
        for each in stored:
            try:
                row = from_row(each)
                kind = StateKind(row.kind)
                is_own = self._scan.has_row(kind, row)
            except (ValueError, KeyError, MetadataError) as error:
                raise MoveIsHopeless(f"the source's row is none: {error!r}") from error
            if not is_own:
                raise MoveIsHopeless(f"{kind} {row.key} is of no slot of the move")
            rows[kind, row.key] = row
        for key in self._gone_units(rows):
            rows[_UNIT, key] = SlotRow(_UNIT, key, None)
        return tuple(rows.values())

    def _gone_units(self, rows: dict[tuple[StateKind, str], SlotRow]) -> list[str]:
        """Return the keys of units here whose topic is deleted: the source's log removes them with
        the topic and names none."""
        kind: StateKind = StateKind.TOPIC
        named = [key for of_kind, key in rows if of_kind is kind]
        gone: list[str] = []
        for key, before in self._state.reads.load(kind, named).items():
            after = rows[kind, key].state
            if isinstance(before, Topic) and (
                not isinstance(after, Topic) or after.topic_id != before.topic_id
            ):
                gone += self._state.scans.assignments_of_topic(before.topic_id)
        return gone

    # The log ----------------------------------------------------------------------------------

    def _own(self) -> Shard:
        own = self._state.reads.load_shard()
        assert own is not None, "a leader has adopted its slots"
        return own

    def _check_wanted(self) -> None:
        if not self._is_wanted():
            raise Unavailable(f"move {self._move.move_id} is not planned any more")

    async def _propose(self, command: SlotCommand) -> int:
        """Decide and commit; return the position of the last event, 0 if there is nothing new."""
        decision = decide(self._own(), command)
        if not isinstance(decision, Accepted):
            raise Refused(decision.code, decision.message)
        if not decision.events:
            await self._state.proposer.confirm()
            return 0
        proposed = self._state.proposer.propose(decision.events, keeps_states=False)
        if isinstance(command, AdoptCame):
            self._on_coming(self._move.ranges)
        commit = await proposed
        return commit.first_position + len(decision.events) - 1


def _order(kind: str, after: str) -> tuple[int, str]:
    order = [each.value for each in MOVING_KINDS]
    if kind == SCAN_DONE:
        return len(order), ""
    if kind not in order:
        raise MoveIsHopeless(f"the source's scan is at a kind {kind!r}")
    return order.index(kind), after
