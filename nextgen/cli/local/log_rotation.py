"""Bounds the size of a local cluster's diagnostics.

A file that has grown too long is copied to ``name.log.1`` and emptied: its process goes on writing
to the same file, which it has open for appending. Lines that are written between the end of the
copy and the emptying, some microseconds, are lost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from nextgen.kernel.limits.inbound import LOG_FILE_BYTES_MAX, LOG_FILES_KEPT_MAX


def rotate_logs(
    directory: Path, *, bytes_max: int = LOG_FILE_BYTES_MAX, kept_max: int = LOG_FILES_KEPT_MAX
) -> None:
    """Rotate each ``*.log`` of ``directory`` that is longer than ``bytes_max``.

    Of each ``kept_max`` earlier files stay, ``.1`` the newest. Without room for a copy the lines
    are dropped, because a full disk needs its space for data.
    """
    for path in sorted(directory.glob("*.log")):
        with contextlib.suppress(OSError):
            if path.stat().st_size > bytes_max:
                _rotate(path, kept_max)


def _rotate(path: Path, kept_max: int) -> None:
    earlier = [path.with_name(f"{path.name}.{number}") for number in range(1, kept_max + 1)]
    for older, newer in reversed(list(zip(earlier[1:], earlier, strict=False))):
        with contextlib.suppress(FileNotFoundError):
            newer.rename(older)
    try:
        shutil.copyfile(path, earlier[0])
    except OSError:
        earlier[0].unlink(missing_ok=True)
    os.truncate(path, 0)
