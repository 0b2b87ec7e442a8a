"""What a storage does that several processes share, the real disk and the simulated one."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextgen.storage.disk import DiskStorage, SharedStorage
from tests.support.simulated.disk import SimDisk

Place = tuple[SharedStorage, str]


@pytest.fixture(params=["disk", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A storage and an empty directory in it."""
    if request.param == "disk":
        return DiskStorage(), str(tmp_path)
    disk = SimDisk()
    disk.make_directory("/data")
    return disk, "/data"


def write(storage: SharedStorage, path: str, content: bytes) -> None:
    handle = storage.open(path, create=True)
    storage.pwrite(handle, content, 0)
    storage.close(handle)


def read(storage: SharedStorage, path: str) -> bytes:
    handle = storage.open_to_read(path)
    try:
        return storage.pread(handle, storage.size(handle), 0)
    finally:
        storage.close(handle)


def test_a_file_is_created_once(place: Place) -> None:
    storage, directory = place
    storage.close(storage.create(f"{directory}/claim"))

    with pytest.raises(FileExistsError):
        storage.create(f"{directory}/claim")


def test_a_file_may_have_two_names_and_each_is_given_once(place: Place) -> None:
    storage, directory = place
    write(storage, f"{directory}/a", b"abc")

    storage.link(f"{directory}/a", f"{directory}/b")

    assert storage.identity(f"{directory}/a") == storage.identity(f"{directory}/b")
    with pytest.raises(FileExistsError):
        storage.link(f"{directory}/a", f"{directory}/b")
    storage.unlink(f"{directory}/a")
    assert read(storage, f"{directory}/b") == b"abc"
    with pytest.raises(FileNotFoundError):
        storage.link(f"{directory}/a", f"{directory}/c")


def test_a_file_that_is_made_again_is_another_one(place: Place) -> None:
    storage, directory = place
    path, kept = f"{directory}/a", f"{directory}/kept"
    write(storage, path, b"first")
    first = storage.identity(path)
    # Without another name of it the system may use its inode again at once.
    storage.link(path, kept)
    storage.unlink(path)
    assert not storage.exists(path)
    assert storage.identity(path) is None

    write(storage, path, b"second")

    assert storage.exists(path)
    assert storage.identity(path) not in (None, first)
    assert storage.identity(kept) == first


def test_what_is_missing_is_not_opened_for_reading(place: Place) -> None:
    storage, directory = place

    with pytest.raises(FileNotFoundError) as error:
        storage.open_to_read(f"{directory}/a")

    assert error.value.filename == f"{directory}/a"


def test_a_file_is_cut_off(place: Place) -> None:
    storage, directory = place
    write(storage, f"{directory}/a", b"abcdef")
    handle = storage.open(f"{directory}/a")

    storage.truncate(handle, 2)

    assert storage.size(handle) == 2
    assert storage.pread(handle, 10, 0) == b"ab"
    storage.close(handle)


def test_space_is_reserved_behind_what_was_written(place: Place) -> None:
    storage, directory = place
    write(storage, f"{directory}/a", b"abc")
    handle = storage.open(f"{directory}/a")

    storage.preallocate(handle, 100_000, begin=3)

    assert storage.size(handle) == 100_000
    assert storage.pread(handle, 5, 0) == b"abc\0\0"
    begin, end = storage.written(handle, 0)
    assert begin == 0
    assert end >= 3
    storage.close(handle)


def test_nothing_is_written_behind_the_end(place: Place) -> None:
    storage, directory = place
    write(storage, f"{directory}/a", b"abc")
    handle = storage.open(f"{directory}/a")

    assert storage.written(handle, 3) == (3, 3)
    assert storage.pread(handle, 10, 3) == b""
    storage.close(handle)
