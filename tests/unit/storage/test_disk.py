"""The disks that stand in for the real one forget what a power cut would make it forget."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from nextgen.storage.disk import DiskStorage, Handle, is_full, make_directory_durably
from tests.support.simulated.disk import PowerCut, SimDisk
from tests.support.simulated.shadow_disk import ShadowDisk

DATA = Path("/data")
FILE = DATA / "file"


def given_disk() -> SimDisk:
    disk = SimDisk()
    make_directory_durably(disk, DATA, label="setup")
    return disk


def given_file(disk: SimDisk, data: bytes = b"") -> Handle:
    """A file whose name and first bytes are durable."""
    handle = disk.open(FILE, create=True)
    disk.pwrite(handle, data, 0)
    disk.sync(handle, label="setup")
    disk.sync_directory(DATA, label="setup")
    return handle


@pytest.mark.parametrize(
    ("code", "full"),
    [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False), (errno.ENOENT, False)],
)
def test_a_full_disk_is_distinguished_from_a_broken_one(code: int, full: bool) -> None:
    assert is_full(OSError(code, "")) is full


def test_bytes_that_were_not_synced_are_gone_after_a_crash() -> None:
    disk = given_disk()
    handle = given_file(disk, b"old")
    disk.pwrite(handle, b"NEW and longer", 0)

    disk.crash()

    assert disk.read(FILE) == b"old"


def test_synced_bytes_survive_a_crash() -> None:
    disk = given_disk()
    handle = given_file(disk)
    disk.pwrite(handle, b"new", 0)
    disk.sync(handle, label="test")

    disk.crash()

    assert disk.read(FILE) == b"new"


def test_a_synced_file_whose_name_was_not_synced_is_gone() -> None:
    disk = given_disk()
    handle = disk.open(FILE, create=True)
    disk.sync(handle, label="test")

    disk.crash()

    assert disk.list_names(DATA) == []


def test_renames_and_unlinks_are_undone_until_the_directory_is_synced() -> None:
    disk = given_disk()
    given_file(disk, b"kept")
    disk.rename(FILE, DATA / "renamed")
    disk.unlink(DATA / "renamed")

    disk.crash()

    assert disk.list_names(DATA) == ["file"]


def test_a_directory_that_was_not_synced_takes_its_files_along() -> None:
    disk = given_disk()
    disk.make_directory(DATA / "inner")
    handle = disk.open(DATA / "inner" / "file", create=True)
    disk.sync(handle, label="test")
    disk.sync_directory(DATA / "inner", label="test")

    disk.crash()

    assert not disk.is_directory(DATA / "inner")


@pytest.mark.parametrize("inner", ["inner", "inner/deeper"])
def test_a_directory_whose_making_was_interrupted_is_durable_behind_the_next_call(
    inner: str,
) -> None:
    """A process that was killed behind the ``mkdir`` leaves a name that no one would sync."""
    disk = given_disk()
    disk.make_directory(DATA / "inner")

    make_directory_durably(disk, DATA / inner, label="test")
    disk.crash()

    assert disk.is_directory(DATA / inner)


def test_a_directory_above_that_may_not_be_read_is_no_error(tmp_path: Path) -> None:
    class Guarded(DiskStorage):
        def sync_directory(self, path: Path | str, *, label: str) -> None:
            if Path(path) == tmp_path:
                raise PermissionError(errno.EACCES, "not yours", str(path))
            super().sync_directory(path, label=label)

    (tmp_path / "inner").mkdir()

    make_directory_durably(Guarded(), tmp_path / "inner" / "deeper", label="test")

    assert (tmp_path / "inner" / "deeper").is_dir()


def test_a_crash_may_keep_any_sector_and_the_same_seed_keeps_the_same() -> None:
    def outcome(seed: int) -> bytes:
        disk = given_disk()
        handle = given_file(disk, bytes(2048))
        disk.pwrite(handle, b"x" * 2048, 0)
        disk.crash(seed)
        return disk.read(FILE)

    outcomes = {outcome(seed) for seed in range(40)}

    assert len(outcomes) > 5
    assert outcome(7) == outcome(7)
    assert all(sector in (bytes(512), b"x" * 512) for data in outcomes for sector in _sectors(data))


def _sectors(data: bytes) -> list[bytes]:
    return [data[at : at + 512] for at in range(0, len(data), 512)]


def test_an_ignored_sync_keeps_nothing_and_others_go_on() -> None:
    disk = given_disk()
    handle = given_file(disk)
    disk.ignore_sync("lies")
    disk.pwrite(handle, b"a", 0)
    disk.sync(handle, label="lies")

    disk.crash()

    assert disk.read(FILE) == b""
    assert disk.syncs["lies"] == 1


def test_a_full_disk_refuses_to_grow_and_takes_what_fits() -> None:
    disk = given_disk()
    handle = given_file(disk, bytes(100))
    disk.fill_up(bytes_left=10)

    disk.pwrite(handle, b"x" * 110, 0)
    with pytest.raises(OSError, match="No space left") as refused:
        disk.preallocate(handle, 111)

    assert is_full(refused.value)
    disk.free()
    disk.preallocate(handle, 111)


def test_a_sync_fails_as_often_as_it_was_set_to() -> None:
    disk = given_disk()
    handle = given_file(disk)
    disk.fail_sync("test", errno.EIO, times=2)

    for _ in range(2):
        with pytest.raises(OSError, match="error"):
            disk.sync(handle, label="test")

    disk.sync(handle, label="test")


def test_bytes_that_a_failed_sync_gave_up_are_the_old_ones_also_where_the_file_was_cut_off() -> (
    None
):
    disk = given_disk()
    handle = given_file(disk, b"a" * 700)
    disk.pwrite(handle, b"b" * 700, 0)
    disk.fail_sync("test", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        disk.sync(handle, label="test")

    disk.truncate(handle, 600)
    disk.sync(handle, label="test")

    assert disk.read(FILE) == b"b" * 600
    assert disk.durable_copy().read(FILE) == b"a" * 600
    disk.drop_cache(handle)
    assert disk.read(FILE) == b"a" * 600


def test_the_power_goes_between_any_two_operations() -> None:
    disk = given_disk()
    handle = given_file(disk)
    disk.cut_power_after(1)
    disk.pwrite(handle, b"a", 0)

    with pytest.raises(PowerCut):
        disk.sync(handle, label="test")

    disk.crash()
    assert disk.read(FILE) == b""


def test_a_process_dies_between_any_two_operations_and_others_go_on() -> None:
    disk = given_disk()
    handle = given_file(disk)
    disk.cut_power_after(1)
    disk.pwrite(handle, b"a", 0)
    with pytest.raises(PowerCut):
        disk.pwrite(handle, b"b", 1)

    disk.keep_power()

    disk.pwrite(handle, b"c", 1)
    disk.sync(handle, label="test")
    assert disk.durable_copy().read(FILE) == b"ac"


def test_a_shadow_keeps_what_was_synced_and_nothing_else(tmp_path: Path) -> None:
    disk = ShadowDisk(tmp_path)
    make_directory_durably(disk, tmp_path / "inner", label="setup")
    kept, unsynced = (disk.open(tmp_path / "inner" / name, create=True) for name in "ab")
    disk.pwrite(kept, b"kept", 0)
    disk.sync(kept, label="test")
    disk.sync_directory(tmp_path / "inner", label="test")
    disk.pwrite(unsynced, b"lost", 0)
    disk.pwrite(kept, b"lost too", 0)
    disk.close(disk.open(tmp_path / "inner" / "c", create=True))
    disk.close(kept)
    disk.close(unsynced)

    disk.crash()

    assert disk.list_names(tmp_path / "inner") == ["a", "b"]
    assert (tmp_path / "inner" / "a").read_bytes() == b"kept"
    assert (tmp_path / "inner" / "b").read_bytes() == b""


def test_the_real_disk_finishes_a_write_that_the_system_did_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal, or a file larger than 2 GiB, makes the system write and read less than asked."""
    import os

    storage, handle_path = DiskStorage(), tmp_path / "a"
    handle = storage.open(handle_path, create=True)
    real_write, real_read = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_write(fd, data[:3], at))
    monkeypatch.setattr(os, "pread", lambda fd, length, at: real_read(fd, min(length, 3), at))

    storage.pwrite(handle, b"0123456789", 0)

    assert storage.pread(handle, 10, 0) == b"0123456789"
    storage.close(handle)
