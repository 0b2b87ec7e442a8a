"""One change stream: the watches of one subscriber, and one place where it acknowledges.

    live watches ─────────── a delivery ─────────────▶ updates with watch_id 0
    a leased watch ───────── a delivery of its own ──▶ updates with its watch_id
    watches that catch up ── snapshot, then the log ─▶ updates with their own watch_id

An update with watch_id 0 carries each event once, however many of the watches want it: the
subscriber finds them as the shard did (``client.changes.index``). A watch is included from the
update on that carries only that watch's id and a position. Each round does a page of every kind of
work, so a watch that catches up delays the others by a page at most.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from nextgen.client.changes.index import Change
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import InvalidRequest, MetadataError, Overloaded
from nextgen.kernel.limits.cluster import ASSIGNMENT_SUBSCRIBERS_MAX
from nextgen.kernel.limits.stream import WATCH_UPDATES_WAITING_MAX, WATCHES_PER_STREAM_MAX
from nextgen.tasks.timeouts import timeout_at
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.shard_service_pb2 import WatchAdd, WatchRenew, WatchShardUpdate
from shards.watches.change_delivery import NOT_DUE, Delivery
from shards.watches.change_joining import JoiningWatches
from shards.watches.change_lease import LeasedWatch
from shards.watches.change_source import ChangeSource
from shards.watches.change_watch import (
    ChangeWatch,
    EventSink,
    Stage,
    UsedIds,
    changes_of,
    checked_watch,
)
from shards.watches.effective_writes import Subscription


class ChangeStream:
    """See the module. Made by ``ChangeHub.open``; the adapter that serves it calls ``close``.

    ``leave`` is called with a stream that is closed. ``notice_commits`` is called before the stream
    sends its position.
    """

    def __init__(
        self,
        source: ChangeSource,
        subscriber_id: str,
        *,
        notice_commits: Callable[[], None],
        leave: Callable[[ChangeStream], None],
    ) -> None:
        self.subscriber_id = subscriber_id
        self._source = source
        self._notice_commits = notice_commits
        self._leave = leave
        self._error: MetadataError | None = None
        self._changed = asyncio.Event()
        self._watches: dict[int, ChangeWatch] = {}
        self._used_ids = UsedIds()
        self._outbox: deque[WatchShardUpdate] = deque()
        """At most one round's updates."""
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._live = _LiveDelivery(source, self)
        self._joining = JoiningWatches(source, self, self._live)
        self._lease: LeasedWatch | None = None
        self._deliveries: tuple[Delivery[Any], ...] = (self._live,)
        self._acknowledged: dict[int, ChangeWatch] = {}
        self._subscriber: Subscription | None = None

    def __repr__(self) -> str:
        return (
            f"<ChangeStream {self.subscriber_id} watches={len(self._watches)} {self._deliveries}>"
        )

    @property
    def watch_count(self) -> int:
        return len(self._watches)

    @property
    def needs_progress(self) -> bool:
        """Whether the position must be sent regularly. A leased watch's own updates carry its."""
        return self._lease is None or len(self._watches) > 1

    # The subscriber's side --------------------------------------------------------------------

    def add(self, add: WatchAdd) -> None:
        """Begin a watch. A refusal is sent as an update with its id.

        Raises:
            InvalidRequest: Its id is 0, so no update could carry the refusal.
            Overloaded: The stream's ids cannot be remembered any more.
        """
        try:
            if not self._used_ids.take(add.watch_id):
                # The subscriber could not distinguish the updates of the two watches: both end.
                self.remove(add.watch_id)
                raise InvalidRequest(f"the watch id {add.watch_id} was used on this stream before")
            if len(self._watches) >= WATCHES_PER_STREAM_MAX:
                raise Overloaded(f"this stream has {WATCHES_PER_STREAM_MAX} watches")
            watch = checked_watch(add)
            if watch.is_leased:
                self._add_lease(watch)
            elif watch.is_acknowledged:
                self._add_acknowledged(watch)
        except MetadataError as error:
            if not add.watch_id:
                raise
            self.emit(WatchShardUpdate(watch_id=add.watch_id, error=to_detail(error)))
            return
        self._watches[watch.watch_id] = watch
        self._index(watch)
        if not watch.is_leased:
            self._joining.add(watch)
            self._live.keep_progress()
        if watch.is_acknowledged and self._subscriber is not None:
            # Only from here on does an effective write see that the watch has not acknowledged.
            self._subscriber.watches(changes_of(watch))
        self.wake()

    def remove(self, watch_id: int) -> None:
        """End a watch; an unknown one is ignored. Updates of it may be on their way."""
        watch = self._watches.pop(watch_id, None)
        if watch is None:
            return
        watch.stage = Stage.ENDED
        self._acknowledged.pop(watch_id, None)
        self._unindex(watch)
        if watch.is_leased:
            self._drop_lease()

    def renew(self, renew: WatchRenew) -> None:
        """Apply the subscriber's acknowledgement of its leased watch, or of its acknowledged
        ones."""
        if self._lease is not None:
            self._lease.renew(renew)
        if self._subscriber is not None:
            behind = frozenset(renew.behind)
            for watch_id, watch in self._acknowledged.items():
                if watch_id not in behind:
                    watch.acked = max(watch.acked, renew.acked_position)
            self._subscriber.heard(renew.complete_term)

    def has_taken_in(self, changes: Collection[Change], position: int) -> bool:
        """Return whether all acknowledged watches of one of ``changes`` are at ``position``."""
        return all(
            watch.acked >= position
            for watch in self._source.index.find_of(self, changes)
            if watch.is_acknowledged
        )

    async def wait_room(self) -> None:
        """Return once the subscriber has read enough updates to send another request."""
        await self._has_room.wait()

    async def next_update(self) -> WatchShardUpdate:
        """Return the next update; waits for one, at most until progress is due.

        Raises:
            MetadataError: Why the stream has ended.
        """
        while not self._outbox:
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._advance()
            if self._outbox:
                break
            if self._joining.has_work or any(each.is_lagging for each in self._deliveries):
                # Nothing to send of this page of the log, and more pages wait.
                await asyncio.sleep(0)
                continue
            due_at = min(each.due_at for each in self._deliveries)
            with contextlib.suppress(TimeoutError):
                async with timeout_at(due_at if due_at < NOT_DUE else None):
                    await self._changed.wait()
        update = self._outbox.popleft()
        if len(self._outbox) < WATCH_UPDATES_WAITING_MAX:
            self._has_room.set()
        # A lease is prolonged as regularly as progress is sent.
        is_progress = not update.events and (not update.watch_id or bool(update.confirmed_at_ms))
        metrics = self._source.metrics
        (metrics.progress if is_progress else metrics.updates).inc()
        metrics.events.inc(len(update.events))
        return update

    def fail(self, error: MetadataError) -> None:
        """End the stream: the next ``next_update`` raises ``error``."""
        if self._error is None:
            self._error = error
            self._outbox.clear()
            self._has_room.set()
            self.wake()

    def close(self) -> None:
        """End the stream, because its subscriber left. Closing again does nothing."""
        self._leave(self)
        self._joining.close()
        self._drop_lease()
        self._live.close()

    # The hub's side ---------------------------------------------------------------------------

    def prompt(self, position: int = 0) -> None:
        """Send the position as soon as it reaches ``position``, without waiting until it is due."""
        self._live.prompt(position)

    def offer(self, event: Event, watches: Iterable[ChangeWatch]) -> None:
        """Offer an event that ``watches``, of this stream, want. An event may be offered again."""
        position = event.position
        served: EventSink | None = None
        for watch in watches:
            sink = watch.delivery
            if sink is None or sink is served:
                continue
            if watch.stage is Stage.LIVE and watch.since < position:
                served = sink
                sink.offer(event)

    def fall_behind(self) -> None:
        """Drop the backlog; the log has its events."""
        for delivery in self._deliveries:
            delivery.fall_behind()

    def leave_index(self) -> None:
        """Leave the index: no more events are offered. The subscription counts for a limited time
        from here on."""
        # First: without watches it would seem to have taken everything in.
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            subscriber.leave()
        self._drop_lease()
        for watch in self._watches.values():
            watch.stage = Stage.ENDED
            self._unindex(watch)
        self._watches.clear()
        self._acknowledged.clear()

    # The watches' side ------------------------------------------------------------------------

    def emit(self, update: WatchShardUpdate) -> None:
        """Send ``update`` after those that were made before it."""
        self._outbox.append(update)
        if len(self._outbox) >= WATCH_UPDATES_WAITING_MAX:
            self._has_room.clear()
        self.wake()

    def end_watch(self, watch: ChangeWatch, error: MetadataError) -> None:
        """End one watch and send ``error`` as the reason."""
        if watch.stage is not Stage.ENDED:
            if watch.is_acknowledged and self._subscriber is not None:
                self._subscriber.lose_watch()
            self.remove(watch.watch_id)
            self.emit(WatchShardUpdate(watch_id=watch.watch_id, error=to_detail(error)))

    def begin_again(self) -> None:
        """Begin every live watch of this stream's delivery again, because the log was cut."""
        for watch in tuple(self._watches.values()):
            if watch.stage is Stage.LIVE and not watch.is_leased:
                self._joining.reset(watch)

    def wake(self) -> None:
        self._changed.set()

    # Inside -----------------------------------------------------------------------------------

    async def _advance(self) -> None:
        """Make one round: at most a page of each kind of work."""
        self._send_due([each for each in self._deliveries if not each.is_lagging])
        if self._joining.reads_log or any(each.is_lagging for each in self._deliveries):
            async with self._source.page_turn:
                for delivery in self._deliveries:
                    if delivery.is_lagging:
                        delivery.read_page()
                self._joining.read_page()
                # However many streams catch up, between two pages commits have their turn.
                await asyncio.sleep(0)
            self._send_due(self._deliveries)
        await self._joining.read_snapshots()

    def _send_due(self, deliveries: Iterable[Delivery[Any]]) -> None:
        now = asyncio.get_running_loop().time()
        due = [each for each in deliveries if each.due_at <= now]
        if due:
            self._notice_commits()
        for delivery in due:
            delivery.send_due()

    def _add_lease(self, watch: ChangeWatch) -> None:
        if self._lease is not None or self._acknowledged:
            raise InvalidRequest("this stream has a leased watch, or acknowledged ones, already")
        if len(self._source.leased) >= ASSIGNMENT_SUBSCRIBERS_MAX:
            raise Overloaded(
                f"shard {self._source.shard_id} has {ASSIGNMENT_SUBSCRIBERS_MAX} leased watches"
            )
        self._lease = LeasedWatch(watch, self._source, self)
        self._deliveries = (self._lease, self._live)

    def _add_acknowledged(self, watch: ChangeWatch) -> None:
        if self._lease is not None:
            raise InvalidRequest("this stream has a leased watch: its acknowledgements are of that")
        if self._subscriber is None:
            self._subscriber = self._source.join(self)
        self._acknowledged[watch.watch_id] = watch

    def _drop_lease(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            self._deliveries = (self._live,)
            self._live.keep_progress()
            lease.close()

    def _index(self, watch: ChangeWatch) -> None:
        chosen = watch.selection
        self._source.index.add(self, watch, chosen.kinds, prefix=chosen.prefix, names=chosen.names)

    def _unindex(self, watch: ChangeWatch) -> None:
        chosen = watch.selection
        self._source.index.discard(
            self, watch, chosen.kinds, prefix=chosen.prefix, names=chosen.names
        )


class _LiveDelivery(Delivery[Event]):
    """The delivery of a stream's live watches: every event at once, as it is."""

    def __init__(self, source: ChangeSource, stream: ChangeStream) -> None:
        super().__init__(source, stream)
        self._of_stream = stream

    def keep_progress(self) -> None:
        """Send the position regularly from here on, if a watch of the stream needs that."""
        self.due_at = min(self.due_at, self._next_due_at())

    def offer(self, event: Event) -> None:
        if self._add(event):
            self._send_now()

    def _next_due_at(self) -> float:
        return super()._next_due_at() if self._of_stream.needs_progress else NOT_DUE

    def _sent_of(self, events: Iterable[Event]) -> Sequence[Event]:
        return [event for event in events if self._is_wanted(event)]

    def _fill(self, update: WatchShardUpdate, events: Sequence[Event]) -> None:
        update.events.extend(events)

    def _begin_again(self) -> None:
        self._of_stream.begin_again()
