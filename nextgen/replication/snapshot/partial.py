"""A partially received snapshot: the bytes so far, and how many of them can be trusted.

    snapshot.receiving    the bytes, from the beginning on
    snapshot.received     how many of them are on disk, and their checksum

The second file has two sectors that are written in turn, so that a crash while one is
written leaves the other. A transfer continues only if the same snapshot is offered again: the same
point, length and checksum of the whole. After a restart the received bytes are read and checked
before more are added.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from nextgen.kernel.limits.snapshot import SNAPSHOT_PROGRESS_BYTES
from nextgen.replication.ports import AppliedPoint
from nextgen.storage.disk import Handle, Storage

RECEIVING_NAME = "snapshot.receiving"
RECEIVED_NAME = "snapshot.received"

_MAGIC = b"ngsnap01"
_NOTE = struct.Struct(">8sQQQQQIQI")
_CHECKSUM = struct.Struct(">I")
_SECTOR_BYTES = 512
_READ_BYTES = 1024 * 1024


class SnapshotDamaged(Exception):
    """A received or stored snapshot does not match its checksum. It was dropped."""


@dataclass(frozen=True, slots=True)
class SnapshotIdentity:
    """Two snapshots with equal identities are the same bytes.

    ``checksum`` (crc32c) covers the whole file.
    """

    point: AppliedPoint
    length: int
    checksum: int


@dataclass(frozen=True, slots=True)
class _Note:
    """The durable part of a snapshot."""

    sequence: int
    identity: SnapshotIdentity
    offset: int
    checksum: int  # Of the bytes before ``offset``.


class PartialSnapshot:
    """At most one snapshot that is being received. Calls block, one at a time."""

    def __init__(
        self, storage: Storage, directory: Path, progress_bytes: int = SNAPSHOT_PROGRESS_BYTES
    ) -> None:
        self._storage = storage
        self._progress_bytes = progress_bytes
        self._data_path = directory / RECEIVING_NAME
        self._note_path = directory / RECEIVED_NAME
        self._identity: SnapshotIdentity | None = None
        self._data: Handle | None = None
        self._checksum = 0
        self._noted = 0  # Bytes that the newest note vouches for.
        self._sequence = 0
        self.offset = 0
        """The next byte that is wanted."""

    def holds(self, identity: SnapshotIdentity) -> bool:
        """Return whether ``identity`` is that of the snapshot being received."""
        return self._data is not None and identity == self._identity

    def begin(self, identity: SnapshotIdentity) -> None:
        """Continue with ``identity`` if a part of it is here, else drop any other and start."""
        if self._data is not None and identity == self._identity:
            return
        if self._data is None and self._resume(identity):
            return
        self.drop()
        self._data = self._storage.open(self._data_path, create=True)
        self._identity = identity

    def receive(self, data: bytes) -> None:
        """Add the bytes at ``offset``; sync all of them from time to time."""
        assert self._data is not None, "receiving has begun"
        self._storage.pwrite(self._data, data, self.offset)
        self.offset += len(data)
        self._checksum = crc32c(data, self._checksum)
        if self.offset - self._noted >= self._progress_bytes:
            self._note_progress()

    def finish(self) -> tuple[Path, int]:
        """Make the whole durable, check it, and return its path and its checksum.

        Raises:
            SnapshotDamaged: It differs from the sender's. It was dropped.
        """
        assert self._data is not None, "receiving has begun"
        assert self._identity is not None, "receiving has begun"
        self._storage.sync(self._data, label="snapshot.received")
        found = file_checksum(self._storage, self._data, self._identity.length)
        if self._identity.checksum != found:
            self.drop()
            raise SnapshotDamaged("what was received is not what was sent")
        self._close()
        return self._data_path, found

    def suspend(self) -> None:
        """Close the file; the received part is kept for the next start, if it is large enough."""
        if self._data is not None and self.offset > self._noted:
            self._note_progress()
        self._close()

    def drop(self) -> None:
        """Remove the received part of the snapshot."""
        self._close()
        self._storage.unlink(self._note_path)
        self._storage.unlink(self._data_path)

    def drop_if_behind(self, index: int) -> None:
        """Remove a received part of a snapshot that this replica no longer needs."""
        note = self._read_note()
        if note is None or note.identity.point.index <= index:
            self.drop()

    # Inside -----------------------------------------------------------------------------------

    def _close(self) -> None:
        if self._data is not None:
            self._storage.close(self._data)
        self._data = self._identity = None
        self.offset = self._checksum = self._noted = 0

    def _resume(self, identity: SnapshotIdentity) -> bool:
        """Open the part that an earlier process received, if it is of ``identity`` and sound."""
        note = self._read_note()
        if note is None or identity != note.identity:
            return False
        try:
            data = self._storage.open(self._data_path)
        except FileNotFoundError:
            return False
        size = self._storage.size(data)
        if size < note.offset or (file_checksum(self._storage, data, note.offset) != note.checksum):
            self._storage.close(data)
            return False
        self._data, self._identity = data, identity
        self.offset = self._noted = note.offset
        self._checksum, self._sequence = note.checksum, note.sequence
        return True

    def _note_progress(self) -> None:
        assert self._data is not None, "receiving has begun"
        assert self._identity is not None, "receiving has begun"
        self._storage.sync(self._data, label="snapshot.receiving")
        self._sequence += 1
        note = _Note(self._sequence, self._identity, self.offset, self._checksum)
        handle = self._storage.open(self._note_path, create=True)
        try:
            place = self._sequence % 2 * _SECTOR_BYTES
            self._storage.pwrite(handle, _encode(note), place)
            self._storage.sync(handle, label="snapshot.progress")
        finally:
            self._storage.close(handle)
        if self._noted == 0:
            directory = self._note_path.parent
            self._storage.sync_directory(directory, label="snapshot.progress_name")
        self._noted = self.offset

    def _read_note(self) -> _Note | None:
        try:
            handle = self._storage.open(self._note_path)
        except FileNotFoundError:
            return None
        try:
            data = self._storage.pread(handle, 2 * _SECTOR_BYTES, 0)
        finally:
            self._storage.close(handle)
        places = (data[:_SECTOR_BYTES], data[_SECTOR_BYTES:])
        notes = [note for place in places if (note := _decode(place)) is not None]
        return max(notes, key=lambda note: note.sequence, default=None)


def file_checksum(storage: Storage, handle: Handle, length: int) -> int:
    """Return the crc32c of the first ``length`` bytes, fewer at the end of the file."""
    checksum = offset = 0
    while offset < length:
        data = storage.pread(handle, min(_READ_BYTES, length - offset), offset)
        if not data:
            break
        checksum = crc32c(data, checksum)
        offset += len(data)
    return checksum


def _encode(note: _Note) -> bytes:
    identity, point = note.identity, note.identity.point
    body = _NOTE.pack(
        _MAGIC,
        note.sequence,
        point.index,
        point.term,
        point.position,
        identity.length,
        identity.checksum,
        note.offset,
        note.checksum,
    )
    return body + _CHECKSUM.pack(crc32c(body))


def _decode(data: bytes) -> _Note | None:
    if len(data) < _NOTE.size + _CHECKSUM.size:
        return None
    (checksum,) = _CHECKSUM.unpack_from(data, _NOTE.size)
    magic, sequence, index, term, position, length, whole, offset, part = _NOTE.unpack_from(data)
    if magic != _MAGIC or checksum != crc32c(data[: _NOTE.size]):
        return None
    identity = SnapshotIdentity(AppliedPoint(index, term, position), length, whole)
    return _Note(sequence, identity, offset, part)
