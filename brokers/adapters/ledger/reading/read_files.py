"""Caches of files open for reading and of indexes of full segments: bounded and thread-safe."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter

from brokers.adapters.ledger.format.files import DISK, ENTRIES, INDEX
from brokers.adapters.ledger.format.measuring import read_header, read_points
from brokers.adapters.ledger.format.records import IndexPoint, Kind, decode_entry
from brokers.adapters.ledger.format.scanning import Scan
from nextgen.kernel.limits import pulsar as pulsar_limits
from nextgen.storage.disk import SharedStorage

_GAP_FACTOR = 4
_entry_id_of = attrgetter("entry_id")
_time_of = attrgetter("time_ms")


class _OpenFile:
    """A handle and the number of reads that use it."""

    __slots__ = ("first_offset", "handle", "is_dropped", "salt", "users")

    def __init__(self, storage: SharedStorage, path: str) -> None:
        self.handle = storage.open_to_read(path)
        try:
            header, self.first_offset = read_header(storage, self.handle, path)
        except BaseException:
            storage.close(self.handle)
            raise
        self.salt = header.salt
        self.users = 0
        self.is_dropped = False


class ReadFiles:
    """A cache of the most recently used file handles."""

    def __init__(
        self,
        storage: SharedStorage = DISK,
        files_max: int = pulsar_limits.LEDGER_OPEN_FILES_MAX,
    ) -> None:
        self.storage = storage
        self._files_max = files_max
        self._files: OrderedDict[str, _OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def using(self, path: str) -> Iterator[_OpenFile]:
        """Open a file or reuse its handle, which stays open for the length of the block at least.

        Raises:
            FileNotFoundError: The segment was trimmed.
            LedgerDamaged: The file's header is not whole.
        """
        with self._lock:
            file = self._files.get(path)
            if file is not None:
                self._files.move_to_end(path)
                file.users += 1
        if file is None:
            file = self._add(path, _OpenFile(self.storage, path))
        try:
            yield file
        finally:
            with self._lock:
                file.users -= 1
                if file.is_dropped and not file.users:
                    self.storage.close(file.handle)

    def drop(self, paths: Sequence[str]) -> None:
        """Close the handles of removed files when no read uses them any more."""
        with self._lock:
            for path in paths:
                file = self._files.pop(path, None)
                if file is not None:
                    self._let_go(file)

    def close(self) -> None:
        """Close all handles when no read uses them any more."""
        self.drop(tuple(self._files))

    def __len__(self) -> int:
        return len(self._files)

    def _add(self, path: str, opened: _OpenFile) -> _OpenFile:
        with self._lock:
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = opened
            else:
                self.storage.close(opened.handle)
            file.users += 1
            while len(self._files) > self._files_max:
                self._let_go(self._files.popitem(last=False)[1])
        return file

    def _let_go(self, file: _OpenFile) -> None:
        file.is_dropped = True
        if not file.users:
            self.storage.close(file.handle)


class Indexes:
    """A cache of the indexes of recently read segments. An index may be incomplete at its end."""

    def __init__(self, files: ReadFiles, index_bytes: int) -> None:
        self._files = files
        self._index_bytes = index_bytes
        self._indexes: OrderedDict[str, list[IndexPoint]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, path: str, points: list[IndexPoint]) -> None:
        """Add an index that was made while writing."""
        with self._lock:
            self._indexes[path] = points
            self._indexes.move_to_end(path)
            while len(self._indexes) > pulsar_limits.LEDGER_INDEXES_MAX:
                self._indexes.popitem(last=False)

    def drop(self, paths: Sequence[str]) -> None:
        """Drop the indexes of removed files, or indexes that turned out to be wrong."""
        with self._lock:
            for path in paths:
                self._indexes.pop(path, None)

    def points(self, path: str, length: int) -> list[IndexPoint]:
        """Return the points of an entries file up to ``length``; make them if they are not stored.

        Raises:
            FileNotFoundError: The segment was trimmed.
            LedgerDamaged: The file is damaged.
        """
        with self._lock:
            points = self._indexes.get(path)
            if points is not None:
                self._indexes.move_to_end(path)
        if points is None:
            with self._files.using(path) as file:
                stored = read_points(
                    self._files.storage, f"{path.removesuffix(ENTRIES)}{INDEX}", file.salt
                ).points
            points = [point for point in stored if point.offset <= length]
        last_offset = points[-1].offset if points else 0
        if length - last_offset >= _GAP_FACTOR * self._index_bytes:
            points = self._extended(points, path, length)
        self.put(path, points)
        return points

    def rebuilt(self, path: str, length: int) -> list[IndexPoint]:
        """Make the points from the entries, cache and return them."""
        points = self._extended([], path, length)
        self.put(path, points)
        return points

    def _extended(self, points: list[IndexPoint], path: str, length: int) -> list[IndexPoint]:
        """Return the points, with the missing ones up to ``length`` added."""
        extended = list(points)
        with self._files.using(path) as file:
            last = points[-1] if points else IndexPoint(file.first_offset, 0, 0)
            time_ms, at = last.time_ms, last.offset
            for record in Scan(
                self._files.storage, file.handle, path, start=at, salt=file.salt, limit=length
            ):
                if record.kind != Kind.ENTRY:
                    break
                entry = decode_entry(record.body)
                if record.offset - at >= self._index_bytes:
                    extended.append(IndexPoint(record.offset, entry.entry_id, time_ms))
                    at = record.offset
                time_ms = entry.publish_time_ms
        return extended


def point_for_entry(points: Sequence[IndexPoint], entry_id: int) -> IndexPoint | None:
    """Return the last point at or before the entry, None for the segment's beginning."""
    return _last_at_or_before(points, entry_id, _entry_id_of)


def point_for_time(points: Sequence[IndexPoint], publish_time_ms: int) -> IndexPoint | None:
    """Return the last point before which every entry is older than the time."""
    return _last_at_or_before(points, publish_time_ms - 1, _time_of)


def _last_at_or_before(
    points: Sequence[IndexPoint], value: int, key: Callable[[IndexPoint], int]
) -> IndexPoint | None:
    index = bisect_right(points, value, key=key)
    return points[index - 1] if index else None
