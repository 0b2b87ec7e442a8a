"""Runs the audit: reads the export once, caches the facts of its events, applies every rule.

files hashed  →  events read once into facts (cached)  →  places  →  rules  →  findings
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from nextgen.audit.slot_legs import SlotLegs, legs_of
from pipelines.audit.export_files import AuditInput, FileFinding, last_events_differ, look_at
from pipelines.audit.facts import facts_of, file_hash, named_events
from pipelines.audit.result import FINDINGS_COLLECTED, AuditResult, conclude
from pipelines.audit.rules import places
from pipelines.audit.transform import Clocks, MovedSlots, rule_findings, with_doubts
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID, address_of, read_events
from pipelines.exports.slot_homes import moves_of
from pipelines.running.output import replaced_folder
from pipelines.running.summary import Summary

JOB = "audit"

LAG_S = 60
"""Seconds between the exports of two shards at most, and by which a leader may learn late of a
session's end. The clock skew that the log shows is added twice: once for each of two clocks."""

SHARDS_MAX = 1_000
MISMATCHES_MAX = 1_000

ROWS_PER_PARTITION = 1_000_000
PARTITIONS_MAX = 2_000
"""Of a shuffle. A partition's facts are sorted in the memory of one task."""

_ADAPTIVE, _PARTITIONS = "spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions"


def run(
    spark: SparkSession,
    export: str | os.PathLike[str],
    *,
    out: Path | None = None,
    lag_s: int = LAG_S,
) -> tuple[Summary, AuditResult]:
    """Audit the export at ``export``. Each fault is a finding, and the audit continues.

    ``out`` is a folder for all findings (Parquet), replaced.

    Raises:
        ExportRefused: There is no export at all, or one of a newer format or schema.
        ExportStopped: The disk refuses.
        JobRefused: ``out`` cannot be written.
    """
    source = look_at(export)
    result = AuditResult(source)
    summary = Summary(JOB)
    # The number of partitions follows from the number of rows. Adaptive planning would plan again
    # after each of thirty small stages, which costs more than it saves.
    settings = {_ADAPTIVE: "false", _PARTITIONS: str(_partitions(spark, source))}
    legs = _slot_legs(spark, source)
    events = facts_of(audited_events(spark, source), with_slots=bool(legs.legs))
    with _settings(spark, settings), cached(events) as facts:
        source.findings += _hash_mismatches(spark, source)
        source.findings += last_events_differ(source)
        listed = _listed_files(spark, source)
        read = places.files_read(facts)
        with cached(read), cached(places.blocks_of(facts)) as blocks:
            _count_rows(summary, listed, read, result)
            result.shards = places.clocks_of(blocks).orderBy("shard_id").limit(SHARDS_MAX).collect()
            found = _place_findings(spark, source, facts, blocks, result)
            found = found.unionByName(places.compared_files(listed, read))
            result.clocks = _clocks(result.shards, lag_s)
            has_ledger = CLUSTER_MANAGER_SHARD_ID in source.positions
            moved = MovedSlots(spark, legs, source.positions)
            rules = rule_findings(facts, result.clocks, moved, has_ledger=has_ledger)
            doubted = with_doubts(
                found.unionByName(rules),
                _troubles(spark, result.troubles),
                is_any_troubled=bool(result.troubles),
            )
            with cached(doubted) as findings:
                _take_findings(result, findings)
                _name_events(spark, result)
                if out is not None:
                    _write(findings, source, out)
                    summary.outputs["findings"] = str(out)
    conclude(summary, result)
    return summary, result


def _slot_legs(spark: SparkSession, source: AuditInput) -> SlotLegs:
    """Return where slots were that moved, as far as the events can be read."""
    # Without a manifest it is not known which files tell of moves.
    files = [file for file in source.readable if file.adoptions or source.manifest is None]
    return legs_of(moves_of(read_events(spark, source.url, files, skips_damage=True)))


def audited_events(spark: SparkSession, source: AuditInput) -> DataFrame:
    """Return the events of all files that exist, with the columns of this release.

    An unreadable file gives fewer rows, never an error. Rows are counted by file, so it is found.
    """
    events = read_events(spark, source.url, source.readable, skips_damage=True)
    if source.readable:
        return events
    return events.withColumn("_metadata", f.struct(f.lit("").alias("file_path")))


def _hash_mismatches(spark: SparkSession, source: AuditInput) -> Iterator[FileFinding]:
    """Yield a finding for each file whose sha256, computed by Spark, is not the manifest's."""
    named = [file for file in source.readable if file.sha256]
    if not named:
        return
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    content = reader.load([address_of(source.url, file) for file in named])
    path = f.substring_index("path", "/", -3)
    hashed = content.select(path.alias("path"), f.sha2("content", 256).alias("found"))
    rows = [(file.path, file.sha256) for file in named]
    listed = f.broadcast(spark.createDataFrame(rows, "path string, expected string"))
    differ = hashed.join(listed, "path").where("found != expected")
    for row in differ.limit(MISMATCHES_MAX).collect():
        problem = f"has the hash {row.found}, the manifest says {row.expected}"
        yield FileFinding("hash", row.path, problem)


def _listed_files(spark: SparkSession, source: AuditInput) -> DataFrame:
    rows = []
    for shard_id, file in source.files_by_shard():
        counts = (file.rows, file.first_time_ms, file.last_time_ms)
        listed = counts if file.rows >= 0 else (None, None, None)
        rows.append((file.path, shard_id, file.first_position, file.last_position, *listed))
    frame = spark.createDataFrame(rows, places.FILE_SCHEMA)
    return frame.withColumn("file", file_hash(f.col("path")))


def _count_rows(summary: Summary, listed: DataFrame, read: DataFrame, result: AuditResult) -> None:
    """Compare the manifest's numbers of rows with the rows that were read, file by file."""
    by_file = read.groupBy("file").agg(
        f.sum("rows_read").alias("rows_read"), f.sum("unknown_rows").alias("unknown_rows")
    )
    joined = by_file.join(f.broadcast(listed.select("file", "rows")), "file", "left")
    count = f.col("rows_read")
    expected = f.coalesce("rows", count)
    row = joined.agg(
        f.sum(count).alias("read"),
        f.sum(expected).alias("expected"),
        f.sum(f.greatest(count - expected, f.lit(0))).alias("surplus"),
        f.sum("unknown_rows").alias("unknown"),
    ).first()
    assert row is not None, "an aggregation without groups has one row"
    summary.rows_read = row.read or 0
    result.unknown_rows = row.unknown or 0
    source = result.source
    surplus = row.surplus or 0
    # Without a manifest the expected number of rows is unknown: take the rows that were read.
    rows_listed = source.rows if source.manifest is not None else row.expected or 0
    missing = rows_listed + surplus - summary.rows_read
    summary.rows_in = rows_listed - missing + surplus
    summary.numbers |= {
        "rows_told": rows_listed,
        "rows_missing": missing,
        "rows_surplus": surplus,
    }
    summary.rows_accounted = {
        "judged": summary.rows_read - result.unknown_rows,
        "of an unknown type": result.unknown_rows,
    }
    summary.reconcile()


def _place_findings(
    spark: SparkSession,
    source: AuditInput,
    facts: DataFrame,
    blocks: DataFrame,
    result: AuditResult,
) -> DataFrame:
    """Return findings about positions and terms; note each shard's first missing or double one."""
    accepted = spark.createDataFrame(source.gaps, places.GAP_SCHEMA)
    promised = spark.createDataFrame(
        [(shard_id, 1, last) for shard_id, last in source.positions.items() if last],
        places.GAP_SCHEMA,
    )
    holes = places.holes_of(blocks, accepted, promised)
    crowded = places.crowded_blocks(blocks)
    first_holes = holes.groupBy("shard_id").agg(
        f.min("first_position").alias("at"), f.lit(False).alias("is_crowded")
    )
    first_crowded = crowded.groupBy("shard_id").agg(
        (f.min("block") * places.BLOCK).alias("at"), f.lit(True).alias("is_crowded")
    )
    seen = first_holes.unionByName(first_crowded).limit(2 * SHARDS_MAX).collect()
    for row in seen:
        result.add_trouble(row.shard_id, row.at)
    for shard_id, first, _ in source.gaps:
        result.add_trouble(shard_id, first)
    for row in result.shards:
        if row.shard_id not in source.positions:
            result.add_trouble(row.shard_id, 1)
    found = places.terms_back(blocks)
    if any(not row.is_crowded for row in seen):
        found = found.unionByName(places.holes_as_findings(holes))
    if any(row.is_crowded for row in seen):
        found = found.unionByName(places.duplicates_of(facts, crowded))
    return found


def _troubles(spark: SparkSession, troubles: Mapping[int, int]) -> DataFrame:
    return spark.createDataFrame(sorted(troubles.items()), "shard_id int, from_position long")


def _clocks(shards: list[Row], lag_s: int) -> Clocks:
    newest_ms = max((row.last_time_ms for row in shards), default=0)
    back_ms = max((row.time_back_ms for row in shards), default=0)
    lag_ms = lag_s * 1_000 + 2 * back_ms
    return Clocks(settled_ms=newest_ms - lag_ms, lag_ms=lag_ms)


def _take_findings(result: AuditResult, findings: DataFrame) -> None:
    for row in findings.groupBy("rule", "is_doubtful").count().collect():
        (result.doubtful if row.is_doubtful else result.by_rule)[row.rule] = row["count"]
    if result.by_rule or result.doubtful:
        ordered = findings.orderBy("is_doubtful", "shard_id", "position", "rule")
        result.shown = ordered.limit(FINDINGS_COLLECTED).collect()


def _name_events(spark: SparkSession, result: AuditResult) -> None:
    """Look up the names of the events that the shown findings are about."""
    places = {(row.shard_id, row.position) for row in result.shown}
    places |= {(row.other_shard_id, row.other_position) for row in result.shown}
    places = {(shard_id, position) for shard_id, position in places if position is not None}
    source = result.source
    files = [
        file
        for of_shard, file in source.files_by_shard()
        if file.path in source.present
        and any(
            of_shard == shard_id and file.first_position <= position <= file.last_position
            for shard_id, position in places
        )
    ]
    if not files:
        return
    wanted = spark.createDataFrame(sorted(places), "shard_id int, position long")
    events = read_events(spark, source.url, files, skips_damage=True)
    found = named_events(events).join(f.broadcast(wanted), ["shard_id", "position"])
    for row in found.limit(2 * FINDINGS_COLLECTED).collect():
        result.names[row.shard_id, row.position] = f"{row.event_type} {row.name or ''}".strip()


def _write(findings: DataFrame, source: AuditInput, out: Path) -> None:
    with replaced_folder(out, JOB) as folder:
        ordered = findings.coalesce(1).sortWithinPartitions(*findings.columns)
        ordered.write.parquet(str(folder / "findings"))
        lines = "".join(f"{finding}\n" for finding in source.findings)
        (folder / "files.txt").write_text(lines, encoding="utf-8")


def _partitions(spark: SparkSession, source: AuditInput) -> int:
    least = int(spark.conf.get(_PARTITIONS) or "8")
    return max(least, min(PARTITIONS_MAX, source.rows // ROWS_PER_PARTITION))


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, known in before.items():
            if known is not None:
                spark.conf.set(name, known)


@contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    """Return the rows of ``frame`` as a relation, computed once and kept until the block ends.

    Frames made of it do not contain the plan that made ``frame``. Spark would analyse the plan of
    the facts anew for each of the forty places where the rules use them.
    """
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        spark: Any = frame.sparkSession
        # As Spark does it when it plans a query of a persisted frame.
        plan = frame.select("*")._jdf.queryExecution().withCachedData()
        datasets = spark._jvm.org.apache.spark.sql.classic.Dataset
        yield DataFrame(datasets.ofRows(spark._jsparkSession, plan), spark)
    finally:
        frame.unpersist()
