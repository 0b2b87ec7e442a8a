"""A job's output folder, which replaces the previous one in one step."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nextgen.kernel.input.json_fields import parse_json
from pipelines.errors import JobRefused

MARKER = "_job.json"
"""Marks a folder that a job wrote. Readers of Parquet skip names with this first character."""


@contextmanager
def replaced_folder(path: Path, job: str) -> Iterator[Path]:
    """Yield an empty folder beside ``path`` that replaces ``path`` when the block succeeds.

    If the block raises, ``path`` is unchanged.

    Raises:
        JobRefused: ``path`` holds something that this job did not write, or the disk refuses.
    """
    path = path.absolute()
    draft = path.with_name(f".{path.name}.draft")
    before = path.with_name(f".{path.name}.before")
    try:
        _clear_up(path, before)
        _check_replaceable(path, job)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        yield draft
        (draft / MARKER).write_text(json.dumps({"job": job}) + "\n", encoding="utf-8")
        if path.exists():
            path.replace(before)
        try:
            draft.replace(path)
        finally:
            _clear_up(path, before)
    except OSError as error:
        # The error may be about another file that the block used.
        reason = error.strerror or str(error)
        raise JobRefused(f"{error.filename or path} cannot be written or read: {reason}") from error


def _clear_up(path: Path, before: Path) -> None:
    """Remove the replaced folder, or put it back if its replacement failed."""
    if path.exists():
        shutil.rmtree(before, ignore_errors=True)
    elif before.exists():
        before.replace(path)


def _check_replaceable(path: Path, job: str) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise JobRefused(f"{path} is a file: name a folder")
    if not any(path.iterdir()):
        return
    writer = _writer_of(path)
    if writer is None:
        raise JobRefused(
            f"{path} holds something that no job wrote: name another folder, or empty it"
        )
    if writer != job:
        raise JobRefused(f"{path} is what the job {writer!r} wrote: name another folder")


def _writer_of(path: Path) -> str | None:
    """Return the job that wrote a folder, None if none did."""
    try:
        return str(parse_json((path / MARKER).read_bytes())["job"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
