"""The source's answers in a move of slots: rows to copy, and the release. One per term.

    copy      committed rows of the scan, and what the log changed behind the asker's position
    release   wait for what is under way ─▶ SlotsReleased, in one step ─▶ the last changed rows

Nothing of a move is remembered here but in the log, so the next leader answers as this one would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import structlog

from nextgen.kernel.errors import InvalidRequest, Refused, Unavailable
from nextgen.kernel.events.decider import Accepted
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.limits.snapshot import (
    COPY_BYTES_MAX,
    COPY_LOOKED_AT,
    COPY_ROWS_MAX,
    QUIESCE_MS_MAX,
    RELEASE_EVENTS_MAX,
    RELEASE_KEYS_MAX,
)
from protos.nextgen.v1 import events_pb2
from protos.nextgen.v1.shard_service_pb2 import (
    CopySlotsRequest,
    CopySlotsResponse,
    ReleaseSlotsRequest,
    ReleaseSlotsResponse,
)
from shards.domain.shard import Shard
from shards.domain.slot_moves.decider import ReleaseSlots, decide, has_outgoing, moves_under_way
from shards.domain.slot_moves.keys import MOVING_KINDS
from shards.domain.slots.events import SCAN_DONE, SlotRanges, within
from shards.domain.states import StateKind
from shards.projections.rows import Query
from shards.slots.slot_scan import ScanPlace, SlotScan
from shards.slots.touched_keys import TouchedKeys, TouchedScan
from shards.slots.unit_counts import count_units
from shards.state.shard_state import ShardState
from shards.wire.slot_event import UNITS, from_ranges, to_row

_ROWS_AT_ONCE = 64
"""Rows read and encoded in one turn of the loop."""

_LOOK_AGAIN_S = 0.02
_NO_END = 1 << 62
"""Keys behind a release: it was refused if there were many."""

IsBusy = Callable[[SlotRanges], bool]
"""Returns whether something is under way in the slots that should end before they are released."""

_KINDS = frozenset(kind.value for kind in MOVING_KINDS)
_logger = structlog.get_logger(__name__)


class SlotSource:
    """Answers ``CopySlots`` and ``ReleaseSlots`` for one shard, for one term.

    ``is_busy`` is asked before slots are released, and begins nothing new in them for a while;
    ``on_left`` is called, with the shard that gets them, in the step that releases them.
    """

    def __init__(
        self,
        state: ShardState,
        query: Query,
        *,
        is_busy: IsBusy = lambda _ranges: False,
        on_left: Callable[[SlotRanges, int], None] = lambda _ranges, _to_shard: None,
    ) -> None:
        self._state = state
        self._query = query
        self._is_busy = is_busy
        self._on_left = on_left

    def __repr__(self) -> str:
        return f"<SlotSource shard={self._state.shard_id}>"

    async def copy(self, request: CopySlotsRequest) -> CopySlotsResponse:
        """Return rows of the slots, as they are committed.

        Their states are those of ``tail_position`` of the answer, or later.

        Raises:
            Refused: The shard does not have the slots, or the move is over.
            PositionCompacted: What changed behind the asker's position is not known any more.
        """
        ranges, place = _checked(request)
        self._check_has(request.move_id, ranges)
        log = self._state.log
        if not request.tail_position:
            return CopySlotsResponse(tail_position=log.applied_point.position)
        # A leader that was replaced must not answer states older than those the asker has.
        await log.wait_position(request.tail_position)
        applied = log.applied_point.position
        scan = SlotScan(self._query, ranges)
        answer = CopySlotsResponse()
        room = _Room(min(request.rows_max or COPY_ROWS_MAX, COPY_ROWS_MAX))
        touched = await self._changed(request, scan, applied, room)
        answer.tail_position = touched.position
        answer.is_behind = touched.position < applied and not touched.released_at
        place = await self._scan(room, scan, place)
        answer.rows.extend(room.rows)
        answer.scanned_kind, answer.scanned_after = place.kind, place.after
        self._state.term.check()
        return answer

    async def release(self, request: ReleaseSlotsRequest) -> ReleaseSlotsResponse:
        """Release the slots, once; return where, and the rows that changed behind the asker's
        position. Repeated, it is answered from the log.

        Raises:
            Refused: The shard does not have the slots, or the move is over.
            PositionCompacted: As ``copy``. If the slots are released, they stay so.
            ProposalLost: Indefinite. Ask again.
        """
        ranges, _ = _checked(request)
        state = self._state
        scan = SlotScan(self._query, ranges)
        if not has_outgoing(self._own(), request.move_id):
            self._check_has(request.move_id, ranges)
            if not await self._is_quiet(request, scan, ranges):
                return ReleaseSlotsResponse(is_early=True)
            await self._release(request, scan, ranges)
        else:
            await state.proposer.confirm()
        return await self._released(request, scan)

    async def _is_quiet(
        self, request: ReleaseSlotsRequest, scan: SlotScan, ranges: SlotRanges
    ) -> bool:
        """Return whether little has changed, once nothing is under way in the slots."""
        log, loop = self._state.log, asyncio.get_running_loop()
        until = loop.time() + QUIESCE_MS_MAX / 1000
        while self._is_busy(ranges):
            if loop.time() >= until:
                return False
            await asyncio.sleep(_LOOK_AGAIN_S)
        if log.commit_position - request.tail_position > RELEASE_EVENTS_MAX:
            return False
        touched = await self._touched(
            scan,
            request.move_id,
            request.tail_position,
            log.commit_position,
            RELEASE_KEYS_MAX + 1,
        )
        return len(touched.keys) <= RELEASE_KEYS_MAX and not self._is_busy(ranges)

    async def _release(
        self, request: ReleaseSlotsRequest, scan: SlotScan, ranges: SlotRanges
    ) -> None:
        state = self._state
        # From here to the proposal nothing is awaited: no other decision comes in between.
        session_units, tenant_units = count_units(self._query, state.cache, scan, ranges)
        command = ReleaseSlots(
            request.move_id,
            ranges,
            request.to_shard,
            session_units,
            tenant_units,
            state.least_epoch,
        )
        decision = decide(self._own(), command)
        if not isinstance(decision, Accepted):
            raise Refused(decision.code, decision.message)
        if not decision.events:
            await state.proposer.confirm()  # Another request has just released them.
            return
        commit = state.proposer.propose(decision.events)
        self._on_left(ranges, request.to_shard)
        at = (await commit).first_position
        _logger.info(
            "slots released",
            shard=state.shard_id,
            move=request.move_id,
            to_shard=request.to_shard,
            position=at,
        )

    async def _released(self, request: ReleaseSlotsRequest, scan: SlotScan) -> ReleaseSlotsResponse:
        """Return the answer to a release that is committed."""
        log = self._state.log
        touched = TouchedScan(log, scan, request.move_id, request.tail_position)
        while not touched.found.released_at:
            more = touched.read_on(log.commit_position, _NO_END)
            if not more and not touched.found.released_at:
                raise Unavailable(f"the release of move {request.move_id} is not in the log yet")
            await asyncio.sleep(0)
        await log.wait_position(touched.found.released_at)
        outgoing = next(
            (each for each in self._own().outgoing if each.move_id == request.move_id), None
        )
        if outgoing is None:
            raise Refused("NOT_ALLOWED", f"move {request.move_id} is over")
        # Nothing changes in these slots behind the release, so the states are those of then.
        answer = ReleaseSlotsResponse(
            from_position=touched.found.released_at,
            session_units=[UNITS.to_stored(each) for each in outgoing.session_units],
            tenant_units=[UNITS.to_stored(each) for each in outgoing.tenant_units],
            least_epoch=outgoing.least_epoch,
        )
        for some in _chunks(list(touched.found.keys)):
            answer.rows.extend(map(to_row, scan.rows(some)))
            await asyncio.sleep(0)
        self._state.term.check()
        return answer

    # Rows -------------------------------------------------------------------------------------

    async def _touched(
        self, scan: SlotScan, move_id: int, position: int, to_position: int, keys_max: int
    ) -> TouchedKeys:
        touched = TouchedScan(self._state.log, scan, move_id, position)
        is_more = touched.read_on(to_position, keys_max)
        while is_more:
            await asyncio.sleep(0)
            is_more = touched.read_on(to_position, keys_max)
        return touched.found

    async def _changed(
        self, request: CopySlotsRequest, scan: SlotScan, applied: int, room: _Room
    ) -> TouchedKeys:
        """Add the rows that the log changed behind the asker's position, so many as fit."""
        keys_max = room.rows_left
        while True:
            touched = await self._touched(
                scan, request.move_id, request.tail_position, applied, keys_max
            )
            room.clear()
            for some in _chunks(list(touched.keys)):
                for row in scan.rows(some):
                    room.take(to_row(row))
                await asyncio.sleep(0)
            if room.has_bytes_left or keys_max == 1:
                return touched
            # Large rows. What one record changed goes together.
            keys_max = max(1, keys_max // 4)

    async def _scan(self, room: _Room, scan: SlotScan, place: ScanPlace) -> ScanPlace:
        """Add rows behind ``place`` while there is room; return up to where they are added."""
        looked_at = 0
        while not place.is_done and room.is_left and looked_at < COPY_LOOKED_AT:
            self._state.term.check()
            found = scan.slice(place, room.rows_left)
            looked_at += found.looked_at
            added = await self._add(room, scan, [(found.kind, key) for key in found.keys])
            if added < len(found.keys):
                return ScanPlace(found.kind.value, found.keys[added - 1])
            place = found.next
            await asyncio.sleep(0)
        return place

    async def _add(self, room: _Room, scan: SlotScan, keys: Sequence[tuple[StateKind, str]]) -> int:
        """Add the rows under ``keys``, in order, while there is room; return how many."""
        added = 0
        for some in _chunks(keys):
            for row in scan.rows(some):
                if added and not room.is_left:
                    return added
                room.take(to_row(row))
                added += 1
            await asyncio.sleep(0)
        return added

    # Checks -----------------------------------------------------------------------------------

    def _own(self) -> Shard:
        own = self._state.reads.load_shard()
        assert own is not None, "a leader has adopted its slots"
        return own

    def _check_has(self, move_id: int, ranges: SlotRanges) -> None:
        own = self._own()
        if has_outgoing(own, move_id):
            return
        if move_id <= own.settled_move_id:
            raise Refused("NOT_ALLOWED", f"move {move_id} is over in shard {self._state.shard_id}")
        others = moves_under_way(own)
        if others or own.is_restoring:
            busy = f"move {others[0]}" if others else "a restore from a backup"
            raise Unavailable(f"shard {self._state.shard_id}: {busy} has not ended")
        if not within(ranges, own.ranges):
            raise Refused(
                "NOT_ALLOWED", f"shard {self._state.shard_id} does not have all slots of the move"
            )


class _Room:
    """The rows of an answer, and what it may still take."""

    def __init__(self, rows_max: int) -> None:
        self.rows: list[events_pb2.SlotRow] = []
        self._rows_max = rows_max
        self._bytes = 0

    @property
    def rows_left(self) -> int:
        return max(0, self._rows_max - len(self.rows))

    @property
    def has_bytes_left(self) -> bool:
        return self._bytes < COPY_BYTES_MAX

    @property
    def is_left(self) -> bool:
        return self.rows_left > 0 and self.has_bytes_left

    def take(self, row: events_pb2.SlotRow) -> None:
        self.rows.append(row)
        self._bytes += row.ByteSize()

    def clear(self) -> None:
        self.rows, self._bytes = [], 0


def _checked(request: CopySlotsRequest | ReleaseSlotsRequest) -> tuple[SlotRanges, ScanPlace]:
    """Return the slots of a request and, of a copy, where its scan goes on.

    Raises:
        InvalidRequest: It is none.
    """
    ranges = from_ranges(request.ranges)
    before = -1
    for first, last in ranges:
        if not before < first <= last < SLOT_COUNT:
            raise InvalidRequest(f"{first}-{last} is no range of slots behind {before}")
        before = last
    if not ranges or not request.move_id:
        raise InvalidRequest("a move has an id and slots")
    if isinstance(request, ReleaseSlotsRequest):
        if not request.tail_position or not request.to_shard:
            raise InvalidRequest("slots are released to a shard that has copied them")
        return ranges, ScanPlace(SCAN_DONE)
    if not request.scanned_kind:
        return ranges, ScanPlace()
    if request.scanned_kind != SCAN_DONE and request.scanned_kind not in _KINDS:
        raise InvalidRequest(f"no rows of kind {request.scanned_kind} move")
    return ranges, ScanPlace(request.scanned_kind, request.scanned_after)


def _chunks(
    keys: Sequence[tuple[StateKind, str]],
) -> Iterator[list[tuple[StateKind, str]]]:
    rest = iter(keys)
    while some := list(islice(rest, _ROWS_AT_ONCE)):
        yield some
