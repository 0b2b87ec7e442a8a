"""Reads a file of records from front to back, in pieces; finds its end and the reason for it."""

from __future__ import annotations

from collections.abc import Iterator

from brokers.adapters.ledger.format.records import (
    HEAD_BYTES,
    MAGIC,
    Record,
    later_records,
    record_at,
    record_bytes,
)
from brokers.ports.ledger import LedgerDamaged
from nextgen.storage.disk import Handle, SharedStorage

_PIECE_BYTES = 128 * 1024
_BLOCK_BYTES = 128 * 1024


class Scan:
    """Yields whole records from ``start`` on; afterwards ``end`` is the end of the last one.

    Offsets in the records count from the file's beginning. Bytes at or behind ``limit`` do not
    exist. A scan may run while the file is appended to.
    """

    __slots__ = ("_handle", "_limit", "_piece_bytes", "_salt", "_storage", "end", "path")

    def __init__(
        self,
        storage: SharedStorage,
        handle: Handle,
        path: str,
        *,
        start: int,
        salt: int,
        limit: int | None = None,
        piece_bytes: int = _PIECE_BYTES,
    ) -> None:
        self._storage = storage
        self._handle = handle
        self._salt = salt
        self._limit = limit
        self._piece_bytes = piece_bytes
        self.path = path
        self.end = start

    def __iter__(self) -> Iterator[Record]:
        wanted = self._piece_bytes
        while piece := self._read(self.end, wanted):
            base = self.end
            view = memoryview(piece)
            offset = 0
            try:
                while (record := record_at(view, offset, self._salt, base)) is not None:
                    self.end = record.end
                    offset = record.end - base
                    yield record
            except LedgerDamaged as error:
                raise self._unknown(error) from error
            rest = len(piece) - offset
            needed = record_bytes(view[offset:])
            if rest >= HEAD_BYTES and (needed is None or needed <= rest):
                return
            if not offset and len(piece) < wanted:
                return
            wanted = max(self._piece_bytes, needed or 0)

    def to_the_end(self, durable: int = 0) -> Iterator[Record]:
        """Yield records as iteration does; then check that the bytes behind ``end`` were never
        whole.

        ``durable`` is the offset up to which the file is known to be fsynced.

        Raises:
            LedgerDamaged: They were whole once: a later record, or ``durable``, proves it.
        """
        # Reading ahead would fill the page cache with the zeros of reserved space.
        self._storage.expect_random_reads(self._handle)
        while True:
            yield from self
            if not self._was_durable(self.end, durable):
                return
            # The writer may have finished the record during the first read. The proof was written
            # later still, so a second read must find the record whole.
            again = self._read(self.end, self._record_bytes(self.end))
            try:
                record = record_at(memoryview(again), 0, self._salt, self.end)
            except LedgerDamaged as error:
                raise self._unknown(error) from error
            if record is None:
                raise LedgerDamaged(f"{self.path}: no valid record at byte {self.end}")

    def _unknown(self, error: LedgerDamaged) -> LedgerDamaged:
        return LedgerDamaged(f"{self.path}: at byte {self.end}: {error}")

    def _record_bytes(self, offset: int) -> int:
        return record_bytes(memoryview(self._read(offset, HEAD_BYTES))) or HEAD_BYTES

    def _was_durable(self, place: int, durable: int) -> bool:
        """Whether ``place`` was fsynced, by ``durable`` or by the proof of a later record."""
        if place < durable:
            return True
        offset = place + 1
        while True:
            # Skip reserved space, which is megabytes of zeros. Only the search for a proof of
            # damage does so; the scan of valid records reads every byte.
            offset, end = self._storage.written(self._handle, offset)
            block = self._read(offset, min(_BLOCK_BYTES, end - offset))
            if not block:
                return False
            found = block.find(MAGIC)
            if found < 0:
                # No record spans the beginning of space that was never written.
                is_all = offset + len(block) == end
                offset = end if is_all else offset + max(1, len(block) - len(MAGIC) + 1)
                continue
            offset += found
            whole = self._read(offset, self._record_bytes(offset))
            record = next(later_records(whole, 0, self._salt), None)
            if record is not None and offset + record.offset - record.since_durable > place:
                return True
            offset += 1 if record is None else record.end

    def _read(self, offset: int, length: int) -> bytes:
        if self._limit is not None:
            length = min(length, self._limit - offset)
        return self._storage.pread(self._handle, length, offset) if length > 0 else b""
