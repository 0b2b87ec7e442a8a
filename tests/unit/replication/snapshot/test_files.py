"""A snapshot is complete when its name is durable: the log is cut behind it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from crc32c import crc32c

from nextgen.replication.ports import AppliedPoint
from nextgen.replication.snapshot.files import SnapshotFiles
from nextgen.replication.snapshot.partial import SnapshotIdentity
from tests.support.simulated.disk import SimDisk

FOLDER = Path("/data/snapshots")
DATA = b"a view" * 100
POINT = AppliedPoint(9, 2, 40)
IDENTITY = SnapshotIdentity(POINT, len(DATA), crc32c(DATA))


def given_files() -> tuple[SimDisk, SnapshotFiles]:
    disk = SimDisk()
    disk.make_directory(FOLDER.parent)
    disk.sync_directory(Path("/"), label="setup")
    files = SnapshotFiles(disk, FOLDER)
    files.prepare()
    files.partial.begin(IDENTITY)
    files.partial.receive(DATA)
    return disk, files


def test_a_snapshot_whose_name_could_not_be_synced_is_not_taken_for_complete() -> None:
    """1. Its name is not durable and its transfer fails. 2. The sender offers it again, the
    receiver finds it, installs it and cuts its log. 3. The power fails: view and log are gone."""
    disk, files = given_files()
    disk.fail_sync("snapshot.name", errno.EIO)

    with pytest.raises(OSError, match="Input/output error"):
        files.finish_receiving(POINT)

    assert files.find(IDENTITY) is None
    assert files.newest() is None


def test_a_name_that_a_killed_process_left_is_durable_before_it_is_used() -> None:
    disk, files = given_files()
    disk.ignore_sync("snapshot.name")
    path = files.finish_receiving(POINT)
    disk.close_all()

    SnapshotFiles(disk, FOLDER).prepare()
    disk.crash()

    assert SnapshotFiles(disk, FOLDER).find(IDENTITY) == path
