"""Snapshots on disk: complete copies of a view, named after the point and the bytes they hold.

    snapshot-<index>-<term>-<position>-<crc32c of the file>.db

There is one only while it is on its way: written for a follower and not yet installed there, or
interrupted; received and not yet installed here. Nothing rests on one that is lost. A newer one
beside one that is being sent makes two, ``SNAPSHOTS_KEPT_MAX``.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from nextgen.kernel.limits.snapshot import SNAPSHOT_PROGRESS_BYTES, SNAPSHOTS_KEPT_MAX
from nextgen.replication.ports import AppliedPoint, StateMachine
from nextgen.replication.snapshot.partial import (
    PartialSnapshot,
    SnapshotDamaged,
    SnapshotIdentity,
    file_checksum,
)
from nextgen.storage.disk import Storage, make_directory_durably

# Those of an earlier version have no checksum in their name.
_NAME = re.compile(r"snapshot-(\d{20})-(\d{20})-(\d{20})(?:-([0-9a-f]{8}))?\.db")
_WRITING = "snapshot.writing"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One complete copy. ``checksum`` is the one in its name; None without one."""

    path: Path
    point: AppliedPoint
    checksum: int | None


class SnapshotFiles:
    """The snapshots of one replica. Calls block; worker threads make them.

    At most one write and one receipt run at a time; both may run together.
    """

    def __init__(
        self, storage: Storage, directory: Path, progress_bytes: int = SNAPSHOT_PROGRESS_BYTES
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._names = threading.Lock()  # Around what adds, removes and holds complete ones.
        self._held: Path | None = None
        self._holders = 0
        self.partial = PartialSnapshot(storage, directory, progress_bytes)
        """The snapshot that is being received."""

    def prepare(self, applied_index: int = 0) -> None:
        """Make the directory and remove files that a crash left over."""
        make_directory_durably(self._storage, self._directory, label="snapshot.make_directory")
        for name in self._storage.list_names(self._directory):
            if name.startswith(_WRITING):
                self._storage.unlink(self._directory / name)
        self.partial.drop_if_behind(applied_index)

    def newest(self) -> tuple[Path, AppliedPoint] | None:
        """Return the newest complete snapshot."""
        found = self._newest()
        return None if found is None else (found.path, found.point)

    def sound(self) -> tuple[Path, AppliedPoint] | None:
        """Return the newest complete snapshot whose bytes match the checksum in its name."""
        for found in reversed(self._complete()):
            try:
                self.identity_of(found)
            except SnapshotDamaged:
                continue
            return found.path, found.point
        return None

    def write(self, state_machine: StateMachine) -> AppliedPoint:
        """Copy the view, and remove older copies but the one that is being sent."""
        path = self._directory / _WRITING
        self._storage.unlink(path)
        point = state_machine.write_snapshot(path)
        handle = self._storage.open(path)
        try:
            checksum = file_checksum(self._storage, handle, self._storage.size(handle))
        finally:
            self._storage.close(handle)
        self._publish(path, point, checksum)
        return point

    # Sending ----------------------------------------------------------------------------------

    def hold(self, index_min: int) -> Snapshot | None:
        """Return a snapshot at ``index_min`` or later that stays until ``release``.

        While one is held, every caller gets that one if it is new enough: so at most one is kept
        besides the newest.
        """
        with self._names:
            if self._held is not None:
                held = _parsed(self._held)
                assert held is not None, "what is held has a snapshot's name"
                if held.point.index < index_min:
                    return None
            else:
                newest = self._newest()
                if newest is None or newest.point.index < index_min:
                    return None
                held = newest
            self._held = held.path
            self._holders += 1
            return held

    def release(self, *, keeps: bool) -> None:
        """Release what ``hold`` returned. The last release removes the file, unless it ``keeps``
        the newest one for a transfer that will go on."""
        with self._names:
            self._holders -= 1
            assert self._holders >= 0, "every release follows a hold"
            if self._holders:
                return
            self._held = None
            newest = self._newest() if keeps else None
            self._keep_only(None if newest is None else newest.path)

    def drop_up_to(self, index: int) -> None:
        """Remove the copies of points up to ``index`` that are not being sent: they are of no use
        behind it."""
        with self._names:
            for found in self._complete():
                if found.point.index <= index and found.path != self._held:
                    self._storage.unlink(found.path)

    def identity_of(self, snapshot: Snapshot) -> SnapshotIdentity:
        """Read a snapshot to its end and return its identity.

        Raises:
            SnapshotDamaged: The bytes do not match their checksum. The file was removed.
        """
        handle = self._storage.open(snapshot.path)
        try:
            length = self._storage.size(handle)
            checksum = file_checksum(self._storage, handle, length)
        finally:
            self._storage.close(handle)
        if snapshot.checksum not in (None, checksum):
            with self._names:
                self._storage.unlink(snapshot.path)
            raise SnapshotDamaged(f"{snapshot.path} is not what was written")
        return SnapshotIdentity(snapshot.point, length, checksum)

    def read_chunk(self, path: Path, offset: int, length: int) -> tuple[bytes, int]:
        """Return bytes of a snapshot and their checksum."""
        handle = self._storage.open(path)
        try:
            data = self._storage.pread(handle, length, offset)
        finally:
            self._storage.close(handle)
        return data, crc32c(data)

    # Receiving --------------------------------------------------------------------------------

    def find(self, identity: SnapshotIdentity) -> Path | None:
        """Return the complete and sound snapshot that is ``identity``, None if it is not here."""
        for found in self._complete():
            if found.checksum is None or found.point != identity.point:
                continue
            try:
                if identity == self.identity_of(found):
                    return found.path
            except SnapshotDamaged:
                continue
        return None

    def finish_receiving(self, point: AppliedPoint) -> Path:
        """Check the received snapshot and make it the newest one.

        Raises:
            SnapshotDamaged: It differs from the sender's. It was dropped.
        """
        path, checksum = self.partial.finish()
        published = self._publish(path, point, checksum)
        self.partial.drop()
        return published

    # Inside -----------------------------------------------------------------------------------

    def _complete(self) -> list[Snapshot]:
        """Return the complete snapshots, the oldest first."""
        names = self._storage.list_names(self._directory)
        found = [found for name in names if (found := _parsed(self._directory / name))]
        return sorted(found, key=lambda snapshot: snapshot.point.index)

    def _newest(self) -> Snapshot | None:
        return next(reversed(self._complete()), None)

    def _publish(self, path: Path, point: AppliedPoint, checksum: int) -> Path:
        numbers = f"{point.index:020d}-{point.term:020d}-{point.position:020d}"
        target = self._directory / f"snapshot-{numbers}-{checksum:08x}.db"
        # Its name need not be durable: no log is cut behind a copy.
        with self._names:
            self._storage.rename(path, target)
            self._keep_only(target)
        return target

    def remove_all(self) -> None:
        """Remove every complete copy, durably, because their view was wrong."""
        with self._names:
            for found in self._complete():
                self._storage.unlink(found.path)
            self._storage.sync_directory(self._directory, label="snapshot.remove_all")

    def _keep_only(self, newest: Path | None) -> None:
        """Remove all but the newest one and the one that is being sent."""
        kept = {newest, self._held}
        for found in self._complete():
            if found.path not in kept:
                self._storage.unlink(found.path)
        assert len(kept - {None}) <= SNAPSHOTS_KEPT_MAX, "one is new and one is being sent"


def _parsed(path: Path) -> Snapshot | None:
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    index, term, position, checksum = match.groups()
    point = AppliedPoint(int(index), int(term), int(position))
    return Snapshot(path, point, None if checksum is None else int(checksum, 16))
