"""Follows an export: one query, whose batches put the rows that they changed into the tables."""

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
"""How far behind the latest event an event may be and still count in its own minute: an exporter
that follows closes its files every five minutes."""

ROWS_PER_BATCH = 200_000
"""Of one micro-batch: bounds its memory when a stream begins with years of history."""

EVERY_S = 5.0
"""Between two looks at the manifest."""

LAYOUT = 2
"""Of a stream's folder: its tables, its checkpoint and the state in it. A release that changes one
of them counts on; it cannot go on with what another layout left."""

LAYOUT_UNMARKED = 1
"""Two queries, whose folder said nothing of a layout."""

STATE_PARTITIONS = 1
"""For the life of a checkpoint. A state of shards, brokers and open minutes is small, and each of
its partitions costs a batch a commit."""

WATCH_S = 0.2

STARTS_MAX = 5
"""Of a query, before its Python process is said to be broken and not only slow."""

_PROCESS_LATE = "Python worker failed to connect back"

_SETTINGS = {
    "spark.sql.shuffle.partitions": str(STATE_PARTITIONS),
    # A batch without rows would only move the watermark, which nobody is waiting for.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # A batch writes down what it changed in the state; the files of RocksDB follow now and then.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

_WRITTEN = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""What is whole is what ``current.json`` names: no file of Spark's says so as well."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream runs. ``is_once``: read what there is, then end."""

    is_once: bool
    delay_ms: int = DELAY_MS
    rows_per_batch: int = ROWS_PER_BATCH
    every_s: float = EVERY_S


class StreamTables:
    """The folder of one stream: its tables, which are all of the same batch, and its checkpoint."""

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
            # A kill came before Spark noted the end of this batch. The state of the query still
            # has to be made, and is when the rows are asked for.
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
    """Return the parts that a batch can change: not the days whose minutes are all closed.

    An event is counted in a minute that ends later than ``delay_ms`` before the latest event of
    the batches before, which is not older than the newest day.
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
    """Follow ``export`` until it is read (``is_once``) or somebody interrupts; see the tables.

    Raises:
        ExportRefused: There is no export, or it is of a newer schema.
        JobRefused: ``out`` is another stream's, or a file cannot be read. The tables are as they
            were after the last whole batch; the stream goes on from there when it is run again.
    """
    # Absolute: executors need not be where this process is.
    url = open_export(export).url
    tables = StreamTables(out)
    _claim(tables.out, url, options.delay_ms)
    began = time.monotonic()
    progress = Progress()
    follow(lambda: start(spark, url, tables, options), progress, on_batch)
    return _summary(spark, url, tables, progress, time.monotonic() - began)


def _claim(out: Path, export: str, delay_ms: int) -> None:
    """Make ``out`` the folder of this stream; refuse a folder that is anything else."""
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
        # Minutes that ended with that delay have no state to count on from.
        delay_s = found["delay_ms"] / 1000
        raise JobRefused(
            f"{out} counts events as late behind {delay_s:g} s: go on with --delay-s {delay_s:g}, "
            "or name another folder"
        )


def start(
    spark: SparkSession, export: str, tables: StreamTables, options: StreamOptions
) -> StreamingQuery:
    """Start the query behind ``tables``, from its checkpoint if there is one."""
    # Settings of the stream are nobody else's.
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
    """What the query says of its batches, from this start on."""

    batches: int = 0
    batch_ms_max: int = 0
    rows: int = 0
    dropped: int = 0
    seen: int = NO_BATCH

    def take(self, query: StreamingQuery, on_batch: Callable[[dict[str, Any]], None]) -> None:
        last = query.lastProgress
        if last is None or last.batchId <= self.seen:
            return
        # All that Spark keeps take long to be told, for a look every moment.
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
    """Begin the query and wait until it has ended, or Ctrl-C; see ``progress``.

    On a busy machine a Python process may need longer to start than Spark waits. The query is then
    begun again: it goes on from its checkpoint.

    Raises:
        JobRefused: It has failed.
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
        # What a batch had not published is read again at the next start.
        query.stop()
    progress.take(query, on_batch)


@contextmanager
def _interrupts() -> Iterator[Event]:
    """Yield what is set by Ctrl-C, so that no call to the JVM is broken off in its middle."""
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
    """Return the sentence of ours in what Spark says, or its first line."""
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
    # One row: as many positions as there are shards, which the manifest has in memory anyway.
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
