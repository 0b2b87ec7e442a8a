"""The files of a generated export: written by Spark, named and described as an exporter does.

Spark's files have neither the names nor the metadata of exports. So each one is copied into a file
that has them. Row groups are copied as they are, without decoding.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nextgen.export.directory import event_digest
from nextgen.export.format.manifest import ExportFile, Manifest, ShardExported, encode_manifest
from nextgen.export.format.parquet import METADATA_CLUSTER, METADATA_SCHEMA, METADATA_SHARD
from nextgen.export.format.rows import events_of
from nextgen.export.format.schema import SCHEMA_VERSION
from nextgen.export.stores.layout import MANIFEST, DataName, date_of
from nextgen.kernel.limits.stream import EXPORT_FILE_ROWS_MAX, EXPORT_ROW_GROUP_ROWS

_DRAFTS = ".drafts"
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_POSITION, _TIME = 0, 3
"""Indexes of two leaf columns among all leaves of the schema."""


def write_files(events: DataFrame, folder: Path) -> None:
    """Write ``events`` (with file_shard and file_day) below ``folder``, for ``publish_files``."""
    spark = events.sparkSession
    before = spark.conf.get(_TIMESTAMPS)
    spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MILLIS")
    try:
        (
            events.write.partitionBy("file_shard", "file_day")
            .option("maxRecordsPerFile", EXPORT_FILE_ROWS_MAX)
            .option("parquet.block.row.count.limit", EXPORT_ROW_GROUP_ROWS)
            # Delta encodings for numbers and names, as exporters use them.
            .option("parquet.writer.version", "v2")
            .parquet(str(folder / _DRAFTS))
        )
    finally:
        spark.conf.set(_TIMESTAMPS, before)


def publish_files(spark: SparkSession, folder: Path, cluster_id: str) -> Manifest:
    """Give the files of ``write_files`` their names and metadata; write the manifest.

    The manifest is the same for the same events.
    """
    found = list(_taken_over(spark, folder, cluster_id))
    shutil.rmtree(folder / _DRAFTS)
    hashes = _hashes(spark, folder)
    shards: dict[int, list[ExportFile]] = {}
    for name, described in found:
        file = ExportFile(path=name.path, sha256=hashes[name.path], **described)
        shards.setdefault(name.shard_id, []).append(file)
    manifest = Manifest(
        cluster_id=cluster_id,
        reader_id="generated",
        generation=1,
        shards={shard_id: _exported(folder, files) for shard_id, files in shards.items()},
    )
    (folder / MANIFEST).write_bytes(encode_manifest(manifest))
    return manifest


def _taken_over(
    spark: SparkSession, folder: Path, cluster_id: str
) -> Iterator[tuple[DataName, dict[str, Any]]]:
    """Yield name and description of each file, by shard and position."""
    with _without_checksum_files(spark):
        for shard_id, day, draft in sorted(_drafts(folder / _DRAFTS)):
            described = _described(draft)
            date = date_of(day)
            first, last = described["first_position"], described["last_position"]
            name = DataName(shard_id, date, first, last)
            target = folder / name.path
            target.parent.mkdir(parents=True, exist_ok=True)
            metadata = {
                METADATA_CLUSTER.decode(): cluster_id,
                METADATA_SHARD.decode(): str(shard_id),
                METADATA_SCHEMA.decode(): str(SCHEMA_VERSION),
            }
            _take_over(spark, draft, target, metadata)
            yield name, {**described, "bytes": target.stat().st_size}


def _drafts(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Yield shard, day and path of each file of Spark. Its names ascend within a task."""
    for path in folder.glob("file_shard=*/file_day=*/*.parquet"):
        shard, day = (part.partition("=")[2] for part in path.parts[-3:-1])
        yield int(shard), int(day), path


def _described(path: Path) -> dict[str, Any]:
    """Return a file's entry for the manifest, from its footer."""
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    positions = [group.column(_POSITION).statistics for group in groups]
    times = [group.column(_TIME).statistics for group in groups]
    first = min(one.min for one in positions)
    last = max(one.max for one in positions)
    assert last - first + 1 == metadata.num_rows, f"{path.name} has holes"
    return {
        "first_position": first,
        "last_position": last,
        "rows": metadata.num_rows,
        "first_time_ms": min(one.min_raw for one in times),
        "last_time_ms": max(one.max_raw for one in times),
        "schema_version": SCHEMA_VERSION,
        "untyped_events": 0,
    }


def _take_over(
    spark: SparkSession, source: Path, target: Path, metadata: Mapping[str, str]
) -> None:
    """Copy the row groups of a Parquet file into a file with other metadata."""
    jvm: Any = spark._jvm
    settings: Any = spark._jsc.hadoopConfiguration()
    parquet, path_of = jvm.org.apache.parquet.hadoop, jvm.org.apache.hadoop.fs.Path
    read = parquet.util.HadoopInputFile.fromPath(path_of(str(source)), settings)
    reader = parquet.ParquetFileReader.open(read)
    schema = reader.getFooter().getFileMetaData().getSchema()
    reader.close()
    mode = getattr(parquet, "ParquetFileWriter$Mode", None) or parquet.ParquetFileWriter.Mode
    writer = parquet.ParquetFileWriter(settings, schema, path_of(str(target)), mode.CREATE)
    writer.start()
    writer.appendFile(read)
    writer.end(dict(metadata))


@contextmanager
def _without_checksum_files(spark: SparkSession) -> Iterator[None]:
    """Keep Hadoop from writing a checksum file beside each file of this machine's disk."""
    jvm: Any = spark._jvm
    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    local.setWriteChecksum(False)
    try:
        yield
    finally:
        local.setWriteChecksum(True)


def _hashes(spark: SparkSession, folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every Parquet file by its path in the export."""
    files = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .load(str(folder))
    )
    path = f.substring_index("path", "/", -3)
    rows = files.select(path.alias("path"), f.sha2("content", 256).alias("sha256")).collect()
    return {row.path: row.sha256 for row in rows}


def _exported(folder: Path, files: Sequence[ExportFile]) -> ShardExported:
    parquet = pq.ParquetFile(folder / files[-1].path)
    group = parquet.read_row_group(parquet.num_row_groups - 1)
    last = list(events_of(group.slice(group.num_rows - 1)))[-1]
    return ShardExported(
        position=files[-1].last_position,
        last_event_sha256=event_digest(last),
        files=tuple(files),
    )
