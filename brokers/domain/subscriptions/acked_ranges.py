"""Individually acknowledged entries, kept as intervals so that a long run costs as one entry.

An interval never spans two ledgers: only whoever knows how long a ledger is could tell that its
last entry and the next ledger's first are neighbours (``Cursor`` asks when it has to know).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from brokers.domain.position import BEFORE_ALL, Position


class AckedRanges:
    """A set of positions. Finding is a binary search, adding at most moves the rest of a list.

    One list only: with tens of thousands of intervals, moving its rest is most of what an
    acknowledgement costs.
    """

    __slots__ = ("_firsts", "_last_of", "count")

    def __init__(self) -> None:
        self._firsts: list[Position] = []
        self._last_of: dict[Position, int] = {}
        self.count = 0
        """Positions in the set."""

    def __len__(self) -> int:
        """Return the number of intervals."""
        return len(self._firsts)

    def __contains__(self, position: Position) -> bool:
        index = bisect_right(self._firsts, position) - 1
        if index < 0:
            return False
        first = self._firsts[index]
        return first[0] == position[0] and position[1] <= self._last_of[first]

    def __iter__(self) -> Iterator[tuple[Position, int]]:
        """Yield each interval's first position and its last entry's id, in order."""
        return ((first, self._last_of[first]) for first in self._firsts)

    @property
    def first(self) -> Position:
        """The lowest position. There MUST be one."""
        return self._firsts[0]

    @property
    def last(self) -> Position:
        """The highest position, ``BEFORE_ALL`` if there is none."""
        if not self._firsts:
            return BEFORE_ALL
        first = self._firsts[-1]
        return Position(first.ledger_id, self._last_of[first])

    def is_neighbour(self, position: Position) -> bool:
        """Return whether adding ``position`` would not make another interval."""
        ledger_id, entry_id = position
        return (
            Position(ledger_id, entry_id - 1) in self or Position(ledger_id, entry_id + 1) in self
        )

    def add(self, position: Position) -> bool:
        """Add one position; return whether it was not there yet."""
        return self.add_range(position, position.entry_id) > 0

    def add_range(self, first: Position, last_entry_id: int) -> int:
        """Add the entries of one ledger from ``first`` on; return how many were not there."""
        firsts, last_of = self._firsts, self._last_of
        ledger_id = first.ledger_id
        begin = bisect_right(firsts, first)
        start, end = first.entry_id, last_entry_id
        if begin:
            left = firsts[begin - 1]
            if left.ledger_id == ledger_id and last_of[left] >= start - 1:
                begin -= 1
                start = left.entry_id
                if last_of[left] >= end:
                    return 0
        stop = begin
        behind = Position(ledger_id, end + 1)
        # Most often nothing is near: another search costs as much as the first.
        if begin < len(firsts) and firsts[begin] <= behind:
            stop = bisect_right(firsts, behind, begin)
        known = 0
        for each in firsts[begin:stop]:
            last = last_of.pop(each)
            known += last - each.entry_id + 1
            end = max(end, last)
        merged = Position(ledger_id, start)
        firsts[begin:stop] = (merged,)
        last_of[merged] = end
        added = end - start + 1 - known
        self.count += added
        return added

    def end_of_run(self, position: Position) -> Position:
        """Return the end of the interval that begins right behind ``position``, or itself."""
        ledger_id, entry_id = position
        index = bisect_right(self._firsts, Position(ledger_id, entry_id + 1)) - 1
        if index < 0 or self._firsts[index].ledger_id != ledger_id:
            return position
        return Position(ledger_id, max(entry_id, self._last_of[self._firsts[index]]))

    def pop_first(self) -> Position:
        """Remove the lowest interval and return its last position. There MUST be one."""
        first = self._firsts.pop(0)
        last = self._last_of.pop(first)
        self.count -= last - first.entry_id + 1
        return Position(first.ledger_id, last)

    def remove_up_to(self, position: Position) -> None:
        """Remove everything at or below ``position``."""
        index = bisect_right(self._firsts, position)
        if not index:
            return
        highest = self._firsts[index - 1]
        rest = self._last_of[highest]
        for first in self._firsts[:index]:
            self.count -= self._last_of.pop(first) - first.entry_id + 1
        del self._firsts[:index]
        if highest.ledger_id == position.ledger_id and rest > position.entry_id:
            left = Position(highest.ledger_id, position.entry_id + 1)
            self._firsts.insert(0, left)
            self._last_of[left] = rest
            self.count += rest - position.entry_id

    def clear(self) -> None:
        """Remove everything."""
        self._firsts.clear()
        self._last_of.clear()
        self.count = 0
