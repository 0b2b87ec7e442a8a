"""The watches of one stream that catch up: their snapshots, then the log up to the present.

    ahead ──(the position commits)──▶ coming ─▶ passing, in one pass over the log ─▶ live
                                        ▲            │ the log was cut
    waiting ──(a look at the view)──────┘◀── reset ──┘

Watches that catch up together read the log once. A pass ends when there is nothing left to read:
from then on the stream's delivery carries their events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nextgen.client.changes.index import changes_in
from nextgen.kernel.errors import (
    MetadataError,
    Overloaded,
    PositionAhead,
    PositionCompacted,
    Unavailable,
)
from nextgen.kernel.limits.cluster import EVENTS_BATCH_BYTES_MAX, FOLLOWER_READ_WAIT_MS
from nextgen.kernel.limits.stream import (
    WATCH_CATCH_UP_BYTES,
    WATCH_EVENTS_PER_SLICE,
    WATCH_EVENTS_PER_UPDATE_MAX,
    WATCH_JOINING_MAX,
    WATCH_SNAPSHOT_MS_MAX,
    WATCH_SNAPSHOTS_PER_READ_MAX,
)
from nextgen.replication.ports import LogPin
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.inventory_pb2 import Item
from protos.nextgen.v1.shard_service_pb2 import WatchShardUpdate
from shards.watches.change_snapshot import SnapshotRun
from shards.watches.change_source import ChangeSource, WatchOwner
from shards.watches.change_watch import ChangeWatch, EventSink, Stage

_PIN_NAME = "watch"


@dataclass(slots=True)
class _SnapshotRead:
    """A read of the view that is in progress, for watches that start with a snapshot."""

    run: SnapshotRun[ChangeWatch]
    began_at: float


class JoiningWatches:
    """See the module. Owned by its stream, which calls ``close``."""

    def __init__(self, source: ChangeSource, stream: WatchOwner, delivery: EventSink) -> None:
        self._source = source
        self._stream = stream
        self._delivery = delivery
        self._ahead: set[asyncio.Task[None]] = set()
        self._waiting: deque[ChangeWatch] = deque()
        self._coming: deque[ChangeWatch] = deque()
        self._passing: dict[ChangeWatch, None] = {}
        self._scanned = 0
        """Position up to which the watches that catch up have their events."""
        self._reading: _SnapshotRead | None = None
        self._pin: LogPin | None = None

    def __repr__(self) -> str:
        return (
            f"<JoiningWatches waiting={len(self._waiting)} coming={len(self._coming)} "
            f"passing={len(self._passing)}>"
        )

    @property
    def has_work(self) -> bool:
        """Whether another round has work to do."""
        if self._passing or self._coming or self._reading is not None:
            return True
        return bool(self._waiting) and not self._source.snapshot_turns.locked()

    @property
    def reads_log(self) -> bool:
        """Whether a page of the log is due."""
        return bool(self._passing or self._coming)

    def add(self, watch: ChangeWatch) -> None:
        """Begin with a watch."""
        if watch.from_position > self._source.log.commit_position:
            start("change_watch_ahead", self._reach(watch), self._ahead)
        elif watch.from_position:
            self._come(watch, watch.from_position)
        else:
            self._begin(watch)

    def reset(self, watch: ChangeWatch) -> None:
        """Begin a watch again with a snapshot, because its events are no longer in the log."""
        self._source.metrics.resets.inc()
        self._stream.emit(WatchShardUpdate(watch_id=watch.watch_id, reset=True))
        self._begin(watch)

    def close(self) -> None:
        """Stop reading."""
        for task in self._ahead:
            task.cancel()
        self._stop_reading()
        self._unpin()

    # The log ----------------------------------------------------------------------------------

    def read_page(self) -> None:
        """Send the watches that catch up their events of one page of the log."""
        if not self._passing and not self._begin_pass():
            return
        try:
            entries = self._source.log.read(
                self._scanned + 1,
                events_max=WATCH_EVENTS_PER_SLICE,
                bytes_max=WATCH_CATCH_UP_BYTES,
            )
        except PositionCompacted as error:
            self._reset_cut(error.oldest)
            return
        wanted: dict[ChangeWatch, list[Event]] = {}
        for entry in entries:
            for event in self._source.decoded.events(entry):
                if event.position > self._scanned:
                    self._collect(event, wanted)
        if entries:
            self._scanned = entries[-1].next_position - 1
        for watch, events in wanted.items():
            for part, is_last in _parts(events):
                reached = self._scanned if is_last else part[-1].position
                self._stream.emit(
                    WatchShardUpdate(watch_id=watch.watch_id, position=reached, events=part)
                )
        if self._scanned >= self._source.log.commit_position:
            self._go_live()

    def _begin_pass(self) -> bool:
        while self._coming and len(self._passing) < WATCH_JOINING_MAX:
            watch = self._coming.popleft()
            if watch.stage is not Stage.ENDED:
                self._passing[watch] = None
        if not self._passing:
            self._unpin_if_idle()
            return False
        self._scanned = min(watch.since for watch in self._passing)
        return True

    def _collect(self, event: Event, wanted: dict[ChangeWatch, list[Event]]) -> None:
        for watch in self._source.index.find_of(self._stream, changes_in(event)):
            if watch in self._passing and watch.since < event.position:
                wanted.setdefault(watch, []).append(event)

    def _go_live(self) -> None:
        """Make the watches live: no event is left to read, and the hub has offered none behind this
        position."""
        for watch in self._passing:
            if watch.stage is Stage.ENDED:
                continue
            watch.since = max(watch.since, self._scanned)
            watch.stage = Stage.LIVE
            watch.delivery = self._delivery
            self._stream.emit(WatchShardUpdate(watch_id=watch.watch_id, position=watch.since))
            if watch.is_acknowledged:
                # From here on it acknowledges positions of the stream.
                self._stream.prompt()
        self._passing.clear()
        self._unpin_if_idle()

    def _reset_cut(self, oldest: int) -> None:
        """Begin again the watches that have not been sent the events that were cut off."""
        for watch in tuple(self._passing):
            watch.since = max(watch.since, self._scanned)
            if watch.stage is Stage.ENDED or watch.since + 1 < oldest:
                del self._passing[watch]
                if watch.stage is not Stage.ENDED:
                    self.reset(watch)
        if self._passing:
            self._scanned = min(watch.since for watch in self._passing)

    def _come(self, watch: ChangeWatch, since: int) -> None:
        watch.since = since
        watch.stage = Stage.CATCHING_UP
        self._coming.append(watch)
        self._stream.wake()

    async def _reach(self, watch: ChangeWatch) -> None:
        """Wait until the watch's position is committed; end it when it is in the future."""
        log, position = self._source.log, watch.from_position
        is_final = False
        try:
            if log.is_leader:
                await log.read_index()
                is_final = True
            else:
                with contextlib.suppress(TimeoutError):
                    async with timeout(FOLLOWER_READ_WAIT_MS / 1000):
                        while log.commit_position < position:
                            await self._source.wait_commit()
            if log.commit_position < position:
                raise PositionAhead(position, log.commit_position, is_final=is_final)
        except MetadataError as error:
            self._stream.end_watch(watch, error)
            return
        if watch.stage is not Stage.ENDED:
            self._come(watch, position)

    # The view ---------------------------------------------------------------------------------

    def _begin(self, watch: ChangeWatch) -> None:
        watch.since = 0
        if not watch.has_snapshot:
            self._come(watch, self._source.log.commit_position)
            return
        watch.stage = Stage.SNAPSHOTTING
        self._waiting.append(watch)
        self._stream.wake()

    async def read_snapshots(self) -> None:
        """Send the waiting watches their items of one page of the view."""
        if self._reading is None and not await self._look():
            return
        assert self._reading is not None, "a look has begun"
        reading = self._reading
        try:
            pages = await reading.run.read()
        except BaseException:
            self._stop_reading()
            raise
        position = reading.run.position
        for watch, items, is_last in pages:
            if watch.stage is Stage.ENDED:
                continue
            self._emit_items(watch, items, position if is_last else None)
            if is_last:
                self._come(watch, position)
        if reading.run.is_done:
            self._stop_reading()
        else:
            self._bound(reading)

    async def _look(self) -> bool:
        """Open a read of the view for the waiting watches; return whether that was possible."""
        watches = self._take_waiting()
        if not watches or self._source.snapshot_turns.locked():
            self._waiting.extendleft(reversed(watches))
            return False
        await self._source.snapshot_turns.acquire()
        began_at = asyncio.get_running_loop().time()
        selected = [(watch, watch.selection) for watch in watches]
        run = SnapshotRun(self._source.read_transaction, selected)
        self._reading = _SnapshotRead(run, began_at)
        try:
            if not all(watch.is_acknowledged for watch in watches):
                await self._reach_present()
            await run.open()
        except BaseException:
            self._stop_reading()
            raise
        if self._pin is None:
            # Without it the log may be cut before they have caught up; then they begin again.
            with contextlib.suppress(Overloaded, PositionCompacted):
                self._pin = self._source.log.pin(_PIN_NAME, run.position + 1)
        return True

    async def _reach_present(self) -> None:
        """Wait until the view has what is committed: a snapshot shows every write that the leader
        acknowledged before the watch began.

        Not for acknowledged watches: nodes have one for each topic that they use, and nothing is
        effective before they have the events behind the snapshot.
        """
        position = self._source.log.commit_position
        try:
            async with timeout(FOLLOWER_READ_WAIT_MS / 1000):
                await self._source.log.wait_position(position)
        except TimeoutError:
            raise Unavailable(
                f"the view has not reached position {position} in {FOLLOWER_READ_WAIT_MS} ms"
            ) from None

    def _take_waiting(self) -> list[ChangeWatch]:
        taken: list[ChangeWatch] = []
        while self._waiting and len(taken) < WATCH_SNAPSHOTS_PER_READ_MAX:
            watch = self._waiting.popleft()
            if watch.stage is not Stage.ENDED:
                taken.append(watch)
        return taken

    def _emit_items(self, watch: ChangeWatch, items: Sequence[Item], position: int | None) -> None:
        """Send a page in messages of a bounded size; the last message of the snapshot carries
        ``position``."""
        update = WatchShardUpdate(watch_id=watch.watch_id)
        size_bytes = 0
        for item in items:
            item_bytes = item.ByteSize()
            if update.items and size_bytes + item_bytes > EVENTS_BATCH_BYTES_MAX:
                self._stream.emit(update)
                update, size_bytes = WatchShardUpdate(watch_id=watch.watch_id), 0
            update.items.append(item)
            size_bytes += item_bytes
        if position is not None:
            update.snapshot_complete = True
            update.position = position
        if update.items or position is not None:
            self._stream.emit(update)

    def _bound(self, reading: _SnapshotRead) -> None:
        """Bound the time of one read of the view, so that other streams get their turn."""
        elapsed_ms = (asyncio.get_running_loop().time() - reading.began_at) * 1000
        if elapsed_ms > WATCH_SNAPSHOT_MS_MAX / 2:
            self._waiting.extendleft(reversed(reading.run.give_back()))
        if elapsed_ms > WATCH_SNAPSHOT_MS_MAX:
            watch = reading.run.current
            self._stop_reading()
            if watch is not None:
                late = f"the snapshot was not sent within {WATCH_SNAPSHOT_MS_MAX} ms"
                self._stream.end_watch(watch, Overloaded(late))

    def _stop_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.run.close()
            self._source.snapshot_turns.release()
        self._unpin_if_idle()

    def _unpin_if_idle(self) -> None:
        is_idle = not (self._waiting or self._coming or self._passing)
        if is_idle and self._reading is None:
            self._unpin()

    def _unpin(self) -> None:
        pin, self._pin = self._pin, None
        if pin is not None:
            pin.release()


def _parts(events: Sequence[Event]) -> Iterator[tuple[Sequence[Event], bool]]:
    """Yield ``events`` in parts that fit a message, each with whether it is the last; at least one
    part."""
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
