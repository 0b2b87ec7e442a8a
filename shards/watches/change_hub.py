"""Change streams of one replica: the queue of commits, and which streams want each of them.

    log ──on_commit──▶ queue ─▶ a task: decode once, find who wants it ─▶ backlogs ─▶ streams
                         │ full                                             │ full
                         └───────▶ the stream catches up from the log ◀─────┘

The one publisher of the replica, for subscriptions with leases, with acknowledgements, or with
neither. A commit only puts its entries into the queue. Without watches nothing is decoded. The task
yields the event loop after each slice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from nextgen.client.changes.index import changes_in
from nextgen.kernel.errors import MetadataError, Overloaded, Unavailable
from nextgen.kernel.limits.stream import (
    WATCH_EVENTS_PER_SLICE,
    WATCH_HUB_EVENTS_MAX,
    WATCH_STREAMS_PER_SHARD_MAX,
)
from nextgen.replication.ports import Entry, ReplicatedLog
from nextgen.tasks.background import start
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from shards.metrics import WatchMetrics
from shards.projections.rows import ReadTransaction
from shards.watches.change_source import ChangeSource, Join
from shards.watches.change_stream import ChangeStream
from shards.wire.leased_form import Creations, creations_apart, is_release


class ChangeHub:
    """The change streams of one replica, whether it leads or not. Owned by the replica."""

    def __init__(
        self,
        shard_id: int,
        log: ReplicatedLog,
        read_transaction: ReadTransaction,
        metrics: WatchMetrics,
        *,
        join: Join,
        wait_commit: Callable[[], Awaitable[None]],
    ) -> None:
        self.source = ChangeSource(
            shard_id, log, read_transaction, metrics, join=join, wait_commit=wait_commit
        )
        self._log = log
        self._seen = self.source.position
        self._queue: deque[Entry] = deque()
        self._queued_events = 0
        self._generation = 0
        """Grows whenever the queue is thrown away."""
        self._wake = asyncio.Event()
        self._streams: dict[str, ChangeStream] = {}
        self._matching: asyncio.Task[None] | None = None
        self._stop_expediting: Callable[[], None] | None = None
        self._closed: MetadataError | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return (
            f"<ChangeHub shard={self.source.shard_id} position={self.source.position} "
            f"streams={len(self._streams)} queued={self._queued_events}>"
        )

    @property
    def stream_count(self) -> int:
        return len(self._streams)

    @property
    def watch_count(self) -> int:
        return sum(stream.watch_count for stream in self._streams.values())

    @property
    def leased_count(self) -> int:
        """Leased watches, of at most one for each stream."""
        return len(self.source.leased)

    def open(self, subscriber_id: str) -> ChangeStream:
        """Begin a stream. An older one of the same subscriber ends.

        Raises:
            Overloaded: There are ``WATCH_STREAMS_PER_SHARD_MAX`` already.
            Unavailable: The replica stopped, or must not be served.
        """
        if self._closed is not None:
            raise self._closed
        older = self._streams.get(subscriber_id)
        if older is not None:
            older.fail(Unavailable(f"{subscriber_id} opened another stream"))
            self.leave(older)
        if len(self._streams) >= WATCH_STREAMS_PER_SHARD_MAX:
            raise Overloaded(
                f"shard {self.source.shard_id} has {WATCH_STREAMS_PER_SHARD_MAX} change streams"
            )
        stream = ChangeStream(
            self.source, subscriber_id, notice_commits=self.notice_commits, leave=self.leave
        )
        self._streams[subscriber_id] = stream
        if self._matching is None:
            self._begin()
        return stream

    def leave(self, stream: ChangeStream) -> None:
        """Forget a stream and its watches. One that has left already is ignored."""
        if self._streams.get(stream.subscriber_id) is not stream:
            return
        del self._streams[stream.subscriber_id]
        stream.leave_index()
        if not self._streams:
            self._pause()

    def notice_commits(self) -> None:
        """Continue behind a snapshot that another node sent: the log's position jumped without a
        commit."""
        if not self._queue and self._log.commit_position > self._seen:
            self._skip_to(self._log.commit_position)

    def close(self, error: MetadataError) -> None:
        """End every stream with ``error``, and refuse new ones."""
        if self._closed is not None:
            return
        self._closed = error
        self._end_all(error)

    def _end_all(self, error: MetadataError) -> None:
        for stream in tuple(self._streams.values()):
            stream.fail(error)
            self.leave(stream)

    def _begin(self) -> None:
        self._seen = max(self._seen, self._log.commit_position)
        self.source.position = self._seen
        # Without a stream nothing is read and decoded for this.
        self._unsubscribe = self._log.on_commit(self._on_commit)
        self._stop_expediting = self._log.expedite_commits()
        self._matching = start("change_matching", self._match_all(), on_failure=self._broke)

    def _broke(self, error: BaseException) -> None:
        # Without it no stream gets a change any more: the subscribers have to open new ones.
        self._end_all(
            Unavailable(f"the change streams of shard {self.source.shard_id} broke: {error!r}")
        )

    def _pause(self) -> None:
        self._throw_away()
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._matching is not None:
            self._matching.cancel()
            self._matching = None
        if self._stop_expediting is not None:
            self._stop_expediting()
            self._stop_expediting = None

    def _on_commit(self, entries: Sequence[Entry]) -> None:
        first, last = entries[0].first_position, entries[-1].next_position - 1
        if not self.source.index:
            # No watch wants the queued entries: a later watch reads them from the log.
            self._throw_away()
            self._seen = self.source.position = max(self._seen, last)
            return
        if last <= self._seen:
            return
        waiting = self._queued_events + last - self._seen
        if first > self._seen + 1 or waiting > WATCH_HUB_EVENTS_MAX:
            # The log went on behind a snapshot, or faster than streams can be served.
            self._skip_to(last)
            return
        self._seen = last
        self._queue.extend(entries)
        self._queued_events = waiting
        self._wake.set()

    def _skip_to(self, position: int) -> None:
        """Have the streams read everything up to ``position`` from the log."""
        for stream in self._streams.values():
            stream.fall_behind()
        self._throw_away()
        self._seen = self.source.position = position

    def _throw_away(self) -> None:
        self._queue.clear()
        self._queued_events = 0
        self._generation += 1

    async def _match_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                await self._match(self._queue[0])
                if self._queue:
                    await asyncio.sleep(0)

    async def _match(self, entry: Entry) -> None:
        """Offer the events of the queue's first entry to the streams that want them."""
        generation = self._generation
        source = self.source
        last = entry.next_position - 1
        for events in source.decoded.slices(entry, WATCH_EVENTS_PER_SLICE):
            for run, creations in creations_apart(events):
                if run[-1].position > source.position:
                    self._deliver(run, creations)
                    source.position = run[-1].position
            if source.waiters:
                for waiter in tuple(source.waiters):
                    waiter.look()
            if source.position < last:
                await asyncio.sleep(0)
                if self._generation != generation:
                    return
        self._queue.popleft()
        source.position = max(source.position, last)
        self._queued_events = self._seen - source.position

    def _deliver(self, events: Sequence[Event], creations: Creations | None) -> None:
        """Offer ``events`` of one run; creations once more, by name, to the leased watches."""
        index = self.source.index
        if creations is not None:
            for lease in self.source.leased:
                lease.offer_creations(creations)
            if not index.may_find(KIND_TOPIC, creations.names):
                return
        for event in events:
            if is_release(event):
                for lease in self.source.leased:
                    lease.offer(event)
            for change in changes_in(event):
                for bucket in index.find(change):
                    for stream, watches in bucket.items():
                        stream.offer(event, watches)
