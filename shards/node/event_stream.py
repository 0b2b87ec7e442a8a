"""The event log of one shard as a stream, from any replica.

A page is sent before the next one is read, so a reader that stops reading costs one page of memory,
and its pin. A page is made in slices, and other tasks run after each slice. While the event loop is
busy, a reader takes at most a quarter of its time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator, Sequence

from nextgen.client.log.event_bytes import EventFilter, SentEvents
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import MetadataError, PositionAhead, PositionCompacted, Unavailable
from nextgen.kernel.limits.cluster import FOLLOWER_READ_WAIT_MS
from nextgen.kernel.limits.stream import (
    EVENTS_IDLE_MS,
    EVENTS_PAGE_BYTES_MAX,
    EVENTS_PER_PAGE_MAX,
    EVENTS_PER_SLICE,
    EVENTS_SILENT_SLICES_MAX,
    EVENTS_SLICE_BYTES,
)
from nextgen.replication.ports import Entry, LogPin, Role
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.event_bytes_pb2 import EventBatchBytes
from protos.nextgen.v1.shard_service_pb2 import ReadEventsRequest
from shards.node.replica import Replica

BUSY_TURN_S = 0.000_5
"""Seconds. An iteration of the loop that took longer had other work than this reader."""

BUSY_REST = 3
"""While the loop is busy, a reader pauses after a slice for this many times its duration."""


async def stream_events(
    replica: Replica, request: ReadEventsRequest
) -> AsyncGenerator[EventBatchBytes, None]:
    """Yield events from ``request.from_position`` on, in order, each position at most once.

    Ends at the present unless ``follow``, and after ``events_max`` matching events. The message
    is an ``EventBatch``. It may hold no event: ``next_position`` is the first that was not read.

    Raises:
        PositionCompacted: The position is no longer in the log, or was compacted because the
            reader was slower than ``PINNED_LOG_BYTES_MAX`` allows.
        PositionAhead: The position lies beyond the next one. Final if this replica leads and a
            majority has confirmed it, else after ``FOLLOWER_READ_WAIT_MS``.
        NotLeader: This replica leads, and no majority confirms it.
        Unavailable: The replica stopped, or hears no leader and so receives no commits.
        Overloaded: The log has too many readers already.
        InvalidRequest: A type does not exist, or the prefix is too long.
    """
    wanted = EventFilter(request.types, request.key_prefix)
    position = max(1, request.from_position)
    await _reach(replica, position)
    with _naming_the_snapshot(replica):
        # The log must not be compacted past a slow reader.
        pin = replica.log.pin("events", position)
    stop_expediting = replica.log.expedite_commits() if request.follow else None
    try:
        with _naming_the_snapshot(replica):
            async for batch in _stream(replica, request, wanted, position, pin):
                yield batch
    finally:
        pin.release()
        if stop_expediting is not None:
            stop_expediting()


def refusal(error: MetadataError) -> EventBatchBytes:
    """Return the message that ends a stream because of ``error``."""
    message = EventBatchBytes(error=to_detail(error))
    if isinstance(error, PositionCompacted):
        message.oldest_position = error.oldest
        message.snapshot_position = error.snapshot_position
    elif isinstance(error, PositionAhead):
        message.commit_position = error.last
    return message


async def _reach(replica: Replica, position: int) -> None:
    """Return once ``position`` is at most the next one; see ``stream_events``."""
    log = replica.log
    if position <= log.commit_position + 1:
        return
    if log.is_leader:
        await log.read_index()
        if position > log.commit_position + 1:
            raise PositionAhead(position, log.commit_position, is_final=True)
        return
    stop_expediting = log.expedite_commits()
    try:
        async with timeout(FOLLOWER_READ_WAIT_MS / 1000):
            while position > log.commit_position + 1:
                _check_running(replica)
                await replica.wait_commit()
    except TimeoutError:
        pass
    finally:
        stop_expediting()
    if position > log.commit_position + 1:
        raise PositionAhead(position, log.commit_position)


async def _stream(
    replica: Replica,
    request: ReadEventsRequest,
    wanted: EventFilter,
    position: int,
    pin: LogPin,
) -> AsyncGenerator[EventBatchBytes, None]:
    log = replica.log
    pages = _Pages(SentEvents(replica.shard_id, wanted), position, request.events_max or None)
    turns = _Turns()
    while not pages.is_done:
        _check_running(replica)
        turns.begin()
        entries = log.read(
            pages.next_position,
            events_max=EVENTS_PER_SLICE,
            bytes_max=EVENTS_SLICE_BYTES,
        )
        for batch in pages.of(entries):
            turns.end()
            if batch is None:
                await turns.let_others_work()
            else:
                batch.commit_position = log.commit_position
                yield batch
                pin.advance(batch.next_position)
            turns.begin()
        turns.end()
        if entries:
            await turns.let_others_work()
            continue
        if pages.has_unsent:
            yield pages.present(log.commit_position)
        pin.advance(pages.next_position)
        if not request.follow:
            return
        await _wait_for_more(replica, pages.next_position)


async def _wait_for_more(replica: Replica, position: int) -> None:
    while replica.log.commit_position < position:
        try:
            async with timeout(EVENTS_IDLE_MS / 1000):
                await replica.wait_commit()
        except TimeoutError:
            if not replica.log.hears_leader:
                raise Unavailable(f"{replica!r} hears no leader") from None
        _check_running(replica)


def _check_running(replica: Replica) -> None:
    # Building the status is expensive, and a replica that hears a leader has not stopped.
    if not replica.log.hears_leader and replica.log.status.role is Role.STOPPED:
        raise Unavailable(f"{replica!r} has stopped")


@contextlib.contextmanager
def _naming_the_snapshot(replica: Replica) -> Iterator[None]:
    """Add to ``PositionCompacted`` the position of the snapshot with which a watch would begin."""
    try:
        yield
    except PositionCompacted as error:
        applied = replica.log.applied_point.position
        raise PositionCompacted(error.asked, error.oldest, applied) from error


class _Turns:
    """Measures a reader's time on the loop, and pauses the reader while the loop is busy."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = 0.0
        self._took_s = 0.0

    def begin(self) -> None:
        self._began = self._loop.time()

    def end(self) -> None:
        self._took_s += self._loop.time() - self._began

    async def let_others_work(self) -> None:
        """Return after an iteration of the loop, or after a pause if that iteration was busy."""
        took_s, self._took_s = self._took_s, 0.0
        began = self._loop.time()
        await asyncio.sleep(0)
        if self._loop.time() - began > BUSY_TURN_S:
            await asyncio.sleep(BUSY_REST * took_s)


class _Pages:
    """Collects events into messages of a bounded size. ``left`` None: no bound on their number."""

    def __init__(self, sent: SentEvents, position: int, left: int | None) -> None:
        self.next_position = position
        self._sent = sent
        self._left = left
        self._sent_position = 0
        self._silent_slices = 0
        self._events: list[bytes] = []
        self._size = 0

    @property
    def is_done(self) -> bool:
        return self._left == 0

    @property
    def has_unsent(self) -> bool:
        """Whether no message carries the present ``next_position``."""
        return self._sent_position < self.next_position

    def of(self, entries: Sequence[Entry]) -> Iterator[EventBatchBytes | None]:
        """Add ``entries``; yield each message that is full, or the last, or overdue.

        Yields None within a large entry, where other tasks should run first. ``next_position`` is
        behind the added events.
        """
        for entry in entries:
            while True:
                began = self.next_position
                positions, found, behind = self._sent.of(entry, began, EVENTS_PER_SLICE)
                if not self._take_all(found):
                    yield from self._take_each(positions, found)
                    if self.is_done:
                        return
                self.next_position = behind
                if behind - began < EVENTS_PER_SLICE or behind >= entry.next_position:
                    break
                yield None
        self._silent_slices += 1
        if self._silent_slices > EVENTS_SILENT_SLICES_MAX:
            yield self._message(self.next_position)

    def present(self, commit_position: int) -> EventBatchBytes:
        """Return a message without events, with the present ``next_position``."""
        message = self._message(self.next_position)
        message.commit_position = commit_position
        return message

    def _take_all(self, events: Sequence[bytes]) -> bool:
        """Add ``events`` to the message if all fit and their number is not bounded."""
        size = self._size + sum(map(len, events))
        is_full = len(self._events) + len(events) > EVENTS_PER_PAGE_MAX
        if is_full or size > EVENTS_PAGE_BYTES_MAX or self._left is not None:
            return False
        self._events += events
        self._size = size
        return True

    def _take_each(
        self, positions: Sequence[int], events: Sequence[bytes]
    ) -> Iterator[EventBatchBytes]:
        """Add ``events`` one by one, and yield each message that is full, or the last."""
        for position, event in zip(positions, events, strict=True):
            is_larger = self._size + len(event) > EVENTS_PAGE_BYTES_MAX
            if self._events and (is_larger or len(self._events) == EVENTS_PER_PAGE_MAX):
                yield self._message(position)
            self._events.append(event)
            self._size += len(event)
            if self._left is not None:
                self._left -= 1
            if self.is_done:
                yield self._message(position + 1)
                return

    def _message(self, next_position: int) -> EventBatchBytes:
        events, self._events, self._size = self._events, [], 0
        self.next_position = self._sent_position = next_position
        self._silent_slices = 0
        return EventBatchBytes(events=events, next_position=next_position)
