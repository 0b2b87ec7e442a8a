"""Small files that are replaced as a whole: what is read is what was written last, or nothing."""

from __future__ import annotations

from pathlib import Path

from nextgen.storage.checked_file import read_checked, replace_file
from nextgen.storage.disk import DiskStorage

DISK = DiskStorage()


def test_the_content_is_what_was_written_last(tmp_path: Path) -> None:
    path = tmp_path / "small"
    assert read_checked(DISK, path) is None

    for payload in (b"one", b"", b"another"):
        replace_file(DISK, path, payload, label="small")

        assert read_checked(DISK, path) == payload
        assert [each.name for each in tmp_path.iterdir()] == ["small"]


def test_a_draft_that_a_crash_left_behind_is_no_part_of_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "small"
    (tmp_path / "small.draft").write_bytes(b"longer than what is written behind it")

    replace_file(DISK, path, b"short", label="small")

    assert read_checked(DISK, path) == b"short"


def test_a_file_that_was_cut_or_changed_reads_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "small"
    replace_file(DISK, path, b"content", label="small")
    whole = path.read_bytes()

    for damaged in (b"", whole[:3], whole[:-1], whole[:-1] + b"T", bytes(4) + whole[4:]):
        path.write_bytes(damaged)

        assert read_checked(DISK, path) == b"", damaged
