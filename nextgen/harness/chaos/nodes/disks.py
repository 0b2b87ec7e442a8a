"""Small disks that can be filled: memory, mounted at a node's data directory. Needs root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

MIB = 1024 * 1024
MOUNT_TIMEOUT_S = 10
MOUNTS = Path("/proc/self/mounts")
_BALLAST = "ballast"
_LAST_BLOCK = bytes(512)
_FILL_ATTEMPTS = 20


class MountRefused(Exception):
    """This process may not mount."""


class SmallDisk:
    """A disk at ``path``. A ballast file fills it beside the node's own data."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, leave_bytes: int = 0) -> None:
        """Fill the disk until only ``leave_bytes`` are free. Its node may write meanwhile."""
        with (self.path / _BALLAST).open("ab", buffering=0) as ballast:
            for _ in range(_FILL_ATTEMPTS):
                room = self.free_bytes - leave_bytes
                if room <= 0:
                    break
                with contextlib.suppress(OSError):  # The node was faster: try less.
                    end = ballast.seek(0, os.SEEK_END)
                    os.posix_fallocate(ballast.fileno(), end, room)
            with contextlib.suppress(OSError):  # Full, as requested.
                while not leave_bytes:
                    ballast.write(_LAST_BLOCK)

    def free(self) -> None:
        """Remove the ballast, if there is any."""
        (self.path / _BALLAST).unlink(missing_ok=True)

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self.path).free


@contextmanager
def small_disks(*paths: Path, size_mib: int) -> Iterator[list[SmallDisk]]:
    """Mount a disk at each path; unmount them at the end of the block.

    Raises:
        MountRefused: It takes privileges that this process does not have.
    """
    with ExitStack() as stack:
        for path in paths:
            path.mkdir(parents=True)
            mount(path, size_mib)
            stack.callback(unmount, path)
        yield [SmallDisk(path) for path in paths]


def mount(path: Path, size_mib: int) -> None:
    """Mount an empty disk over a directory.

    Raises:
        MountRefused: It takes privileges that this process does not have.
    """
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(path)]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=MOUNT_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MountRefused(f"mount cannot be run: {error}") from error
    if ended.returncode:
        raise MountRefused(" ".join(ended.stderr.split()))


def mounted_below(folder: Path) -> list[Path]:
    """Return the mount points of such disks below a folder."""
    mounts = [line.split() for line in MOUNTS.read_text(encoding="utf-8").splitlines()]
    return [
        Path(where)
        for what, where, kind, *_ in mounts
        if (what, kind) == ("tmpfs", "tmpfs") and Path(where).is_relative_to(folder)
    ]


def unmount(path: Path) -> None:
    """Unmount a disk. Processes with open files there keep them until they end."""
    subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=MOUNT_TIMEOUT_S)
