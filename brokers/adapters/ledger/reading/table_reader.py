"""Reads a unit by its table of segments: the common part of owners' and foreign readers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from brokers.adapters.ledger.format.files import ENTRIES, UnitDirectory
from brokers.adapters.ledger.format.records import IndexPoint
from brokers.adapters.ledger.format.segments import Segment, SegmentTable
from brokers.adapters.ledger.reading.entries import SegmentReading, SegmentView
from brokers.adapters.ledger.reading.read_files import Indexes, ReadFiles
from brokers.adapters.ledger.reading.recent import RecentEntries
from brokers.domain.position import BEFORE_ALL, Position, epoch_of, segment_of
from brokers.ports.ledger import Entry, Extent, Fenced, LedgerDamaged, LedgerReader, StorageFailed
from nextgen.kernel.events.generations import generation_of

_HINTS_MAX = 64
"""Offsets of the ends of earlier reads that a unit remembers, because readers continue there."""

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Readers:
    """The caches and threads that all units of a store read with."""

    threads: Executor
    files: ReadFiles
    indexes: Indexes


class TableReader(LedgerReader):
    """The part of reading that does not depend on the unit's owner."""

    def __init__(self, directory: UnitDirectory, readers: Readers, table: SegmentTable) -> None:
        self._directory = directory
        self._readers = readers
        self._table = table
        self._reading = SegmentReading(readers.files, readers.indexes)
        self._hints: OrderedDict[tuple[int, int], IndexPoint] | None = None

    @property
    def first(self) -> Position:
        return self._table.first

    @property
    def last(self) -> Position:
        return self._table.last

    @property
    def entry_count(self) -> int:
        return self._table.entry_count

    @property
    def byte_count(self) -> int:
        return self._table.byte_count

    @property
    def extents(self) -> Sequence[Extent]:
        return [_extent(each) for each in self._table.segments]

    def extents_from(self, ledger_id: int) -> Sequence[Extent]:
        return [_extent(each) for each in self._table.from_ledger(ledger_id)]

    @property
    def state(self) -> Mapping[str, bytes]:
        raise NotImplementedError

    def read_recent(
        self, after: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[Entry] | None:
        return None

    async def read(self, after: Position, *, entries_max: int, bytes_max: int) -> Sequence[Entry]:
        while True:
            start = self._table.ordinal_behind(after)
            if start >= self._table.end:
                return ()
            segment = self._table.at(start)
            first_entry = start - segment.base
            reading = partial(
                self._reading.read,
                hint=self._hint(segment, first_entry),
                first_entry=first_entry,
                entries_max=entries_max,
                bytes_max=bytes_max,
            )
            found = await self._in_thread(segment, reading)
            if found is not None:
                self._remember(segment, found.next_point)
                return found.entries

    async def before_time(self, publish_time_ms: int) -> Position:
        while True:
            index = self._table.first_since(publish_time_ms)
            if index == len(self._table.segments):
                return self._table.last
            segment = self._table.segments[index]
            reading = partial(self._reading.older_than, publish_time_ms=publish_time_ms)
            count = await self._in_thread(segment, reading)
            if count:
                return Position(segment.ledger_id, count - 1)
            if count == 0:
                return self._last_in_front_of(segment)

    def entries_between(self, after: Position, up_to: Position) -> int:
        return self._table.entries_between(after, up_to)

    def _open_points(self, ledger_id: int) -> list[IndexPoint] | None:
        """Return the points of a segment that this process is writing."""
        return None

    def _path(self, ledger_id: int, kind: str = ENTRIES) -> str:
        return self._directory.numbered(epoch_of(ledger_id), segment_of(ledger_id), kind)

    async def _in_thread(
        self,
        segment: Segment,
        read: Callable[[SegmentView, list[IndexPoint] | None], _Result],
    ) -> _Result | None:
        """Read on a thread; None if the segment was trimmed meanwhile."""
        path = self._path(segment.ledger_id)
        view = SegmentView(path, segment.ledger_id, segment.length, segment.entries)
        points = self._open_points(segment.ledger_id)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers.threads, read, view, points)
        except FileNotFoundError as error:
            if segment.ledger_id < self._table.first.ledger_id:
                return None
            if await loop.run_in_executor(self._readers.threads, self._is_removed, segment):
                raise Fenced("the unit was removed: its topic is deleted") from error
            raise LedgerDamaged(f"{path}: the file is missing") from error
        except OSError as error:
            raise StorageFailed(f"{path}: {error}") from error

    def _is_removed(self, segment: Segment) -> bool:
        """Return whether the segment went with its unit: the mark stands before a file goes."""
        removed = self._directory.removed_generation
        return removed is not None and generation_of(epoch_of(segment.ledger_id)) <= removed

    def _last_in_front_of(self, segment: Segment) -> Position:
        index = self._table.segments.index(segment)
        if not index:
            return BEFORE_ALL
        before = self._table.segments[index - 1]
        return Position(before.ledger_id, before.entries - 1)

    def _hint(self, segment: Segment, entry: int) -> IndexPoint | None:
        return self._hints.get((segment.ledger_id, entry)) if self._hints else None

    def _remember(self, segment: Segment, point: IndexPoint) -> None:
        if self._hints is None:
            self._hints = OrderedDict()
        self._hints[segment.ledger_id, point.entry_id] = point
        if len(self._hints) > _HINTS_MAX:
            self._hints.popitem(last=False)


def _extent(segment: Segment) -> Extent:
    return Extent(
        segment.ledger_id,
        segment.entries,
        segment.length,
        segment.first_time_ms,
        segment.last_time_ms,
    )


class RecentReader(TableReader):
    """Reads the newest entries from memory. A subclass sets and fills ``_recent``."""

    _recent: RecentEntries

    def read_recent(
        self, after: Position, *, entries_max: int, bytes_max: int
    ) -> Sequence[Entry] | None:
        start = self._table.ordinal_behind(after)
        if start >= self._table.end:
            return ()
        return self._recent.read(start, entries_max=entries_max, bytes_max=bytes_max)

    async def read(self, after: Position, *, entries_max: int, bytes_max: int) -> Sequence[Entry]:
        recent = self.read_recent(after, entries_max=entries_max, bytes_max=bytes_max)
        if recent is not None:
            return recent
        return await super().read(after, entries_max=entries_max, bytes_max=bytes_max)
