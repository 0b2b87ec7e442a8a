"""Reads an export, and writes the load of brokers, topics and their parents from its load reports.

The export is read twice: once for load reports and sessions, which are few and are cached, and
once, two columns only, for the activity of each shard. The rest is computed from the cached rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as f

from pipelines.errors import JobRefused
from pipelines.exports.input import ExportInput, open_export
from pipelines.iso_time import time_at
from pipelines.load import transform
from pipelines.load.model import HOURS_SHOWN_MAX, Shown
from pipelines.load.transform import BROKER, NAMESPACE, REPORTED, TENANT, TOPIC, USED_TYPES
from pipelines.load.verdict import BROKER_LOST, CLUSTER, load_verdict
from pipelines.running.output import replaced_folder
from pipelines.running.summary import Summary

JOB = "load"

HOT_TOPICS_MAX = 50
BROKERS_SHOWN_MAX = 40
SHARDS_SHOWN_MAX = 256
"""Rows that come to the driver, for the summary and the page."""

_KEPT = ".kept"
SCOPES = (CLUSTER, BROKER_LOST)
"""Scopes of the forecast that stand for the whole cluster."""


def run(spark: SparkSession, url: str, out: Path, *, report: Path | None = None) -> Summary:
    """Write series, statistics, skew, shards, shape and forecast below ``out``, as Parquet.

    Raises:
        JobRefused: The export is damaged, or has no load reports.
        ExportRefused: It is no export, or of a newer release.
        RowsLost: A bug.
    """
    export = open_export(url)
    summary = Summary(JOB, rows_in=export.rows)
    with replaced_folder(out, JOB) as folder:
        kept = _keep_used(spark, export, folder, summary)
        summary.reconcile()
        facts = _facts(kept)
        if not facts.reports:
            raise JobRefused(
                f"{url} has no load reports: brokers report every few minutes, so the export is of "
                "a cluster without brokers, or of its first moments"
            )
        _write_tables(export.events(spark), kept, folder)
        shown = shown_rows(spark, folder)
        shutil.rmtree(folder / _KEPT)
    summary.numbers = _numbers(facts, shown)
    summary.verdict = load_verdict(summary.numbers["days_until_capacity"], facts.last_ms)
    summary.outputs = {name: str(out / name) for name in TABLES}
    if report is not None:
        from pipelines.load.report import write_report

        write_report(report, url, summary, facts, shown)
        summary.outputs["report"] = str(report)
    return summary


TABLES = ("series", "statistics", "skew", "shards", "shape", "forecast")


def _keep_used(
    spark: SparkSession, export: ExportInput, folder: Path, summary: Summary
) -> DataFrame:
    """Read the export once; account for its rows; return the load reports and session events."""
    seen = Observation("load")
    events = export.events(spark).select("shard_id", "position", "time", "event_type", *USED_TYPES)
    is_used = f.col("event_type").isin(*USED_TYPES)
    observed = events.observe(
        seen,
        f.count(f.lit(1)).alias("rows"),
        f.count_if(f.col("event_type") == REPORTED).alias("reports"),
        f.count_if(is_used & (f.col("event_type") != REPORTED)).alias("sessions"),
    )
    path = str(folder / _KEPT)
    transform.used_events(observed).write.parquet(path)
    counted: dict[str, Any] = seen.get
    summary.rows_read = counted["rows"]
    summary.rows_accounted = {
        "load reports": counted["reports"],
        "sessions and capacity": counted["sessions"],
        "events of other types": counted["rows"] - counted["reports"] - counted["sessions"],
    }
    return spark.read.parquet(path)


def _facts(kept: DataFrame) -> Row:
    reports = transform.reports(kept)
    return reports.agg(
        f.count("*").alias("reports"),
        f.count_distinct("broker_id").alias("brokers"),
        f.count_if("is_skewed").alias("skewed"),
        # Python would get a timestamp in the local time of this machine.
        f.min(f.unix_millis("time")).alias("first_ms"),
        f.max(f.unix_millis("time")).alias("last_ms"),
    ).collect()[0]


def _write_tables(events: DataFrame, kept: DataFrame, folder: Path) -> None:
    reports = transform.reports(kept)
    topics = transform.topic_series(reports)
    brokers = transform.broker_series(reports)
    parents = [transform.parent_series(topics, level) for level in (NAMESPACE, TENANT)]
    series = brokers
    for more in (topics, *parents):
        series = series.unionByName(more)
    series.write.partitionBy("level").parquet(str(folder / "series"))
    written = kept.sparkSession.read.parquet(str(folder / "series"))
    statistics = transform.statistics(written)
    _write(statistics.orderBy("level", f.desc("mean"), "name"), folder, "statistics")
    of_names = kept.sparkSession.read.parquet(str(folder / "statistics"))
    of_brokers = written.where(f.col("level") == BROKER)
    _write(transform.skew(of_names).orderBy("level"), folder, "skew")
    _write(transform.shard_activity(events).orderBy("shard_id"), folder, "shards")
    _write(transform.daily_shape(of_brokers).orderBy("hour_of_day"), folder, "shape")
    forecast = transform.forecast(of_brokers, transform.capacity(kept))
    _write(forecast.orderBy("scope"), folder, "forecast")


def _write(frame: DataFrame, folder: Path, name: str) -> None:
    frame.coalesce(1).write.parquet(str(folder / name))


def shown_rows(spark: SparkSession, folder: Path) -> Shown:
    """Return the rows of the tables in ``folder`` that the report shows."""
    tables = {name: spark.read.parquet(str(folder / name)) for name in TABLES}
    names = tables["statistics"]

    def most(level: str, limit: int) -> list[Row]:
        of_level = names.where(f.col("level") == level)
        return _rows(of_level.orderBy(f.desc("mean"), "name"), limit)

    brokers = most(BROKER, BROKERS_SHOWN_MAX)
    hours = tables["series"].where(
        (f.col("level") == BROKER) & f.col("name").isin(*(row.name for row in brokers))
    )
    heat = hours.groupBy("name", f.hour("hour").alias("hour_of_day")).agg(
        f.avg("bytes_per_second").alias("mean")
    )
    return Shown(
        skew=_rows(tables["skew"].orderBy("level"), 10),
        shards=_rows(tables["shards"].orderBy("shard_id"), SHARDS_SHOWN_MAX),
        brokers=brokers,
        hot_topics=most(TOPIC, HOT_TOPICS_MAX),
        tenants=most(TENANT, HOT_TOPICS_MAX),
        shape=_rows(tables["shape"].orderBy("hour_of_day"), HOURS_SHOWN_MAX),
        forecast=_rows(
            tables["forecast"].orderBy(
                # Scopes without free capacity come first.
                ~f.col("scope").isin(*SCOPES),
                f.asc_nulls_last("days_left"),
                "scope",
            ),
            BROKERS_SHOWN_MAX + len(SCOPES),
        ),
        heat=_rows(heat.orderBy("name", "hour_of_day"), BROKERS_SHOWN_MAX * HOURS_SHOWN_MAX),
    )


def _rows(frame: DataFrame, limit: int) -> list[Row]:
    rows: list[Row] = frame.limit(limit).collect()
    return rows


def _numbers(facts: Row, shown: Shown) -> dict[str, Any]:
    days_left = {row.scope: _rounded(row.days_left) for row in shown.forecast}
    peak = max(shown.shape, key=lambda row: (row.relative or 0.0, -row.hour_of_day))
    return {
        "brokers": facts.brokers,
        "from": time_at(facts.first_ms).isoformat(),
        "to": time_at(facts.last_ms).isoformat(),
        "reports_with_skewed_clock": facts.skewed,
        "busiest_hour_of_day": peak.hour_of_day,
        "busiest_topic": shown.hot_topics[0].name if shown.hot_topics else None,
        "max_over_mean": {row.level: _rounded(row.max_over_mean) for row in shown.skew},
        "growth_per_day": {row.name: _rounded(row.growth_per_day) for row in shown.brokers[:5]},
        "days_until_capacity": {scope: days_left.get(scope) for scope in SCOPES},
        "brokers_without_room": sorted(
            scope for scope, left in _of_brokers(days_left) if left == 0
        ),
    }


def _of_brokers(days_left: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    return ((scope, left) for scope, left in days_left.items() if scope not in SCOPES)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
