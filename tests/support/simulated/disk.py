"""A disk in memory that forgets what was not synced. It stands in for a power cut.

For what does its I/O through ``Storage``; ``shadow_disk`` is for SQLite, which writes past it.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nextgen.storage.disk import AnyPath, FileIdentity, Handle

SECTOR_BYTES = 512

_serials = itertools.count(1)


class PowerCut(BaseException):
    """The machine is off. Not an ``Exception``: nothing may handle it and go on."""


@dataclass(eq=False)
class _File:
    name: str
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    given_up: set[int] = field(default_factory=set)
    """Sectors that a failed sync did not write and that no later one will, as the system takes
    them for written. They read well. Written again, they count again."""
    serial: int = field(default_factory=lambda: next(_serials))
    """No other file has it, as with an inode's number and time together."""

    def write(self, data: bytes, offset: int) -> None:
        self.data[offset : offset + len(data)] = data
        self.given_up.difference_update(
            range(offset // SECTOR_BYTES, (offset + len(data) - 1) // SECTOR_BYTES + 1)
        )

    def sync(self) -> None:
        self.durable = self.worst_case()

    def sync_in_vain(self) -> None:
        for begin in range(0, len(self.data), SECTOR_BYTES):
            end = begin + SECTOR_BYTES
            if self.data[begin:end] != self.durable[begin:end]:
                self.given_up.add(begin // SECTOR_BYTES)

    def worst_case(self) -> bytes:
        """Return what a sync makes durable."""
        if not self.given_up:
            return bytes(self.data)
        kept = bytearray(self.data)
        for sector in self.given_up:
            begin, end = sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES
            end = min(end, len(kept))
            kept[begin:end] = self.durable[begin:end].ljust(end - begin, b"\0")
        return bytes(kept)


@dataclass(frozen=True)
class _Change:
    """One change of a directory that is not synced: a link, an unlink or a rename."""

    name: str
    node: _File | _Directory | None
    replaces: str | None = None

    def __str__(self) -> str:
        if self.replaces is not None:
            return f"rename {self.replaces} {self.name}"
        return f"link {self.name}" if self.node is not None else f"unlink {self.name}"

    def carry_out(self, entries: dict[str, _File | _Directory]) -> None:
        if self.replaces is not None:
            entries.pop(self.replaces, None)
        if self.node is None:
            entries.pop(self.name, None)
        else:
            entries[self.name] = self.node


@dataclass(eq=False)
class _Directory:
    entries: dict[str, _File | _Directory] = field(default_factory=dict)
    durable: dict[str, _File | _Directory] = field(default_factory=dict)
    unsynced: list[_Change] = field(default_factory=list)

    def change(self, change: _Change) -> None:
        change.carry_out(self.entries)
        self.unsynced.append(change)


class SimDisk:
    """Implements ``SharedStorage`` in memory, by the strict reading of POSIX.

    After ``crash`` only synced bytes and synced names are there. With a ``seed`` each
    unsynced sector and each unsynced change of a directory survives or not by chance.
    """

    def __init__(self) -> None:
        self._root = _Directory()
        self._open: dict[int, _File] = {}
        self._next_handle = 1
        self._lock = threading.RLock()
        self._ignored: set[str] = set()
        self._failing: dict[str, list[int]] = {}
        self._capacity: int | None = None
        self._operations_left: int | None = None
        self.syncs: Counter[str] = Counter()
        self.before_sync: Callable[[str], None] = lambda _label: None
        """Called before each sync, without any lock: a slow disk is one that waits here."""
        self.on_power_cut: Callable[[], None] = lambda: None
        """Called before each ``PowerCut`` is raised: what is to end the process is set here."""

    # Faults -----------------------------------------------------------------------------

    def ignore_sync(self, label: str) -> None:
        """Let every sync at the call site ``label`` do nothing and report success."""
        self._ignored.add(label)

    def fail_sync(self, label: str, code: int, times: int = 1) -> None:
        """Let the next ``times`` syncs at ``label`` raise ``OSError(code)``."""
        self._failing.setdefault(label, []).extend([code] * times)

    def heal_syncs(self) -> None:
        """Let every sync succeed again."""
        self._failing.clear()

    def allow_sync(self, label: str) -> None:
        """Let no sync at ``label`` fail any more."""
        self._failing.pop(label, None)

    def fill_up(self, bytes_left: int = 0) -> None:
        """Let files grow by ``bytes_left`` more in all, then raise ENOSPC."""
        self._capacity = self.used_bytes + bytes_left

    def free(self) -> None:
        """There is space again."""
        self._capacity = None

    def cut_power_after(self, operations: int) -> None:
        """Raise ``PowerCut`` from the operation after the next ``operations`` changing ones."""
        self._operations_left = operations

    def keep_power(self) -> None:
        """Let operations work again: only a process died at the one that failed, or none did."""
        self._operations_left = None

    def crash(self, seed: int | None = None, keep: Callable[[str], bool] | None = None) -> None:
        """Forget what was not synced, and every open file.

        ``keep`` decides, by a description like ``sector 3 of name`` or ``unlink name``,
        what survives all the same; ``seed`` decides by chance; without either nothing does.
        """
        if keep is None:
            chance = random.Random(seed)
            keep = (lambda _: chance.random() < 0.5) if seed is not None else (lambda _: False)
        with self._lock:
            self._open.clear()
            self._operations_left = None
            self._forget(self._root, keep, set())

    def close_all(self) -> None:
        """The process is gone, the machine is not: files are closed, nothing is forgotten."""
        with self._lock:
            self._open.clear()
            self._operations_left = None

    def durable_copy(self) -> SimDisk:
        """Return a disk with what a power cut would leave of this one at the worst."""
        copy = SimDisk()
        with self._lock:
            copy._root = _durable_copy(self._root, {})
        return copy

    def damage(self, path: Path, offset: int, data: bytes) -> None:
        """Change bytes behind everybody's back: bit rot, durable at once."""
        with self._lock:
            node = self._file(path)
            node.data[offset : offset + len(data)] = data
            node.durable = bytes(node.data)

    def read(self, path: Path) -> bytes:
        return bytes(self._file(path).data)

    def image(self) -> dict[str, bytes]:
        """Return every file by its path: two equal images are two equal disks."""
        found: dict[str, bytes] = {}

        def visit(prefix: str, directory: _Directory) -> None:
            for name, node in directory.entries.items():
                if isinstance(node, _Directory):
                    visit(f"{prefix}/{name}", node)
                else:
                    found[f"{prefix}/{name}"] = bytes(node.data)

        visit("", self._root)
        return found

    @property
    def has_faults(self) -> bool:
        """True while something is set that makes an operation fail."""
        is_cut = self._operations_left is not None
        return is_cut or self._capacity is not None or any(self._failing.values())

    @property
    def used_bytes(self) -> int:
        return sum(len(data) for data in self.image().values())

    # Storage ----------------------------------------------------------------------------

    def open(self, path: AnyPath, *, create: bool = False) -> Handle:
        path = Path(path)
        with self._lock:
            directory = self._directory(path.parent)
            node = directory.entries.get(path.name)
            if node is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
                return self._opened(self._made(directory, path.name))
            assert isinstance(node, _File), f"{path} is a directory"
            return self._opened(node)

    open_to_read = open

    def create(self, path: AnyPath) -> Handle:
        path = Path(path)
        with self._lock:
            directory = self._directory(path.parent)
            _refuse_taken(directory, path)
            return self._opened(self._made(directory, path.name))

    def link(self, source: AnyPath, target: AnyPath) -> None:
        target = Path(target)
        with self._lock:
            node = self._file(Path(source))
            directory = self._directory(target.parent)
            _refuse_taken(directory, target)
            self._operation()
            directory.change(_Change(target.name, node))

    def exists(self, path: AnyPath) -> bool:
        path = Path(path)
        with self._lock:
            try:
                return path.name in self._directory(path.parent).entries
            except FileNotFoundError:
                return False

    def identity(self, path: AnyPath) -> FileIdentity | None:
        with self._lock:
            try:
                return self._file(Path(path)).serial, 0
            except FileNotFoundError:
                return None

    def truncate(self, handle: Handle, size: int) -> None:
        with self._lock:
            self._operation()
            node = self._open[handle]
            self._grow(node, size)
            del node.data[size:]

    def written(self, handle: Handle, offset: int) -> tuple[int, int]:
        """As a file system that cannot tell."""
        return (offset, sys.maxsize) if offset < self.size(handle) else (offset, offset)

    def expect_random_reads(self, handle: Handle) -> None:
        """Nothing is read ahead in memory."""

    def drop_cache(self, handle: Handle) -> None:
        with self._lock:
            node = self._open[handle]
            node.data = bytearray(node.worst_case())
            node.given_up.clear()

    def close(self, handle: Handle) -> None:
        with self._lock:
            del self._open[handle]

    def preallocate(self, handle: Handle, size: int, *, begin: int = 0) -> None:
        with self._lock:
            self._operation()
            self._grow(self._open[handle], size)

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> None:
        with self._lock:
            self._operation()
            node = self._open[handle]
            self._grow(node, offset + len(data))
            node.write(data, offset)

    def pread(self, handle: Handle, length: int, offset: int) -> bytes:
        with self._lock:
            return bytes(self._open[handle].data[offset : offset + length])

    def size(self, handle: Handle) -> int:
        with self._lock:
            return len(self._open[handle].data)

    def sync(self, handle: Handle, *, label: str) -> None:
        node = self._open[handle]
        try:
            is_honest = self._begin_sync(label)
        except OSError as error:
            if error.errno == errno.EIO:
                with self._lock:
                    node.sync_in_vain()
            raise
        if is_honest:
            with self._lock:
                node.sync()

    def sync_directory(self, path: AnyPath, *, label: str) -> None:
        if self._begin_sync(label):
            with self._lock:
                directory = self._directory(Path(path))
                directory.durable = dict(directory.entries)
                directory.unsynced.clear()

    def rename(self, source: AnyPath, target: AnyPath) -> None:
        source, target = Path(source), Path(target)
        assert source.parent == target.parent, "renames stay in their directory"
        with self._lock:
            self._operation()
            directory = self._directory(source.parent)
            node = directory.entries.get(source.name)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
            taken = directory.entries.get(target.name)
            assert taken is None or isinstance(taken, _File), f"{target} is a directory"
            directory.change(_Change(target.name, node, source.name))

    def unlink(self, path: AnyPath) -> None:
        path = Path(path)
        with self._lock:
            if self.exists(path):
                directory = self._directory(path.parent)
                self._operation()
                directory.change(_Change(path.name, None))

    def remove_tree(self, path: Path) -> None:
        if not self.is_directory(path):
            return
        for name in self.list_names(path):
            if self.is_directory(path / name):
                self.remove_tree(path / name)
            else:
                self.unlink(path / name)
        with self._lock:
            self._operation()
            self._directory(path.parent).change(_Change(path.name, None))

    def list_names(self, directory: AnyPath) -> list[str]:
        directory = Path(directory)
        with self._lock:
            return (
                sorted(self._directory(directory).entries) if self.is_directory(directory) else []
            )

    def make_directory(self, path: AnyPath) -> None:
        path = Path(path)
        with self._lock:
            parent = self._directory(path.parent)
            if path.name not in parent.entries:
                self._operation()
                parent.change(_Change(path.name, _Directory()))

    def remove_directory(self, path: AnyPath) -> None:
        path = Path(path)
        with self._lock:
            if self.is_directory(path) and not self._directory(path).entries:
                self._operation()
                self._directory(path.parent).change(_Change(path.name, None))

    def is_directory(self, path: AnyPath) -> bool:
        try:
            self._directory(Path(path))
        except FileNotFoundError:
            return False
        return True

    # Inside -----------------------------------------------------------------------------

    def _made(self, directory: _Directory, name: str) -> _File:
        self._operation()
        node = _File(name)
        directory.change(_Change(name, node))
        return node

    def _opened(self, node: _File) -> Handle:
        handle = Handle(self._next_handle)
        self._next_handle += 1
        self._open[handle] = node
        return handle

    def _directory(self, path: Path) -> _Directory:
        directory = self._root
        for part in path.parts[1:]:
            node = directory.entries.get(part)
            if not isinstance(node, _Directory):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            directory = node
        return directory

    def _file(self, path: Path) -> _File:
        node = self._directory(path.parent).entries.get(path.name)
        if not isinstance(node, _File):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return node

    def _grow(self, node: _File, size: int) -> None:
        more = size - len(node.data)
        if more <= 0:
            return
        if self._capacity is not None and self.used_bytes + more > self._capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        node.data.extend(bytes(more))

    def _operation(self) -> None:
        if self._operations_left is not None:
            if self._operations_left == 0:
                self.on_power_cut()
                raise PowerCut
            self._operations_left -= 1

    def _begin_sync(self, label: str) -> bool:
        """Count the sync, let it fail if it must; False if it is to be ignored."""
        self.before_sync(label)
        with self._lock:
            self._operation()
            self.syncs[label] += 1
            if self._failing.get(label):
                code = self._failing[label].pop(0)
                raise OSError(code, os.strerror(code))
            return label not in self._ignored

    def _forget(self, directory: _Directory, keep: Callable[[str], bool], seen: set[int]) -> None:
        entries = dict(directory.durable)
        for change in directory.unsynced:
            if keep(str(change)):
                change.carry_out(entries)
        directory.entries, directory.durable = entries, dict(entries)
        directory.unsynced.clear()
        for node in entries.values():
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, _Directory):
                self._forget(node, keep, seen)
            else:
                _forget_bytes(node, keep)


def _refuse_taken(directory: _Directory, path: Path) -> None:
    if path.name in directory.entries:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def _durable_copy(directory: _Directory, seen: dict[int, _File]) -> _Directory:
    entries: dict[str, _File | _Directory] = {}
    for name, node in directory.durable.items():
        if isinstance(node, _Directory):
            entries[name] = _durable_copy(node, seen)
        else:
            copy = _File(node.name, bytearray(node.durable), node.durable)
            entries[name] = seen.setdefault(id(node), copy)
    return _Directory(entries, dict(entries))


def _forget_bytes(node: _File, keep: Callable[[str], bool]) -> None:
    kept = bytearray(node.durable)
    for begin in range(0, len(node.data), SECTOR_BYTES):
        sector = node.data[begin : begin + SECTOR_BYTES]
        if sector == kept[begin : begin + SECTOR_BYTES]:
            continue
        number = begin // SECTOR_BYTES
        if number not in node.given_up and keep(f"sector {number} of {node.name}"):
            if len(kept) < begin + len(sector):
                kept.extend(bytes(begin + len(sector) - len(kept)))
            kept[begin : begin + len(sector)] = sector
    node.data, node.durable = kept, bytes(kept)
    node.given_up.clear()
