"""What every storage does, the real disk and the simulated one."""

from __future__ import annotations

from pathlib import Path

import pytest

from nextgen.storage.disk import (
    DiskStorage,
    SharedStorage,
    Storage,
    make_directory_durably,
    read_content,
    replace_content,
)
from tests.support.simulated.disk import SimDisk
from tests.support.simulated.shadow_disk import ShadowDisk


@pytest.fixture(params=["disk", "shadow", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, Path]:
    """A storage and an empty directory in it."""
    if request.param == "disk":
        return DiskStorage(), tmp_path
    if request.param == "shadow":
        return ShadowDisk(tmp_path), tmp_path
    disk = SimDisk()
    disk.make_directory(Path("/data"))
    return disk, Path("/data")


def test_what_is_written_is_read_back(place: tuple[Storage, Path]) -> None:
    storage, directory = place
    handle = storage.open(directory / "a", create=True)

    storage.pwrite(handle, b"hello world", 0)
    storage.pwrite(handle, b"W", 6)

    assert storage.pread(handle, 5, 6) == b"World"
    assert storage.size(handle) == 11
    storage.close(handle)


def test_a_read_is_short_only_at_the_end(place: tuple[Storage, Path]) -> None:
    storage, directory = place
    handle = storage.open(directory / "a", create=True)
    storage.pwrite(handle, b"abc", 0)

    assert storage.pread(handle, 100, 1) == b"bc"
    assert storage.pread(handle, 100, 3) == b""
    storage.close(handle)


def test_preallocated_space_reads_as_zeros_and_keeps_what_was_written(
    place: tuple[Storage, Path],
) -> None:
    storage, directory = place
    handle = storage.open(directory / "a", create=True)
    storage.pwrite(handle, b"abc", 0)

    storage.preallocate(handle, 8192)

    assert storage.pread(handle, 8192, 0) == b"abc" + bytes(8189)
    storage.preallocate(handle, 10)
    assert storage.size(handle) == 8192
    storage.close(handle)


def test_two_handles_see_the_same_file(place: tuple[Storage, Path]) -> None:
    storage, directory = place
    writing = storage.open(directory / "a", create=True)
    reading = storage.open(directory / "a")

    storage.pwrite(writing, b"abc", 0)

    assert storage.pread(reading, 3, 0) == b"abc"
    storage.close(writing)
    storage.close(reading)


def test_opening_again_with_create_keeps_the_bytes(place: tuple[Storage, Path]) -> None:
    storage, directory = place
    first = storage.open(directory / "a", create=True)
    storage.pwrite(first, b"abc", 0)
    storage.sync(first, label="test")
    storage.close(first)

    again = storage.open(directory / "a", create=True)

    assert storage.pread(again, 3, 0) == b"abc"
    storage.close(again)


def test_opening_a_missing_file_says_so(place: tuple[Storage, Path]) -> None:
    storage, directory = place

    with pytest.raises(FileNotFoundError):
        storage.open(directory / "missing")


def test_a_rename_replaces_the_target(place: tuple[Storage, Path]) -> None:
    storage, directory = place
    for name, data in (("a", b"new"), ("b", b"old")):
        handle = storage.open(directory / name, create=True)
        storage.pwrite(handle, data, 0)
        storage.close(handle)

    storage.rename(directory / "a", directory / "b")
    storage.sync_directory(directory, label="test")

    assert storage.list_names(directory) == ["b"]
    handle = storage.open(directory / "b")
    assert storage.pread(handle, 3, 0) == b"new"
    storage.close(handle)


def test_unlinking_removes_a_file_and_a_missing_one_is_fine(place: tuple[Storage, Path]) -> None:
    storage, directory = place
    storage.close(storage.open(directory / "a", create=True))

    storage.unlink(directory / "a")
    storage.unlink(directory / "a")

    assert storage.list_names(directory) == []


def test_names_come_sorted_and_a_missing_directory_has_none(place: tuple[Storage, Path]) -> None:
    storage, directory = place
    for name in ("b", "a", "c"):
        storage.close(storage.open(directory / name, create=True))

    assert storage.list_names(directory) == ["a", "b", "c"]
    assert storage.list_names(directory / "missing") == []


def test_directories_are_made_with_everything_above_them(place: tuple[Storage, Path]) -> None:
    storage, directory = place

    make_directory_durably(storage, directory / "x" / "y", label="test")
    make_directory_durably(storage, directory / "x" / "y", label="test")

    assert storage.is_directory(directory / "x" / "y")
    assert not storage.is_directory(directory / "x" / "z")
    storage.make_directory(directory / "x")
    assert storage.list_names(directory) == ["x"]


def test_a_directory_takes_a_free_name_with_what_is_in_it(place: tuple[Storage, Path]) -> None:
    storage, directory = place
    make_directory_durably(storage, directory / "x" / "y", label="test")
    replace_content(storage, directory / "x" / "a", b"abc", label="test")

    storage.rename(directory / "x", directory / "z")

    assert storage.list_names(directory) == ["z"]
    assert storage.list_names(directory / "z") == ["a", "y"]
    assert read_content(storage, directory / "z" / "a") == b"abc"


def test_a_tree_is_removed_whole_and_a_missing_one_is_fine(place: tuple[Storage, Path]) -> None:
    storage, directory = place
    make_directory_durably(storage, directory / "x" / "y", label="test")
    replace_content(storage, directory / "x" / "y" / "a", b"abc", label="test")

    storage.remove_tree(directory / "x")
    storage.remove_tree(directory / "x")

    assert storage.list_names(directory) == []


def test_a_directory_is_removed_once_it_is_empty(place: tuple[SharedStorage, Path]) -> None:
    storage, directory = place
    make_directory_durably(storage, directory / "x", label="test")
    replace_content(storage, directory / "x" / "a", b"abc", label="test")

    storage.remove_directory(directory / "x")
    assert read_content(storage, directory / "x" / "a") == b"abc"

    storage.unlink(directory / "x" / "a")
    storage.remove_directory(directory / "x")
    storage.remove_directory(directory / "x")
    storage.unlink(directory / "x" / "a")
    assert storage.list_names(directory) == []


def test_a_content_is_replaced_whole_and_a_missing_one_is_none(
    place: tuple[Storage, Path],
) -> None:
    storage, directory = place
    assert read_content(storage, directory / "a") is None

    replace_content(storage, directory / "a", b"something long", label="test")
    replace_content(storage, directory / "a", b"short", label="test")

    assert read_content(storage, directory / "a") == b"short"
    assert storage.list_names(directory) == ["a"]
