"""A cache in memory of the newest entries of all units of a process, for consumers that keep up."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from brokers.ports.ledger import Entry

_ENTRY_OVERHEAD_BYTES = 400
"""Bytes of memory that an entry takes beside its payload."""


class RecentEntries:
    """One unit's newest entries, without gaps, up to its last one."""

    __slots__ = ("_base", "_cache", "_entries", "_head", "rounds")

    def __init__(self, cache: RecentCache, base: int) -> None:
        self._cache = cache
        self._entries: list[Entry | None] = []
        self._head = 0
        self._base = base
        """The ordinal of ``_entries[0]``."""
        self.rounds: deque[int] = deque()
        """Numbers of the rounds that its entries were added in, kept by the cache."""

    def add(self, entries: Sequence[Entry]) -> None:
        """Add the unit's next entries. The cache may drop others, or even these, to make room."""
        self._entries += entries
        self._cache.added(self, entries)

    def forget(self, count: int) -> None:
        """Drop the ``count`` oldest entries."""
        head = self._head + count
        self._entries[self._head : head] = [None] * count
        self._head = head
        if 2 * head > len(self._entries):
            del self._entries[:head]
            self._base += head
            self._head = 0

    def clear(self) -> None:
        """Forget everything."""
        self._cache.removed(self)
        self._base += len(self._entries)
        self._head = 0
        self._entries = []

    def read(self, ordinal: int, *, entries_max: int, bytes_max: int) -> list[Entry] | None:
        """Return entries from ``ordinal`` on, None if the first of them is not cached."""
        start = ordinal - self._base
        if start < self._head:
            return None
        found: list[Entry] = []
        size = 0
        for entry in self._entries[start : start + entries_max]:
            assert entry is not None, "only entries before the head were dropped"
            size += len(entry.payload)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found


class RecentCache:
    """Bounds the memory of cached entries over all units; the oldest rounds are dropped first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rounds: OrderedDict[int, tuple[RecentEntries, int, int]] = OrderedDict()
        self._next_round = 0
        self.byte_count = 0

    def added(self, recent: RecentEntries, entries: Sequence[Entry]) -> None:
        """Count entries that a unit added."""
        size = sum(len(entry.payload) for entry in entries)
        size += _ENTRY_OVERHEAD_BYTES * len(entries)
        self._rounds[self._next_round] = (recent, len(entries), size)
        recent.rounds.append(self._next_round)
        self._next_round += 1
        self.byte_count += size
        while self.byte_count > self._bytes_max and self._rounds:
            _, (oldest, count, oldest_size) = self._rounds.popitem(last=False)
            oldest.rounds.popleft()
            oldest.forget(count)
            self.byte_count -= oldest_size

    def removed(self, recent: RecentEntries) -> None:
        """Subtract the entries of a unit that is closed."""
        for number in recent.rounds:
            self.byte_count -= self._rounds.pop(number)[2]
        recent.rounds.clear()
