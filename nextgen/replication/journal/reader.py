"""Reading old payloads back from the segments of a journal."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nextgen.kernel.errors import JournalCorrupted
from nextgen.kernel.limits.cluster import JOURNAL_OPEN_SEGMENTS_MAX
from nextgen.replication.journal.format import (
    decode_record_header,
    offset_of,
    payload_at,
    record_bytes,
    sequence_of,
)
from nextgen.replication.journal.recovery import segment_name
from nextgen.storage.disk import Handle, Storage


class SegmentReader:
    """Reads records by address. Keeps the segments open that were used last."""

    def __init__(self, storage: Storage, directory: Path) -> None:
        self._storage = storage
        self._directory = directory
        self._open: dict[int, Handle] = {}

    def payload(self, address: int, length: int) -> bytes:
        """Return the ``length`` bytes of payload of the record at ``address``.

        Raises:
            JournalCorrupted: The bytes there are not that record.
        """
        handle = self._handle(sequence_of(address))
        data = self._storage.pread(handle, record_bytes(length), offset_of(address))
        header = decode_record_header(data, 0, address)
        payload = payload_at(data, 0, header) if header else None
        if payload is None:
            name = segment_name(sequence_of(address))
            raise JournalCorrupted(
                f"{self._directory / name} is damaged at byte {offset_of(address)}: stop this "
                f"node, move {self._directory} away and start it again; the replica is rebuilt "
                f"from the others"
            )
        return payload

    def forget(self, sequences: Iterable[int]) -> None:
        """Close segments that are being dropped."""
        for sequence in sequences:
            handle = self._open.pop(sequence, None)
            if handle is not None:
                self._storage.close(handle)

    def close(self) -> None:
        self.forget(list(self._open))

    def _handle(self, sequence: int) -> Handle:
        handle = self._open.pop(sequence, None)
        if handle is None:
            if len(self._open) >= JOURNAL_OPEN_SEGMENTS_MAX:
                self.forget([next(iter(self._open))])
            handle = self._storage.open(self._directory / segment_name(sequence))
        self._open[sequence] = handle
        return handle
