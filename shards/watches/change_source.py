"""What the change streams of one replica read from and share: below them, made by the hub.

The hub alone moves ``position``. Streams add their watches to ``index`` and read the log and the
view, each in its turn, so that any number of streams that catch up leaves time for commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Protocol

from nextgen.client.changes.index import ChangeIndex
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.stream import WATCH_SNAPSHOTS_OPEN_MAX
from nextgen.replication.ports import ReplicatedLog
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.shard_service_pb2 import WatchShardUpdate
from shards.metrics import WatchMetrics
from shards.watches.assignment_feed import LeasedCursor
from shards.watches.change_snapshot import ReadTransaction
from shards.watches.change_watch import ChangeWatch
from shards.watches.decoded_entries import DecodedEntries
from shards.watches.effective_writes import AcknowledgingStream, Subscription

Subscribe = Callable[[str, int, bool], LeasedCursor]
"""Subscribes to the assignments of the shard, at its leader: subscriber id, position, whether
creations are named. See ``AssignmentFeed.subscribe``."""

Join = Callable[[AcknowledgingStream], Subscription]
"""Has effective writes wait for a stream's acknowledgements, at the shard's leader; see
``EffectiveWrites.join``."""


class WatchOwner(Hashable, Protocol):
    """A change stream as the index and its joining watches know it. ``ChangeStream`` is it."""

    def offer(self, event: Event, watches: Iterable[ChangeWatch]) -> None:
        """Queue an event that ``watches``, all of this stream, want. May repeat an event."""

    def emit(self, update: WatchShardUpdate) -> None:
        """Send ``update`` after those that were made before it."""

    def emit_events(self, watch_id: int, events: Sequence[Event], position: int) -> None:
        """Send ``events``, in messages of a bounded size; they reach up to ``position``."""

    def end_watch(self, watch: ChangeWatch, error: MetadataError) -> None:
        """End one watch and send ``error`` as the reason."""

    def prompt(self) -> None:
        """Send the stream's position now instead of when it is due."""

    def wake(self) -> None:
        """Have the stream make another round."""


class ChangeSource:
    """The sources and the shared turns of one replica's change streams."""

    def __init__(
        self,
        shard_id: int,
        log: ReplicatedLog,
        decoded: DecodedEntries,
        read_transaction: ReadTransaction,
        metrics: WatchMetrics,
        *,
        subscribe: Subscribe,
        join: Join,
        wait_commit: Callable[[], Awaitable[None]],
    ) -> None:
        self.shard_id = shard_id
        self.log = log
        self.decoded = decoded
        self.read_transaction = read_transaction
        self.metrics = metrics
        self.subscribe = subscribe
        self.join = join
        self.wait_commit = wait_commit
        self.index: ChangeIndex[WatchOwner, ChangeWatch] = ChangeIndex()
        self.position = log.commit_position
        """Every event up to it was offered to the streams that want it."""
        self.page_turn = asyncio.Lock()
        """Held by the stream that reads a page of the log: one at a time."""
        self.snapshot_turns = asyncio.Semaphore(WATCH_SNAPSHOTS_OPEN_MAX)
        """Held while a snapshot is read from the view."""

    def __repr__(self) -> str:
        return f"<ChangeSource shard={self.shard_id} position={self.position}>"
