"""Follows an export: a query for what is there, one for what changes by the minute."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from nextgen.export.directory import load_manifest
from nextgen.export.store import open_store
from pipelines.durations import MINUTE_MS
from pipelines.errors import JobRefused
from pipelines.export_input import open_export
from pipelines.output import MARKER
from pipelines.stream.offsets import FILES_PER_BATCH_MAX, rows_up_to
from pipelines.stream.source import export_stream
from pipelines.stream.tables import BatchedTable
from pipelines.stream.transform import (
    assignment_changes,
    brokers,
    current_state,
    inventory,
    merged_changes,
    with_date,
)
from pipelines.summary import Summary

JOB = "stream"

DELAY_MS = 10 * MINUTE_MS
"""How far behind the latest event an event may be and still count in its own minute: an exporter
that follows closes its files every five minutes."""

ROWS_PER_BATCH = 200_000
"""Of one micro-batch: bounds its memory when a stream begins with years of history."""

EVERY_S = 5.0
"""Between two looks at the manifest."""

STATE_PARTITIONS = 2
"""Of each query's state, for the life of a checkpoint: it is small, and each costs time."""

WATCH_S = 0.2

INVENTORY_SCHEMA = (
    "shard_id int, events long, position long, latest_event_time timestamp, tenants long, "
    "namespaces long, topics long, inventory_events long, assignment_events long, "
    "broker_events long"
)
BROKERS_SCHEMA = (
    "broker_id string, shard_id int, is_live boolean, units long, cpu_fraction double, "
    "memory_bytes long, messages_in_per_second double, messages_out_per_second double, "
    "bytes_in_per_second double, bytes_out_per_second double, connections long, "
    "load_time timestamp"
)
CHANGES_SCHEMA = "minute timestamp, change string, reason string, is_late boolean, events long"

_STATE, _CHANGES = "current", "changes"


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream runs. ``is_once``: read what there is, then end."""

    is_once: bool
    delay_ms: int = DELAY_MS
    rows_per_batch: int = ROWS_PER_BATCH
    every_s: float = EVERY_S


class StreamTables:
    """The folder of one stream: its tables and its checkpoints."""

    def __init__(self, out: Path) -> None:
        self.out = out.absolute()
        self._state = BatchedTable(self.out / _STATE)
        self._changes = BatchedTable(self.out / _CHANGES)

    def inventory(self, spark: SparkSession) -> DataFrame:
        """Return a row per shard, as of the latest batch."""
        return self._part(spark, "inventory", INVENTORY_SCHEMA)

    def brokers(self, spark: SparkSession) -> DataFrame:
        """Return a row per broker, as of the latest batch."""
        return self._part(spark, "brokers", BROKERS_SCHEMA)

    def changes(self, spark: SparkSession) -> DataFrame:
        """Return assignment changes by minute, change, reason and lateness."""
        return self._changes.read(spark, CHANGES_SCHEMA)

    def _part(self, spark: SparkSession, name: str, schema: str) -> DataFrame:
        parts = self._state.published().parts
        return self._state.read(spark, schema, {k: v for k, v in parts.items() if k == name})

    def checkpoint(self, query: str) -> str:
        return str(self.out / "checkpoint" / query)

    def write_state(self, state: DataFrame, batch: int) -> None:
        """Replace inventory and brokers by what ``state`` says after ``batch``."""
        if self._is_there(self._state, state, batch):
            return
        folder = self._state.folder_of(batch)
        state.persist()
        try:
            inventory(state).coalesce(1).write.parquet(str(folder / "inventory"))
            brokers(state).coalesce(1).write.parquet(str(folder / "brokers"))
        finally:
            state.unpersist()
        parts = {name: f"{folder.name}/{name}" for name in ("inventory", "brokers")}
        self._state.publish(batch, parts)

    def write_changes(self, changed: DataFrame, batch: int) -> None:
        """Put the rows that changed in ``batch`` into the days that they belong to."""
        if self._is_there(self._changes, changed, batch):
            return
        folder = self._changes.folder_of(batch)
        dated = with_date(changed).persist()
        try:
            rows = dated.select("date").distinct().limit(2 * FILES_PER_BATCH_MAX).collect()
            dates = {row.date for row in rows}
            # A day for each file, and that of the latest event before.
            assert len(dates) <= FILES_PER_BATCH_MAX + 1, "a batch has too many days"
            parts = dict(self._changes.published().parts)
            touched = {date: path for date, path in parts.items() if date in dates}
            before = self._changes.read(changed.sparkSession, CHANGES_SCHEMA, touched)
            merged = with_date(merged_changes(before, dated.drop("date"))).coalesce(1)
            merged.write.partitionBy("date").parquet(str(folder))
        finally:
            dated.unpersist()
        parts |= {date: f"{folder.name}/date={date}" for date in dates}
        self._changes.publish(batch, parts)

    @staticmethod
    def _is_there(table: BatchedTable, frame: DataFrame, batch: int) -> bool:
        if table.published().batch < batch:
            return False
        # A kill came before Spark noted the end of this batch. The state of the query still has
        # to be made, and is when the rows are asked for.
        frame.write.format("noop").mode("overwrite").save()
        return True


def run(
    spark: SparkSession,
    export: str,
    out: Path,
    options: StreamOptions,
    on_batch: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Summary:
    """Follow ``export`` until it is read (``is_once``) or somebody interrupts; see the tables.

    Raises:
        ExportRefused: There is no export, or it is of a newer schema.
        JobRefused: ``out`` is another stream's, or a file cannot be read. The tables are as they
            were after the last whole batch; the stream goes on from there when it is run again.
    """
    open_export(export)
    tables = StreamTables(out)
    # Absolute: executors need not be where this process is.
    url = open_store(export).url
    _claim(tables.out, url)
    began = time.monotonic()
    queries = _start(spark, url, tables, options)
    progress = _watch(queries, on_batch)
    return _summary(spark, url, tables, progress, time.monotonic() - began)


def _claim(out: Path, export: str) -> None:
    """Make ``out`` the folder of this stream; refuse a folder that is anything else."""
    mark = {"job": JOB, "export": export}
    path = out / MARKER
    try:
        if path.is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            if found != mark:
                raise JobRefused(f"{out} belongs to {found}: name another folder")
            return
        if out.exists() and any(out.iterdir()):
            raise JobRefused(f"{out} holds something that no stream wrote: name another folder")
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(mark) + "\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        raise JobRefused(f"{out} cannot be used: {error}") from error


def _start(
    spark: SparkSession, export: str, tables: StreamTables, options: StreamOptions
) -> list[StreamingQuery]:
    spark.conf.set("spark.sql.shuffle.partitions", str(STATE_PARTITIONS))
    # A batch without rows would only move the watermark, which nobody is waiting for.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    events = export_stream(spark, export, options.rows_per_batch)
    trigger = (
        {"availableNow": True}
        if options.is_once
        else {"processingTime": f"{round(options.every_s * 1000)} milliseconds"}
    )
    asked = (
        (_STATE, current_state(events), "complete", tables.write_state),
        (_CHANGES, assignment_changes(events, options.delay_ms), "update", tables.write_changes),
    )
    return [
        frame.writeStream.queryName(name)
        .outputMode(mode)
        .option("checkpointLocation", tables.checkpoint(name))
        .trigger(**trigger)
        .foreachBatch(write)
        .start()
        for name, frame, mode, write in asked
    ]


@dataclass(slots=True)
class _Progress:
    """What the queries say of their batches, from this start on."""

    batches: int = 0
    batch_ms_max: int = 0
    rows: int = 0
    dropped: int = 0
    seen: dict[str, int] | None = None

    def take(self, query: StreamingQuery, on_batch: Callable[[dict[str, Any]], None]) -> None:
        seen = self.seen = self.seen or {}
        for one in query.recentProgress:
            if one.batchId <= seen.get(query.name, -1) or not one.numInputRows:
                continue
            seen[query.name] = one.batchId
            duration_ms = int(one.durationMs.get("triggerExecution", 0))
            self.batches += 1
            self.batch_ms_max = max(self.batch_ms_max, duration_ms)
            # Both queries read all events.
            self.rows += one.numInputRows if query.name == _STATE else 0
            self.dropped += sum(state.numRowsDroppedByWatermark for state in one.stateOperators)
            on_batch(
                {
                    "query": query.name,
                    "batch": one.batchId,
                    "rows": one.numInputRows,
                    "duration_ms": duration_ms,
                }
            )


def _watch(queries: list[StreamingQuery], on_batch: Callable[[dict[str, Any]], None]) -> _Progress:
    """Wait until all have ended, one has failed, or Ctrl-C; then stop what runs."""
    progress = _Progress()
    try:
        while any(query.isActive for query in queries):
            for query in queries:
                query.awaitTermination(WATCH_S)
                progress.take(query, on_batch)
        for error in filter(None, (query.exception() for query in queries)):
            raise error
    except KeyboardInterrupt:
        # What a batch had not published is read again at the next start.
        pass
    except StreamingQueryException as error:
        raise JobRefused(f"the stream cannot go on: {_cause(error)}") from error
    finally:
        for query in queries:
            query.stop()
    for query in queries:
        progress.take(query, on_batch)
    return progress


def _cause(error: PySparkException) -> str:
    """Return the sentence of ours in what Spark says, or its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("nextgen.")]
    return (ours[-1] if ours else lines[0])[:500]


def _summary(
    spark: SparkSession,
    export: str,
    tables: StreamTables,
    progress: _Progress,
    elapsed_s: float,
) -> Summary:
    summary = Summary(JOB)
    shards = tables.inventory(spark)
    # One row: as many positions as there are shards, which the manifest has in memory anyway.
    reached = shards.agg(f.collect_list(f.struct("shard_id", "position")).alias("shards")).first()
    manifest = load_manifest(open_store(export))
    assert manifest is not None, "the export was there when the stream began"
    kinds = ("inventory_events", "assignment_events", "broker_events")
    live = ("tenants", "namespaces", "topics")
    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in ("events", *kinds, *live)]
    totals = shards.agg(*sums).first()
    late = tables.changes(spark).where("is_late").agg(f.sum("events")).first()
    assert totals is not None, "a sum has a row"
    assert reached is not None, "a list has a row"
    summary.rows_in = rows_up_to(manifest, {one.shard_id: one.position for one in reached.shards})
    summary.rows_read = totals.events
    summary.rows_accounted = {name: totals[name] for name in kinds}
    summary.rows_accounted["other_events"] = totals.events - sum(totals[name] for name in kinds)
    summary.numbers = {
        **{f"{name}_live": totals[name] for name in live},
        "assignment_events": totals.assignment_events,
        "late_events": (late[0] if late else 0) or 0,
        "batches": progress.batches,
        "batch_ms_max": progress.batch_ms_max,
        "rows_per_second": round(progress.rows / max(elapsed_s, 0.001)),
    }
    summary.outputs = {"tables": str(tables.out)}
    if progress.dropped:
        summary.find(f"{progress.dropped} groups of events were dropped behind the watermark")
    summary.reconcile()
    return summary
