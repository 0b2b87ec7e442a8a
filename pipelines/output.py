"""What a job writes: a folder that appears whole, in the place of the one before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.errors import JobRefused

MARKER = "_job.json"
"""In every folder that a job wrote. Readers of Parquet skip names that begin like this."""


@contextmanager
def replaced_folder(path: Path, job: str) -> Iterator[Path]:
    """Yield an empty folder beside ``path``; it takes the place of ``path`` if the block ends well.

    If it does not, what was at ``path`` is as before.

    Raises:
        JobRefused: ``path`` holds something that no job wrote, or the disk refuses.
    """
    path = path.absolute()
    _check_replaceable(path)
    draft = path.with_name(f".{path.name}.draft")
    before = path.with_name(f".{path.name}.before")
    try:
        for left in (draft, before):
            shutil.rmtree(left, ignore_errors=True)
        draft.mkdir(parents=True)
        yield draft
        (draft / MARKER).write_text(json.dumps({"job": job}) + "\n", encoding="utf-8")
        if path.exists():
            path.replace(before)
        draft.replace(path)
        shutil.rmtree(before, ignore_errors=True)
    except OSError as error:
        raise JobRefused(f"{path} cannot be written: {error.strerror or error}") from error


def _check_replaceable(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise JobRefused(f"{path} is a file: name a folder")
    if any(path.iterdir()) and not (path / MARKER).is_file():
        raise JobRefused(
            f"{path} holds something that no job wrote: name another folder, or empty it"
        )
