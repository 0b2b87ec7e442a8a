"""One change stream: any number of watches of one subscriber, told in one order.

    level watches ── backlog, or the log while it is lagging ──▶ updates with watch_id 0
    joining watches ── snapshot, then the log ────────────────▶ updates with their own watch_id
    a leased watch ── the assignments' feed ──────────────────▶ updates with its watch_id

An update with watch_id 0 carries each event once, however many of the watches want it: the
subscriber finds them as the shard did (``client.changes.index``). It is about a watch from the
update on that carries nothing but that watch's id and a position. Each round has a page of every
kind of work, so a watch that catches up holds nobody up for longer than a page.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from nextgen.client.changes.index import Change, change_of
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import InvalidRequest, MetadataError, Overloaded, PositionCompacted
from nextgen.kernel.limits.cluster import EVENTS_BATCH_BYTES_MAX
from nextgen.kernel.limits.stream import (
    WATCH_BACKLOG_EVENTS_MAX,
    WATCH_CATCH_UP_BYTES,
    WATCH_EVENTS_PER_SLICE,
    WATCH_EVENTS_PER_UPDATE_MAX,
    WATCH_PROGRESS_MS,
    WATCH_UPDATES_WAITING_MAX,
    WATCHES_PER_STREAM_MAX,
)
from nextgen.tasks.timeouts import timeout_at
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.shard_service_pb2 import WatchAdd, WatchRenew, WatchShardUpdate
from shards.watches.change_joining import JoiningWatches
from shards.watches.change_lease import LeasedWatch
from shards.watches.change_source import ChangeSource
from shards.watches.change_watch import ChangeWatch, Stage, UsedIds, changes_of, checked_watch
from shards.watches.effective_writes import Subscription

_PROGRESS_SECONDS = WATCH_PROGRESS_MS / 1000


class ChangeStream:
    """See the module. Made by ``ChangeHub.open``; the adapter that serves it calls ``close``.

    ``leave`` is called with a stream that is closed. ``notice_commits`` is called before the stream
    says how far it is.
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
        self._backlog: deque[Event] = deque()
        self._is_lagging = False
        self._scanned = 0
        """While lagging: everything up to it was told to the level watches."""
        self._floor = 0
        """What the hub offers up to it was found in the log already."""
        self._has_room = asyncio.Event()
        self._progress_at = 0.0
        self._has_room.set()
        self._joining = JoiningWatches(source, self)
        self._lease: LeasedWatch | None = None
        self._acknowledged: dict[int, ChangeWatch] = {}
        self._subscriber: Subscription | None = None

    def __repr__(self) -> str:
        return (
            f"<ChangeStream {self.subscriber_id} watches={len(self._watches)} "
            f"backlog={len(self._backlog)} lagging={self._is_lagging}>"
        )

    @property
    def watch_count(self) -> int:
        return len(self._watches)

    @property
    def level_position(self) -> int:
        """Up to where every level watch was told everything."""
        if self._is_lagging:
            return self._scanned
        if self._backlog:
            return self._backlog[0].position - 1
        return max(self._source.position, self._floor)

    # The subscriber's side --------------------------------------------------------------------

    def add(self, add: WatchAdd) -> None:
        """Begin a watch. One that is refused is told why by an update with its id.

        Raises:
            InvalidRequest: Its id is 0, so nobody could be told.
            Overloaded: The stream's ids cannot be remembered any more.
        """
        try:
            if not self._used_ids.take(add.watch_id):
                # Its subscriber could not tell the updates of the two apart: both end.
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
        if not watch.is_leased:
            self._index(watch)
            self._joining.add(watch)
        if watch.is_acknowledged and self._subscriber is not None:
            # Only now can it be seen that what it watches is not taken in.
            self._subscriber.watches(changes_of(watch))
        self.wake()

    def remove(self, watch_id: int) -> None:
        """End a watch; an unknown one is ignored. Updates of it may be on their way."""
        watch = self._watches.pop(watch_id, None)
        if watch is None:
            return
        watch.stage = Stage.ENDED
        self._acknowledged.pop(watch_id, None)
        if watch.is_leased:
            self._drop_lease()
        else:
            self._unindex(watch)

    def renew(self, renew: WatchRenew) -> None:
        """Pass on what the subscriber says of its leased watch, or of its acknowledged ones."""
        if self._lease is not None:
            self._lease.renew(renew)
        if self._subscriber is not None:
            behind = frozenset(renew.behind)
            for watch_id, watch in self._acknowledged.items():
                if watch_id not in behind:
                    watch.acked = max(watch.acked, renew.acked_position)
            self._subscriber.heard(renew.complete_term)

    def has_taken_in(self, changes: Collection[Change], position: int) -> bool:
        """Say whether every acknowledged watch that wants one of ``changes`` is at ``position``."""
        return all(
            watch.acked >= position
            for change in changes
            for watch in self._source.index.find_of(self, change)
            if watch.is_acknowledged
        )

    async def wait_room(self) -> None:
        """Return once the subscriber has read enough that it may ask for more."""
        await self._has_room.wait()

    async def next_update(self) -> WatchShardUpdate:
        """Return what is to be sent next; waits for it, at most until progress is due.

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
            if self._is_lagging or self._joining.has_work:
                # Nothing to tell in this page of the log, and more pages wait.
                await asyncio.sleep(0)
                continue
            with contextlib.suppress(TimeoutError):
                async with timeout_at(self._progress_at):
                    await self._changed.wait()
        update = self._outbox.popleft()
        if len(self._outbox) < WATCH_UPDATES_WAITING_MAX:
            self._has_room.set()
        # A lease is prolonged as regularly as progress is told.
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
        """The subscriber is gone. Closing again does nothing."""
        self._leave(self)
        self._joining.close()
        self._drop_lease()
        self._backlog.clear()

    # The hub's side ---------------------------------------------------------------------------

    def prompt(self) -> None:
        """Say how far it was told without waiting until that is due."""
        self._progress_at = 0.0
        self.wake()

    def offer(self, event: Event, watches: Iterable[ChangeWatch]) -> None:
        """Take in an event that ``watches``, of this stream, want. Each event may come again."""
        position = event.position
        if self._is_lagging or position <= self._floor:
            return
        if not any(watch.stage is Stage.LEVEL and watch.since < position for watch in watches):
            return
        backlog = self._backlog
        if backlog and backlog[-1].position == position:
            return
        if len(backlog) >= WATCH_BACKLOG_EVENTS_MAX:
            self.fall_behind()
            return
        backlog.append(event)
        self._changed.set()

    def fall_behind(self) -> None:
        """Forget what waits; the log has it."""
        self._scanned = self.level_position
        self._is_lagging = True
        self._backlog.clear()
        self.wake()

    def leave_index(self) -> None:
        """Let no event be offered any more."""
        # First: without watches it would seem to have taken everything in.
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            subscriber.leave()
        for watch in self._watches.values():
            watch.stage = Stage.ENDED
            if not watch.is_leased:
                self._unindex(watch)
        self._watches.clear()
        self._acknowledged.clear()

    # The joining watches' side ----------------------------------------------------------------

    def emit(self, update: WatchShardUpdate) -> None:
        """Send ``update`` after those that were made before it."""
        self._outbox.append(update)
        if len(self._outbox) >= WATCH_UPDATES_WAITING_MAX:
            self._has_room.clear()
        self.wake()

    def emit_events(self, watch_id: int, events: Sequence[Event], position: int) -> None:
        """Send ``events``, in messages of a bounded size; they reach up to ``position``."""
        for some, is_last in _parts(events):
            reached = position if is_last else some[-1].position
            self.emit(WatchShardUpdate(watch_id=watch_id, position=reached, events=some))

    def end_watch(self, watch: ChangeWatch, error: MetadataError) -> None:
        """End one watch and say why."""
        if watch.stage is not Stage.ENDED:
            if watch.is_acknowledged and self._subscriber is not None:
                self._subscriber.lose_watch()
            self.remove(watch.watch_id)
            self.emit(WatchShardUpdate(watch_id=watch.watch_id, error=to_detail(error)))

    def wake(self) -> None:
        self._changed.set()

    # One round --------------------------------------------------------------------------------

    async def _advance(self) -> None:
        """Make at most a page of each kind of work."""
        self._take_lease_update()
        if self._backlog:
            self._take_backlog()
        if self._is_lagging or self._joining.reads_log:
            async with self._source.page_turn:
                if self._is_lagging:
                    self._read_level_page()
                self._joining.read_page()
                # However many streams catch up, between two pages commits have their turn.
                await asyncio.sleep(0)
        await self._joining.read_snapshots()
        if asyncio.get_running_loop().time() >= self._progress_at:
            self._notice_commits()
            self._emit_level(())

    def _take_backlog(self) -> None:
        count = min(len(self._backlog), WATCH_EVENTS_PER_UPDATE_MAX)
        self._emit_level([self._backlog.popleft() for _ in range(count)])

    def _read_level_page(self) -> None:
        try:
            entries = self._source.log.read(
                self._scanned + 1,
                events_max=WATCH_EVENTS_PER_SLICE,
                bytes_max=WATCH_CATCH_UP_BYTES,
            )
        except PositionCompacted:
            self._reset_level()
            return
        wanted = [
            event
            for entry in entries
            for event in self._source.decoded.events(entry)
            if event.position > self._scanned and self._is_wanted(event)
        ]
        if entries:
            self._scanned = entries[-1].next_position - 1
        if wanted:
            self._emit_level(wanted)
        if self._scanned >= self._source.log.commit_position:
            # Nothing is left to read, and the hub has offered nothing behind it yet.
            self._is_lagging = False
            self._floor = self._scanned

    def _is_wanted(self, event: Event) -> bool:
        change = change_of(event)
        return change is not None and any(
            watch.stage is Stage.LEVEL and watch.since < event.position
            for watch in self._source.index.find_of(self, change)
        )

    def _reset_level(self) -> None:
        for watch in tuple(self._watches.values()):
            if watch.stage is Stage.LEVEL:
                self._joining.reset(watch)
        self._is_lagging = False
        self._scanned = self._floor = self._source.log.commit_position

    def _emit_level(self, events: Sequence[Event]) -> None:
        self.emit_events(0, events, self.level_position)
        self._progress_at = asyncio.get_running_loop().time() + _PROGRESS_SECONDS

    # The lease --------------------------------------------------------------------------------

    def _add_lease(self, watch: ChangeWatch) -> None:
        if self._lease is not None or self._acknowledged:
            raise InvalidRequest("this stream has a leased watch, or acknowledged ones, already")
        subscription = self._source.subscribe(
            self.subscriber_id, watch.from_position, watch.names_creations
        )
        self._lease = LeasedWatch(
            watch.watch_id,
            subscription,
            self.wake,
            is_resumed=bool(watch.from_position),
        )

    def _add_acknowledged(self, watch: ChangeWatch) -> None:
        if self._lease is not None:
            raise InvalidRequest("this stream has a leased watch: its acknowledgements are of that")
        if self._subscriber is None:
            self._subscriber = self._source.join(self)
        self._acknowledged[watch.watch_id] = watch

    def _take_lease_update(self) -> None:
        if self._lease is None:
            return
        try:
            update = self._lease.take_update()
        except MetadataError as error:
            self.end_watch(self._watches[self._lease.watch_id], error)
            return
        if update is not None:
            self.emit(update)

    def _drop_lease(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()

    def _index(self, watch: ChangeWatch) -> None:
        chosen = watch.selection
        self._source.index.add(self, watch, chosen.kinds, prefix=chosen.prefix, names=chosen.names)

    def _unindex(self, watch: ChangeWatch) -> None:
        chosen = watch.selection
        self._source.index.discard(
            self, watch, chosen.kinds, prefix=chosen.prefix, names=chosen.names
        )


def _parts(events: Sequence[Event]) -> Iterator[tuple[Sequence[Event], bool]]:
    """Yield ``events`` in parts that fit a message, and whether each is the last; one at least."""
    part: list[Event] = []
    size_bytes = 0
    for event in events:
        event_bytes = event.ByteSize()
        is_full = len(part) == WATCH_EVENTS_PER_UPDATE_MAX
        if part and (is_full or size_bytes + event_bytes > EVENTS_BATCH_BYTES_MAX):
            yield part, False
            part, size_bytes = [], 0
        part.append(event)
        size_bytes += event_bytes
    yield part, True
