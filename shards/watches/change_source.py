"""What the subscriptions of one replica share: its log, its view, the index of watches, and turns.

The hub alone moves ``position``. Streams add their watches to ``index`` and read the log and the
view, each in its turn, so that any number of streams that catch up leaves time for commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Protocol

from nextgen.client.changes.index import ChangeIndex
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.stream import WATCH_SNAPSHOTS_OPEN_MAX
from nextgen.replication.ports import ReplicatedLog
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.shard_service_pb2 import WatchShardUpdate
from shards.metrics import WatchMetrics
from shards.projections.rows import ReadTransaction
from shards.watches.change_watch import ChangeWatch
from shards.watches.effective_writes import Subscription
from shards.watches.subscriber_ids import AcknowledgingStream
from shards.wire.decoded_entries import DecodedEntries
from shards.wire.leased_form import Creations, LeasedForms


class Join(Protocol):
    """Has the shard's leader wait for a subscriber's acknowledgements; see ``EffectiveWrites``."""

    def __call__(self, stream: AcknowledgingStream, *, is_leased: bool = False) -> Subscription:
        """Return the subscription of ``stream``.

        Raises:
            NotLeader: This replica does not lead.
        """
        ...


class WatchOwner(Hashable, Protocol):
    """A change stream as the index and its joining watches know it. Implemented by
    ``ChangeStream``."""

    @property
    def subscriber_id(self) -> str: ...

    def offer(self, event: Event, watches: Iterable[ChangeWatch]) -> None:
        """Queue an event that ``watches``, all of this stream, want. May repeat an event."""

    def emit(self, update: WatchShardUpdate) -> None:
        """Send ``update`` after those that were made before it."""

    def end_watch(self, watch: ChangeWatch, error: MetadataError) -> None:
        """End one watch and send ``error`` as the reason."""

    def prompt(self, position: int = 0) -> None:
        """Send the stream's position at once instead of when it is due."""

    def wake(self) -> None:
        """Have the stream make another round."""


class CreationSink(Hashable, Protocol):
    """Takes the names of created topics, if it names them. A ``LeasedWatch`` is it."""

    def offer(self, event: Event) -> None:
        """Take in the next event; an event that was offered before is ignored."""

    def offer_creations(self, creations: Creations) -> None:
        """Take in the next creations. They may be offered again."""


class PositionWaiter(Protocol):
    """Waits until every event up to a position was offered. Implemented by ``Delivery``."""

    def look(self) -> None:
        """Note that ``ChangeSource.position`` has moved."""


class ChangeSource:
    """The sources and the shared turns of one replica's change streams."""

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
        self.shard_id = shard_id
        self.log = log
        self.decoded = DecodedEntries(shard_id)
        self.leased_forms = LeasedForms()
        self.read_transaction = read_transaction
        self.metrics = metrics
        self.join = join
        self.wait_commit = wait_commit
        self.index: ChangeIndex[WatchOwner, ChangeWatch] = ChangeIndex()
        self.position = log.commit_position
        """Every event up to it was offered to the streams that want it."""
        self.waiters: set[PositionWaiter] = set()
        """What waits until ``position`` has moved."""
        self.leased: dict[CreationSink, None] = {}
        """The leased watches, in the order in which they began."""
        self.page_turn = asyncio.Lock()
        """Held by the stream that reads a page of the log: one at a time."""
        self.snapshot_turns = asyncio.Semaphore(WATCH_SNAPSHOTS_OPEN_MAX)
        """Held while a snapshot is read from the view."""

    def __repr__(self) -> str:
        return f"<ChangeSource shard={self.shard_id} position={self.position}>"
