"""Makes planned moves of one shard's units at a pace, and remembers when units were moved.

A request for a rebalance and the scheduled balance share both, so that neither moves a unit that
the other has just moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

import structlog

from nextgen.kernel.errors import MetadataError
from nextgen.tasks.background import join
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import TopicMove
from shards.metrics import ShardMetrics
from shards.moves.evacuation_pace import (
    EVACUATION_BATCHES_MAX,
    EVACUATION_UNITS_PER_BATCH_MAX,
    Pace,
)
from shards.moves.topic_mover import TopicMover
from shards.ports import Clock

MOVED_UNITS_MAX = 20_000
"""Units of one shard that are remembered as moved, some 4 MB: more than are moved in a grace at the
default budget. The oldest are forgotten first."""

_MOVE_TIMEOUT_MS = 20_000

OnAnswered = Callable[[Sequence[TopicMove], Sequence[LookupAnswer]], object]

_logger = structlog.get_logger(__name__)


class MovedUnits:
    """When this shard's units were moved to even brokers out, in this term and before it.

    A former leader's moves are read from the log. Until that was done, and where the log does not
    reach back as far as a grace, ``is_known`` is False.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moved_at: dict[str, float] = {}
        self._known_from: float | None = None

    def __repr__(self) -> str:
        return f"<MovedUnits units={len(self._moved_at)} known_from={self._known_from}>"

    def note(self, names: Sequence[str]) -> None:
        """Note units that were moved at this moment."""
        now = self._clock.monotonic()
        for name in names:
            self._moved_at.pop(name, None)
            self._moved_at[name] = now
        while len(self._moved_at) > MOVED_UNITS_MAX:
            del self._moved_at[next(iter(self._moved_at))]

    def restore(self, moved_at_ms: Mapping[str, int], known_from_ms: int) -> None:
        """Add the moves in the log, by Unix time, all since ``known_from_ms``; 0: all there were.

        Times are of the leaders that wrote the log. One that is ahead of this clock counts as now.
        """
        before = {name: self._at(moved_at_ms[name]) for name in moved_at_ms}
        before.update(self._moved_at)
        self._moved_at = dict(sorted(before.items(), key=lambda each: each[1])[-MOVED_UNITS_MAX:])
        self._known_from = self._at(known_from_ms)

    def is_resting(self, name: str, grace_s: float) -> bool:
        """Return whether the unit was moved less than ``grace_s`` ago."""
        moved_at = self._moved_at.get(name)
        return moved_at is not None and self._clock.monotonic() - moved_at < grace_s

    def is_known(self, grace_s: float) -> bool:
        """Return whether every move of the last ``grace_s`` is known."""
        if self._known_from is None:
            return False
        return self._clock.monotonic() - self._known_from >= grace_s

    def _at(self, wall_ms: int) -> float:
        age_s = (self._clock.wall_ms() - wall_ms) / 1_000
        return self._clock.monotonic() - max(0.0, age_s)


class PacedMoves:
    """Moves units of one shard, for one term. ``moved`` has those that were moved."""

    def __init__(
        self,
        shard_id: int,
        mover: TopicMover,
        moved: MovedUnits,
        clock: Clock,
        metrics: ShardMetrics,
    ) -> None:
        self._shard_id = shard_id
        self._mover = mover
        self._clock = clock
        self._metrics = metrics
        self.moved = moved

    def __repr__(self) -> str:
        return f"<PacedMoves shard={self._shard_id} {self.moved!r}>"

    def pace(self) -> Pace:
        """Return a pace that begins now."""
        return Pace(self._clock.monotonic)

    async def make(
        self,
        moves: Sequence[TopicMove],
        pace: Pace,
        units_per_second: float,
        on_answered: OnAnswered,
    ) -> None:
        """Make ``moves`` in their order, all of the same origin, and return when all are answered.

        ``on_answered`` is called with the moves of each batch and their answers; there are none if
        the whole batch was refused. If it is cancelled, what was begun is finished.
        """
        waiting = list(moves)
        batches: set[asyncio.Task[None]] = set()
        try:
            while waiting:
                await asyncio.sleep(pace.wait_seconds(units_per_second))
                if len(batches) >= EVACUATION_BATCHES_MAX:
                    await asyncio.wait(batches, return_when=asyncio.FIRST_COMPLETED)
                units_max = min(len(waiting), EVACUATION_UNITS_PER_BATCH_MAX)
                units = pace.take(units_per_second, units_max)
                some, waiting = waiting[:units], waiting[units:]
                if some:
                    work = self._move(some, on_answered)
                    batches.add(join(work))
                done = {batch for batch in batches if batch.done()}
                batches -= done
                for batch in done:
                    batch.result()
            await asyncio.gather(*batches)
        finally:
            for batch in batches:
                batch.cancel()

    async def _move(self, moves: Sequence[TopicMove], on_answered: OnAnswered) -> None:
        answers: list[LookupAnswer] = []
        try:
            answers = await self._mover.move(moves, timeout_ms=_MOVE_TIMEOUT_MS)
        except MetadataError as error:
            _logger.info("units not moved", shard=self._shard_id, why=str(error))
        finally:
            on_answered(moves, answers)
        # A move that goes on, or failed in an unknown way, has disturbed clients as well.
        self.moved.note(
            [each.topic for each in answers if each.under_way or not each.rejection_code]
        )
        moved = sum(not each.rejection_code for each in answers)
        self._metrics.note_evacuated(moves[0].asked_by, moved)
