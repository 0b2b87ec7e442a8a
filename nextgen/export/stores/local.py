"""An export in a local directory. Published files survive a power cut.

A data file is written under a draft's name, synced, renamed, its folder synced; then the manifest
is replaced in the same way. So after a kill at any moment the manifest names complete files only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from nextgen.export.errors import ExportRefused
from nextgen.export.stores.layout import LOCK, MANIFEST_DRAFT
from nextgen.export.stores.store import StoredFile


class Disk:
    """The operations that change a directory, one by one, so that tests can make each one fail."""

    def make_folder(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def create(self, path: Path) -> BinaryIO:
        return path.open("wb", buffering=0)

    def write(self, file: BinaryIO, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]

    def sync(self, file: BinaryIO) -> None:
        os.fsync(file.fileno())

    def sync_folder(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


class LocalStore:
    """See ``Store``. Uses flock against a second exporter; a killed one holds no lock."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory = directory
        self._disk = disk or Disk()
        self._lock = -1

    @property
    def url(self) -> str:
        return str(self._directory)

    def acquire(self) -> None:
        assert self._lock < 0, "the store is acquired already"
        self._make_folder(self._directory)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        lock = os.open(self._directory / LOCK, flags, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(lock)
            raise ExportRefused(
                f"{self.url} is in use by another exporter, process {owner}: stop that one, "
                "or export to a directory of your own"
            ) from None
        # Only for a second exporter's error message, so a full disk is no reason to fail.
        with contextlib.suppress(OSError):
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode("ascii"), 0)
        self._lock = lock

    def release(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def confirm(self) -> None:
        """Do nothing: the lock lasts as long as the process."""

    def list(self) -> Sequence[StoredFile]:
        found = []
        for folder, folders, names in os.walk(self._directory):
            folders.sort()
            for name in sorted(names):
                path = Path(folder, name)
                # A draft may be renamed during the listing.
                with contextlib.suppress(FileNotFoundError):
                    relative = path.relative_to(self._directory).as_posix()
                    found.append(StoredFile(relative, path.stat().st_size))
        return found

    def read(self, path: str) -> bytes | None:
        try:
            return (self._directory / path).read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, path: str, content: bytes) -> None:
        draft = self._directory / MANIFEST_DRAFT
        with self._disk.create(draft) as file:
            self._disk.write(file, content)
            self._disk.sync(file)
        self._disk.rename(draft, self._directory / path)
        self._disk.sync_folder(self._directory)

    def draft(self, path: str) -> LocalDraft:
        target = self._directory / path
        self._make_folder(target.parent)
        return LocalDraft(self._directory, target, self._disk)

    def open(self, path: str) -> BinaryIO:
        return (self._directory / path).open("rb")

    def remove(self, path: str) -> None:
        self._disk.remove(self._directory / path)

    def _make_folder(self, folder: Path) -> None:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            self._disk.make_folder(path)
            self._disk.sync_folder(path.parent)


class LocalDraft:
    """See ``Draft``."""

    def __init__(self, directory: Path, path: Path, disk: Disk) -> None:
        self._directory = directory
        self._path = path
        self._disk = disk
        self._file = disk.create(path)

    def write(self, data: bytes) -> int:
        self._disk.write(self._file, data)
        return len(data)

    def publish(self, path: str) -> None:
        target = self._directory / path
        self._disk.sync(self._file)
        self._file.close()
        if target.exists():
            raise ExportRefused(f"{target} is there already, and was not exported by this run")
        self._disk.rename(self._path, target)
        self._disk.sync_folder(target.parent)

    def discard(self) -> None:
        self._file.close()
        with contextlib.suppress(OSError):
            self._disk.remove(self._path)
