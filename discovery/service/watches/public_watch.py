"""One watch of a program through discovery: its shards' updates wait in a queue until it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from discovery.domain.update_queue import NO_POSITIONS, QueuedUpdate, UpdateQueue
from discovery.domain.watch_scope import Share, WatchScope
from discovery.ports import Clock
from discovery.service.watches.shard_feed import ShardFeed, ShardWays
from nextgen.kernel.errors import MetadataError, Overloaded, Unavailable
from nextgen.kernel.limits.stream import (
    PUBLIC_WATCH_QUEUE_BYTES_MAX,
    PUBLIC_WATCH_QUEUE_UPDATES_MAX,
    WATCH_STALLED_MS_MAX,
)
from nextgen.tasks.background import cancel_and_wait, start
from protos.nextgen.v1.discovery_service_pb2 import ShardPosition, WatchUpdate

_logger = structlog.get_logger(__name__)


class Watch(Protocol):
    """The source of a watcher's call."""

    error: MetadataError | None
    """Why the watch ended; None while it goes on."""

    ended: asyncio.Event
    """Set with ``error``."""

    @property
    def sent(self) -> Mapping[int, int]:
        """By shard: the position from which the watcher resumes, by the updates that were sent."""

    async def take(self) -> bytes:
        """Return the next update to send; waits for one.

        Raises:
            MetadataError: The watch ended.
        """

    def fail(self, error: MetadataError) -> None:
        """End the watch. The first reason stays."""

    def tick(self) -> None:
        """Send progress if it is due, and end a watch that does not read."""


class Stalls:
    """Notices a stream that accepts no writes. Call ``begin`` before and ``end`` after each
    write."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None

    def begin(self) -> None:
        self._since = self._clock()

    def end(self) -> None:
        self._since = None

    @property
    def is_stalled(self) -> bool:
        """Whether one update has waited ``WATCH_STALLED_MS_MAX`` for the stream's flow control."""
        since = self._since
        return since is not None and (self._clock() - since) * 1_000 > WATCH_STALLED_MS_MAX


class PublicWatch:
    """A watch of tenants, namespaces, topics or assignments. See ``Watch``.

    ``place`` it when it begins and whenever the shard map changes; ``close`` it at the end.
    """

    def __init__(
        self,
        scope: WatchScope,
        known: Mapping[int, int],
        *,
        without_snapshot: bool,
        ways: ShardWays,
        clock: Clock,
        on_events: Callable[[int], None],
    ) -> None:
        self.scope = scope
        self.error: MetadataError | None = None
        self.ended = asyncio.Event()
        self.stalls = Stalls(clock)
        self.queue = UpdateQueue(
            updates_max=PUBLIC_WATCH_QUEUE_UPDATES_MAX,
            bytes_max=PUBLIC_WATCH_QUEUE_BYTES_MAX,
            sent=known,
        )
        self._without_snapshot = without_snapshot
        self._ways = ways
        self._clock = clock
        self._on_events = on_events
        self._told = dict(known)
        """By shard: everything up to it was put into the queue, or does not concern this watch."""
        self._feeds: dict[int, tuple[ShardFeed, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """Of all feeds, those that are being left included."""
        self._has_updates = asyncio.Event()
        self._is_calm = asyncio.Event()
        self._is_calm.set()

    def __repr__(self) -> str:
        return f"<PublicWatch {self.scope.kind.value} shards={len(self._feeds)} {self.queue!r}>"

    @property
    def sent(self) -> Mapping[int, int]:
        return self.queue.sent

    @property
    def told(self) -> Mapping[int, int]:
        """By shard: the position up to which all updates were queued, sent or not."""
        return self._told

    def place(self, shares: Mapping[int, Share]) -> None:
        """Watch these shards: begin new shares, leave those that ended or changed."""
        for shard_id, (feed, task) in tuple(self._feeds.items()):
            if shares.get(shard_id) != feed.share:
                task.cancel()
                del self._feeds[shard_id]
                self._forget(shard_id)
        for shard_id, share in shares.items():
            if shard_id not in self._feeds:
                self._feed(shard_id, share)

    async def take(self) -> bytes:
        while True:
            if self.error is not None:
                raise self.error
            update = self.queue.take()
            if self.queue.is_calm:
                self._is_calm.set()
            if update is not None:
                return update.encoded
            self._has_updates.clear()
            await self._has_updates.wait()

    def fail(self, error: MetadataError) -> None:
        if self.error is None:
            self.error = error
            self.queue.clear()
            self.ended.set()
            self._has_updates.set()
            for task in self._tasks:
                task.cancel()

    async def close(self) -> None:
        """Leave every shard."""
        self._feeds.clear()
        await cancel_and_wait(*self._tasks)

    def tick(self) -> None:
        if self.stalls.is_stalled:
            self.fail(
                Overloaded(f"the watcher has read nothing for {WATCH_STALLED_MS_MAX // 1_000} s")
            )
        if self.error is not None or len(self.queue):
            return
        moved = {
            shard_id: position
            for shard_id, position in self._told.items()
            if position > self.sent.get(shard_id, 0)
        }
        if moved:
            update = WatchUpdate(
                positions=[
                    ShardPosition(shard_id=shard_id, position=position)
                    for shard_id, position in sorted(moved.items())
                ]
            )
            self.put(QueuedUpdate(update.SerializeToString(), moved))

    # As the sink of its feeds -----------------------------------------------------------------

    def put(self, update: QueuedUpdate, *, events: int = 0) -> None:
        if self.error is not None:
            return
        if not self.queue.offer(update, self._clock()):
            self.fail(
                Overloaded(
                    f"the watcher is slow: {len(self.queue)} updates, {self.queue.bytes} bytes, "
                    "wait for it to read"
                )
            )
            return
        if update.forgotten:
            self._told.pop(update.forgotten, None)
        self._on_events(events)
        self._has_updates.set()
        if not self.queue.is_calm:
            self._is_calm.clear()

    def advance(self, shard_id: int, position: int) -> None:
        self._told[shard_id] = position

    async def wait_calm(self) -> None:
        await self._is_calm.wait()

    def _feed(self, shard_id: int, share: Share) -> None:
        feed = ShardFeed(
            shard_id,
            self.scope,
            share,
            self,
            self._ways,
            position=self._told.get(shard_id, 0),
            without_snapshot=self._without_snapshot,
        )
        # Otherwise its watcher would wait for ever.
        task = start("public_watch", feed.run(), self._tasks, on_failure=self._broke)
        self._feeds[shard_id] = feed, task

    def _broke(self, error: BaseException) -> None:
        self.fail(Unavailable(f"the watch broke: {error!r}"))

    def _forget(self, shard_id: int) -> None:
        """Send a reset of this shard: everything that the watcher knows of it is void."""
        update = WatchUpdate(shard_id=shard_id, reset=True, snapshot_complete=True)
        self.put(QueuedUpdate(update.SerializeToString(), NO_POSITIONS, shard_id))
