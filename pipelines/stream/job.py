"""Follows an export with one query. Each batch writes the rows that it changed to the tables."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from nextgen.export.directory import read_manifest
from nextgen.export.stores.urls import open_store
from nextgen.kernel.input.json_fields import parse_json
from pipelines.durations import DAY_MS, MINUTE_MS
from pipelines.errors import JobRefused
from pipelines.exports.input import open_export
from pipelines.running.output import MARKER
from pipelines.running.summary import Summary
from pipelines.stream.offsets import rows_up_to
from pipelines.stream.source import export_stream
from pipelines.stream.tables import NO_BATCH, BatchedTable
from pipelines.stream.transform import (
    BROKERS,
    CHANGES,
    INVENTORY,
    PART,
    ROWS_SCHEMA,
    brokers,
    changes,
    inventory,
    merged,
    table_rows,
)

JOB = "stream"

DELAY_MS = 10 * MINUTE_MS
"""An event this far behind the latest one still counts in its own minute. A following exporter
closes its files every five minutes."""

ROWS_PER_BATCH = 200_000
"""Rows of one micro-batch: bounds its memory when a stream begins with years of history."""

EVERY_S = 5.0
"""Seconds between two reads of the manifest."""

LAYOUT = 2
"""Version of a stream's folder: its tables, its checkpoint and the state in it. A release that
changes one of them increments it, and cannot resume from a folder of another version."""

LAYOUT_UNMARKED = 1
"""The layout with two queries, whose folder had no version yet."""

STATE_PARTITIONS = 1
"""State partitions, fixed for the life of a checkpoint. The state of shards, brokers and open
minutes is small, and each partition costs every batch a commit."""

WATCH_S = 0.2

STARTS_MAX = 5
"""Attempts to start a query before its Python process counts as broken, not only slow."""

_PROCESS_LATE = "Python worker failed to connect back"

_SETTINGS = {
    "spark.sql.shuffle.partitions": str(STATE_PARTITIONS),
    # A batch without rows would only move the watermark, which has no effect by itself.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # A batch writes a log of its changes to the state; RocksDB files are uploaded now and then.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

_WRITTEN = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""``current.json`` names the complete folders, so Spark need not write success files."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of a stream. ``is_once``: read the present export, then end."""

    is_once: bool
    delay_ms: int = DELAY_MS
    rows_per_batch: int = ROWS_PER_BATCH
    every_s: float = EVERY_S


class StreamTables:
    """The folder of one stream: its tables, all as of the same batch, and its checkpoint."""

    def __init__(self, out: Path) -> None:
        self.out = out.absolute()
        self.checkpoint = self.out / "checkpoint"
        self._rows = BatchedTable(self.out / "tables")

    def inventory(self, spark: SparkSession) -> DataFrame:
        """Return a row per shard, as of the latest batch: see ``transform.inventory``."""
        return inventory(self._read(spark, INVENTORY))

    def brokers(self, spark: SparkSession) -> DataFrame:
        """Return a row per broker, as of the latest batch: see ``transform.brokers``."""
        return brokers(self._read(spark, BROKERS))

    def changes(self, spark: SparkSession) -> DataFrame:
        """Return assignment changes by minute, change, reason and lateness."""
        return changes(self._read(spark, CHANGES))

    def _read(self, spark: SparkSession, table: str) -> DataFrame:
        parts = self._rows.published().parts
        of_table = {name: path for name, path in parts.items() if name.partition("-")[0] == table}
        return self._rows.read(spark, ROWS_SCHEMA, of_table)

    def write(self, rows: DataFrame, batch: int, delay_ms: int) -> None:
        """Put the rows that changed in ``batch`` into their tables, and publish all at once."""
        published = self._rows.published()
        if published.batch >= batch:
            # The process was killed before Spark noted the end of this batch. Computing the rows
            # again restores the query's state.
            rows.write.format("noop").mode("overwrite").save()
            return
        folder = self._rows.folder_of(batch)
        still_open = open_parts(published.parts, delay_ms)
        before = self._rows.read(rows.sparkSession, ROWS_SCHEMA, still_open)
        draft = merged(before, rows).write.partitionBy(PART).options(**_WRITTEN)
        draft.parquet(str(folder))
        written = {
            path.name.removeprefix(f"{PART}="): f"{folder.name}/{path.name}"
            for path in folder.glob(f"{PART}=*")
        }
        self._rows.publish(batch, {**published.parts, **written})


def open_parts(parts: Mapping[str, str], delay_ms: int) -> dict[str, str]:
    """Return the parts that a batch can change: all but the days whose minutes are all closed.

    A batch counts every event in a minute that ends at most ``delay_ms`` before the latest event of
    the previous batches. That latest event lies in the newest day or later.
    """
    days = {
        name: date.fromisoformat(name.removeprefix(f"{CHANGES}-"))
        for name in parts
        if name.startswith(f"{CHANGES}-")
    }
    open_days = -(-(delay_ms + MINUTE_MS) // DAY_MS)
    since = max(days.values(), default=date.min).toordinal() - open_days
    return {
        name: path
        for name, path in parts.items()
        if name not in days or days[name].toordinal() >= since
    }


def run(
    spark: SparkSession,
    export: str,
    out: Path,
    options: StreamOptions,
    on_batch: Callable[[dict[str, Any]], None] = lambda _: None,
) -> Summary:
    """Follow ``export`` until it is read (``is_once``) or Ctrl-C; the tables are in ``out``.

    Raises:
        ExportRefused: There is no export, or it is of a newer schema.
        JobRefused: ``out`` is another stream's, or a file cannot be read. The tables stay as of the
            last complete batch, and the next run resumes from there.
    """
    # Absolute: executors may have another working directory.
    url = open_export(export).url
    tables = StreamTables(out)
    _claim(tables.out, url, options.delay_ms)
    began = time.monotonic()
    progress = Progress()
    follow(lambda: start(spark, url, tables, options), progress, on_batch)
    return _summary(spark, url, tables, progress, time.monotonic() - began)


def _claim(out: Path, export: str, delay_ms: int) -> None:
    """Make ``out`` the folder of this stream; refuse a folder with any other content."""
    mark = {"job": JOB, "export": export, "layout": LAYOUT, "delay_ms": delay_ms}
    path = out / MARKER
    try:
        if path.is_file():
            _check_mark(out, parse_json(path.read_text(encoding="utf-8")), mark)
            return
        if out.exists() and any(out.iterdir()):
            raise JobRefused(f"{out} holds something that no stream wrote: name another folder")
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(mark) + "\n", encoding="utf-8")
    except (OSError, ValueError, KeyError) as error:
        raise JobRefused(f"{out} cannot be used: {error}") from error


def _check_mark(out: Path, found: dict[str, Any], mark: dict[str, Any]) -> None:
    if any(found.get(name) != mark[name] for name in ("job", "export")):
        raise JobRefused(f"{out} belongs to {found}: name another folder")
    layout = found.get("layout", LAYOUT_UNMARKED)
    if layout != LAYOUT:
        raise JobRefused(
            f"{out} has tables and a checkpoint of layout {layout}, this release goes on with "
            f"layout {LAYOUT} only: remove the folder and start again, or name another one; all of "
            "it is made anew from the export"
        )
    if found["delay_ms"] != mark["delay_ms"]:
        # The state of minutes that were closed with that delay is gone.
        delay_s = found["delay_ms"] / 1000
        raise JobRefused(
            f"{out} was made with --delay-s {delay_s:g}: resume with the same delay, or name "
            "another folder"
        )


def start(
    spark: SparkSession, export: str, tables: StreamTables, options: StreamOptions
) -> StreamingQuery:
    """Start the query behind ``tables``, from its checkpoint if there is one."""
    # A session of its own, so that the stream's settings affect no other query.
    session = spark.newSession()
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)
    rows = table_rows(export_stream(session, export, options.rows_per_batch), options.delay_ms)
    trigger = (
        {"availableNow": True}
        if options.is_once
        else {"processingTime": f"{round(options.every_s * 1000)} milliseconds"}
    )
    return (
        rows.writeStream.queryName(JOB)
        .outputMode("update")
        .option("checkpointLocation", str(tables.checkpoint))
        .trigger(**trigger)
        .foreachBatch(lambda changed, batch: tables.write(changed, batch, options.delay_ms))
        .start()
    )


@dataclass(slots=True)
class Progress:
    """The batches that the query has reported since this start."""

    batches: int = 0
    batch_ms_max: int = 0
    rows: int = 0
    dropped: int = 0
    seen: int = NO_BATCH

    def take(self, query: StreamingQuery, on_batch: Callable[[dict[str, Any]], None]) -> None:
        last = query.lastProgress
        if last is None or last.batchId <= self.seen:
            return
        # Fetching Spark's whole list of reports is too slow for every poll.
        for one in [last] if last.batchId == self.seen + 1 else query.recentProgress:
            if one.batchId <= self.seen or not one.numInputRows:
                continue
            self.seen = one.batchId
            phases_ms = {name: int(ms) for name, ms in one.durationMs.items()}
            duration_ms = phases_ms.pop("triggerExecution", 0)
            self.batches += 1
            self.batch_ms_max = max(self.batch_ms_max, duration_ms)
            self.rows += one.numInputRows
            self.dropped += sum(state.numRowsDroppedByWatermark for state in one.stateOperators)
            on_batch(
                {
                    "batch": one.batchId,
                    "rows": one.numInputRows,
                    "duration_ms": duration_ms,
                    "phases_ms": phases_ms,
                }
            )


def follow(
    begin: Callable[[], StreamingQuery],
    progress: Progress,
    on_batch: Callable[[dict[str, Any]], None] = lambda _: None,
) -> None:
    """Start the query and wait until it ends, or Ctrl-C; report its batches to ``progress``.

    On a busy machine a Python process may take longer to start than Spark waits. The query is then
    started again, and resumes from its checkpoint.

    Raises:
        JobRefused: The query failed.
    """
    for starts_left in reversed(range(STARTS_MAX)):
        try:
            _watch(begin(), progress, on_batch)
            return
        except StreamingQueryException as error:
            if not starts_left or _PROCESS_LATE not in str(error):
                raise JobRefused(f"the stream cannot go on: {_cause(error)}") from error


def _watch(
    query: StreamingQuery, progress: Progress, on_batch: Callable[[dict[str, Any]], None]
) -> None:
    try:
        with _interrupts() as interrupted:
            while not query.awaitTermination(WATCH_S) and not interrupted.is_set():
                progress.take(query, on_batch)
    finally:
        # The next start reads an unpublished batch again.
        query.stop()
    progress.take(query, on_batch)


@contextmanager
def _interrupts() -> Iterator[Event]:
    """Yield an event that Ctrl-C sets, so that it interrupts no call to the JVM half way."""
    interrupted = Event()
    if current_thread() is not main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _cause(error: PySparkException) -> str:
    """Return this project's message inside Spark's error, or the error's first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("nextgen.")]
    return (ours[-1] if ours else lines[0])[:500]


def _summary(
    spark: SparkSession,
    export: str,
    tables: StreamTables,
    progress: Progress,
    elapsed_s: float,
) -> Summary:
    summary = Summary(JOB)
    shards = tables.inventory(spark)
    # One row with a position per shard, which the manifest has in memory too.
    reached = shards.agg(f.collect_list(f.struct("shard_id", "position")).alias("shards")).first()
    manifest = read_manifest(open_store(export))
    kinds = ("inventory_events", "assignment_events", "broker_events")
    live = ("tenants", "namespaces", "topics")
    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in ("events", *kinds, *live)]
    totals = shards.agg(*sums).first()
    changed = (
        tables.changes(spark)
        .agg(
            f.coalesce(f.sum("events"), f.lit(0)).alias("events"),
            f.coalesce(f.sum(f.when(f.col("is_late"), f.col("events"))), f.lit(0)).alias("late"),
        )
        .first()
    )
    assert totals is not None, "a sum has a row"
    assert changed is not None, "a sum has a row"
    assert reached is not None, "a list has a row"
    summary.rows_in = rows_up_to(manifest, {one.shard_id: one.position for one in reached.shards})
    summary.rows_read = totals.events
    summary.rows_accounted = {name: totals[name] for name in kinds}
    summary.rows_accounted["other_events"] = totals.events - sum(totals[name] for name in kinds)
    summary.numbers = {
        **{f"{name}_live": totals[name] for name in live},
        "assignment_events": totals.assignment_events,
        "late_events": changed.late,
        "batches": progress.batches,
        "batch_ms_max": progress.batch_ms_max,
        "rows_per_second": round(progress.rows / max(elapsed_s, 0.001)),
    }
    summary.outputs = {"tables": str(tables.out)}
    if progress.dropped:
        summary.find(f"{progress.dropped} groups of events were dropped behind the watermark")
    if changed.events != totals.assignment_events:
        summary.find(
            f"minutes count {changed.events} assignments, shards {totals.assignment_events}"
        )
    summary.reconcile()
    return summary
