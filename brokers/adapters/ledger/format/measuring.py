"""Measures an epoch's files: their valid length, which is the whole records from the beginning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from brokers.adapters.ledger.accepting import remember
from brokers.adapters.ledger.format.files import (
    ENTRIES,
    INDEX,
    STATE,
    Listing,
    UnitDirectory,
    read_file,
    sync_file,
)
from brokers.adapters.ledger.format.records import (
    HEAD_BYTES,
    FileHeader,
    IndexPoint,
    Kind,
    SegmentEnd,
    decode_entry,
    decode_entry_ids,
    decode_header,
    decode_index,
    decode_state,
    record_at,
    record_bytes,
)
from brokers.adapters.ledger.format.scanning import Scan
from brokers.domain.position import ledger_id_of
from brokers.ports.ledger import LedgerDamaged
from nextgen.storage.disk import Handle, SharedStorage

FIRST_KEPT = "\0first"
"""Key of the internal fact that has the lowest kept ledger id."""

_HEADER_BYTES_GUESS = 4096
_FIRST_PIECE_BYTES = 4096
_TAIL_PIECE_BYTES = 32 * 1024
"""Bytes read at a time from an open file: those behind its end are read in vain."""
_LOOKS_MAX = 100


@dataclass(frozen=True, slots=True)
class Points:
    """The stored form of a segment's sparse index."""

    points: list[IndexPoint]
    producers: dict[str, int]
    """Highest sequence ids of the entries before the last point."""


@dataclass(frozen=True, slots=True)
class MeasuredSegment:
    """One entries file."""

    header: FileHeader
    end: SegmentEnd
    producers: dict[str, int]


@dataclass(frozen=True, slots=True)
class StoredFacts:
    """One file of facts."""

    header: FileHeader
    facts: dict[str, bytes]
    length: int


@dataclass(frozen=True, slots=True)
class MeasuredEpoch:
    """All files of one epoch."""

    segments: tuple[SegmentEnd, ...]
    state: tuple[int, int] | None
    producers: dict[str, int] | None
    """Highest sequence ids at its end; None if the epoch never served."""
    facts: dict[str, bytes] = field(default_factory=dict)
    """The facts at the end of ``state``."""

    def open_files(self, directory: UnitDirectory, epoch: int) -> list[str]:
        """Return the files that may have bytes that are not fsynced yet."""
        paths = []
        if self.segments:
            paths.append(directory.numbered(epoch, self.segments[-1].segment, ENTRIES))
        if self.state is not None:
            paths.append(directory.numbered(epoch, self.state[0], STATE))
        return paths


def first_kept(facts: Mapping[str, bytes]) -> int:
    """Return the lowest ledger id that is kept."""
    return int.from_bytes(facts.get(FIRST_KEPT, b""), "big")


@contextmanager
def opened(storage: SharedStorage, path: str) -> Iterator[Handle]:
    """Open for reading."""
    handle = storage.open_to_read(path)
    try:
        yield handle
    finally:
        storage.close(handle)


def read_header(storage: SharedStorage, handle: Handle, path: str) -> tuple[FileHeader, int]:
    """Return a file's header and the offset of its end.

    Raises:
        LedgerDamaged: The header is not whole, although a file gets its name only when it is.
    """
    content = storage.pread(handle, _HEADER_BYTES_GUESS, 0)
    length = record_bytes(memoryview(content)[:HEAD_BYTES])
    if length is not None and length > len(content):
        content = storage.pread(handle, length, 0)
    record = record_at(memoryview(content), 0, 0)
    if record is None or record.kind != Kind.HEADER:
        raise LedgerDamaged(f"{path}: no valid header at byte 0")
    return decode_header(record), record.end


def read_points(storage: SharedStorage, path: str, salt: int) -> Points:
    """Return the valid part of a stored index; nothing if it is missing or of another segment."""
    points: list[IndexPoint] = []
    producers: dict[str, int] = {}
    try:
        content = memoryview(read_file(storage, path))
    except FileNotFoundError:
        return Points(points, producers)
    record = record_at(content, 0, 0)
    if record is None or record.kind != Kind.HEADER or decode_header(record).salt != salt:
        return Points(points, producers)
    while (record := record_at(content, record.end, salt)) is not None:
        point, seen = decode_index(record.body)
        points.append(point)
        for name, sequence_id in seen.items():
            remember(producers, name, sequence_id)
    return Points(points, producers)


def measure_segment(directory: UnitDirectory, epoch: int, number: int) -> MeasuredSegment:
    """Measure one entries file; read only the part that its index does not cover.

    Raises:
        LedgerDamaged: Bytes that were durable once are not valid.
    """
    path = directory.numbered(epoch, number, ENTRIES)
    storage = directory.storage
    with opened(storage, path) as handle:
        header, header_end = read_header(storage, handle, path)
        stored = read_points(storage, directory.numbered(epoch, number, INDEX), header.salt)
        producers = dict(header.producers)
        for name, sequence_id in stored.producers.items():
            remember(producers, name, sequence_id)
        start = stored.points[-1] if stored.points else IndexPoint(header_end, 0, 0)
        scan = _tail_scan(storage, handle, path, start.offset, header.salt)
        end = _measure_tail(scan, number, start, producers)
        if start.entry_id:
            first_time_ms = _first_time_ms(storage, handle, path, header, header_end)
            end = replace(end, first_time_ms=first_time_ms)
    return MeasuredSegment(header, end, producers)


def _tail_scan(
    storage: SharedStorage,
    handle: Handle,
    path: str,
    start: int,
    salt: int,
    limit: int | None = None,
) -> Scan:
    return Scan(
        storage, handle, path, start=start, salt=salt, limit=limit, piece_bytes=_TAIL_PIECE_BYTES
    )


def _measure_tail(
    scan: Scan, number: int, start: IndexPoint, producers: dict[str, int]
) -> SegmentEnd:
    """Measure from a point of the index on, where ``scan`` stands; collect the sequence ids.

    The returned time of the first entry is that of the first one behind the point.
    """
    entries, last_time_ms = start.entry_id, start.time_ms
    first_time_ms = 0
    kind = Kind.ENTRY
    producer, highest = b"", -1
    for record in scan.to_the_end(durable=start.offset):
        entry_id, time_ms, sequence_id, name = decode_entry_ids(record.body)
        if record.kind != kind or entry_id != entries:
            raise LedgerDamaged(f"{scan.path}: entry {entries} is not at byte {record.offset}")
        if entries == start.entry_id:
            first_time_ms, producer, highest = time_ms, name, sequence_id
        elif name != producer:
            # Note consecutive entries of one producer together.
            remember(producers, producer.decode(), highest)
            producer, highest = name, sequence_id
        elif sequence_id > highest:
            highest = sequence_id
        entries += 1
        last_time_ms = time_ms
    if entries > start.entry_id:
        remember(producers, producer.decode(), highest)
    return SegmentEnd(number, scan.end, entries, first_time_ms, last_time_ms)


def read_facts(storage: SharedStorage, path: str, limit: int | None = None) -> StoredFacts:
    """Read a file of facts, up to ``limit`` if it is sealed.

    Raises:
        LedgerDamaged: Bytes that were durable once are not valid.
    """
    with opened(storage, path) as handle:
        header, header_end = read_header(storage, handle, path)
        scan = _tail_scan(storage, handle, path, header_end, header.salt, limit)
        facts: dict[str, bytes] = {}
        for record in scan.to_the_end(durable=limit or header_end + header.snapshot_bytes):
            key, value = decode_state(record.body)
            if value is None:
                facts.pop(key, None)
            else:
                facts[key] = value
    return StoredFacts(header, facts, scan.end)


def sync_files(storage: SharedStorage, paths: list[str], *, label: str) -> None:
    """Return when all bytes of these files are on the medium."""
    for path in paths:
        with opened(storage, path) as handle:
            sync_file(storage, handle, label=label)


def measure_epoch(
    directory: UnitDirectory, epoch: int, listing: Listing | None = None
) -> MeasuredEpoch:
    """Measure an epoch's files. Its owner may still be writing, and removing files.

    ``listing`` is a listing of the directory from just before, if the caller has one.

    Raises:
        LedgerDamaged: Bytes that were durable once are not valid.
    """
    for _ in range(_LOOKS_MAX):
        try:
            return _measure_epoch(directory, epoch, listing or directory.listing())
        except FileNotFoundError as error:
            # The owner removed a file between the listing and the opening.
            listing = None
            vanished = error
    raise LedgerDamaged(f"{vanished.filename}: listed, but missing") from vanished


def _measure_epoch(directory: UnitDirectory, epoch: int, listing: Listing) -> MeasuredEpoch:
    if not listing.states[epoch]:
        return MeasuredEpoch((), None, None)
    number = listing.states[epoch][-1]
    stored = read_facts(directory.storage, directory.numbered(epoch, number, STATE))
    state = number, stored.length
    if not listing.segments[epoch]:
        return MeasuredEpoch((), state, stored.header.producers, stored.facts)
    last = measure_segment(directory, epoch, listing.segments[epoch][-1])
    ends = [last.end]
    previous = last.header.previous
    while previous is not None and ledger_id_of(epoch, previous.segment) >= first_kept(
        stored.facts
    ):
        ends.append(previous)
        path = directory.numbered(epoch, previous.segment, ENTRIES)
        with opened(directory.storage, path) as handle:
            previous = read_header(directory.storage, handle, path)[0].previous
    return MeasuredEpoch(tuple(reversed(ends)), state, last.producers, stored.facts)


def _first_time_ms(
    storage: SharedStorage, handle: Handle, path: str, header: FileHeader, header_end: int
) -> int:
    scan = Scan(
        storage,
        handle,
        path,
        start=header_end,
        salt=header.salt,
        piece_bytes=_FIRST_PIECE_BYTES,
    )
    first = next(iter(scan), None)
    if first is None:
        raise LedgerDamaged(f"{path}: no valid record at byte {header_end}")
    return decode_entry(first.body).publish_time_ms
