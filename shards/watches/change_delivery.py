"""The delivery of committed events to one subscriber: in order of position, each event once.

    hub ── offer ──▶ backlog ──▶ updates of a bounded size
                        │ full        ▲
                        └──▶ lagging: pages of the log, until nothing is left to read

A stream has one delivery for its live watches and one for its leased watch (``change_lease``). A
delivery is complete up to its ``position`` at any moment; an update claims no position beyond it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from nextgen.client.changes.index import changes_in
from nextgen.kernel.errors import PositionCompacted
from nextgen.kernel.limits.cluster import EVENTS_BATCH_BYTES_MAX
from nextgen.kernel.limits.stream import (
    WATCH_BACKLOG_EVENTS_MAX,
    WATCH_CATCH_UP_BYTES,
    WATCH_EVENTS_PER_SLICE,
    WATCH_EVENTS_PER_UPDATE_MAX,
    WATCH_PROGRESS_MS,
)
from protos.nextgen.v1.events_pb2 import Event
from protos.nextgen.v1.shard_service_pb2 import WatchShardUpdate
from shards.watches.change_source import ChangeSource, WatchOwner
from shards.watches.change_watch import Stage

_PROGRESS_SECONDS = WATCH_PROGRESS_MS / 1000

NOT_DUE = float("inf")
"""``Delivery.due_at`` while time alone makes no update due."""


class _Positioned(Protocol):
    @property
    def position(self) -> int: ...


Sent = TypeVar("Sent", bound=_Positioned)
"""An event in the form in which a delivery keeps it until it is sent."""


class Delivery(Generic[Sent]):
    """Delivers events to those watches of one stream that refer to it; see the module.

    Its updates carry ``watch_id``; 0 stands for every live watch of the stream.
    """

    def __init__(self, source: ChangeSource, stream: WatchOwner, watch_id: int = 0) -> None:
        self.watch_id = watch_id
        self.due_at = 0.0
        """When the next update is due at the latest, by the event loop's clock."""
        self.is_lagging = False
        self._source = source
        self._stream = stream
        self._backlog: deque[Sent] = deque()
        self._backlog_events = 0
        """The events that the backlog stands for."""
        self._scanned = 0
        """While lagging: everything up to it was sent."""
        self._floor = 0
        """Events up to it were found in the log, or precede the watches: offers repeat them."""
        self._sent_position = 0
        """The position of the last update."""
        self._wanted_position = 0
        """An update is due as soon as it can carry this position."""

    def __repr__(self) -> str:
        return (
            f"<Delivery {self._stream.subscriber_id}/{self.watch_id} position={self.position} "
            f"backlog={self._backlog_events} lagging={self.is_lagging}>"
        )

    @property
    def position(self) -> int:
        """Everything up to it was sent."""
        if self.is_lagging:
            return self._scanned
        if self._backlog:
            return self._first_position(self._backlog[0]) - 1
        return max(self._source.position, self._floor)

    def start(self, position: int) -> None:
        """Begin behind ``position``, which is committed: the subscriber has the events before
        it."""
        self._scanned = self._floor = position
        self.is_lagging = position < self._source.log.commit_position

    def prompt(self, position: int = 0) -> None:
        """Send an update that carries ``position`` as soon as one can; at once for 0.

        Does nothing if an update carried it already.
        """
        if not position or position > self._sent_position:
            self.send_at(position)

    def send_at(self, position: int) -> None:
        """Send an update as soon as it can carry ``position``, even if nothing has changed.

        While the delivery lags, an update without it is sent at once, as a sign of life.
        """
        if not self._can_send(position):
            self._wanted_position = max(self._wanted_position, position)
            self._source.waiters.add(self)
            if not self.is_lagging:
                return
        self._send_now()

    def look(self) -> None:
        """Send the requested update, if it can be sent by now."""
        if self._can_send(self._wanted_position):
            self._source.waiters.discard(self)
            self._send_now()

    def close(self) -> None:
        """Send nothing more."""
        self._source.waiters.discard(self)
        self._clear()

    # Events -----------------------------------------------------------------------------------

    def offer(self, event: Event) -> None:
        """Queue the next event; an event that was offered before is ignored."""
        raise NotImplementedError

    def fall_behind(self) -> None:
        """Drop the backlog; its events are read from the log instead."""
        self._scanned = self.position
        self.is_lagging = True
        self._clear()
        self._stream.wake()

    def read_page(self) -> None:
        """Send the wanted events of the log's next page; for a delivery that is lagging."""
        log = self._source.log
        try:
            entries = log.read(
                self._scanned + 1, events_max=WATCH_EVENTS_PER_SLICE, bytes_max=WATCH_CATCH_UP_BYTES
            )
        except PositionCompacted:
            self.start(log.commit_position)
            self._begin_again()
            self._send_now()
            return
        wanted = self._sent_of(
            event
            for entry in entries
            for event in self._source.decoded.events(entry)
            if event.position > self._scanned
        )
        if entries:
            self._scanned = entries[-1].next_position - 1
        if self._scanned >= log.commit_position:
            # Nothing is left to read, and the hub has offered nothing behind it yet.
            self.is_lagging = False
            self._floor = self._scanned
        if wanted:
            self._send(wanted)
        elif not self.is_lagging:
            self._send_now()

    def send_due(self) -> None:
        """Send the update that is due: the first events of the backlog, or only the position."""
        backlog = self._backlog
        due: list[Sent] = []
        left = WATCH_EVENTS_PER_UPDATE_MAX
        while backlog and (not due or self._events_in(backlog[0]) <= left):
            events = self._events_in(backlog[0])
            due.append(backlog.popleft())
            self._backlog_events -= events
            left -= events
        self._send(due)

    # For kinds of delivery --------------------------------------------------------------------

    def _next_due_at(self) -> float:
        """Return when the next update is due after one that was sent at this moment."""
        return asyncio.get_running_loop().time() + _PROGRESS_SECONDS

    def _sent_of(self, events: Iterable[Event]) -> Sequence[Sent]:
        """Return those of ``events`` that are sent, in the form in which they are sent.

        ``events`` have adjacent positions.
        """
        raise NotImplementedError

    def _first_position(self, sent: Sent) -> int:
        """Return the position of the first event that ``sent`` stands for."""
        return sent.position

    def _fill(self, update: WatchShardUpdate, events: Sequence[Sent]) -> None:
        """Add ``events`` to an update."""
        raise NotImplementedError

    def _begin_again(self) -> None:
        """Begin again at ``position``, because the log was cut: events before it may be missing."""
        raise NotImplementedError

    def _complete(self, update: WatchShardUpdate) -> None:
        """Complete an update that is certain to be sent."""

    # Inside -----------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._backlog.clear()
        self._backlog_events = 0

    def _events_in(self, sent: Sent) -> int:
        return sent.position - self._first_position(sent) + 1

    def _can_send(self, position: int) -> bool:
        """Return whether everything up to ``position`` is sent or waits in the backlog."""
        if self.is_lagging:
            return self._scanned >= position
        return max(self._source.position, self._floor) >= position

    def _send_now(self) -> None:
        self.due_at = 0.0
        self._stream.wake()

    def _add(self, sent: Sent) -> bool:
        """Append to the backlog; return whether it is there and was not before."""
        position = sent.position
        if self.is_lagging or position <= self._floor:
            return False
        backlog = self._backlog
        if backlog and backlog[-1].position == position:
            return False
        events = self._events_in(sent)
        if self._backlog_events + events > WATCH_BACKLOG_EVENTS_MAX:
            self.fall_behind()
            return False
        backlog.append(sent)
        self._backlog_events += events
        return True

    def _is_wanted(self, event: Event) -> bool:
        return any(
            watch.delivery is self and watch.stage is Stage.LIVE and watch.since < event.position
            for watch in self._source.index.find_of(self._stream, changes_in(event))
        )

    def _send(self, events: Sequence[Sent]) -> None:
        """Send ``events``, which precede the backlog, and ``position``."""
        position = self.position
        self._emit(events, position)
        self._sent_position = position
        if position >= self._wanted_position:
            self._source.waiters.discard(self)
        self.due_at = 0.0 if self._backlog else self._next_due_at()

    def _emit(self, events: Sequence[Sent], position: int) -> None:
        update = WatchShardUpdate(watch_id=self.watch_id, position=position)
        self._fill(update, events)
        if len(events) > 1 and update.ByteSize() > EVENTS_BATCH_BYTES_MAX:
            middle = len(events) // 2
            self._emit(events[:middle], events[middle - 1].position)
            self._emit(events[middle:], position)
            return
        self._complete(update)
        self._stream.emit(update)
