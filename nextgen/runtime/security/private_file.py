"""Files that are written as a whole; keys and tokens, which only their owner may read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from nextgen.kernel.errors import RefusesToStart


def write_private(path: Path, content: bytes) -> None:
    """Write a file with mode 600, as a whole: a reader never finds a part of it.

    Raises:
        RefusesToStart: It cannot be written.
    """
    write_whole(path, content, mode=0o600)


def write_whole(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file with this mode, or replace it: a reader finds all of it or none.

    Raises:
        RefusesToStart: It cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise RefusesToStart(f"{path} cannot be written: {error.strerror or error}") from error
