"""A real directory, and the copy of it that a power cut would leave.

For SQLite, which writes past ``Storage``: only syncs through the port count.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

from nextgen.storage.disk import AnyPath, DiskStorage, Handle


class ShadowDisk(DiskStorage):
    """The real ``root`` directory, and what of it was synced through this object.

    What is in ``root`` at the beginning counts as synced. Syncs that SQLite makes by itself
    do not count, so what survives here survives a real power cut all the more.
    """

    def __init__(self, root: Path) -> None:
        self._top = root
        self._ignored: set[str] = set()
        self._names: dict[Path, dict[str, int]] = {}
        self._contents: dict[int, bytes] = {}
        self._held: list[int] = []  # Open files, so that no inode number is used twice.
        self.syncs: Counter[str] = Counter()

    def ignore_sync(self, label: str) -> None:
        """Let every sync at the call site ``label`` do nothing and report success."""
        self._ignored.add(label)

    def sync(self, handle: Handle, *, label: str) -> None:
        self.syncs[label] += 1
        if label in self._ignored:
            return
        node = os.fstat(handle).st_ino
        self._held.append(os.dup(handle))
        self._contents[node] = self.pread(handle, self.size(handle), 0)

    def sync_directory(self, path: AnyPath, *, label: str) -> None:
        self.syncs[label] += 1
        if label not in self._ignored:
            self._names[Path(path)] = {entry.name: entry.inode() for entry in os.scandir(path)}

    def crash(self) -> None:
        """Turn ``root`` into what was synced. Whoever had it open must have closed it."""
        present = {path: path.is_dir() for path in self._top.rglob("*")}
        directories = {path.stat().st_ino for path, is_directory in present.items() if is_directory}
        for entry in list(self._top.iterdir()):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self._restore(self._top, directories)
        for held in self._held:
            os.close(held)
        self._held.clear()
        self._ignored.clear()

    def _restore(self, directory: Path, directories: set[int]) -> None:
        for name, node in self._names.get(directory, {}).items():
            if node in directories:
                (directory / name).mkdir()
                self._restore(directory / name, directories)
            else:
                (directory / name).write_bytes(self._contents.get(node, b""))
