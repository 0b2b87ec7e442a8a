"""Which part of a replica's log may be compacted, and which pins retain the rest.

    cut ... │ pinned by readers │ the last entries that the view has on disk │ since then
            └── PINNED_LOG_BYTES_MAX └── log_tail_entries, LOG_TAIL_BYTES_MAX

The log is compacted up to what the view has on disk, never further. A pin retains entries before
it; when pins retain too much, the one that retains most is broken. Files are removed a few at a
time, because appends wait for the same disk.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.snapshot import (
    LOG_CUT_SEGMENTS_MAX,
    LOG_PINS_MAX,
    LOG_TAIL_BYTES_MAX,
    PINNED_LOG_BYTES_MAX,
)
from nextgen.replication.ports import PositionCompacted


class RetainedLog(Protocol):
    """The part of a journal that retention needs; see ``Journal``."""

    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def base_position(self) -> int: ...
    def index_of_position(self, position: int) -> int: ...
    def bytes_before(self, index: int) -> int: ...
    def cut_before(self, index: int, *, segments_max: int | None = None) -> bool: ...
    def when_durable(self, callback: Callable[[], None]) -> None: ...


class Pin:
    """A hold on the log from an entry or a position on; a ``LogPin``."""

    def __init__(
        self, retention: LogRetention, name: str, *, position: int | None, index: int
    ) -> None:
        self._retention = retention
        self._position = position
        self._index = index
        self.name = name
        self.is_broken = False

    def __repr__(self) -> str:
        place = f"entry={self._index}" if self._position is None else f"position={self._position}"
        return f"<Pin {self.name} {place} broken={self.is_broken}>"

    def advance(self, position: int) -> None:
        """Unpin everything before ``position``; an earlier position than before is ignored."""
        assert self._position is not None, "a pin of an entry stays where it is"
        self._position = max(self._position, position)

    def move_to(self, index: int) -> None:
        """Unpin the entries before ``index``; an earlier index than before is ignored."""
        self._index = max(self._index, index)

    def release(self) -> None:
        """Remove the pin. Removing it again does nothing."""
        self._retention.released(self)

    @property
    def is_of_reader(self) -> bool:
        return self._position is not None

    def first_needed(self, log: RetainedLog) -> int | None:
        """Return the first entry that is kept, None if the log begins behind it: it was replaced
        by a snapshot."""
        if self._position is None:
            return self._index if self._index >= log.first_index else None
        if self._position <= log.base_position:
            return None
        return log.index_of_position(self._position)


class LogRetention:
    """The pins of one replica, and the cutting of its log. All on the event loop."""

    def __init__(self, log: RetainedLog, pinned_bytes_max: int = PINNED_LOG_BYTES_MAX) -> None:
        self._log = log
        self._pinned_bytes_max = pinned_bytes_max
        self._pins: list[Pin] = []
        self._allowed = 0  # The view has the entries before it on disk.
        self._cut: asyncio.Future[None] | None = None
        self._stopped = False
        self.broken = 0
        """Pins of readers that were broken since the start."""

    @property
    def pin_count(self) -> int:
        """Pins of readers; what a transfer holds is not counted."""
        return sum(pin.is_of_reader for pin in self._pins)

    @property
    def pinned_bytes(self) -> int:
        """Bytes of log that only pins keep."""
        allowed = min(self._allowed, self._log.last_index + 1)
        return self._log.bytes_before(allowed) - self._log.bytes_before(self._first_needed())

    def pin(self, name: str, position: int) -> Pin:
        """Keep the committed entries from ``position`` on; see ``ReplicatedLog.pin``."""
        oldest = self._log.base_position + 1
        if position < oldest:
            raise PositionCompacted(position, oldest)
        if self.pin_count >= LOG_PINS_MAX:
            raise Overloaded(f"{LOG_PINS_MAX} readers pin this log already")
        return self._add(Pin(self, name, position=position, index=0))

    def hold_entries(self, name: str, index: int) -> Pin:
        """Keep the entries from ``index`` on, for a follower that gets a snapshot."""
        return self._add(Pin(self, name, position=None, index=index))

    def notice_broken(self) -> None:
        """Break the pins of removed entries: a snapshot may have replaced the log."""
        self._first_needed()

    def released(self, pin: Pin) -> None:
        if pin in self._pins:
            self._pins.remove(pin)
            self._go_on()

    def view_durable(self, index: int, *, tail_entries: int) -> None:
        """Remove the entries up to ``index``, the last one that the view has on disk, except the
        last ``tail_entries`` of them if they are no more than ``LOG_TAIL_BYTES_MAX``."""
        log, end = self._log, index + 1
        first = max(log.first_index, end - tail_entries)
        least = log.bytes_before(end) - LOG_TAIL_BYTES_MAX
        tail = range(first, max(first, end))
        short_enough = bisect_left(tail, True, key=lambda at: log.bytes_before(at) >= least)
        self.allow_cut_before(first + short_enough)

    def allow_cut_before(self, index: int) -> None:
        """Note that the view has the entries before ``index`` on disk, and compact."""
        self._allowed = max(self._allowed, index)
        self._break_pins()
        self._go_on()

    async def wait_cut(self) -> None:
        """Return when no cut is in progress."""
        if self._cut is not None:
            await asyncio.shield(self._cut)

    def stop(self) -> None:
        """Start no further cut; callers that wait for a cut continue."""
        self._stopped = True
        self._done()

    # Inside -----------------------------------------------------------------------------------

    def _add(self, pin: Pin) -> Pin:
        self._pins.append(pin)
        return pin

    def _first_needed(self) -> int:
        needed = [min(self._allowed, self._log.last_index + 1)]
        for pin in tuple(self._pins):
            index = pin.first_needed(self._log)
            if index is None:
                self._break(pin)
            else:
                needed.append(index)
        return min(needed)

    def _break_pins(self) -> None:
        while self._pins and self.pinned_bytes > self._pinned_bytes_max:
            greediest = min(self._pins, key=lambda pin: pin.first_needed(self._log) or 0)
            self._break(greediest)

    def _break(self, pin: Pin) -> None:
        pin.is_broken = True
        self.broken += pin.is_of_reader
        self._pins.remove(pin)

    def _go_on(self) -> None:
        if self._cut is None and not self._stopped:
            self._cut = asyncio.get_running_loop().create_future()
            self._cut_some()

    def _cut_some(self) -> None:
        if self._stopped or self._cut is None:
            return
        first_before = self._log.first_index
        more = self._log.cut_before(self._first_needed(), segments_max=LOG_CUT_SEGMENTS_MAX)
        if more:
            self._log.when_durable(self._cut_some)
        elif self._log.first_index == first_before:
            self._done()
        else:
            self._log.when_durable(self._done)

    def _done(self) -> None:
        cut, self._cut = self._cut, None
        if cut is not None and not cut.done():
            cut.set_result(None)
