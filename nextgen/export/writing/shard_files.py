"""Divides the events of one shard into files, and decides when a file ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from nextgen.export.directory import ExportDirectory, disk_errors
from nextgen.export.format.columns import EventColumns
from nextgen.export.format.manifest import ExportFile
from nextgen.export.format.parquet import FileWriter
from nextgen.export.format.schema import SCHEMA_VERSION
from nextgen.export.stores.layout import DataName, date_of, day_of, draft_path
from nextgen.export.stores.store import Draft
from nextgen.kernel.limits.stream import EXPORT_FILE_AGE_MS, EXPORT_FILE_ROWS_MAX

EXPORT_FILE_BYTES_MAX = 128 * 1024 * 1024
"""Compressed bytes after which a file is closed, a row group more at most: one block of the file
systems that are read by Spark, for events that are larger than usual."""


_ADOPTED = "slots_adopted"


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits at which a file is closed. ``age_ms`` counts from the file's first event, and only
    while following."""

    rows: int = EXPORT_FILE_ROWS_MAX
    bytes: int = EXPORT_FILE_BYTES_MAX
    age_ms: int = EXPORT_FILE_AGE_MS


class ShardFiles:
    """Writes the events of one shard to files. Blocks; used by one thread at a time.

    A file holds events of one UTC day: it ends when the next event is of another day, also when a
    new leader's clock goes back over midnight. So positions in a file are consecutive, files
    ascend, and the date of a folder is that of every event in it.
    """

    def __init__(
        self,
        directory: ExportDirectory,
        shard_id: int,
        *,
        limits: FileLimits,
        on_published: Callable[[ExportFile], None],
    ) -> None:
        self.shard_id = shard_id
        self._directory = directory
        self._limits = limits
        self._on_published = on_published
        self._columns = EventColumns()
        self._open: _OpenFile | None = None

    @property
    def exported_position(self) -> int:
        """Position of the last event in the manifest."""
        return self._directory.manifest.shard(self.shard_id).position

    @property
    def next_position(self) -> int:
        """Position of the event that ``add`` expects next."""
        return (self._open.last_position if self._open else self.exported_position) + 1

    @property
    def oldest_waiting_ms(self) -> int | None:
        """Time of the first event that is not in the manifest, None if there is none."""
        return self._open.first_event_ms if self._open else None

    def add(self, events: Sequence[Any]) -> None:
        """Add events, the first of which is at ``next_position``; publish files that are full.

        Raises:
            ExportStopped: The disk refuses. Events that were not published are dropped.
            ExportRefused: See ``ExportDirectory.publish``.
        """
        if events:
            assert events[0].position == self.next_position, "an export has no holes"
        with self._forgetting_what_failed():
            for day, part in _by_day(events):
                self._add_of_day(day, part)

    def close_file(self) -> None:
        """Publish the open file, if there is one. Raises as ``add``."""
        with self._forgetting_what_failed():
            self._close_file()

    def abandon(self) -> None:
        """Drop the open file. Harmless if there is none."""
        opened, self._open = self._open, None
        if opened is not None:
            with contextlib.suppress(OSError):
                opened.writer.abandon()
            opened.draft.discard()

    def _add_of_day(self, day: int, events: Sequence[Any]) -> None:
        if self._open is not None and self._open.day != day:
            self._close_file()
        start = 0
        while start < len(events):
            opened = self._open or self._begin(day, events[start])
            part = events[start : start + self._limits.rows - opened.writer.rows]
            opened.add(part)
            start += len(part)
            is_full = opened.writer.rows >= self._limits.rows
            if is_full or opened.writer.bytes >= self._limits.bytes:
                self._close_file()

    def _begin(self, day: int, first_event: Any) -> _OpenFile:
        date = date_of(day)
        draft = self._directory.store.draft(draft_path(self.shard_id, date, first_event.position))
        try:
            writer = FileWriter(
                draft,
                self._columns,
                cluster_id=self._directory.manifest.cluster_id,
                shard_id=self.shard_id,
            )
        except BaseException:
            draft.discard()
            raise
        self._open = _OpenFile(day, date, draft, writer, first_event)
        return self._open

    def _close_file(self) -> None:
        opened = self._open
        if opened is None:
            return
        opened.writer.close()
        file = opened.described(self.shard_id)
        self._directory.publish(opened.draft, self.shard_id, file, opened.last_event)
        self._open = None
        self._on_published(file)

    @contextlib.contextmanager
    def _forgetting_what_failed(self) -> Iterator[None]:
        try:
            with disk_errors(self._directory.store):
                yield
        except Exception:
            self.abandon()
            raise


class _OpenFile:
    """A file that is being written, and the values of its entry in the manifest."""

    def __init__(
        self, day: int, date: str, draft: Draft, writer: FileWriter, first_event: Any
    ) -> None:
        self.day = day
        self.draft = draft
        self.writer = writer
        self.first_event_ms: int = first_event.time_ms
        self.last_event: Any = None
        self._adoptions = 0
        self._date = date
        self._first_position: int = first_event.position
        self._times_ms = (first_event.time_ms, first_event.time_ms)

    @property
    def last_position(self) -> int:
        return self._first_position + self.writer.rows - 1

    def add(self, events: Sequence[Any]) -> None:
        self.writer.add(events)
        times_ms = [event.time_ms for event in events]
        earliest, latest = self._times_ms
        self._times_ms = (min(earliest, *times_ms), max(latest, *times_ms))
        self.last_event = events[-1]
        self._adoptions += sum(
            event.slots_adopted.move_id > 0 for event in events if event.HasField(_ADOPTED)
        )

    def described(self, shard_id: int) -> ExportFile:
        name = DataName(shard_id, self._date, self._first_position, self.last_position)
        return ExportFile(
            path=name.path,
            first_position=name.first_position,
            last_position=name.last_position,
            rows=self.writer.rows,
            bytes=self.writer.bytes,
            sha256=self.writer.sha256,
            first_time_ms=self._times_ms[0],
            last_time_ms=self._times_ms[1],
            schema_version=SCHEMA_VERSION,
            untyped_events=self.writer.untyped_events,
            adoptions=self._adoptions,
        )


def _by_day(events: Sequence[Any]) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield runs of events of one day, in order."""
    if not events:
        return
    days = [day_of(event.time_ms) for event in events]
    if min(days) == max(days):
        yield days[0], events
        return
    start = 0
    for day, same in groupby(days):
        end = start + len(list(same))
        yield day, events[start:end]
        start = end
