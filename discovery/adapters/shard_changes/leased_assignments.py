"""Keeps cached answers of one shard true by a leased watch on the process's shared stream.

    add, behind the cache's position ─▶ events ─▶ renewals ─▶ ... ─▶ the watch ends ─▶ add again

The shared stream follows the shard's leader and resumes the watch there. It acknowledges an update
AFTER the update took effect in the cache: a move relies on that to release the old owner (ADR
0029).

While nobody looks anything up in this process the lease rests: it ends, few updates come, and
changes are applied and acknowledged as ever. The first lookup goes to the shard and wakes it (ADR
0128).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import AnswerCache
from discovery.domain.partition_counts import PartitionCounts
from discovery.wire import delta_of_event, leaving_with
from nextgen.client.changes.shard_watch import ShardWatch
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.cluster import (
    LOOKUP_STALENESS_MS_MAX,
    WATCH_TTL_MARGIN_MS,
)
from nextgen.kernel.limits.discovery import LEASES_UNUSED_MS
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_ASSIGNMENT, Item

_PAUSE_MS = 500
"""Pause after a watch that the shard refused."""

_logger = structlog.get_logger(__name__)


class LeasedAssignments:
    """The answers' watch of one shard. ``run`` it as a task; cancel that to stop.

    ``uses`` counts what was asked of this process that a lease may answer, from any shard.
    """

    def __init__(
        self,
        stream: ShardWatch,
        cache: AnswerCache,
        absent: AbsentNames,
        counts: PartitionCounts,
        uses: Callable[[], int],
    ) -> None:
        self.shard_id = stream.shard_id
        self._stream = stream
        self._cache = cache
        self._absent = absent
        self._counts = counts
        self._uses = uses
        self._uses_seen = uses()
        self._used_at = asyncio.get_running_loop().time()
        """When ``uses`` was last seen to have grown."""
        self.heard_at = float("-inf")
        """When the last update arrived, on the event loop's clock, in seconds."""
        self.resets = 0
        """Number of times that the shard's cached answers were dropped."""
        self._begins_anew = False
        self._ended: asyncio.Event = asyncio.Event()
        stream.let_creations_wait_with(self._may_creations_wait)
        stream.let_lease_rest_with(self._may_rest)
        absent.on_used(self.shard_id, stream.renew_lease)
        counts.on_remembered(stream.renew_lease)

    def __repr__(self) -> str:
        condition = "current" if self.is_current else "waiting"
        position = self._cache.position(self.shard_id)
        return f"<LeasedAssignments shard={self.shard_id} position={position} {condition}>"

    @property
    def is_current(self) -> bool:
        """Whether the stream is connected and the leader has confirmed the lease since its
        start."""
        return self._stream.is_current and self.heard_at > float("-inf")

    def age_s(self, now: float) -> float:
        """Return the time since the last update; 0 while the lease rests, because nothing is
        answered then."""
        return 0.0 if self._stream.rests else now - self.heard_at

    def wake(self) -> None:
        """End the lease's rest, if it rests: a lookup was just counted in ``uses``."""
        if self._stream.rests:
            self._stream.renew_lease()

    async def run(self) -> None:
        """Keep a leased watch on the shared stream for ever, from leader to leader."""
        while True:
            self._ended.clear()
            watch_id = self._stream.add(
                self,
                kinds=[KIND_ASSIGNMENT],
                from_position=self._cache.position(self.shard_id),
                without_snapshot=True,
                leased=True,
                on_lease=self._renew,
                on_created=self._take_creations,
            )
            try:
                await self._ended.wait()
            finally:
                self._stream.remove(watch_id)
            await asyncio.sleep(_PAUSE_MS / 1_000)

    # What the shard tells ---------------------------------------------------------------------

    def on_reset(self) -> None:
        self.resets += 1
        self._begins_anew = True
        self._remember_nothing()
        # No answer is valid from here on; the next update has the present position.
        self._cache.reset(self.shard_id, self._cache.position(self.shard_id))

    def _remember_nothing(self) -> None:
        """Forget absent names and counts of partitions, which are cheap to ask for again."""
        self._absent.reset(self.shard_id)
        self._counts.clear()

    def on_items(self, items: Sequence[Item]) -> None:
        """Do nothing: the stream has no snapshot."""

    def on_snapshot_complete(self, position: int) -> None:
        """Do nothing: the stream has no snapshot."""

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.HasField("slots_released"):
                # What is answered of these slots is kept true by another shard's stream, if at all.
                self._remember_nothing()
                left = leaving_with(event.slots_released)
                self._cache.release(self.shard_id, event.position, left)
        deltas = [delta for event in events if (delta := delta_of_event(event)) is not None]
        self._cache.apply(self.shard_id, events[-1].position, deltas)

    def on_position(self, position: int) -> None:
        if self._begins_anew:
            self._begins_anew = False
            self._cache.reset(self.shard_id, position)
        self._cache.apply(self.shard_id, position, ())
        self._absent.advance(self.shard_id, position)

    def on_ended(self, error: MetadataError) -> None:
        _logger.info("assignments lost", shard_id=self.shard_id, error=str(error))
        self._ended.set()

    def _take_creations(self, names: Sequence[str] | None) -> None:
        if names is None:
            self._absent.reset(self.shard_id)
        else:
            if names:
                self._counts.forget(names)
            position = self._cache.position(self.shard_id)
            self._absent.created(self.shard_id, names, position=position)

    def _may_creations_wait(self) -> bool:
        """Return whether creations would end nothing that is given here: no absence, no count."""
        now = asyncio.get_running_loop().time()
        return not (self._absent.is_used(self.shard_id, now) or self._counts.remembers(now))

    def _may_rest(self) -> bool:
        """Return whether nothing was answered here lately, and nothing is remembered for it."""
        now, uses = asyncio.get_running_loop().time(), self._uses()
        if uses != self._uses_seen:
            self._uses_seen, self._used_at = uses, now
        is_unused = (now - self._used_at) * 1_000 >= LEASES_UNUSED_MS
        return is_unused and self._may_creations_wait()

    def _renew(self, confirmed_at_ms: int, ttl_ms: int) -> None:
        self.heard_at = asyncio.get_running_loop().time()
        usable_ms = min(max(0, ttl_ms - WATCH_TTL_MARGIN_MS), LOOKUP_STALENESS_MS_MAX)
        # Counted from the request, however late the answer is.
        until = (confirmed_at_ms + usable_ms) / 1_000
        self._cache.renew(self.shard_id, until)
        self._absent.renew(self.shard_id, until)
