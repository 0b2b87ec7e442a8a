"""A job's folder appears whole, or what was there stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import JobRefused
from pipelines.running.output import MARKER, replaced_folder


def write(path: Path, content: str) -> None:
    with replaced_folder(path, "rebuild") as draft:
        (draft / "part").write_text(content)


def fail_half_way(path: Path) -> None:
    with replaced_folder(path, "rebuild") as draft:
        (draft / "part").write_text("half")
        raise ZeroDivisionError


def test_a_later_run_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    out = tmp_path / "below" / "out"
    write(out, "first")
    write(out, "second")

    assert (out / "part").read_text() == "second"
    assert sorted(path.name for path in out.parent.iterdir()) == ["out"]


def test_a_run_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "first")
    with pytest.raises(ZeroDivisionError):
        fail_half_way(out)

    assert (out / "part").read_text() == "first"


def test_what_a_killed_run_left_does_not_get_into_the_next(tmp_path: Path) -> None:
    left = tmp_path / ".out.draft"
    left.mkdir()
    (left / "old").write_text("of the killed one")
    write(tmp_path / "out", "whole")

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [MARKER, "part"]


def test_a_folder_that_no_job_wrote_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("dear")
    with pytest.raises(JobRefused, match="no job wrote"):
        write(out, "second")

    assert (out / "thesis.txt").read_text() == "dear"


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("dear")
    with pytest.raises(JobRefused, match="is a file"):
        write(out, "second")


def test_what_another_job_wrote_is_not_replaced(tmp_path: Path) -> None:
    export = tmp_path / "history"
    with replaced_folder(export, "generate") as draft:
        (draft / "manifest.json").write_text("dear")
    with pytest.raises(JobRefused, match="what the job 'generate' wrote"):
        write(export, "second")

    assert (export / "manifest.json").read_text() == "dear"


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "first")
    out.replace(tmp_path / ".out.before")
    with pytest.raises(ZeroDivisionError):
        fail_half_way(out)

    assert (out / "part").read_text() == "first"


def test_a_file_that_the_job_cannot_have_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with (
        pytest.raises(JobRefused, match=f"^{missing} cannot be written or read: No such file"),
        replaced_folder(tmp_path / "out", "rebuild"),
    ):
        missing.read_bytes()
