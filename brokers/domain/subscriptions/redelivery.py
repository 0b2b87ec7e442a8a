"""Entries to redeliver, in order of position, and their redelivery counts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from brokers.domain.position import Position
from nextgen.kernel.limits.pulsar import REDELIVERY_COUNTS_MAX

_GARBAGE_MAX = 64
_SORTED_WORTH = 16
"""Sorting the whole list costs as much as inserting this part of it one by one."""


class ReplayQueue:
    """A set of positions that returns the lowest first."""

    __slots__ = ("_descending", "_members")

    def __init__(self) -> None:
        self._members: set[Position] = set()
        # Highest first, so that removing the lowest moves nothing. Discarded positions stay in the
        # list until they come up or there are too many of them.
        self._descending: list[Position] = []

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, position: Position) -> bool:
        return position in self._members

    def add(self, positions: Iterable[Position]) -> None:
        """Add positions; those in the set are ignored."""
        fresh = set(positions) - self._members
        if not fresh:
            return
        if len(fresh) * _SORTED_WORTH < len(self._descending):
            self._members |= fresh
            for position in fresh:
                self._insert(position)
        else:
            # Two sorted runs: the sort merges them with one comparison per element.
            ordered = [each for each in self._descending if each in self._members]
            ordered += sorted(fresh, reverse=True)
            ordered.sort(reverse=True)
            self._descending = ordered
            self._members |= fresh

    def discard(self, position: Position) -> None:
        """Remove a position if it is in the set."""
        self._members.discard(position)
        if len(self._descending) > 2 * len(self._members) + _GARBAGE_MAX:
            self._descending = sorted(self._members, reverse=True)

    def ascending(self) -> Iterator[Position]:
        """Yield the positions in order. The caller may discard yielded ones meanwhile."""
        members, descending = self._members, self._descending
        while descending and descending[-1] not in members:
            descending.pop()
        return (position for position in reversed(descending) if position in members)

    def _insert(self, position: Position) -> None:
        place = (-position.ledger_id, -position.entry_id)
        index = bisect_left(self._descending, place, key=_descending_order)
        # The list may have the position already, as a discarded one.
        if self._descending[index : index + 1] != [position]:
            self._descending.insert(index, position)

    def run_length(self, first: Position, length_max: int) -> int:
        """Return the number of consecutive positions from ``first`` on, within its ledger."""
        length = 1
        while length < length_max:
            if Position(first.ledger_id, first.entry_id + length) not in self._members:
                break
            length += 1
        return length

    def clear(self) -> None:
        """Remove everything."""
        self._members.clear()
        self._descending.clear()


class RedeliveryCounts:
    """How often entries were redelivered. In memory only: a new owner counts from 0.

    It keeps at most ``counts_max`` entries; beyond that the oldest are dropped.
    """

    __slots__ = ("_counts", "_counts_max")

    def __init__(self, counts_max: int = REDELIVERY_COUNTS_MAX) -> None:
        self._counts: dict[Position, int] = {}
        self._counts_max = counts_max

    def __len__(self) -> int:
        return len(self._counts)

    def of(self, position: Position) -> int:
        """Return the redelivery count of an entry."""
        return self._counts.get(position, 0)

    def increment(self, positions: Iterable[Position]) -> None:
        """Count one more redelivery of each."""
        counts = self._counts
        for position in positions:
            counts[position] = counts.pop(position, 0) + 1
        while len(counts) > self._counts_max:
            del counts[next(iter(counts))]

    def forget(self, position: Position) -> None:
        """Drop the count of an entry that will not be sent again."""
        self._counts.pop(position, None)


def _descending_order(position: Position) -> tuple[int, int]:
    return (-position.ledger_id, -position.entry_id)
