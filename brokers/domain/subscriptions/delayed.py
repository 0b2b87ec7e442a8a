"""Delayed entries: neither acknowledged nor sent yet, and skipped by reading until they are due."""

from __future__ import annotations

import heapq

from brokers.domain.position import Position
from nextgen.kernel.limits.pulsar import DELAYED_DUE_PER_TURN_MAX, DELAYED_ENTRIES_MAX


class DelayedEntries:
    """Positions by the time at which they may be sent, by the clients' wall clock."""

    __slots__ = ("_entries_max", "_heap")

    def __init__(self, entries_max: int = DELAYED_ENTRIES_MAX) -> None:
        self._heap: list[tuple[int, Position]] = []
        self._entries_max = entries_max

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def is_full(self) -> bool:
        """Whether no further entry may be added."""
        return len(self._heap) >= self._entries_max

    @property
    def next_at_ms(self) -> int | None:
        """The time at which the next entry is due, None if there is none."""
        return self._heap[0][0] if self._heap else None

    def add(self, position: Position, deliver_at_ms: int) -> None:
        """Add an entry. There MUST be room."""
        assert not self.is_full, "reading pauses before this"
        heapq.heappush(self._heap, (deliver_at_ms, position))

    def pop_due(self, now_ms: int) -> list[Position]:
        """Remove and return due entries in order of time, at most ``DELAYED_DUE_PER_TURN_MAX``.

        While more entries are due, ``next_at_ms`` is in the past.
        """
        due: list[Position] = []
        while self._heap and self._heap[0][0] <= now_ms and len(due) < DELAYED_DUE_PER_TURN_MAX:
            due.append(heapq.heappop(self._heap)[1])
        return due

    def clear(self) -> None:
        """Remove all entries."""
        self._heap.clear()
