"""The half of the journal that touches the disk: batches and files.

The event loop collects steps in a ``Batch``; the worker carries them out in order
while the journal collects the next one. A batch is done when everything in it is synced.
After a full disk it is run again from its first unsynced step: writing the same bytes to
the same place twice is harmless, and after a failed sync it is necessary.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nextgen.replication.journal.format import (
    DurableMark,
    Identity,
    SegmentHeader,
    encode_mark,
    encode_segment_header,
)
from nextgen.replication.journal.recovery import MARK_NAME, PREPARING_NAME, segment_name
from nextgen.storage.disk import Handle, Storage, is_full


class Runner(Protocol):
    """Runs the blocking half and returns its results to the loop. Injected in tests."""

    def submit(self, work: Callable[[], None]) -> None:
        """Run ``work`` elsewhere, one at a time, in order. Called on the event loop."""
        ...

    def post(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the event loop. Called from anywhere."""
        ...

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the event loop after ``delay_ms``. Called on the event loop."""
        ...

    def close(self) -> None:
        """Return when the running work is done; nothing starts after that."""
        ...


class InlineRunner:
    """Runs everything at once on the calling thread. Timers wait for ``fire_timers``."""

    def __init__(self) -> None:
        self._timers: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        work()

    def post(self, callback: Callable[[], None]) -> None:
        callback()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._timers.append(callback)

    def fire_timers(self) -> None:
        """Run every timer that is set, whatever its delay."""
        timers, self._timers = self._timers, []
        for callback in timers:
            callback()

    def close(self) -> None:
        self._timers.clear()


class SegmentFiles:
    """The files of one journal, as the worker sees them. One segment is open for writing."""

    def __init__(
        self, storage: Storage, directory: Path, identity: Identity, segment_bytes: int
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._identity = identity
        self._segment_bytes = segment_bytes
        self._segment: Handle | None = None
        self._mark: Handle | None = None
        self._unsynced = False

    def open_segment(self, sequence: int) -> None:
        """Go on in an existing segment; one that a crash shortened gets its size back."""
        handle = self._storage.open(self._directory / segment_name(sequence))
        if self._storage.size(handle) < self._segment_bytes:
            self._storage.preallocate(handle, self._segment_bytes)
        self._segment = handle

    def start_segment(self, header: SegmentHeader) -> None:
        """Make the next segment, complete with header, before anything is written to it.

        Its name appears only when its bytes are on disk, so that a crash leaves either a
        sound segment or none. May be repeated after a failure.
        """
        self.sync()
        storage, preparing = self._storage, self._directory / PREPARING_NAME
        storage.unlink(preparing)
        handle = storage.open(preparing, create=True)
        try:
            storage.preallocate(handle, self._segment_bytes)
            storage.pwrite(handle, encode_segment_header(header), 0)
            storage.sync(handle, label="journal.segment_header")
            storage.rename(preparing, self._directory / segment_name(header.sequence))
            storage.sync_directory(self._directory, label="journal.segment_name")
        except OSError:
            storage.close(handle)
            storage.unlink(preparing)
            raise
        if self._segment is not None:
            storage.close(self._segment)
        self._segment = handle

    def write(self, data: bytes, offset: int) -> None:
        assert self._segment is not None, "a segment is open"
        self._unsynced = True
        self._storage.pwrite(self._segment, data, offset)

    def sync(self) -> None:
        """Return once everything written is durable."""
        if self._unsynced:
            assert self._segment is not None, "a segment is open"
            self._storage.sync(self._segment, label="journal.batch")
            self._unsynced = False

    def drop_segments(self, sequences: Sequence[int]) -> None:
        """Remove segments, oldest first, so that a crash between leaves no hole."""
        for sequence in sequences:
            self._storage.unlink(self._directory / segment_name(sequence))
            self._storage.sync_directory(self._directory, label="journal.drop_segment")

    def clear_tail(self, sequence: int, offset: int) -> None:
        """Overwrite a segment from ``offset`` on with zeros, which discards its records."""
        handle = self._storage.open(self._directory / segment_name(sequence))
        try:
            length = self._storage.size(handle) - offset
            if length > 0:
                self._storage.pwrite(handle, bytes(length), offset)
                self._storage.sync(handle, label="journal.repair")
        finally:
            self._storage.close(handle)

    def secure(self, sequence: int, begin: int, end: int) -> None:
        """Write ``begin .. end`` of a segment again, and make that and its name durable.

        A killed process leaves bytes in the system's cache that may not be on disk; after a failed
        sync the system may even consider them written. A read does not show the difference.
        """
        storage = self._storage
        handle = storage.open(self._directory / segment_name(sequence))
        try:
            storage.pwrite(handle, storage.pread(handle, end - begin, begin), begin)
            storage.sync(handle, label="journal.recovered")
        finally:
            storage.close(handle)
        storage.sync_directory(self._directory, label="journal.recovered_name")

    def write_mark(self, mark: DurableMark) -> None:
        """Note how far the journal is durable. Not synced: see ``DurableMark``."""
        if self._mark is None:
            self._mark = self._storage.open(self._directory / MARK_NAME, create=True)
        self._storage.pwrite(self._mark, encode_mark(mark, self._identity), 0)

    def sync_mark(self) -> None:
        if self._mark is not None:
            self._storage.sync(self._mark, label="journal.mark")

    def close(self) -> None:
        for handle in (self._segment, self._mark):
            if handle is not None:
                self._storage.close(handle)
        self._segment = self._mark = None


_NOWHERE = DurableMark(0, 0, 0)


@dataclass(slots=True)
class _Write:
    offset: int
    parts: list[bytes]


@dataclass(slots=True)
class _Start:
    header: SegmentHeader


@dataclass(slots=True)
class _Drop:
    sequences: Sequence[int]


@dataclass(slots=True)
class Batch:
    """Steps that become durable together. Filled on the loop, then run once elsewhere."""

    steps: list[_Write | _Start | _Drop] = field(default_factory=list)
    size_bytes: int = 0
    changes: int = 0  # Made since the journal was opened, up to this batch's end.
    mark: DurableMark = _NOWHERE  # Where the log ends with this batch.
    end: DurableMark = _NOWHERE  # The same, lowered by truncations while the batch runs.
    done: bool = False
    error: Exception | None = None
    _first_unsynced: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, data: bytes, offset: int) -> None:
        if self.steps and isinstance(self.steps[-1], _Write):
            self.steps[-1].parts.append(data)
        else:
            self.steps.append(_Write(offset, [data]))
        self.size_bytes += len(data)

    def start_segment(self, header: SegmentHeader) -> None:
        self.steps.append(_Start(header))
        self.size_bytes += header.bytes_long

    def drop_segments(self, sequences: Sequence[int]) -> None:
        self.steps.append(_Drop(sequences))

    def run(self, files: SegmentFiles) -> None:
        """Carry out the steps; afterwards ``done`` or ``error`` is set.

        A second caller waits for the first and finds the work done.
        """
        with self._lock:
            if self.done or (self.error is not None and not self.may_retry):
                return
            self.error = None
            try:
                self._carry_out(files)
            except Exception as error:
                # The top of the worker's call: the loop decides how to react to an error.
                self.error = error
                return
            self.done = True

    @property
    def may_retry(self) -> bool:
        """True if the last run failed for lack of space and nothing else."""
        return isinstance(self.error, OSError) and is_full(self.error)

    def _carry_out(self, files: SegmentFiles) -> None:
        for number in range(self._first_unsynced, len(self.steps)):
            match self.steps[number]:
                case _Write(offset, parts):
                    files.write(b"".join(parts), offset)
                case _Start(header):
                    files.sync()
                    self._first_unsynced = number
                    files.start_segment(header)
                    self._first_unsynced = number + 1
                case _Drop(sequences):
                    files.sync()
                    files.drop_segments(sequences)
                    self._first_unsynced = number + 1
        files.sync()
        files.write_mark(self.mark)
