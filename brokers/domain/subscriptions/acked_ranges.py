"""Individually acknowledged entries, as intervals, so that a long run costs as much as one entry.

An interval never spans two ledgers. Without the length of a ledger, nothing here can tell that its
last entry and the next ledger's first one are neighbours; ``Cursor`` finds out when it needs to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from brokers.domain.position import BEFORE_ALL, Position

_BLOCK_POSITIONS_MAX = 1_024
"""A larger block is split. So an insertion moves 8 KB at most, and 50,000 intervals take at most a
hundred blocks."""


class AckedRanges:
    """A set of positions. Finding is a binary search, adding moves part of one block.

    The intervals' first positions are in ordered blocks. With one list and tens of thousands of
    intervals, moving the rest of the list would be most of the cost of an acknowledgement.
    """

    __slots__ = ("_blocks", "_bounds", "_last_of", "count")

    def __init__(self) -> None:
        self._blocks: list[list[Position]] = [[]]
        """The blocks. No block is empty, unless it is the only one."""
        self._bounds: list[Position] = []
        """A bound between each two neighbouring blocks: lower positions are in the first one."""
        self._last_of: dict[Position, int] = {}
        self.count = 0
        """Number of positions in the set."""

    def __len__(self) -> int:
        """Return the number of intervals."""
        return len(self._last_of)

    def __contains__(self, position: Position) -> bool:
        if not self.count:
            return False
        index = bisect_right(self._bounds, position) if self._bounds else 0
        block = self._blocks[index]
        offset = bisect_right(block, position)
        first = block[offset - 1] if offset else self._at_or_below(index, 0)
        return first is not None and first[0] == position[0] and position[1] <= self._last_of[first]

    def __iter__(self) -> Iterator[tuple[Position, int]]:
        """Yield each interval's first position and the id of its last entry, in order."""
        return ((first, self._last_of[first]) for block in self._blocks for first in block)

    @property
    def first(self) -> Position:
        """The lowest position. There MUST be one."""
        return self._blocks[0][0]

    @property
    def last(self) -> Position:
        """The highest position, ``BEFORE_ALL`` if there is none."""
        if not self._last_of:
            return BEFORE_ALL
        first = self._blocks[-1][-1]
        return Position(first.ledger_id, self._last_of[first])

    def is_neighbour(self, position: Position) -> bool:
        """Return whether adding ``position`` would extend an interval or change nothing."""
        ledger_id, entry_id = position
        return (
            Position(ledger_id, entry_id - 1) in self or Position(ledger_id, entry_id + 1) in self
        )

    def add(self, position: Position) -> bool:
        """Add one position; return whether it is new."""
        return self.add_range(position, position.entry_id) > 0

    def add_range(self, first: Position, last_entry_id: int) -> int:
        """Add the entries of one ledger from ``first`` on; return how many are new."""
        last_of = self._last_of
        ledger_id, entry_id = first
        end, known = last_entry_id, 0
        index = bisect_right(self._bounds, first) if self._bounds else 0
        block = self._blocks[index]
        offset = bisect_right(block, first)
        left = block[offset - 1] if offset else self._at_or_below(index, 0)
        if left is None or left[0] != ledger_id or last_of[left] < entry_id - 1:
            left = None
        elif last_of[left] >= end:
            return 0
        right = block[offset] if offset < len(block) else self._above(index, offset)
        if right is not None and right[0] == ledger_id and right[1] <= end + 1:
            known, end = self._remove_above(first, end)
            index, offset = self._place(first)
        if left is None:
            left = first
            self._insert(index, offset, first)
        else:
            known += last_of[left] - left[1] + 1
        last_of[left] = end
        added = end - left[1] + 1 - known
        self.count += added
        return added

    def end_of_run(self, position: Position) -> Position:
        """Return the end of the interval right behind ``position``, else ``position`` itself."""
        ledger_id, entry_id = position
        first = self._at_or_below(*self._place(Position(ledger_id, entry_id + 1)))
        if first is None or first.ledger_id != ledger_id:
            return position
        return Position(ledger_id, max(entry_id, self._last_of[first]))

    def pop_first(self) -> Position:
        """Remove the lowest interval and return its last position. There MUST be one."""
        first = self._blocks[0].pop(0)
        self._drop_if_empty(0)
        last = self._last_of.pop(first)
        self.count -= last - first.entry_id + 1
        return Position(first.ledger_id, last)

    def remove_up_to(self, position: Position) -> None:
        """Remove everything at or below ``position``."""
        index, offset = self._place(position)
        highest = self._at_or_below(index, offset)
        if highest is None:
            return
        rest = self._last_of[highest]
        for block in (*self._blocks[:index], self._blocks[index][:offset]):
            for first in block:
                self.count -= self._last_of.pop(first) - first.entry_id + 1
        del self._blocks[:index], self._bounds[:index], self._blocks[0][:offset]
        self._drop_if_empty(0)
        if highest.ledger_id == position.ledger_id and rest > position.entry_id:
            left = Position(highest.ledger_id, position.entry_id + 1)
            self._insert(*self._place(left), left)
            self._last_of[left] = rest
            self.count += rest - position.entry_id

    def clear(self) -> None:
        """Remove everything."""
        self._blocks = [[]]
        self._bounds.clear()
        self._last_of.clear()
        self.count = 0

    # Blocks -----------------------------------------------------------------------------------

    def _place(self, position: Position) -> tuple[int, int]:
        """Return the block of ``position``, and how many of its intervals begin at or below it."""
        index = bisect_right(self._bounds, position) if self._bounds else 0
        return index, bisect_right(self._blocks[index], position)

    def _at_or_below(self, index: int, offset: int) -> Position | None:
        """Return the first position of the interval before a place."""
        if offset:
            return self._blocks[index][offset - 1]
        return self._blocks[index - 1][-1] if index else None

    def _above(self, index: int, offset: int) -> Position | None:
        """Return the first position of the interval behind a place."""
        if offset < len(self._blocks[index]):
            return self._blocks[index][offset]
        return self._blocks[index + 1][0] if index + 1 < len(self._blocks) else None

    def _insert(self, index: int, offset: int, position: Position) -> None:
        block = self._blocks[index]
        block.insert(offset, position)
        if len(block) > _BLOCK_POSITIONS_MAX:
            upper = block[len(block) // 2 :]
            del block[len(block) // 2 :]
            self._blocks.insert(index + 1, upper)
            self._bounds.insert(index, upper[0])

    def _remove_above(self, position: Position, up_to: int) -> tuple[int, int]:
        """Remove the intervals of one ledger above ``position`` that overlap or touch the entries
        up to ``up_to``. Return their number of entries, and their last entry or ``up_to``."""
        removed, end = 0, up_to
        behind = Position(position.ledger_id, up_to + 1)
        while True:
            index, offset = self._place(position)
            right = self._above(index, offset)
            if right is None or right > behind:
                return removed, end
            if offset == len(self._blocks[index]):
                index, offset = index + 1, 0
            del self._blocks[index][offset]
            self._drop_if_empty(index)
            last = self._last_of.pop(right)
            removed += last - right.entry_id + 1
            end = max(end, last)

    def _drop_if_empty(self, index: int) -> None:
        """Remove a block if it is empty and not the only one; the one before it takes its range."""
        if not self._blocks[index] and self._bounds:
            del self._blocks[index]
            del self._bounds[max(0, index - 1)]
