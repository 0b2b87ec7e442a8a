"""Disks of a size that a test can fill: memory, mounted where a node keeps its data."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

MIB = 1024 * 1024
_BALLAST = "ballast"
_BLOCK = bytes(MIB)
_LAST_BLOCK = bytes(512)


class MountRefused(Exception):
    """This process may not mount."""


class SmallDisk:
    """A disk at ``path``; what fills it beside the node's own data is its ballast."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, leave_bytes: int = 0) -> None:
        """Write until only ``leave_bytes`` are free."""
        with (self.path / _BALLAST).open("ab", buffering=0) as ballast:
            try:
                while (room := self.free_bytes - leave_bytes) > 0:
                    ballast.write(_BLOCK[:room])
                while not leave_bytes:
                    ballast.write(_LAST_BLOCK)
            except OSError:
                # Full: what was asked for.
                assert not leave_bytes, f"{self.free_bytes} bytes are free"

    def free(self) -> None:
        """Take the ballast away."""
        (self.path / _BALLAST).unlink()

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self.path).free


@contextmanager
def small_disks(*paths: Path, size_mib: int) -> Iterator[list[SmallDisk]]:
    """Mount one at each path; unmounted at the end.

    Raises:
        MountRefused: It takes privileges that this process does not have.
    """
    with ExitStack() as stack:
        for path in paths:
            path.mkdir(parents=True)
            _mount(path, size_mib)
            stack.callback(subprocess.run, ["umount", "--lazy", str(path)], check=True)
        yield [SmallDisk(path) for path in paths]


def _mount(path: Path, size_mib: int) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(path)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise MountRefused("there is no mount command") from error
    if ended.returncode:
        raise MountRefused(ended.stderr.strip())
