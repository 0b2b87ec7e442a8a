"""The disk for replicas, their nodes and the ledgers of brokers: ports, and the real disk.

Every call that makes something durable carries a ``label`` that names its call site. The real disk
ignores it; the simulated one (tests/support/simulated/disk.py) can be set to ignore one labelled
sync, which proves that each one is needed.

An ``OSError`` is not translated here: the caller decides what to do about a full or a broken disk.
``is_full`` recognises a full one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from pathlib import Path
from typing import NewType, Protocol

Handle = NewType("Handle", int)
"""An open file. Belongs to the storage that opened it."""

AnyPath = Path | str

FileIdentity = tuple[int, int]
"""Inode and time of a file; a file that was removed and created again has another identity."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: OSError) -> bool:
    """Return whether ``error`` means that the space or the quota is used up, which may be
    temporary."""
    return error.errno in _FULL


class Storage(Protocol):
    """Files and directories that are durable only after a sync. Calls block.

    A file's bytes survive a crash after ``sync``; its name survives after ``sync_directory`` of its
    directory, and so do a rename, an unlink and a new directory. Before that a crash may lose any
    part of them, in any order.
    """

    def open(self, path: Path, *, create: bool = False) -> Handle:
        """Open for reading and writing; with ``create`` make an empty file if there is none."""
        ...

    def close(self, handle: Handle) -> None: ...

    def preallocate(self, handle: Handle, size: int) -> None:
        """Reserve the first ``size`` bytes; those never written read as zeros."""
        ...

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> None:
        """Write all of ``data`` or raise; after a failure any part of it may be written."""
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
        """Remove a file; does nothing if it is missing."""
        ...

    def list_names(self, directory: Path) -> list[str]:
        """Return the names in ``directory``, sorted; none if there is no such directory."""
        ...

    def make_directory(self, path: Path) -> None:
        """Create one directory unless it exists; its parent must exist."""
        ...

    def is_directory(self, path: Path) -> bool: ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and everything in it; does nothing if it is missing.

        Not atomic: a crash or an error leaves any part of it.
        """
        ...


class SharedStorage(Storage, Protocol):
    """Files that several processes use at the same time, through one kernel.

    Each process sees the others' writes, creations, links and removals at once, synced or not.
    Besides ``Path``, every call takes a path as ``str``, for callers that make thousands a second.
    """

    def open(self, path: AnyPath, *, create: bool = False) -> Handle: ...

    def open_to_read(self, path: AnyPath) -> Handle:
        """Open for reading and ``sync`` only, which also works on a disk that refuses writes."""
        ...

    def rename(self, source: AnyPath, target: AnyPath) -> None: ...

    def unlink(self, path: AnyPath) -> None: ...

    def list_names(self, directory: AnyPath) -> list[str]: ...

    def make_directory(self, path: AnyPath) -> None: ...

    def remove_directory(self, path: AnyPath) -> None:
        """Remove an empty directory; do nothing if it is missing or another process filled it."""
        ...

    def is_directory(self, path: AnyPath) -> bool: ...

    def sync_directory(self, path: AnyPath, *, label: str) -> None: ...

    def create(self, path: AnyPath) -> Handle:
        """Make an empty file and open it. One process at most succeeds.

        Raises:
            FileExistsError: There is one.
        """
        ...

    def link(self, source: AnyPath, target: AnyPath) -> None:
        """Give the file ``source`` the name ``target`` as well. One process at most succeeds.

        Raises:
            FileExistsError: There is a file of that name.
        """
        ...

    def exists(self, path: AnyPath) -> bool: ...

    def identity(self, path: AnyPath) -> FileIdentity | None:
        """Return the file's identity, which a later file of the same name does not have; None
        without a file."""
        ...

    def preallocate(self, handle: Handle, size: int, *, begin: int = 0) -> None:
        """Reserve the missing part of the first ``size`` bytes, from ``begin`` on."""
        ...

    def truncate(self, handle: Handle, size: int) -> None:
        """Cut the file off behind ``size`` bytes. Durable after ``sync``."""
        ...

    def written(self, handle: Handle, offset: int) -> tuple[int, int]:
        """Return begin and end of the next bytes at or behind ``offset`` that may be written;
        reserved bytes are zeros.

        Both are ``offset`` if none follow. On a file system that cannot distinguish them all bytes
        may be written.
        """
        ...

    def expect_random_reads(self, handle: Handle) -> None:
        """Turn read-ahead off for this file."""
        ...

    def drop_cache(self, handle: Handle) -> None:
        """Make later reads read from the medium instead of the system's cache.

        After a failed sync the cache may have bytes that were never written.
        """
        ...


class DiskStorage:
    """The operating system's files. Safe to call from several threads."""

    def open(self, path: AnyPath, *, create: bool = False) -> Handle:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return Handle(os.open(path, flags, 0o600))

    def close(self, handle: Handle) -> None:
        os.close(handle)

    def preallocate(self, handle: Handle, size: int, *, begin: int = 0) -> None:
        os.posix_fallocate(handle, begin, size - begin)

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(handle, rest, offset)
            if not written:
                raise OSError(errno.EIO, "the disk takes no bytes")
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

    def sync_directory(self, path: AnyPath, *, label: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: AnyPath, target: AnyPath) -> None:
        os.replace(source, target)

    def remove_tree(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def unlink(self, path: AnyPath) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def list_names(self, directory: AnyPath) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except FileNotFoundError:
            return []

    def make_directory(self, path: AnyPath) -> None:
        Path(path).mkdir(mode=0o700, exist_ok=True)

    def remove_directory(self, path: AnyPath) -> None:
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise

    def is_directory(self, path: AnyPath) -> bool:
        return os.path.isdir(path)

    # What several processes need besides ------------------------------------------------------

    def open_to_read(self, path: AnyPath) -> Handle:
        return Handle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def create(self, path: AnyPath) -> Handle:
        return Handle(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o600))

    def link(self, source: AnyPath, target: AnyPath) -> None:
        os.link(source, target)

    def exists(self, path: AnyPath) -> bool:
        return os.access(path, os.F_OK)

    def identity(self, path: AnyPath) -> FileIdentity | None:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

    def truncate(self, handle: Handle, size: int) -> None:
        os.ftruncate(handle, size)

    def written(self, handle: Handle, offset: int) -> tuple[int, int]:
        try:
            begin = os.lseek(handle, offset, os.SEEK_DATA)
            return begin, os.lseek(handle, begin, os.SEEK_HOLE)
        except OSError as error:
            return offset, offset if error.errno == errno.ENXIO else sys.maxsize

    def expect_random_reads(self, handle: Handle) -> None:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)

    def drop_cache(self, handle: Handle) -> None:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


def make_directory_durably(storage: Storage, path: Path, *, label: str) -> None:
    """Make ``path`` and its missing parents, each synced into its own parent.

    The deepest existing one is synced too: an earlier call may have been interrupted before it
    synced its name, and a power cut would lose everything in it.
    """
    missing = []
    while not storage.is_directory(path):
        missing.append(path)
        path = path.parent
    # A process that may not read the parent directory did not create this one.
    with contextlib.suppress(PermissionError):
        storage.sync_directory(path.parent, label=label)
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
    """Replace the content of the file at ``path``, durably: a crash leaves the old or the new one.

    Its syncs are labelled ``<label>.file`` and ``<label>.name``.

    Raises:
        OSError: The disk refuses. The file is unchanged.
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
