"""What a replica and its node need from a disk, as a port, and the real disk.

Every call that makes something durable carries a ``label`` that names its call site. The
real disk ignores it; the simulated one (tests/support/sim_disk.py) can be set to ignore
one labelled sync, which is how each of them is proved to be needed.

An ``OSError`` is not translated here: what a full or a broken disk means is the caller's
decision. ``is_full`` recognises a full one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import NewType, Protocol

Handle = NewType("Handle", int)
"""An open file. Belongs to the storage that opened it."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: OSError) -> bool:
    """True when ``error`` says that space, or the quota, is used up: it may come back."""
    return error.errno in _FULL


class Storage(Protocol):
    """Files and directories that are durable only after a sync. Calls block.

    A file's bytes survive a crash after ``sync``; its name survives after ``sync_directory``
    of the directory that holds it, and the same holds for a rename, an unlink and a new
    directory. Until then any part of it may be gone, in any order.
    """

    def open(self, path: Path, *, create: bool = False) -> Handle:
        """Open for reading and writing; with ``create`` make an empty file if there is none."""
        ...

    def close(self, handle: Handle) -> None: ...

    def preallocate(self, handle: Handle, size: int) -> None:
        """Reserve the first ``size`` bytes; what was never written there reads as zeros."""
        ...

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> None:
        """Write all of ``data`` or raise; after a failure any part of it may be there."""
        ...

    def pread(self, handle: Handle, length: int, offset: int) -> bytes:
        """Read ``length`` bytes, fewer only at the end of the file."""
        ...

    def size(self, handle: Handle) -> int: ...

    def sync(self, handle: Handle, *, label: str) -> None:
        """Return once the file's bytes and size are on the medium (fdatasync)."""
        ...

    def sync_directory(self, path: Path, *, label: str) -> None:
        """Return once the names in ``path`` are on the medium."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Give ``source`` the name ``target`` in the same directory, atomically.

        A file replaces the file of that name. A directory needs a name that is free.
        """
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file; one that is missing is fine."""
        ...

    def list_names(self, directory: Path) -> list[str]:
        """Return the names in ``directory``, sorted; none if there is no such directory."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make one directory; its parent must exist, it may exist itself."""
        ...

    def is_directory(self, path: Path) -> bool: ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and everything in it; one that is missing is fine.

        Not atomic: a crash or an error leaves any part of it.
        """
        ...


class DiskStorage:
    """The operating system's files. Safe to call from several threads."""

    def open(self, path: Path, *, create: bool = False) -> Handle:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return Handle(os.open(path, flags, 0o600))

    def close(self, handle: Handle) -> None:
        os.close(handle)

    def preallocate(self, handle: Handle, size: int) -> None:
        os.posix_fallocate(handle, 0, size)

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(handle, rest, offset)
            rest = rest[written:]
            offset += written

    def pread(self, handle: Handle, length: int, offset: int) -> bytes:
        data = os.pread(handle, length, offset)
        while len(data) < length:
            more = os.pread(handle, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def size(self, handle: Handle) -> int:
        return os.fstat(handle).st_size

    def sync(self, handle: Handle, *, label: str) -> None:
        os.fdatasync(handle)

    def sync_directory(self, path: Path, *, label: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def remove_tree(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def list_names(self, directory: Path) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def make_directory(self, path: Path) -> None:
        path.mkdir(mode=0o700, exist_ok=True)

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()


def make_directory_durably(storage: Storage, path: Path, *, label: str) -> None:
    """Make ``path`` and what is missing above it, each synced into its parent."""
    missing = []
    while not storage.is_directory(path):
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        storage.make_directory(directory)
        storage.sync_directory(directory.parent, label=label)


def read_content(storage: Storage, path: Path) -> bytes | None:
    """Return the content of the file at ``path``, None if there is none."""
    if path.name not in storage.list_names(path.parent):
        return None
    handle = storage.open(path)
    try:
        return storage.pread(handle, storage.size(handle), 0)
    finally:
        storage.close(handle)


def replace_content(storage: Storage, path: Path, data: bytes, *, label: str) -> None:
    """Give the file at ``path`` another content, durably and at once: a crash leaves old or new.

    Its syncs are labelled ``<label>.file`` and ``<label>.name``.

    Raises:
        OSError: The disk refuses. What was there before still is.
    """
    draft = path.with_name(f"{path.name}.draft")
    storage.unlink(draft)
    handle = storage.open(draft, create=True)
    try:
        storage.pwrite(handle, data, 0)
        storage.sync(handle, label=f"{label}.file")
    finally:
        storage.close(handle)
    storage.rename(draft, path)
    storage.sync_directory(path.parent, label=f"{label}.name")
