"""The export as a source of Structured Streaming: the manifest's events, each exactly once.

Spark's own file source reads every file in a folder, but an export's folder may contain files that
the manifest does not name and readers must ignore: docs/adr/0046. This source has the offsets of
``offsets``, takes the next one from the manifest, and passes files to Spark as Arrow batches, so
that no row is handled in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from nextgen.export.directory import read_manifest
from nextgen.export.errors import ExportRefused
from nextgen.export.format.manifest import ExportFile, Manifest
from nextgen.export.stores.urls import open_store
from pipelines.exports.event_schema import spark_schema
from pipelines.stream import offsets

FORMAT = "nextgen-export-stream"

BATCH_ROWS = 16_384
"""Rows of one Arrow batch between Python and the JVM."""

_LOAD = "broker_load_reported.load."
_PATHS: dict[str, tuple[str, ...]] = {
    "shard_id": ("shard_id",),
    "position": ("position",),
    "time": ("time",),
    "event_type": ("event_type",),
    "reason": ("topic_assigned.reason", "topic_unassigned.reason"),
    "broker_id": (
        "broker_load_reported.broker_id",
        "broker_session_established.broker_id",
        "broker_session_ended.broker_id",
        "broker_drain_set.broker_id",
        "broker_capacity_set.broker_id",
    ),
    "units": (_LOAD + "topics",),
    "cpu_fraction": (_LOAD + "cpu_fraction",),
    "memory_bytes": (_LOAD + "memory_bytes",),
    "messages_in_per_second": (_LOAD + "messages_in_per_second",),
    "messages_out_per_second": (_LOAD + "messages_out_per_second",),
    "bytes_in_per_second": (_LOAD + "bytes_in_per_second",),
    "bytes_out_per_second": (_LOAD + "bytes_out_per_second",),
    "connections": (_LOAD + "connections",),
}
"""Columns of the stream, and the fields of an event that each takes the first non-null of."""

SEEN = "seen_until"
"""Time of the latest event of all batches before this one; null in the first."""


def _type_at(path: str) -> t.DataType:
    found: t.DataType = spark_schema()
    for name in path.split("."):
        found = found[name].dataType
    return found


STREAM_SCHEMA = t.StructType(
    [
        *(t.StructField(name, _type_at(paths[0])) for name, paths in _PATHS.items()),
        t.StructField(SEEN, t.TimestampType()),
    ]
)


def export_stream(spark: SparkSession, url: str, rows_per_batch: int) -> DataFrame:
    """Return the events of the export at ``url`` as a stream: ``STREAM_SCHEMA``, order is Spark's.

    A batch has whole files: at most ``rows_per_batch`` rows unless one file has more. The number of
    tasks that read it is the number of cores, because each task costs a call of a Python process.
    """
    spark.dataSource.register(ExportStreamSource)
    reader = spark.readStream.format(FORMAT).option("url", url)
    reader = reader.option("tasks", str(spark.sparkContext.defaultParallelism))
    return reader.option("rows_per_batch", str(rows_per_batch)).load()


class ExportStreamSource(DataSource):  # type: ignore[misc]
    """Options: ``url`` of the export, ``rows_per_batch``, and the most ``tasks`` of a batch."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> t.StructType:
        return STREAM_SCHEMA

    def streamReader(self, schema: t.StructType) -> ExportStreamReader:
        return ExportStreamReader(
            self.options["url"], int(self.options["rows_per_batch"]), int(self.options["tasks"])
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """Files that one task reads."""

    url: str
    files: tuple[ExportFile, ...]
    seen_until_ms: int | None


class ExportStreamReader(
    DataSourceStreamReader,  # type: ignore[misc]
    SupportsTriggerAvailableNow,  # type: ignore[misc]
):
    """See the module. Spark's checkpoint, not this object, has the offset that was read."""

    def __init__(self, url: str, rows_per_batch: int, tasks: int) -> None:
        self._url = url
        self._rows_per_batch = rows_per_batch
        self._tasks = tasks
        self._available: Manifest | None = None
        """The last offset of a stream that ends by itself."""

    def initialOffset(self) -> offsets.Offset:
        return offsets.first_offset(self._manifest())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        self._available = self._manifest()

    def latestOffset(self, start: offsets.Offset, limit: ReadLimit) -> offsets.Offset:
        rows_max = None if isinstance(limit, ReadAllAvailable) else self._rows_per_batch
        return offsets.next_offset(self._available or self._manifest(), start, rows_max)

    def partitions(self, start: offsets.Offset, end: offsets.Offset) -> Sequence[InputPartition]:
        manifest = self._manifest()
        seen_ms = offsets.seen_until_ms(manifest, start)
        files = offsets.files_between(manifest, start, end)
        shares = (files[first :: self._tasks] for first in range(min(self._tasks, len(files))))
        return [InputPartition(_Part(self._url, share, seen_ms)) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some files.

        Raises:
            ExportRefused: A file is missing, damaged, or differs from the manifest.
        """
        part: _Part = partition.value
        for file in part.files:
            try:
                yield from _batches(part.url, file, part.seen_until_ms)
            except (OSError, pa.ArrowException) as error:
                raise ExportRefused(f"{part.url}/{file.path} cannot be read: {error}") from error

    def _manifest(self) -> Manifest:
        return read_manifest(open_store(self._url))


def _batches(url: str, file: ExportFile, seen_until_ms: int | None) -> Iterator[pa.RecordBatch]:
    with open_store(url).open(file.path) as opened:
        parquet = pq.ParquetFile(opened)
        if parquet.metadata.num_rows != file.rows:
            raise ExportRefused(
                f"{url}/{file.path} has {parquet.metadata.num_rows} rows, "
                f"the manifest says {file.rows}"
            )
        there = {column.path for column in parquet.schema}
        wanted = [path for paths in _PATHS.values() for path in paths if path in there]
        expected = file.first_position
        for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
            positions = batch.column("position")
            if positions[0].as_py() != expected:
                raise ExportRefused(
                    f"{url}/{file.path} begins at {positions[0].as_py()}, not at {expected}"
                )
            expected += batch.num_rows
            yield _flat(batch, seen_until_ms)


def _flat(batch: pa.RecordBatch, seen_until_ms: int | None) -> pa.RecordBatch:
    """Return the columns of ``STREAM_SCHEMA``; those that the file's version lacks are null."""
    columns = [_column(batch, name, paths) for name, paths in _PATHS.items()]
    seen = None if seen_until_ms is None else datetime.fromtimestamp(seen_until_ms / 1000, UTC)
    columns.append(pa.repeat(pa.scalar(seen, _ARROW[SEEN]), batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in STREAM_SCHEMA])


def _column(batch: pa.RecordBatch, name: str, paths: Sequence[str]) -> Any:
    found = [column for path in paths if (column := _at(batch, path)) is not None]
    if not found:
        return pa.nulls(batch.num_rows, _ARROW[name])
    return pc.coalesce(*found).cast(_ARROW[name])


def _at(batch: pa.RecordBatch, path: str) -> Any:
    first, *rest = path.split(".")
    if first not in batch.schema.names:
        return None
    column = batch.column(first)
    for name in rest:
        if column.type.get_field_index(name) < 0:
            return None
        # Unlike .field(), this is null where the struct around it is null.
        column = pc.struct_field(column, name)
    return column


_ARROW_OF: dict[str, pa.DataType] = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_ARROW = {field.name: _ARROW_OF[field.dataType.simpleString()] for field in STREAM_SCHEMA}
