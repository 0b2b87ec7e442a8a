"""The segments of one scalable topic as units: where each is served, and what its broker is asked.

look up (assigns an idle one) ─▶ call with the assignment's epoch ─▶ answer
                                     ╰ no answer for some time ─▶ moved: the next owner fences
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog

from nextgen.client.routing.topic_answers import checked
from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    MetadataError,
    Refused,
    Unavailable,
)
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.scalable import SEGMENT_UNREACHABLE_MS, SEGMENT_UNREACHABLE_MS_MAX
from nextgen.kernel.routing.names import TopicName
from nextgen.kernel.scalable.segments import Segment
from protos.nextgen.v1.inventory_pb2 import LookupAnswer, UnitAssignment
from protos.nextgen.v1.shard_service_pb2 import TopicMove, UnassignOutcome
from shards.domain.assignment import ASKED_BY_LAYOUT, REASON_UNLOADED
from shards.ports import Clock, SegmentUnit

_LOOKUP_MS = 1_000
_MOVE_MS = 500
"""A move is decided within milliseconds. It goes on when this time is over, while caches and the
old owner learn of it, and the next lookup finds where it went."""

_UNREACHABLE = (Unavailable, ConnectionLost, DeadlineExceeded)

_T = TypeVar("_T")

_logger = structlog.get_logger(__name__)


class SegmentLookups(Protocol):
    """The shard's own lookups; ``TopicController`` is one."""

    async def lookup(
        self, topics: Sequence[str], *, timeout_ms: int, may_be_planned: bool = False
    ) -> list[LookupAnswer]:
        """Return one answer per name, in order. Linearizable.

        Raises:
            MetadataError: There is none.
        """


class SegmentUnassigns(Protocol):
    """Ends assignments of the shard's units; ``UnitUnassigner`` is one."""

    async def unassign(self, units: Sequence[UnitAssignment], reason: str) -> list[UnassignOutcome]:
        """Return, in order, whether each unit was taken from its broker, or why not.

        Raises:
            MetadataError: Which of them were is unknown.
        """


class SegmentMoves(Protocol):
    """Moves of the shard's units; ``TopicMover`` makes them."""

    async def move(self, moves: Sequence[TopicMove], timeout_ms: int) -> list[LookupAnswer]:
        """Return the answer of each move, in order.

        Raises:
            MetadataError: Which of them were made is unknown.
        """


@dataclass(frozen=True, slots=True)
class _Silence:
    """A segment whose broker does not answer: in which epoch, since when, how long it may."""

    epoch: int
    since: float
    patience_ms: int = SEGMENT_UNREACHABLE_MS


class SegmentUnits:
    """Segments of ``topic``, for one term. ``clock`` measures how long a broker does not answer."""

    def __init__(
        self,
        topic: TopicName,
        lookups: SegmentLookups,
        moves: SegmentMoves,
        unassigns: SegmentUnassigns,
        clock: Clock,
    ) -> None:
        self._topic = topic
        self._lookups = lookups
        self._moves = moves
        self._unassigns = unassigns
        self._clock = clock
        self._silent: dict[int, _Silence] = {}

    def __repr__(self) -> str:
        return f"<SegmentUnits {self._topic.text} silent={sorted(self._silent)}>"

    async def at_owner(
        self,
        segment: Segment,
        call: Callable[[SegmentUnit, int], Awaitable[_T]],
        *,
        may_be_planned: bool = False,
    ) -> _T:
        """Return what ``call`` of the segment's unit and a time limit in milliseconds returns.

        ``may_be_planned``: the segment may be a child of the operation that is under way. A
        segment whose broker did not answer for ``SEGMENT_UNREACHABLE_MS`` moves, so that a later
        call reaches another broker; after each move in vain the time doubles, as that broker may
        be opening the unit.

        Raises:
            Refused: The broker refuses.
            MetadataError: No broker was reached, or its answer is missing. Repeat it.
        """
        began = self._clock.monotonic()
        number = segment.segment_id
        known = self._silent.get(number)
        patience_ms = SEGMENT_UNREACHABLE_MS if known is None else known.patience_ms
        unit = None
        try:
            unit = await self._find(segment, may_be_planned=may_be_planned)
            answer = await call(unit, patience_ms)
        except _UNREACHABLE as error:
            await self._note_silence(segment, unit, began, error)
            raise
        except Refused as refused:
            if refused.code != RejectionCode.STALE_EPOCH:
                self._silent.pop(number, None)
                raise
            # It is on its way to the broker, or went elsewhere this moment.
            raise Unavailable(str(refused)) from refused
        self._silent.pop(number, None)
        return answer

    async def unload(self, segment: Segment) -> None:
        """End the present assignment of a segment; the next lookup gives it a later epoch.

        Raises:
            MetadataError: It may have ended, or not. Repeat it.
        """
        unit = UnitAssignment(name=segment.name_in(self._topic))
        (outcome,) = await self._unassigns.unassign([unit], REASON_UNLOADED)
        if not outcome.unassigned:
            raise Unavailable(outcome.message)

    async def _find(self, segment: Segment, *, may_be_planned: bool) -> SegmentUnit:
        name = segment.name_in(self._topic)
        (answer,) = await self._lookups.lookup(
            [name], timeout_ms=_LOOKUP_MS, may_be_planned=may_be_planned
        )
        answer = checked(answer)
        if not answer.broker_grpc:
            raise Unavailable(f"broker {answer.broker_id} gives no address for calls")
        unit = segment.unit.text
        return SegmentUnit(name, answer.topic_id, unit, answer.epoch, answer.broker_grpc)

    async def _note_silence(
        self, segment: Segment, unit: SegmentUnit | None, began: float, error: MetadataError
    ) -> None:
        """Note that a call of a segment failed; move the segment if that has lasted too long."""
        silence = self._silent.get(segment.segment_id)
        epoch = 0 if unit is None else unit.epoch
        if silence is None:
            silence = _Silence(epoch, began)
        elif epoch not in (0, silence.epoch):
            # Another owner, which gets its time.
            silence = _Silence(epoch, began, silence.patience_ms)
        self._silent[segment.segment_id] = silence
        now = self._clock.monotonic()
        if unit is None or round((now - silence.since) * 1_000) < silence.patience_ms:
            return
        patience_ms = min(2 * silence.patience_ms, SEGMENT_UNREACHABLE_MS_MAX)
        self._silent[segment.segment_id] = _Silence(silence.epoch, now, patience_ms)
        _logger.info("moving a segment whose broker is silent", segment=unit.name, why=str(error))
        wanted = TopicMove(topic=unit.name, expected_epoch=unit.epoch, asked_by=ASKED_BY_LAYOUT)
        (moved,) = await self._moves.move([wanted], _MOVE_MS)
        if moved.rejection_code:
            _logger.info("the segment has not moved yet", segment=unit.name, why=moved.message)
