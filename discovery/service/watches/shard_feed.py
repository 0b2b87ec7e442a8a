"""Delivers one shard's changes to one public watcher.

    nothing known, or far behind ─▶ catch up: a stream of its own, at the reader's pace ─────────┐
          ▲                                                                                      ▼
          └── the log was cut, or the stream ended ◀── follow: a watch on the shared stream ─────┘

A snapshot of a million topics takes as long as its reader takes. On the shared stream it would
delay every other watcher and the answers' cache. So it has a stream of its own, and a watcher that
has caught up continues on the shared one. Positions join the two without gap or duplicate.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from discovery.domain.update_queue import QueuedUpdate
from discovery.domain.watch_scope import Share, WatchedKind, WatchScope
from discovery.ports import CatchUpReader, ChangeStreams
from discovery.service.watches.shown_events import shown_events, shown_items
from nextgen.kernel.errors import InvalidRequest, MetadataError, PositionAhead, Refused, Unavailable
from nextgen.kernel.limits.stream import WATCH_BACKLOG_EVENTS_MAX
from protos.nextgen.v1.discovery_service_pb2 import ShardPosition, WatchUpdate
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import (
    KIND_ASSIGNMENT,
    KIND_NAMESPACE,
    KIND_TENANT,
    KIND_TOPIC,
    Item,
    Kind,
)
from protos.nextgen.v1.shard_service_pb2 import WatchShardUpdate

KINDS: Mapping[WatchedKind, Kind] = {
    WatchedKind.TENANTS: KIND_TENANT,
    WatchedKind.NAMESPACES: KIND_NAMESPACE,
    WatchedKind.TOPICS: KIND_TOPIC,
    WatchedKind.ASSIGNMENTS: KIND_ASSIGNMENT,
}

_ENCODED_UPDATES_KEPT = 64
"""Encoded updates that are kept: all watchers of one filter get an update within one turn of the
event loop."""

_BACKOFF_MS_MIN = 20
_BACKOFF_MS_MAX = 500


class Sink(Protocol):
    """The watcher of a feed."""

    def put(self, update: QueuedUpdate, *, events: int = 0) -> None:
        """Queue ``update``. A watch without room for it ends."""

    def advance(self, shard_id: int, position: int) -> None:
        """Note that all updates up to ``position`` were queued."""

    async def wait_calm(self) -> None:
        """Return once there is room for a part of a snapshot, or of the log."""

    def fail(self, error: MetadataError) -> None:
        """End the watcher."""


class EncodedEvents:
    """Encoded updates with events, made once for all watchers that get the same ones."""

    def __init__(self) -> None:
        self._recent: dict[tuple[int, tuple[int, ...]], bytes] = {}
        """By shard and positions, which say what the events are; oldest first."""

    def encoded(self, shard_id: int, events: Sequence[Event]) -> bytes:
        """Return the update with ``events``, of which there is at least one."""
        key = shard_id, tuple([event.position for event in events])
        encoded = self._recent.get(key)
        if encoded is None:
            update = WatchUpdate(shard_id=shard_id, events=events)
            update.positions.add(shard_id=shard_id, position=key[1][-1])
            encoded = self._recent[key] = update.SerializeToString()
            if len(self._recent) > _ENCODED_UPDATES_KEPT:
                del self._recent[next(iter(self._recent))]
        return encoded


@dataclass(frozen=True, slots=True)
class ShardWays:
    """The two ways to read shards: see the module. ``turns`` bounds concurrent catch-ups."""

    streams: ChangeStreams
    catch_up: CatchUpReader
    turns: asyncio.Semaphore
    encodings: EncodedEvents


class ShardFeed:
    """One shard's part of a watch. ``run`` it as a task; cancel that to stop.

    ``position`` is the one that the watcher has reached, 0 for none.
    """

    def __init__(
        self,
        shard_id: int,
        scope: WatchScope,
        share: Share,
        sink: Sink,
        ways: ShardWays,
        *,
        position: int,
        without_snapshot: bool,
    ) -> None:
        self.share = share
        self._shard_id = shard_id
        self._scope = scope
        self._kind = KINDS[scope.kind]
        self._prefix = scope.prefix
        self._sink = sink
        self._ways = ways
        self._position = position
        self._is_position_proven = False
        """Whether the shard itself has told a position; the caller's may be wrong."""
        self._without_snapshot = without_snapshot
        self._is_in_snapshot = False
        self._following: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<ShardFeed shard={self._shard_id} position={self._position}>"

    async def run(self) -> None:
        """Feed the watcher until it ends, or the shard refuses for good."""
        backoff_ms = _BACKOFF_MS_MIN
        while True:
            position = self._position
            try:
                if self._is_behind():
                    async with self._ways.turns:
                        await self._catch_up()
                await self._follow()
            except MetadataError as error:
                if self._is_final(error):
                    self._sink.fail(error)
                    return
            if self._position > position:
                backoff_ms = _BACKOFF_MS_MIN
            await asyncio.sleep(backoff_ms * random.uniform(0.5, 1.0) / 1_000)
            backoff_ms = min(backoff_ms * 2, _BACKOFF_MS_MAX)

    def _is_behind(self) -> bool:
        """Return whether too many events are missing for the shared stream."""
        if self._is_in_snapshot:
            return True
        if not self._position:
            return not self._without_snapshot
        return self._ways.streams.position(self._shard_id) - self._position > (
            WATCH_BACKLOG_EVENTS_MAX
        )

    def _is_final(self, error: MetadataError) -> bool:
        # A position that the shard itself reported exists, whichever node leads; the caller's may
        # not.
        if isinstance(error, PositionAhead):
            return error.is_final and not self._is_position_proven
        return isinstance(error, InvalidRequest | Refused)

    async def _catch_up(self) -> None:
        updates = self._ways.catch_up.read(
            self._shard_id,
            kind=self._kind,
            prefix=self._prefix,
            names=self.share.names,
            from_position=0 if self._is_in_snapshot else self._position,
        )
        if self._is_in_snapshot or not self._position:
            self._begin_snapshot()
        async with aclosing(updates):
            async for update in updates:
                await self._sink.wait_calm()
                self._take(update)
                if not self._is_behind():
                    return
        raise Unavailable(f"the stream of shard {self._shard_id} ended")

    async def _follow(self) -> None:
        """Follow on the shared stream; return when a snapshot is needed."""
        self._following = asyncio.get_running_loop().create_future()
        watch_id = self._ways.streams.add(
            self._shard_id,
            _Listener(self),
            kind=self._kind,
            prefix=self._prefix,
            names=self.share.names,
            from_position=self._position,
        )
        try:
            await self._following
        finally:
            self._ways.streams.remove(self._shard_id, watch_id)

    # What the shard tells ---------------------------------------------------------------------

    def _take(self, update: WatchShardUpdate) -> None:
        if update.reset:
            self._begin_snapshot()
        if update.items:
            self.put_items(update.items)
        if update.snapshot_complete:
            self.complete_snapshot(update.position)
        if update.events:
            self.put_events(update.events)
        self.advance(update.position)

    def _begin_snapshot(self) -> None:
        self._is_in_snapshot = True
        self._position = 0
        update = WatchUpdate(shard_id=self._shard_id, reset=True)
        self._sink.put(QueuedUpdate(update.SerializeToString(), forgotten=self._shard_id))

    def put_items(self, items: Sequence[Item]) -> None:
        shown = shown_items(items)
        if shown:
            update = WatchUpdate(shard_id=self._shard_id, items=shown)
            self._sink.put(QueuedUpdate(update.SerializeToString()))

    def complete_snapshot(self, position: int) -> None:
        self._is_in_snapshot = False
        self._put(WatchUpdate(shard_id=self._shard_id, snapshot_complete=True), position)

    def put_events(self, events: Sequence[Event]) -> None:
        # After a reconnect the first events may be delivered already.
        later = [event for event in events if event.position > self._position]
        if later:
            shown, is_for_all = shown_events(later, self._scope.selects)
            if shown:
                self._put_shown(shown, is_for_all=is_for_all)
            self.advance(later[-1].position)

    def _put_shown(self, events: Sequence[Event], *, is_for_all: bool) -> None:
        position = events[-1].position
        encodings = self._ways.encodings if is_for_all else EncodedEvents()
        encoded = encodings.encoded(self._shard_id, events)
        update = QueuedUpdate(encoded, {self._shard_id: position})
        self._sink.put(update, events=len(events))
        self._note(position)

    def advance(self, position: int) -> None:
        if self._is_in_snapshot or position <= self._position:
            return
        if not self._position:
            # From the present on: this update has that position, and confirms the watch.
            self._put(WatchUpdate(shard_id=self._shard_id), position)
        self._note(position)

    def begin_anew(self) -> None:
        """Begin again with a snapshot, because the missing part of the log was cut."""
        if not self._position:
            return  # It begins with the present, where nothing is missing.
        self._is_in_snapshot = True
        self.end_following(None)

    def end_following(self, error: MetadataError | None) -> None:
        following = self._following
        if following is None or following.done():
            return
        if error is None:
            following.set_result(None)
        else:
            following.set_exception(error)

    @property
    def is_following(self) -> bool:
        return self._following is not None and not self._following.done()

    def _put(self, update: WatchUpdate, position: int) -> None:
        update.positions.append(ShardPosition(shard_id=self._shard_id, position=position))
        self._sink.put(QueuedUpdate(update.SerializeToString(), {self._shard_id: position}))
        self._note(position)

    def _note(self, position: int) -> None:
        self._is_position_proven = True
        self._position = position
        self._sink.advance(self._shard_id, position)


class _Listener:
    """The feed's watch on the shared stream. Delivers nothing once the feed has left it."""

    def __init__(self, feed: ShardFeed) -> None:
        self._feed = feed

    def on_reset(self) -> None:
        self._feed.begin_anew()

    def on_items(self, items: Sequence[Item]) -> None:
        """Do nothing: this stream has no snapshot."""

    def on_snapshot_complete(self, position: int) -> None:
        """See ``on_items``."""

    def on_events(self, events: Sequence[Event]) -> None:
        if self._feed.is_following:
            self._feed.put_events(events)

    def on_position(self, position: int) -> None:
        if self._feed.is_following:
            self._feed.advance(position)

    def on_ended(self, error: MetadataError) -> None:
        self._feed.end_following(error)
