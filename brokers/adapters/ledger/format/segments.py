"""The table of a unit's segments, and arithmetic over positions, without access to files."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter

from brokers.adapters.ledger.format.records import SegmentEnd
from brokers.domain.position import BEFORE_ALL, Position, epoch_of, ledger_id_of, segment_of

_ledger_id_of = attrgetter("ledger_id")
_last_time_of = attrgetter("last_time_ms")


class Segment:
    """One segment with entries. The last one of a table grows."""

    __slots__ = ("base", "entries", "first_time_ms", "last_time_ms", "ledger_id", "length")

    def __init__(self, ledger_id: int, base: int, first_time_ms: int) -> None:
        self.ledger_id = ledger_id
        self.base = base
        """Ordinal of its first entry: entries are counted over all segments of the table."""
        self.entries = 0
        self.length = 0
        self.first_time_ms = first_time_ms
        self.last_time_ms = first_time_ms


class SegmentTable:
    """The kept segments, ascending. Removing segments does not change ordinals."""

    __slots__ = ("segments",)

    def __init__(self) -> None:
        self.segments: list[Segment] = []

    @property
    def end(self) -> int:
        """The ordinal that the next entry gets."""
        return self.segments[-1].base + self.segments[-1].entries if self.segments else 0

    @property
    def entry_count(self) -> int:
        return self.end - self.segments[0].base if self.segments else 0

    @property
    def byte_count(self) -> int:
        return sum(segment.length for segment in self.segments)

    @property
    def first(self) -> Position:
        if self.segments:
            return Position(self.segments[0].ledger_id, 0)
        return Position(BEFORE_ALL.ledger_id, BEFORE_ALL.entry_id + 1)

    @property
    def last(self) -> Position:
        if self.segments:
            return Position(self.segments[-1].ledger_id, self.segments[-1].entries - 1)
        return BEFORE_ALL

    @property
    def last_time_ms(self) -> int:
        return self.segments[-1].last_time_ms if self.segments else 0

    def add(self, epoch: int, end: SegmentEnd) -> None:
        """Add a segment, or replace the last one."""
        if not end.entries:
            return
        ledger_id = ledger_id_of(epoch, end.segment)
        if not self.segments or self.segments[-1].ledger_id < ledger_id:
            self.segments.append(Segment(ledger_id, self.end, end.first_time_ms))
        last = self.segments[-1]
        assert last.ledger_id == ledger_id, "only the last segment grows"
        last.length, last.entries, last.last_time_ms = end.length, end.entries, end.last_time_ms

    def from_ledger(self, ledger_id: int) -> list[Segment]:
        """Return the segments from this id on. Those at the end are found at once."""
        segments = self.segments
        if segments and segments[-1].ledger_id == ledger_id:
            return segments[-1:]
        return segments[bisect_left(segments, ledger_id, key=_ledger_id_of) :]

    def files(self) -> set[tuple[int, int]]:
        """Return epoch and number of each segment."""
        return {
            (epoch_of(segment.ledger_id), segment_of(segment.ledger_id))
            for segment in self.segments
        }

    def grow(self, position: Position, length: int, time_ms: int) -> None:
        """Add an acknowledged entry, which ends at the byte ``length``."""
        if not self.segments or self.segments[-1].ledger_id < position.ledger_id:
            self.segments.append(Segment(position.ledger_id, self.end, time_ms))
        last = self.segments[-1]
        last.entries, last.length, last.last_time_ms = position.entry_id + 1, length, time_ms

    def drop_below(self, ledger_id: int) -> list[Segment]:
        """Remove and return the segments with lower ids, but never the last one."""
        count = bisect_left(self.segments, ledger_id, key=_ledger_id_of)
        count = max(0, min(count, len(self.segments) - 1))
        dropped, self.segments = self.segments[:count], self.segments[count:]
        return dropped

    def ordinal_behind(self, position: Position) -> int:
        """Return the ordinal of the first kept entry behind ``position``, or ``end``."""
        index = bisect_right(self.segments, position.ledger_id, key=_ledger_id_of) - 1
        if index < 0:
            return self.segments[0].base if self.segments else 0
        segment = self.segments[index]
        if segment.ledger_id < position.ledger_id:
            return segment.base + segment.entries
        return segment.base + min(max(position.entry_id + 1, 0), segment.entries)

    def entries_between(self, after: Position, up_to: Position) -> int:
        return max(0, self.ordinal_behind(up_to) - self.ordinal_behind(after))

    def at(self, ordinal: int) -> Segment:
        """Return the segment that contains the entry."""
        return self.segments[bisect_right(self.segments, ordinal, key=attrgetter("base")) - 1]

    def first_since(self, publish_time_ms: int) -> int:
        """Return the index of the first segment that ends at or after the time."""
        return bisect_left(self.segments, publish_time_ms, key=_last_time_of)

    def first_kept_above(self, up_to: Position) -> int:
        """Return the id of the first segment that remains after trimming up to ``up_to``."""
        for segment in self.segments[:-1]:
            if Position(segment.ledger_id, segment.entries - 1) > up_to:
                return segment.ledger_id
        return self.segments[-1].ledger_id if self.segments else 0
