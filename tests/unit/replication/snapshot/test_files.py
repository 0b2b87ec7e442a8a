"""Copies of a view: what is kept of them, and for how long."""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from nextgen.replication.ports import AppliedPoint
from nextgen.replication.snapshot.files import SnapshotFiles
from nextgen.replication.snapshot.partial import SnapshotIdentity
from tests.support.simulated.disk import SimDisk

FOLDER = Path("/data/snapshots")


class Copied:
    """A view that is copied at a point of the test's choice."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self.index = 1

    def write_snapshot(self, path: Path) -> AppliedPoint:
        handle = self._disk.open(path, create=True)
        self._disk.pwrite(handle, b"a view" * 100 + bytes([self.index]), 0)
        self._disk.close(handle)
        return AppliedPoint(self.index, 1, self.index)


class Folder:
    def __init__(self) -> None:
        self.disk = SimDisk()
        self.disk.make_directory(FOLDER.parent)
        self.files = SnapshotFiles(self.disk, FOLDER)
        self.files.prepare()
        self.view = Copied(self.disk)

    def write(self, index: int) -> Path:
        self.view.index = index
        self.files.write(self.view)  # type: ignore[arg-type]
        newest = self.files.newest()
        assert newest is not None
        return newest[0]

    @property
    def names(self) -> list[str]:
        return self.disk.list_names(FOLDER)


def test_the_last_release_removes_a_copy() -> None:
    it = Folder()
    it.write(5)
    assert it.files.hold(5) == it.files.hold(3)

    it.files.release(keeps=False)
    assert len(it.names) == 1
    it.files.release(keeps=False)
    assert it.names == []


def test_a_copy_that_is_wanted_again_stays_until_the_log_is_cut_behind_it() -> None:
    it = Folder()
    path = it.write(5)
    it.files.hold(5)
    it.files.release(keeps=True)
    assert it.names == [path.name]

    it.files.drop_up_to(4)
    assert it.names == [path.name]
    it.files.drop_up_to(5)
    assert it.names == []


def test_a_copy_under_way_stays_beside_a_newer_one() -> None:
    it = Folder()
    sent = it.write(5)
    assert it.files.hold(5) is not None
    assert it.files.hold(6) is None, "one at a time is sent"
    newer = it.write(9)
    it.files.drop_up_to(9)
    assert it.names == [sent.name]

    newer = it.write(9)
    assert it.names == [sent.name, newer.name]
    it.files.release(keeps=True)
    assert it.names == [newer.name]


def test_what_was_received_is_found_until_it_is_installed() -> None:
    it = Folder()
    data = b"another view" * 100
    identity = SnapshotIdentity(AppliedPoint(9, 2, 40), len(data), crc32c(data))
    it.files.partial.begin(identity)
    it.files.partial.receive(data)
    path = it.files.finish_receiving(identity.point)

    again = SnapshotFiles(it.disk, FOLDER)
    again.prepare()
    again.drop_up_to(8)
    assert again.find(identity) == path
    again.drop_up_to(9)
    assert again.find(identity) is None
