"""Reads entries of one segment from the disk. Blocks: called on threads."""

from __future__ import annotations

from dataclasses import dataclass

from brokers.adapters.ledger.format.records import IndexPoint, Kind, Record, decode_entry
from brokers.adapters.ledger.format.scanning import Scan
from brokers.adapters.ledger.reading.read_files import (
    Indexes,
    ReadFiles,
    point_for_entry,
    point_for_time,
)
from brokers.domain.position import Position
from brokers.ports.ledger import Entry, LedgerDamaged

_PIECE_BYTES_MIN = 16 * 1024
_RECORD_OVERHEAD_BYTES_GUESS = 100


@dataclass(frozen=True, slots=True)
class SegmentView:
    """The readable part of a segment: acknowledged or sealed entries."""

    path: str
    ledger_id: int
    length: int
    entries: int


@dataclass(frozen=True, slots=True)
class Found:
    """Entries, and the offset of the entry behind them."""

    entries: list[Entry]
    next_point: IndexPoint


class SegmentReading:
    """Finds entries by their index and reads them."""

    def __init__(self, files: ReadFiles, indexes: Indexes) -> None:
        self._files = files
        self._indexes = indexes

    def read(
        self,
        view: SegmentView,
        points: list[IndexPoint] | None,
        *,
        hint: IndexPoint | None,
        first_entry: int,
        entries_max: int,
        bytes_max: int,
    ) -> Found:
        """Return entries from ``first_entry`` on, which MUST be in the segment.

        ``points`` is the index of a segment that is being written, None for a full one; ``hint`` is
        the offset of ``first_entry``, if the caller knows it.

        Raises:
            FileNotFoundError: The segment was trimmed.
            LedgerDamaged: A record is not valid.
        """
        if hint is None or hint.entry_id != first_entry:
            known = self._indexes.points(view.path, view.length) if points is None else points
            hint = point_for_entry(known, first_entry)
        found = self._read(view, hint, first_entry, entries_max, bytes_max)
        if found is None and hint is not None:
            # Perhaps only the index is wrong: make it again from the entries.
            self._indexes.rebuilt(view.path, view.length)
            found = self._read(view, None, first_entry, entries_max, bytes_max)
        if found is None:
            raise LedgerDamaged(self._damage(view))
        return found

    def older_than(
        self, view: SegmentView, points: list[IndexPoint] | None, *, publish_time_ms: int
    ) -> int:
        """Return how many entries at the segment's beginning are older than the time.

        Raises:
            FileNotFoundError: The segment was trimmed.
            LedgerDamaged: A record is not valid.
        """
        known = self._indexes.points(view.path, view.length) if points is None else points
        count = self._older_than(view, point_for_time(known, publish_time_ms), publish_time_ms)
        if count is None:
            self._indexes.rebuilt(view.path, view.length)
            count = self._older_than(view, None, publish_time_ms)
        if count is None:
            raise LedgerDamaged(self._damage(view))
        return count

    def _older_than(
        self, view: SegmentView, start: IndexPoint | None, publish_time_ms: int
    ) -> int | None:
        with self._files.using(view.path) as file:
            first = start or IndexPoint(file.first_offset, 0, 0)
            expected = first.entry_id
            scan = Scan(
                self._files.storage,
                file.handle,
                view.path,
                start=first.offset,
                salt=file.salt,
                limit=view.length,
            )
            for record in scan:
                entry = decode_entry(record.body)
                if record.kind != Kind.ENTRY or entry.entry_id != expected:
                    return None
                if entry.publish_time_ms >= publish_time_ms:
                    return expected
                expected += 1
        return expected if expected == view.entries else None

    def _read(
        self,
        view: SegmentView,
        start: IndexPoint | None,
        first_entry: int,
        entries_max: int,
        bytes_max: int,
    ) -> Found | None:
        """Return the entries before the first invalid record, if there is one."""
        entries: list[Entry] = []
        size = 0
        with self._files.using(view.path) as file:
            begin = start or IndexPoint(file.first_offset, 0, 0)
            expected, end, time_ms = begin.entry_id, begin.offset, begin.time_ms
            scan = Scan(
                self._files.storage,
                file.handle,
                view.path,
                start=begin.offset,
                salt=file.salt,
                limit=view.length,
                piece_bytes=_piece_bytes(first_entry - expected, entries_max, bytes_max),
            )
            for record in scan:
                entry = _entry(record, view.ledger_id, expected)
                if entry is None:
                    break
                if expected >= first_entry:
                    size += len(entry.payload)
                    if entries and size > bytes_max:
                        break
                    entries.append(entry)
                expected, end, time_ms = expected + 1, record.end, entry.publish_time_ms
                if len(entries) == entries_max or expected == view.entries:
                    break
        return Found(entries, IndexPoint(end, expected, time_ms)) if entries else None

    def _damage(self, view: SegmentView) -> str:
        """Return a message with the place of the first invalid record."""
        with self._files.using(view.path) as file:
            scan = Scan(
                self._files.storage,
                file.handle,
                view.path,
                start=file.first_offset,
                salt=file.salt,
                limit=view.length,
            )
            for _ in scan:
                pass
        return f"{view.path}: no valid record at byte {scan.end}"


def _entry(record: Record, ledger_id: int, expected: int) -> Entry | None:
    if record.kind != Kind.ENTRY:
        return None
    fields = decode_entry(record.body)
    if fields.entry_id != expected:
        return None
    return Entry(
        position=Position(ledger_id, expected),
        payload=bytes(fields.payload),
        message_count=fields.message_count,
        publish_time_ms=fields.publish_time_ms,
        producer_name=fields.producer_name,
        sequence_id=fields.sequence_id,
    )


def _piece_bytes(skipped: int, entries_max: int, bytes_max: int) -> int:
    """Return the number of bytes to read at a time: the requested ones and little more."""
    if skipped:
        return 128 * 1024
    wanted = bytes_max + _RECORD_OVERHEAD_BYTES_GUESS * min(entries_max, 10_000)
    return max(_PIECE_BYTES_MIN, min(wanted, 1024 * 1024))
