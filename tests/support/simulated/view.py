"""A view in memory whose durable copy and snapshots live on the simulated disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from nextgen.replication.ports import AppliedPoint, Entry, ViewDigest
from tests.support.simulated.disk import SimDisk


class SimView:
    """Remembers every payload, in order."""

    def __init__(self, disk: SimDisk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._point = AppliedPoint(0, 0, 0)
        self.payloads: list[str] = []
        self.full = False
        self.broken = False
        if "view" in disk.list_names(directory):
            self._load(directory / "view")

    def applied(self) -> AppliedPoint:
        return self._point

    def apply(self, entries: Sequence[Entry]) -> None:
        if self.full:
            raise OSError(28, "no space left on device")
        assert not self.broken, "the view is broken"
        for entry in entries:
            assert entry.index == self._point.index + 1, "a gap in what is folded"
            assert entry.first_position == self._point.position + 1, "positions are dense"
            self.fold(entry)
            self._point = AppliedPoint(entry.index, entry.term, entry.next_position - 1)

    def fold(self, entry: Entry) -> None:
        self.payloads += [record.payload.decode() for record in entry.records]

    def digest(self) -> ViewDigest | None:
        return None

    def make_durable(self) -> AppliedPoint:
        point = self._save(self._directory / "view.new")
        self._disk.rename(self._directory / "view.new", self._directory / "view")
        self._disk.sync_directory(self._directory, label="view.name")
        return point

    def write_snapshot(self, path: Path) -> AppliedPoint:
        return self._save(path)

    def install_snapshot(self, path: Path) -> AppliedPoint:
        self._load(path)
        return self.make_durable()

    def quarantine(self) -> None:
        raise AssertionError("no view here ever differs from the others")

    def close(self) -> None:
        """Nothing to close."""

    def content(self) -> object:
        """Return what is folded, as JSON can hold it."""
        return self.payloads

    def restore(self, content: object) -> None:
        assert isinstance(content, list)
        self.payloads = content

    def _save(self, path: Path) -> AppliedPoint:
        point = self._point
        body = json.dumps([[point.index, point.term, point.position], self.content()]).encode()
        self._disk.unlink(path)
        handle = self._disk.open(path, create=True)
        try:
            self._disk.pwrite(handle, body, 0)
            self._disk.sync(handle, label="view.bytes")
        finally:
            self._disk.close(handle)
        return point

    def _load(self, path: Path) -> None:
        point, content = json.loads(self._disk.read(path))
        self.restore(content)
        self._point = AppliedPoint(*point)
