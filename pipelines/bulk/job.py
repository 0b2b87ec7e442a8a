"""Reads an inventory of names and writes load files; see ``nextgen.bulk.manifest`` for the folder.

    inventory ──▶ validated, placed ──▶ staged ─┬─▶ each name once, by shard and name ──▶ load files
                                                └─▶ rejects, with reasons

The placed names are written to disk once because two outputs are made from them: hashing the names
twice costs more than writing them.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

from nextgen.bulk.manifest import LOAD_MANIFEST, LoadFile, LoadManifest, sha256_of
from nextgen.kernel.routing.slots import SlotTable
from pipelines.bulk.transform import (
    ascending,
    distinct_by_shard,
    namespaces,
    placed,
    reject_counts,
    rejects,
    validated,
)
from pipelines.columns.slots import slot_owners
from pipelines.errors import JobRefused
from pipelines.running.output import replaced_folder
from pipelines.running.summary import Summary

JOB = "bulk"

ROWS_PER_FILE = 1_000_000
"""Names in one load file at most: some 20 MB each."""

PARTITIONS_PER_SHARD = 4
"""Partitions of the shuffle by shard. With few of them, two shards often share a task."""

NAMESPACES_SHOWN = 20

_STAGED = ".staged"


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The summary, and the rows of the report: topics by shard, largest namespaces, reasons."""

    summary: Summary
    shards: tuple[tuple[int, int], ...]
    namespaces: tuple[tuple[str, int], ...]
    reasons: tuple[tuple[str, int], ...]


def run(
    spark: SparkSession,
    names: str,
    out: Path,
    table: SlotTable,
    *,
    rows_per_file: int = ROWS_PER_FILE,
) -> BulkResult:
    """Write load files of the inventory at ``names`` for the shards of ``table`` to ``out``.

    ``names`` is Parquet with a text column ``name``, or text with a name in each line. Rows that
    are not the name of a topic go to ``rejects``; repeated names are counted.

    Raises:
        JobRefused: The inventory cannot be read, or ``out`` cannot be replaced.
        RowsLost: The counts do not add up.
    """
    summary = Summary(JOB)
    with replaced_folder(out, JOB) as folder:
        try:
            result = _run(spark, names, folder, table, rows_per_file, summary)
        except (PySparkException, Py4JJavaError) as error:
            raise JobRefused(
                f"{names} cannot be made into load files: {_first_line(error)}"
            ) from error
        shutil.rmtree(folder / _STAGED, ignore_errors=True)
    summary.outputs["load files"] = str(out)
    return result


def read_inventory(spark: SparkSession, names: str) -> DataFrame:
    """Return the rows of an inventory as a text column ``name``.

    Raises:
        JobRefused: There is nothing, or no such column.
    """
    try:
        if _is_parquet(names):
            frame = spark.read.parquet(names)
        else:
            frame = spark.read.text(names).withColumnRenamed("value", "name")
        types = {field.name: field.dataType for field in frame.schema.fields}
    except (PySparkException, Py4JJavaError) as error:
        raise JobRefused(f"{names} cannot be read: {_first_line(error)}") from error
    if not isinstance(types.get("name"), StringType):
        raise JobRefused(f"{names} has no text column called name; it has {sorted(types)}")
    return frame.select("name")


def _run(
    spark: SparkSession,
    names: str,
    folder: Path,
    table: SlotTable,
    rows_per_file: int,
    summary: Summary,
) -> BulkResult:
    inventory = read_inventory(spark, names)
    # A count of its own, beside the pass that reads the rows: Parquet has it in its footers.
    summary.rows_in = inventory.count()
    if not summary.rows_in:
        summary.rows_accounted = {"topics": 0, "duplicates": 0, "rejected": 0}
        nothing = LoadManifest(table, {}, (), 0, rows_read=0, duplicates=0, rejects=0)
        (folder / LOAD_MANIFEST).write_text(nothing.to_json(), encoding="utf-8")
        return BulkResult(summary, tuple((shard, 0) for shard in table.shard_ids), (), ())
    staged = str(folder / _STAGED / "names")
    read = Observation("read")
    judged = validated(inventory).observe(
        read, f.count(f.lit(1)).alias("rows"), f.count("reason").alias("rejected")
    )
    placed(judged, slot_owners(spark, table)).write.parquet(staged)
    summary.rows_read, rejected = read.get["rows"], read.get["rejected"]

    shards: dict[int, tuple[LoadFile, ...]] = {}
    duplicates = 0
    if summary.rows_read > rejected:
        accepted = spark.read.parquet(staged).where(f.col("reason").isNull())
        partitions = PARTITIONS_PER_SHARD * len(table.shard_ids)
        shards, duplicates = write_load_files(accepted, folder, partitions, rows_per_file)
    topics = sum(file.rows for files in shards.values() for file in files)
    summary.rows_accounted = {"topics": topics, "duplicates": duplicates, "rejected": rejected}
    summary.reconcile()

    _write_rejects(spark, staged, folder, rejected)
    parents = _write_namespaces(spark, shards, folder)
    manifest = LoadManifest(
        table=table,
        shards=shards,
        namespaces=parents,
        namespace_count=sum(file.rows for file in parents),
        rows_read=summary.rows_read,
        duplicates=duplicates,
        rejects=rejected,
    )
    (folder / LOAD_MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return _result(spark, staged, folder, manifest, summary)


def _result(
    spark: SparkSession, staged: str, folder: Path, manifest: LoadManifest, summary: Summary
) -> BulkResult:
    sizes = {shard: sum(f.rows for f in files) for shard, files in manifest.shards.items()}
    by_shard = tuple((shard, sizes.get(shard, 0)) for shard in manifest.table.shard_ids)
    reasons = tuple(
        (row.reason, row.rows) for row in reject_counts(spark.read.parquet(staged)).collect()
    )
    largest: tuple[tuple[str, int], ...] = ()
    if manifest.namespaces:
        counted = spark.read.parquet(*(str(folder / file.path) for file in manifest.namespaces))
        top = counted.orderBy(f.desc("topics"), "namespace").limit(NAMESPACES_SHOWN).collect()
        largest = tuple((row.namespace, row.topics) for row in top)
    summary.numbers |= {
        "topics": manifest.topics,
        "namespaces": manifest.namespace_count,
        "shards": {str(shard): rows for shard, rows in by_shard},
        "rejected_by_reason": dict(reasons),
    }
    return BulkResult(summary, by_shard, largest, reasons)


def write_load_files(
    names: DataFrame, folder: Path, partitions: int, rows_per_file: int
) -> tuple[dict[int, tuple[LoadFile, ...]], int]:
    """Write ``shard_id`` and ``name`` as load files; return them, and the number of repeated rows.

    There must be a row. The same rows in any order give the same files, byte by byte.
    """
    written = folder / _STAGED / "load"
    again = Observation("again")
    distinct = distinct_by_shard(names.select("shard_id", "name"), partitions).observe(
        again, f.sum(f.col("times") - 1).alias("duplicates")
    )
    writer = ascending(distinct).write.partitionBy("shard_id")
    writer.option("maxRecordsPerFile", rows_per_file).parquet(str(written))
    shards: dict[int, tuple[LoadFile, ...]] = {}
    for part in sorted(written.glob("shard_id=*"), key=_shard_of):
        shard_id = _shard_of(part)
        shards[shard_id] = _take_files(part, folder / f"shard={shard_id:05d}", folder, "name")
    return shards, again.get["duplicates"]


def _take_files(source: Path, target: Path, folder: Path, column: str) -> tuple[LoadFile, ...]:
    """Move the files of ``source`` that hold rows to ``target``, ordered by their content."""
    target.mkdir(parents=True)
    ranges = [(*_range_of(path, column), path) for path in source.glob("part-*.parquet")]
    files: list[LoadFile] = []
    for first, last, rows, path in sorted(ranges):
        if not rows:
            continue
        moved = path.replace(target / f"part-{len(files):05d}.parquet")
        relative = moved.relative_to(folder).as_posix()
        size = moved.stat().st_size
        files.append(LoadFile(relative, rows, size, sha256_of(moved), first, last))
    return tuple(files)


def _range_of(path: Path, column: str) -> tuple[str, str, int]:
    """Return the smallest and greatest value and the number of rows, from the file's footer."""
    metadata = pyarrow.parquet.read_metadata(path)
    place = metadata.schema.names.index(column)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    ranges = [group.column(place).statistics for group in groups if group.num_rows]
    if not ranges:
        return "", "", 0
    return min(one.min for one in ranges), max(one.max for one in ranges), metadata.num_rows


def _write_rejects(spark: SparkSession, staged: str, folder: Path, rejected: int) -> None:
    if rejected:
        rejects(spark.read.parquet(staged)).write.parquet(str(folder / "rejects"))


def _write_namespaces(
    spark: SparkSession, shards: dict[int, tuple[LoadFile, ...]], folder: Path
) -> tuple[LoadFile, ...]:
    paths = [str(folder / file.path) for files in shards.values() for file in files]
    if not paths:
        return ()
    written = folder / _STAGED / "namespaces"
    namespaces(spark.read.parquet(*paths)).write.parquet(str(written))
    return _take_files(written, folder / "namespaces", folder, "namespace")


def _shard_of(folder: Path) -> int:
    return int(folder.name.partition("=")[2])


def _is_parquet(names: str) -> bool:
    path = Path(names)
    if path.is_dir():
        return any(path.rglob("*.parquet"))
    return path.suffix == ".parquet"


def _first_line(error: Exception) -> str:
    """Return the first line of Spark's message; the rest is its plan and a stack trace."""
    return str(error).strip().splitlines()[0][:300]
