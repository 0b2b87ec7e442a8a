"""Reads an export once, and decides about its scalable topics again."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as f

from nextgen.kernel.governance.auto_scale_policy import DEFAULT_AUTO_SCALE, AutoScalePolicy
from nextgen.kernel.governance.service_settings import lenient
from pipelines.backtest import transform
from pipelines.backtest.facts import LOADS
from pipelines.backtest.model import (
    ACTIONS,
    BY_KIND,
    COUNTS,
    DIFFERENCES,
    HOURS,
    OPERATIONS,
    SCHEMAS,
    SUMS,
    TOPICS,
    LogFacts,
    Question,
)
from pipelines.errors import JobRefused
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID, ExportInput, open_export
from pipelines.running.output import replaced_folder
from pipelines.running.summary import Summary

JOB = "backtest"

LOADS_SCHEMA = 11
"""The first version of exports that has loads of segments."""

SHOWN_MAX = 200
"""Most rows of each table on the page, and most differences that the summary lists."""

TERMS_MAX = 10_000
CHANGES_MAX = 1_000
"""Terms of all shards, and changes of the service level, that come to the driver at most."""

ROWS_MAX = 20_000
"""Sums by hour and by kind of operation that come to the driver at most: years."""

_WORK = ".work"
_CONFIGURATION = "configuration_set"


def run(
    spark: SparkSession,
    url: str | os.PathLike[str],
    out: Path,
    question: Question | None = None,
    *,
    report: Path | None = None,
) -> Summary:
    """Write the tables of ``model.SCHEMAS``, summary.json, hours.csv and operations.csv to ``out``.

    Every difference between the recorded actions and the decisions is a finding.

    Raises:
        ExportRefused: There is no export that this release reads.
        JobRefused: The export is damaged, or has no loads of segments.
        RowsLost: A bug: not every event was accounted for.
    """
    question = question or Question()
    export = open_export(url)
    versions = [file.schema_version for file in export.shard_files]
    if max(versions, default=LOADS_SCHEMA) < LOADS_SCHEMA:
        raise JobRefused(
            f"{export.url} is of the schema v{max(versions)}, which has no loads of segments: "
            f"export again with a release that writes v{LOADS_SCHEMA} or later"
        )
    summary = Summary(JOB, rows_in=export.rows)
    with replaced_folder(out, JOB) as folder:
        events = export.events(spark, export.shard_files)
        log = LogFacts(_ends(export), _terms(events), _service(spark, export))
        _decide(spark, export, folder, question, log, summary)
        summary.reconcile()
        tables = {
            name: spark.read.schema(SCHEMAS[name]).parquet(str(folder / name)) for name in SCHEMAS
        }
        shown = shown_rows(tables)
        _tell(summary, export, question, shown)
        _write_csv(folder / "hours.csv", shown[HOURS])
        _write_csv(folder / "operations.csv", shown[OPERATIONS])
        document = json.dumps(summary.as_dict(), ensure_ascii=False, default=str)
        (folder / "summary.json").write_text(document + "\n", encoding="utf-8")
        if report is not None:
            from pipelines.backtest.report import write_report

            write_report(report, export.url, summary, shown)
            summary.outputs["report"] = str(report)
    summary.outputs["tables"] = str(out)
    return summary


def _decide(
    spark: SparkSession,
    export: ExportInput,
    folder: Path,
    question: Question,
    log: LogFacts,
    summary: Summary,
) -> None:
    """Write all tables, and account for the events.

    Raises:
        JobRefused: There are no loads.
    """
    read = Observation("backtest")
    kind = f.col("event_type")
    counted = export.events(spark).observe(
        read,
        f.count(f.lit(1)).alias("rows"),
        f.count_if(kind == LOADS).alias("loads"),
        f.count_if(kind.isin(*transform.USED_TYPES) & (kind != LOADS)).alias("used"),
    )
    is_of_shard = f.col("shard_id") != CLUSTER_MANAGER_SHARD_ID
    again = export.events(spark, export.shard_files)
    facts = transform.facts(counted.where(is_of_shard), again)
    work = str(folder / _WORK)
    transform.backtested(facts, question, log).write.parquet(work)
    counts: Mapping[str, int] = read.get
    summary.rows_read = counts["rows"]
    summary.rows_accounted = {
        "loads_of_segments": counts["loads"],
        "of_layouts_consumers_and_policies": counts["used"],
        "of_other_types": counts["rows"] - counts["loads"] - counts["used"],
    }
    if not counts["loads"]:
        raise JobRefused(
            f"{export.url} has no loads of segments: they are recorded when brokers carry the "
            "traffic of scalable topics, so there is nothing to decide by"
        )
    rows = spark.read.schema("table string, row string").parquet(work)
    for name in SCHEMAS:
        table = transform.table_of(rows, name)
        # Tasks have sums of their own by hour.
        table = transform.hours_of(table) if name == HOURS else table
        table.coalesce(1).write.parquet(str(folder / name))
    shutil.rmtree(folder / _WORK)


def _tables(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    return {
        name: spark.read.schema(schema).parquet(str(folder / name))
        for name, schema in SCHEMAS.items()
    }


def shown_rows(tables: Mapping[str, DataFrame]) -> dict[str, list[Row]]:
    """Return what the summary and the page show, by name."""
    topics, counts, differences = tables[TOPICS], tables[COUNTS], tables[DIFFERENCES]
    sums = [f.sum(name).alias(name) for name in _SUMMED]
    most = f.max("segments_max").alias("segments_max")
    operations = tables[ACTIONS].groupBy("scenario", "kind", "reason", "asked_by").count()
    return {
        COUNTS: counts.agg(*(f.sum(each).alias(each) for each in counts.columns)).collect(),
        DIFFERENCES: differences.orderBy("shard_id", "position").limit(SHOWN_MAX).collect(),
        BY_KIND: differences.groupBy("what").count().collect(),
        SUMS: topics.groupBy("scenario").agg(*sums, most).orderBy("scenario").collect(),
        OPERATIONS: operations.orderBy("scenario", "kind", "reason").limit(ROWS_MAX).collect(),
        HOURS: tables[HOURS].orderBy("scenario", "hour_ms").limit(ROWS_MAX).collect(),
        TOPICS: transform.most_changed(topics).limit(SHOWN_MAX).collect(),
    }


_SUMMED = (
    "lived_ms",
    "splits",
    "merges",
    "rebuckets",
    "segments_last",
    "segment_ms",
    "hot_ms",
    "own_hot_ms",
    "short_ms",
    "skipped_operations",
    "unresolved_policies",
)


def _tell(
    summary: Summary, export: ExportInput, question: Question, shown: Mapping[str, Sequence[Row]]
) -> None:
    counts = shown[COUNTS][0].asDict()
    differences = {row["what"]: row["count"] for row in shown[BY_KIND]}
    summary.numbers = {
        "topics": counts["topics"],
        "actions": counts["decided"],
        "actions_reproduced": counts["reproduced"],
        "differences": sum(differences.values()),
        "differences_by_kind": differences,
        "decisions": counts["evaluations"],
        "unknown_topics": counts["unknown_topics"],
        "slack_s": question.slack_ms / 1_000,
        "scenarios": {row["scenario"]: _scenario(row) for row in shown[SUMS]},
        "operations": [row.asDict() for row in shown[OPERATIONS]],
        "notes": _notes(export),
    }
    for row in shown[DIFFERENCES]:
        summary.find(_sentence(row))
    # The table has those that are not listed.
    summary.findings_total = max(summary.findings_total, sum(differences.values()))
    if counts["unknown_topics"]:
        summary.find(
            f"{counts['unknown_topics']} topics have events, but not that of their creation: "
            "events of theirs are missing"
        )
    if not summary.findings_total:
        summary.verdict = (
            f"{counts['reproduced']:,} of {counts['decided']:,} actions on {counts['topics']:,} "
            "topics reproduced: 0 differences"
        )


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows with a line of their columns' names."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0].asDict() if rows else ())
        writer.writerows(tuple(row) for row in rows)


def _scenario(row: Row) -> dict[str, float]:
    """Return a scenario's sums, for people and programs: times in hours."""
    hours = {name: round(row[f"{name}_ms"] / 3_600_000, 2) for name in ("segment", "hot", "short")}
    return {
        **{name: row[name] for name in ("splits", "merges", "rebuckets", "segments_last")},
        "segments_max_of_a_topic": row["segments_max"],
        **{f"{name}_hours": value for name, value in hours.items()},
        "own_hot_hours": round(row["own_hot_ms"] / 3_600_000, 2),
        "skipped_operations": row["skipped_operations"],
        "unresolved_policies": row["unresolved_policies"],
    }


def _sentence(row: Row) -> str:
    where = f"{row['topic']} at {row['shard_id']}:{row['position']}: {row['what']}"
    return (
        f"{where}: recorded {row['recorded'] or 'nothing'}, decided {row['decided'] or 'nothing'}"
    )


def _notes(export: ExportInput) -> list[str]:
    return [
        f"events of shard {shard_id} were lost: what follows them may differ"
        for shard_id, shard in sorted(export.manifest.shards.items())
        if shard.accepted_gaps
    ][:SHOWN_MAX]


def _ends(export: ExportInput) -> dict[int, int]:
    return {
        shard_id: max((file.last_time_ms for file in shard.files), default=0)
        for shard_id, shard in export.manifest.shards.items()
    }


def _terms(events: DataFrame) -> dict[int, list[tuple[int, int]]]:
    rows = transform.terms_of(events).orderBy("shard_id", "term").limit(TERMS_MAX + 1).collect()
    if len(rows) > TERMS_MAX:
        raise JobRefused(f"the shards had more than {TERMS_MAX} terms of leaders")
    terms: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        terms.setdefault(row["shard_id"], []).append((row["began_ms"], row["term"]))
    return terms


def _service(spark: SparkSession, export: ExportInput) -> list[tuple[int, AutoScalePolicy]]:
    """Return the service level by the times from which on it holds."""
    found = [(0, DEFAULT_AUTO_SCALE)]
    shard = export.manifest.shards.get(CLUSTER_MANAGER_SHARD_ID)
    if shard is None:
        return found
    events = export.events(spark, shard.files).where(f.col("event_type") == _CONFIGURATION)
    changes = events.select(
        "position", f.unix_millis("time").alias("time_ms"), f.col(_CONFIGURATION).alias("set")
    )
    rows = changes.orderBy("position").limit(CHANGES_MAX + 1).collect()
    if len(rows) > CHANGES_MAX:
        raise JobRefused(f"the service level was changed more than {CHANGES_MAX} times")
    for row in rows:
        texts = {each["name"]: each["value"] for each in row["set"]["settings"] or ()}
        found.append((row["time_ms"], lenient(texts).auto_scale))
    return found
