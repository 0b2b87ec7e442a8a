"""A journal's index in memory: the place of each entry, and the newest payloads.

An entry costs 28 bytes in the table however large it is; a million entries, 28 MB.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from nextgen.replication.ports import PositionCompacted


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One entry as the journal keeps it; ``events`` are inside ``payload``, which is opaque
    unless it is a configuration."""

    index: int
    term: int
    first_position: int
    events: int
    payload: bytes


class EntryTable:
    """Term, position, address and length of the entries ``base_index + 1 .. last_index``.

    ``next_position`` is the position the next event will get. The base is the last removed entry;
    its term stays known, for the check of the next one. Callers only read its fields:
    ``last_index`` is read dozens of times per entry.
    """

    def __init__(self, base_index: int = 0, base_term: int = 0, next_position: int = 1) -> None:
        self.reset(base_index, base_term, next_position)

    def reset(self, base_index: int, base_term: int, next_position: int) -> None:
        """Forget every entry and begin behind ``base_index``."""
        self.base_index = base_index
        self.last_index = base_index
        self.base_term = base_term
        self.base_position = next_position - 1
        self.next_position = next_position
        self._terms = array("Q")
        self._positions = array("Q")
        self._addresses = array("Q")
        self._lengths = array("I")

    @property
    def first_index(self) -> int:
        return self.base_index + 1

    @property
    def last_term(self) -> int:
        return self._terms[-1] if self._terms else self.base_term

    def __contains__(self, index: int) -> bool:
        return self.base_index < index <= self.last_index

    def append(
        self, term: int, first_position: int, events: int, address: int, length: int
    ) -> None:
        assert first_position == self.next_position, "positions are dense"
        self._terms.append(term)
        self._positions.append(first_position)
        self._addresses.append(address)
        self._lengths.append(length)
        self.last_index += 1
        self.next_position = first_position + events

    def truncate_from(self, index: int) -> None:
        """Drop the entries from ``index`` on; there is at least one."""
        assert index in self, f"entry {index} is not in the log"
        at = index - self.base_index - 1
        self.next_position = self._positions[at]
        self.last_index = index - 1
        for column in (self._terms, self._positions, self._addresses, self._lengths):
            del column[at:]

    def cut_before_address(self, address: int) -> None:
        """Drop the entries that lie before ``address``; the last of them is the new base."""
        count = bisect_left(self._addresses, address)
        if not count:
            return
        base_index, base_term = self.base_index + count, self._terms[count - 1]
        last = count == len(self._terms)
        self.base_position = (self.next_position if last else self._positions[count]) - 1
        self.base_index, self.base_term = base_index, base_term
        for column in (self._terms, self._positions, self._addresses, self._lengths):
            del column[:count]

    def term_of(self, index: int) -> int:
        """Return the term of an entry in the table, or of its base."""
        if index == self.base_index:
            return self.base_term
        assert index in self, f"entry {index} is not in the log"
        return self._terms[index - self.base_index - 1]

    def first_position_of(self, index: int) -> int:
        assert index in self, f"entry {index} is not in the log"
        return self._positions[index - self.base_index - 1]

    def events_of(self, index: int) -> int:
        at = index - self.base_index
        following = self._positions[at] if at < len(self._positions) else self.next_position
        return following - self.first_position_of(index)

    def address_of(self, index: int) -> int:
        assert index in self, f"entry {index} is not in the log"
        return self._addresses[index - self.base_index - 1]

    def length_of(self, index: int) -> int:
        """Return the bytes of the entry's payload."""
        assert index in self, f"entry {index} is not in the log"
        return self._lengths[index - self.base_index - 1]

    def index_of_position(self, position: int) -> int:
        """Return the entry that holds the event at ``position``.

        ``last_index + 1`` for a position that no event has yet.

        Raises:
            PositionCompacted: The event is before the base.
        """
        if position <= self.base_position:
            raise PositionCompacted(position, self.base_position + 1)
        if position >= self.next_position:
            return self.last_index + 1
        # Entries without events share the position of the one behind them, which holds it.
        return self.base_index + bisect_right(self._positions, position)


class PayloadCache:
    """The newest payloads, up to ``bytes_max``; those that are not on disk yet stay anyway."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._payloads: dict[int, bytes] = {}
        self._bytes = 0
        self._oldest = 0

    def get(self, index: int) -> bytes | None:
        return self._payloads.get(index)

    def add(self, index: int, payload: bytes) -> None:
        """Keep the payload of ``index``, which follows the last one added."""
        if not self._payloads:
            self._oldest = index
        self._payloads[index] = payload
        self._bytes += len(payload)

    def evict(self, durable_index: int) -> None:
        """Forget the oldest ones beyond the limit, up to ``durable_index``."""
        while self._bytes > self._bytes_max and self._oldest <= durable_index and self._payloads:
            self._bytes -= len(self._payloads.pop(self._oldest))
            self._oldest += 1

    def truncate_from(self, index: int) -> None:
        while self._payloads and next(reversed(self._payloads)) >= index:
            self._bytes -= len(self._payloads.popitem()[1])

    def clear(self) -> None:
        self._payloads.clear()
        self._bytes = 0
