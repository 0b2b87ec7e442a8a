"""Reads a shadow's entries: the newest as its source's owner sent them, others from the files."""

from __future__ import annotations

from collections.abc import Sequence

from brokers.adapters.ledger.format.files import UnitDirectory
from brokers.adapters.ledger.format.records import SegmentEnd
from brokers.adapters.ledger.format.segments import SegmentTable
from brokers.adapters.ledger.reading.recent import RecentCache, RecentEntries
from brokers.adapters.ledger.reading.table_reader import Readers, RecentReader
from brokers.domain.position import epoch_of, segment_of
from brokers.ports.ledger import Entry, Extent
from brokers.ports.source_feed import SourceChange


class FeedReader(RecentReader):
    """Reads within the extents that it was given. It measures nothing and writes nothing.

    An extent never shrinks: entries that were durable once stay visible, also if a later
    announcement, by an owner that has not acknowledged them yet, does not cover them.
    """

    def __init__(self, directory: UnitDirectory, readers: Readers, cache: RecentCache) -> None:
        super().__init__(directory, readers, SegmentTable())
        self._cache = cache
        self._recent = RecentEntries(cache, 0)

    @property
    def last_time_ms(self) -> int:
        """Publish time of the last entry; 0 if there never was one."""
        return self._table.last_time_ms

    def replace(self, extents: Sequence[Extent], first_ledger_id: int) -> None:
        """Take all extents of a source anew. Ledgers below ``first_ledger_id`` are trimmed."""
        known = self.extents_from(first_ledger_id)
        self._table = SegmentTable()
        for extent in (*extents, *known):
            self._grow(extent)
        self._forget_recent()

    def change(self, change: SourceChange) -> None:
        """Take new extents and entries, then drop the ledgers that were trimmed."""
        end = self._table.end
        for extent in change.extents:
            self._grow(extent)
        self._remember_entries(change.entries, self._table.end - end)
        dropped = self._table.drop_below(change.first_ledger_id)
        if dropped:
            paths = [self._path(each.ledger_id) for each in dropped]
            self._readers.files.drop(paths)
            self._readers.indexes.drop(paths)

    def close(self) -> None:
        """Forget the entries in memory."""
        self._recent.clear()

    def _grow(self, extent: Extent) -> None:
        """Add an extent, or what is new of one; ignore what is known."""
        segments = self._table.segments
        if segments:
            last = segments[-1]
            is_known = extent.ledger_id == last.ledger_id and extent.entries <= last.entries
            if extent.ledger_id < last.ledger_id or is_known:
                return
        end = SegmentEnd(
            segment_of(extent.ledger_id),
            extent.size_bytes,
            extent.entries,
            extent.first_time_ms,
            extent.last_time_ms,
        )
        self._table.add(epoch_of(extent.ledger_id), end)

    def _remember_entries(self, entries: Sequence[Entry], grown: int) -> None:
        """Keep the newest entries in memory. ``grown`` entries are new, perhaps not all sent."""
        if grown and len(entries) < grown:
            self._forget_recent(len(entries))
        if grown and entries:
            # Entries before these were seen in the files already.
            self._recent.add(entries[-grown:])

    def _forget_recent(self, count_of_next: int = 0) -> None:
        """Begin the entries in memory anew, ``count_of_next`` in front of the end."""
        self._recent.clear()
        self._recent = RecentEntries(self._cache, self._table.end - count_of_next)
