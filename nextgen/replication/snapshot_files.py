"""Snapshots on disk: at most one complete copy of a view, named after the point it holds."""

from __future__ import annotations

import re
from pathlib import Path

from crc32c import crc32c

from nextgen.replication.ports import AppliedPoint, StateMachine
from nextgen.replication.storage import Handle, Storage, make_directory_durably

_NAME = re.compile(r"snapshot-(\d{20})-(\d{20})-(\d{20})\.db")
_WRITING = "snapshot.writing"
_RECEIVING = "snapshot.receiving"


class SnapshotFiles:
    """The snapshots of one replica. Calls block: a worker thread makes them, one at a time."""

    def __init__(self, storage: Storage, directory: Path) -> None:
        self._storage = storage
        self._directory = directory
        self._receiving: Handle | None = None

    def prepare(self) -> None:
        """Make the directory and remove what a crash left half done."""
        make_directory_durably(self._storage, self._directory, label="snapshot.make_directory")
        for name in (_WRITING, _RECEIVING):
            self._storage.unlink(self._directory / name)

    def newest(self) -> tuple[Path, AppliedPoint] | None:
        """Return the newest complete snapshot."""
        points = [
            (AppliedPoint(*map(int, match.groups())), name)
            for name in self._storage.list_names(self._directory)
            if (match := _NAME.fullmatch(name))
        ]
        if not points:
            return None
        point, name = max(points, key=lambda found: found[0].index)
        return self._directory / name, point

    def write(self, state_machine: StateMachine) -> AppliedPoint:
        """Copy the view, durably, and remove older copies."""
        path = self._directory / _WRITING
        self._storage.unlink(path)
        point = state_machine.write_snapshot(path)
        self._publish(path, point)
        return point

    def size(self, path: Path) -> int:
        handle = self._storage.open(path)
        try:
            return self._storage.size(handle)
        finally:
            self._storage.close(handle)

    def read_chunk(self, path: Path, offset: int, length: int) -> tuple[bytes, int]:
        """Return bytes of a snapshot and their checksum."""
        handle = self._storage.open(path)
        try:
            data = self._storage.pread(handle, length, offset)
        finally:
            self._storage.close(handle)
        return data, crc32c(data)

    def begin_receiving(self) -> None:
        """Start an empty file for chunks; whatever was received before is dropped."""
        self.abandon_receiving()
        self._receiving = self._storage.open(self._directory / _RECEIVING, create=True)

    def receive_chunk(self, data: bytes, offset: int) -> None:
        assert self._receiving is not None, "receiving has begun"
        self._storage.pwrite(self._receiving, data, offset)

    def finish_receiving(self, point: AppliedPoint) -> Path:
        """Make what was received the newest snapshot, durably, and return its path."""
        assert self._receiving is not None, "receiving has begun"
        handle, self._receiving = self._receiving, None
        try:
            self._storage.sync(handle, label="snapshot.received")
        finally:
            self._storage.close(handle)
        return self._publish(self._directory / _RECEIVING, point)

    def abandon_receiving(self) -> None:
        """Drop what was received so far."""
        if self._receiving is not None:
            self._storage.close(self._receiving)
            self._receiving = None
        self._storage.unlink(self._directory / _RECEIVING)

    def _publish(self, path: Path, point: AppliedPoint) -> Path:
        name = f"snapshot-{point.index:020d}-{point.term:020d}-{point.position:020d}.db"
        self._storage.rename(path, self._directory / name)
        self._storage.sync_directory(self._directory, label="snapshot.name")
        for other in self._storage.list_names(self._directory):
            if _NAME.fullmatch(other) and other != name:
                self._storage.unlink(self._directory / other)
        return self._directory / name
