"""Keeps cached answers of one shard true by a leased watch on the stream that all here share.

    leased watch on the shared stream ──(a leader of a release without change streams)──┐
        ▲                                                                               ▼
        └──(a leader serves the shared stream)── ``AssignmentWatch``, as that release serves it

Only one of the two brings changes to the cache at a time: what one is late with must not undo what
the other has told. An update is acknowledged AFTER it took effect in the cache: a move releases the
old owner on the strength of it (ADR 0029).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc
import grpc.aio
import structlog

from discovery.adapters.shard_changes.assignment_watch import AssignmentWatch
from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import AnswerCache
from discovery.wire import delta_of_event
from nextgen.client.changes.shard_watch import ShardWatch
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.transport.stream_call import WATCH, stream_call
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.cluster import (
    CONNECT_TIMEOUT_MS,
    LOOKUP_STALENESS_MS_MAX,
    WATCH_TTL_MARGIN_MS,
)
from nextgen.tasks.background import keep
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_ASSIGNMENT, Item
from protos.nextgen.v1.shard_service_pb2 import WatchShardRequest, WatchShardUpdate

_LOOK_MS = 500
"""Between two looks at whether the shared stream stands, and after a watch that has ended."""

_logger = structlog.get_logger(__name__)


class LeasedAssignments:
    """The answers' watch of one shard. ``run`` it as a task; cancel that to stop."""

    def __init__(
        self, stream: ShardWatch, link: ClusterLink, cache: AnswerCache, absent: AbsentNames
    ) -> None:
        self.shard_id = stream.shard_id
        self._stream = stream
        self._link = link
        self._cache = cache
        self._absent = absent
        self._earlier: AssignmentWatch | None = None
        self._begins_anew = False
        self._ended: asyncio.Event = asyncio.Event()
        self._heard_at = float("-inf")
        self._resets = 0

    def __repr__(self) -> str:
        condition = "current" if self.is_current else "waiting"
        position = self._cache.position(self.shard_id)
        return f"<LeasedAssignments shard={self.shard_id} position={position} {condition}>"

    @property
    def heard_at(self) -> float:
        """When the last update arrived, on the event loop's clock."""
        return max(self._heard_at, self._earlier.heard_at if self._earlier else self._heard_at)

    @property
    def resets(self) -> int:
        """How often the shard's answers had to be forgotten."""
        return self._resets + (self._earlier.resets if self._earlier else 0)

    @property
    def is_current(self) -> bool:
        """Whether a stream stands and has said something of assignments."""
        if self._earlier is not None:
            return self._earlier.is_current
        return self._stream.is_current and self._heard_at > float("-inf")

    async def run(self) -> None:
        """Follow the shard for ever, from leader to leader."""
        while True:
            await self._follow_leased()
            await self._follow_earlier()

    async def _follow_leased(self) -> None:
        """Follow on the shared stream; return when its leader does not know such streams."""
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
                while not await _is_set_within(self._ended, _LOOK_MS):
                    if await self._is_of_an_earlier_release():
                        return
            finally:
                self._stream.remove(watch_id)
            await asyncio.sleep(_LOOK_MS / 1_000)

    async def _follow_earlier(self) -> None:
        """Follow as an earlier release serves it, until the shared stream stands."""
        _logger.info("assignments as of an earlier release", shard_id=self.shard_id)
        self._absent.reset(self.shard_id)
        watch = self._earlier = AssignmentWatch(
            self.shard_id, self._stream.subscriber_id, self._link, self._cache
        )
        following = keep("assignment_watch", watch.run)
        try:
            await self._stream_stands()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            self._resets += watch.resets
            self._earlier = None

    async def _stream_stands(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_MS / 1_000)
            if self._stream.is_current:
                return

    async def _is_of_an_earlier_release(self) -> bool:
        """Return whether the shard's leader is there and knows no change streams."""
        endpoint = self._link.view.leader_endpoint(self.shard_id)
        if self._stream.is_current or endpoint is None:
            return False
        try:
            async with stream_call(endpoint, WATCH, WatchShardRequest, WatchShardUpdate) as call:
                try:
                    async with timeout(CONNECT_TIMEOUT_MS / 1_000):
                        # Whoever knows such streams says that this is no beginning of one.
                        await call.write(WatchShardRequest())
                        await call.done_writing()
                        await call.read()
                        return bool(await call.code() is grpc.StatusCode.UNIMPLEMENTED)
                except grpc.RpcError as error:
                    return bool(error.code() is grpc.StatusCode.UNIMPLEMENTED)
        except MetadataError:
            return False

    # What the shard tells ---------------------------------------------------------------------

    def on_reset(self) -> None:
        self._resets += 1
        self._begins_anew = True
        self._absent.reset(self.shard_id)
        # Nothing may be answered from here on; where the present is comes with the position.
        self._cache.reset(self.shard_id, self._cache.position(self.shard_id))

    def on_items(self, items: Sequence[Item]) -> None:
        """Not asked for."""

    def on_snapshot_complete(self, position: int) -> None:
        """Not asked for."""

    def on_events(self, events: Sequence[Event]) -> None:
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
            position = self._cache.position(self.shard_id)
            self._absent.created(self.shard_id, names, position=position)

    def _renew(self, confirmed_at_ms: int, ttl_ms: int) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        usable_ms = min(max(0, ttl_ms - WATCH_TTL_MARGIN_MS), LOOKUP_STALENESS_MS_MAX)
        # Counted from the question, whatever held the answer up.
        until = (confirmed_at_ms + usable_ms) / 1_000
        self._cache.renew(self.shard_id, until)
        self._absent.renew(self.shard_id, until)


async def _is_set_within(event: asyncio.Event, timeout_ms: int) -> bool:
    try:
        async with timeout(timeout_ms / 1_000):
            await event.wait()
    except TimeoutError:
        return False
    return True
