"""Checks an export: its manifest and files, and with a live cluster every event of it.

A check changes nothing, and an exporter may run meanwhile: the check covers the manifest that it
read first.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from nextgen.export.checking.compare import LogComparison
from nextgen.export.directory import event_digest, read_manifest
from nextgen.export.errors import ExportRefused
from nextgen.export.format.manifest import ExportFile, Manifest, ShardExported
from nextgen.export.format.parquet import METADATA_CLUSTER, METADATA_SHARD, open_file
from nextgen.export.format.rows import events_of
from nextgen.export.format.schema import event_schema
from nextgen.export.log_source import ClusterLog, LogSource, known_positions
from nextgen.export.report import CheckReport
from nextgen.export.stores.layout import Kind, data_name, date_of, day_of, kind_of
from nextgen.export.stores.store import Store
from nextgen.export.stores.urls import open_store
from nextgen.export.threads import in_thread
from nextgen.kernel.errors import MetadataError

HASHED_BYTES = 1024 * 1024


async def check_export(
    url: str | os.PathLike[str], *, endpoints: Sequence[str] = ()
) -> CheckReport:
    """Read all of an export; with ``endpoints`` (discovery nodes) compare it with the logs.

    Every fault is a finding of the report. So is a cluster that does not answer.

    Raises:
        ExportStopped: The disk refuses.
    """
    return await check_log(open_store(url), ClusterLog(endpoints) if endpoints else None)


async def check_log(store: Store, log: LogSource | None) -> CheckReport:
    """Do the work of ``check_export``, with any store and any log."""
    report = CheckReport(store.url)
    try:
        manifest = await in_thread(read_manifest, store)
    except ExportRefused as error:
        report.find(str(error))
        return report
    await in_thread(_check_names, store, manifest, report)
    comparison = await _comparison(log, manifest, report)
    for shard_id, shard in sorted(manifest.shards.items()):
        check = _ShardCheck(store, manifest, shard_id, shard, report)
        for file in shard.files:
            parts = check.events_of(file)
            while (events := await in_thread(next, parts, None)) is not None:
                if comparison is not None:
                    await comparison.compare(shard_id, file.path, events)
        check.finish()
    report.compared_with_log = comparison is not None and comparison.is_complete
    return report


async def _comparison(
    log: LogSource | None, manifest: Manifest, report: CheckReport
) -> LogComparison | None:
    if log is None:
        return None
    try:
        known = await known_positions(log, from_leaders=True)
    except MetadataError as error:
        report.find(f"the cluster does not answer, nothing was compared: {error}")
        return None
    strange = sorted(set(manifest.shards) - set(known))
    if strange:
        report.find(
            f"the export has events of shards {strange}, the cluster has {sorted(known)}: it is "
            "another cluster's"
        )
    return LogComparison(log, known, report)


def _check_names(store: Store, manifest: Manifest, report: CheckReport) -> None:
    """Report files that the manifest does not name."""
    named = manifest.paths
    for file in store.list():
        kind = kind_of(file.path)
        if kind is Kind.FOREIGN:
            report.find(f"{file.path} is not of an export")
        elif kind is Kind.DRAFT:
            report.unfinished_files += 1
        elif kind is Kind.DATA and file.path not in named:
            name = data_name(file.path)
            assert name is not None, "a data file's name has its positions"
            if name.first_position > manifest.shard(name.shard_id).position:
                report.unfinished_files += 1
            else:
                report.duplicates += 1
                report.find(f"{file.path} is not in the manifest, which has its positions already")
    if report.unfinished_files:
        report.note(
            f"{report.unfinished_files} files are not in the manifest yet: a run is under way, "
            "or the next one removes them"
        )


class _ShardCheck:
    """The files of one shard, in order."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        shard_id: int,
        shard: ShardExported,
        report: CheckReport,
    ) -> None:
        self._store = store
        self._cluster_id = manifest.cluster_id
        self._shard_id = shard_id
        self._shard = shard
        self._report = report
        self._next_position = 1
        self._gaps = {gap.first_position: gap for gap in shard.accepted_gaps}
        self._digest = hashlib.sha256()
        self._last_event_sha256 = ""
        report.shards += 1

    def events_of(self, file: ExportFile) -> Iterator[list[Any]]:
        """Check one file; yield its readable events, a row group at a time.

        Every step blocks.
        """
        self._count(file)
        self._follow_on(file)
        try:
            with self._store.open(file.path) as opened:
                if self._is_whole(file, opened):
                    yield from self._row_groups(file, opened)
        except FileNotFoundError:
            self._damaged(file, "is missing")
        except (pa.ArrowException, OSError, ValueError) as error:
            self._damaged(file, f"cannot be read: {' '.join(str(error).split())[:200]}")

    def finish(self) -> None:
        """Check the shard as a whole."""
        self._pass_accepted_gaps()
        report, shard = self._report, self._shard
        if shard.position != self._next_position - 1:
            report.find(
                f"shard {self._shard_id}: the manifest says position {shard.position}, its files "
                f"end at {self._next_position - 1}"
            )
        recorded = shard.last_event_sha256
        if recorded and self._last_event_sha256 and recorded != self._last_event_sha256:
            report.differences += 1
            report.find(f"shard {self._shard_id}: the last event is not the manifest's")
        report.digests[self._shard_id] = self._digest.hexdigest()

    def _count(self, file: ExportFile) -> None:
        self._report.files += 1
        self._report.events += file.rows
        self._report.bytes += file.bytes
        self._report.untyped_events += file.untyped_events

    def _follow_on(self, file: ExportFile) -> None:
        """Check that the file begins where the one before it ends."""
        self._pass_accepted_gaps()
        expected, first = self._next_position, file.first_position
        if first > expected:
            self._report.gaps += 1
            self._report.find(
                f"shard {self._shard_id}: positions {expected} to {first - 1} are missing"
            )
        elif first < expected:
            self._report.duplicates += 1
            self._report.find(
                f"{file.path}: positions {first} to {min(expected, file.last_position + 1) - 1} "
                "are in another file too"
            )
        self._next_position = max(expected, file.last_position + 1)

    def _pass_accepted_gaps(self) -> None:
        while gap := self._gaps.get(self._next_position):
            self._next_position = gap.last_position + 1
            self._report.accepted_gaps += 1
            self._report.note(
                f"shard {self._shard_id}: positions {gap.first_position} to {gap.last_position} "
                "had been cut from the log before they were exported; an operator accepted the gap"
            )

    def _is_whole(self, file: ExportFile, opened: BinaryIO) -> bool:
        size_bytes, sha256 = _hashed(opened)
        opened.seek(0)
        if size_bytes != file.bytes:
            self._damaged(file, f"has {size_bytes} bytes, the manifest says {file.bytes}")
            return False
        if sha256 != file.sha256:
            self._damaged(file, f"has the hash {sha256}, the manifest says {file.sha256}")
            return False
        return True

    def _row_groups(self, file: ExportFile, opened: BinaryIO) -> Iterator[list[Any]]:
        parquet = open_file(opened)
        self._check_schema(file, parquet)
        position = file.first_position
        for group in range(parquet.num_row_groups):
            events = list(events_of(parquet.read_row_group(group)))
            self._check_events(file, position, events)
            position += len(events)
            yield events
        rows = position - file.first_position
        if not rows == file.rows == file.last_position - file.first_position + 1:
            self._damaged(
                file,
                f"has {rows} rows, the manifest says {file.rows} for positions "
                f"{file.first_position} to {file.last_position}",
            )

    def _check_schema(self, file: ExportFile, parquet: Any) -> None:
        metadata = parquet.metadata.metadata or {}
        recorded = (metadata.get(METADATA_SHARD), metadata.get(METADATA_CLUSTER, b"").decode())
        if recorded[0] != str(self._shard_id).encode() or recorded[1] not in ("", self._cluster_id):
            self._report.find(
                f"{file.path} was written for shard {(recorded[0] or b'?').decode()} of cluster "
                f"{recorded[1]!r}"
            )
        known = event_schema()
        for field in parquet.schema_arrow:
            place = known.get_field_index(field.name)
            if place < 0 or not _is_grown(field.type, known.field(place).type):
                raise ValueError(f"its column {field.name!r} is not of the schema")

    def _check_events(self, file: ExportFile, position: int, events: Sequence[Any]) -> None:
        """Check that events have consecutive positions from ``position``, and the file's shard and
        date."""
        name = data_name(file.path)
        assert name is not None, "the manifest was checked when it was read"
        days = set()
        for place, event in enumerate(events, start=position):
            if event.position != place or event.shard_id != self._shard_id:
                self._damaged(
                    file,
                    f"has event {event.position} of shard {event.shard_id} in the place of "
                    f"{place} of shard {self._shard_id}",
                )
                break
            days.add(day_of(event.time_ms))
        for date in sorted({date_of(day) for day in days} - {name.date}):
            self._damaged(file, f"has events of {date}")
        for event in events:
            content = event.SerializeToString(deterministic=True)
            self._digest.update(len(content).to_bytes(4, "big") + content)
        self._last_event_sha256 = event_digest(events[-1]) if events else ""

    def _damaged(self, file: ExportFile, what: str) -> None:
        self._report.differences += 1
        self._report.find(f"{file.path} {what}")


def _hashed(opened: Any) -> tuple[int, str]:
    sha256 = hashlib.sha256()
    size_bytes = 0
    while block := opened.read(HASHED_BYTES):
        sha256.update(block)
        size_bytes += len(block)
    return size_bytes, sha256.hexdigest()


def _is_grown(older: pa.DataType, known: pa.DataType) -> bool:
    """Return whether ``known`` has every field of ``older``, with the same type."""
    if not pa.types.is_struct(older):
        return bool(older == known)
    if not pa.types.is_struct(known):
        return False
    places = ((child, known.get_field_index(child.name)) for child in older)
    return all(
        place >= 0 and _is_grown(child.type, known.field(place).type) for child, place in places
    )
