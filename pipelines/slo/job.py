"""Reads an export, and writes availability from its recorded windows of lookups.

Every file is read once: those of shard 0 for the windows, those of the others for the changes of
ownership in bad minutes. The rest is computed from these two results, which are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from nextgen.export.format.manifest import ExportFile
from pipelines.durations import MINUTE_MS
from pipelines.errors import JobRefused
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID, ExportInput, open_export
from pipelines.running.output import replaced_folder
from pipelines.running.summary import FINDINGS_SHOWN_MAX, Summary
from pipelines.slo.model import Answer, Question
from pipelines.slo.report import write_report
from pipelines.slo.transform import (
    CHANGE_EVENTS,
    CLUSTER,
    change_reasons,
    days_of,
    minutes_of,
    months_of,
    ownership_changes,
    ownership_events,
    with_bad_minutes,
    worst_minutes,
    worst_topics,
)
from pipelines.slo.verdict import slo_verdict
from pipelines.slo.windows import COUNTED, IMPOSSIBLE, OUTSIDE, REPEATED, WINDOW_EVENT, classified
from pipelines.slo.windows import recorded_windows as recorded

JOB = "slo"

LATE_MS = MINUTE_MS
"""A window recorded later than this after the end of its minute counts as late. A discovery
process reports each window within seconds while the cluster manager is up."""

MONTHS_SHOWN_MAX = 120
DAYS_SHOWN_MAX = 400
WORST_SHOWN_MAX = 100
REASONS_SHOWN_MAX = 40
"""Rows that the driver collects, for the summary and the page."""

NOTES_MAX = 10
"""Gaps that notes list."""


def run(
    spark: SparkSession,
    url: str,
    out: Path,
    question: Question | None = None,
    *,
    report: Path | None = None,
) -> Summary:
    """Write windows, minutes, days, months, worst_minutes, changes and topics below ``out``.

    Raises:
        JobRefused: The export has no log of the cluster manager, or is not whole.
        ExportRefused: It is no export, or of a newer release.
        RowsLost: A bug.
    """
    question = question or Question()
    export = open_export(url)
    managers = _managers_files(export)
    summary = Summary(JOB, rows_in=export.rows)
    with replaced_folder(out, JOB) as folder:
        tables = _Tables(spark, folder)
        facts = _write_windows(tables, export.events(spark, managers), question, summary)
        windows = tables.read("windows")
        tables.write_small("minutes", minutes_of(windows), "node_id", "began_at_ms")
        _write_changes(tables, export, export.shard_files, summary)
        answer = _write_results(tables, question.objective_per_cent)
        summary.reconcile()
        notes = _gap_notes(export) + _clock_notes(facts)
        summary.numbers = _numbers(tables.read("minutes"), answer, question) | {"notes": notes}
        _find(windows, facts, summary)
        summary.verdict = slo_verdict(summary.numbers)
        if question.is_checked:
            _find_missed_months(answer, question, summary)
    summary.outputs = {name: str(out / name) for name in tables.names}
    if report is not None:
        write_report(report, url, question, answer, summary)
        summary.outputs["report"] = str(report)
    return summary


class _Tables:
    """Parquet tables in one folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self._folder = folder
        self._schemas: dict[str, StructType] = {}

    def write(self, name: str, frame: DataFrame) -> None:
        """Write a frame that may be large: one file per partition."""
        frame.write.parquet(f"{self._folder}/{name}")
        self._schemas[name] = frame.schema

    def write_small(self, name: str, frame: DataFrame, *order: str) -> None:
        """Write a small frame as one file, in ``order``: it has a few rows for each minute."""
        self.write(name, frame.coalesce(1).sortWithinPartitions(*order))

    @property
    def names(self) -> list[str]:
        return list(self._schemas)

    def read(self, name: str) -> DataFrame:
        """Return a written table. Its schema is known, so no file is opened for it."""
        return self.spark.read.schema(self._schemas[name]).parquet(f"{self._folder}/{name}")


def _managers_files(export: ExportInput) -> list[ExportFile]:
    exported = export.manifest.shards.get(CLUSTER_MANAGER_SHARD_ID)
    if exported is None or not exported.files:
        raise JobRefused(
            f"{export.url} has no log of the cluster manager (shard {CLUSTER_MANAGER_SHARD_ID}), "
            "where windows of lookups are recorded: run 'nextgen export run' on it once more to "
            "add the rest of that log"
        )
    return list(exported.files)


def _write_windows(tables: _Tables, events: DataFrame, question: Question, summary: Summary) -> Row:
    """Read the cluster manager's log and account for its rows. Return ``_facts`` of its windows."""
    seen = Observation("windows")
    observed = events.select("position", "time", "event_type", WINDOW_EVENT).observe(
        seen,
        f.count(f.lit(1)).alias("rows"),
        f.count_if(f.col("event_type") != WINDOW_EVENT).alias("others"),
    )
    fated = classified(recorded(observed), since_ms=question.since_ms, until_ms=question.until_ms)
    tables.write_small("windows", fated, "position")
    counted = seen.get
    summary.rows_read += counted["rows"]
    summary.rows_accounted["other events of the cluster manager"] = counted["others"]
    facts = _facts(tables.read("windows"))
    summary.rows_accounted |= {label: facts[fate] for fate, label in _FATES.items()}
    return facts


def _facts(windows: DataFrame) -> Row:
    """Return one row: the number of windows by fate, and the extremes of their times."""
    delay_ms = f.when(f.col("fate") != IMPOSSIBLE, f.col("delay_ms"))
    return windows.agg(
        *(f.count_if(f.col("fate") == fate).alias(fate) for fate in _FATES),
        f.count_if("is_contradicted").alias("contradicted"),
        f.count_if(delay_ms > LATE_MS).alias("late"),
        f.max(delay_ms).alias("delay_ms"),
        f.count_if(delay_ms < 0).alias("early"),
        f.min(delay_ms).alias("least_ms"),
    ).collect()[0]


_FATES = {
    COUNTED: "windows that count",
    OUTSIDE: "windows outside the asked time",
    REPEATED: "repeated windows",
    IMPOSSIBLE: "windows that cannot be",
}


def _write_changes(
    tables: _Tables, export: ExportInput, files: Sequence[ExportFile], summary: Summary
) -> None:
    """Read the logs of the shards, and account for their rows."""
    seen, judged = Observation("shards"), Observation("changes")
    events = export.events(tables.spark, files).select("time", "event_type", *CHANGE_EVENTS)
    changes = with_bad_minutes(
        ownership_events(events).observe(
            seen,
            f.count(f.lit(1)).alias("rows"),
            f.count_if("is_change").alias("changes"),
        ),
        tables.read("minutes"),
    ).observe(judged, f.count_if("is_bad").alias("bad"))
    tables.write("changes", ownership_changes(changes))
    counted, bad = seen.get, judged.get["bad"]
    summary.rows_read += counted["rows"]
    summary.rows_accounted |= {
        "ownership changes in bad minutes": bad,
        "ownership changes in other minutes": counted["changes"] - bad,
        "other events of shards": counted["rows"] - counted["changes"],
    }


def _write_results(tables: _Tables, objective_per_cent: float) -> Answer:
    """Write the tables made from minutes and changes; return the rows that the page shows."""
    minutes, changes = tables.read("minutes"), tables.read("changes")
    tables.write_small("days", days_of(minutes, objective_per_cent), "node_id", "day")
    tables.write_small("months", months_of(minutes, objective_per_cent), "node_id", "month")
    tables.write_small("worst_minutes", worst_minutes(minutes, changes), "rank")
    tables.write("topics", worst_topics(changes))
    days = tables.read("days").where(f.col("node_id") == CLUSTER).orderBy(f.desc("day"))
    return Answer(
        months=_first(tables.read("months").orderBy("node_id", "month"), MONTHS_SHOWN_MAX),
        days=_first(days, DAYS_SHOWN_MAX)[::-1],
        worst_minutes=_first(tables.read("worst_minutes").orderBy("rank"), WORST_SHOWN_MAX),
        worst_topics=_first(
            tables.read("topics").orderBy(f.desc("changes"), "name"), WORST_SHOWN_MAX
        ),
        reasons=_first(change_reasons(changes), REASONS_SHOWN_MAX),
    )


def _first(frame: DataFrame, rows: int) -> list[Row]:
    return list(frame.limit(rows).collect())


# Summary ----------------------------------------------------------------------------------------


def _numbers(minutes: DataFrame, answer: Answer, question: Question) -> dict[str, Any]:
    """Return the summary's numbers; totals equal the live meter's over the same windows."""
    is_cluster = f.col("node_id") == CLUSTER
    found = minutes.agg(
        f.count_if(is_cluster).alias("minutes"),
        f.count_if(is_cluster & f.col("is_bad")).alias("bad_minutes"),
        f.count_if(~is_cluster & f.col("is_bad")).alias("bad_minutes_of_nodes"),
        f.coalesce(f.sum(f.when(is_cluster, f.col("lookups"))), f.lit(0)).alias("lookups"),
        f.coalesce(f.sum(f.when(is_cluster, f.col("errors"))), f.lit(0)).alias("errors"),
    ).collect()[0]
    total, bad = found["minutes"], found["bad_minutes"]
    counted: dict[str, Any] = found.asDict()
    return counted | {
        "availability_per_cent": round(100 * (1 - bad / total), 4) if total else 100.0,
        "objective_per_cent": question.objective_per_cent,
        "months": {
            row["month"]: {
                "availability_per_cent": round(row["availability_per_cent"], 4),
                "bad_minutes": row["bad_minutes"],
                "minutes": row["minutes"],
                "budget_burned_per_cent": round(row["budget_burned_per_cent"], 2),
                "calendar_budget_burned_per_cent": round(row["calendar_budget_burned_per_cent"], 2),
                "is_met": row["is_met"],
            }
            for row in answer.months
            if row["node_id"] == CLUSTER
        },
    }


def _find(windows: DataFrame, facts: Row, summary: Summary) -> None:
    """Add a finding for each window that should not be in the log, with its position."""
    is_wrong = f.col("fate").isin(REPEATED, IMPOSSIBLE)
    # A window that is wrong in two ways is still one finding.
    if not facts[REPEATED] + facts[IMPOSSIBLE] + facts["contradicted"]:
        return
    wrong = windows.where(is_wrong | f.col("is_contradicted"))
    for row in _first(wrong.orderBy("position"), FINDINGS_SHOWN_MAX):
        why = row["why"] or f"was recorded as {_verdict(row['told_bad'])}, and is the other"
        summary.find(
            f"{CLUSTER_MANAGER_SHARD_ID}:{row['position']}: the window {row['began_at_ms']} of "
            f"{row['node_id']} {row['process']} {why}"
        )
    summary.findings_total = wrong.count()


def _find_missed_months(answer: Answer, question: Question, summary: Summary) -> None:
    for row in answer.months:
        if row["node_id"] == CLUSTER and not row["is_met"]:
            summary.find(
                f"{row['month']}: {row['bad_minutes']} of {row['minutes']} minutes were bad, "
                f"{row['availability_per_cent']:.3f} % were good, the objective is "
                f"{question.objective_per_cent} %"
            )


def _verdict(is_bad: bool | None) -> str:
    return "a bad one" if is_bad else "a good one"


def _gap_notes(export: ExportInput) -> list[str]:
    gaps = export.manifest.shard(CLUSTER_MANAGER_SHARD_ID).accepted_gaps
    return [
        f"positions {gap.first_position} to {gap.last_position} of the cluster manager's log were "
        "not exported: minutes may be missing"
        for gap in gaps[:NOTES_MAX]
    ]


def _clock_notes(facts: Row) -> list[str]:
    """Return remarks about the times of records."""
    notes = []
    if facts["late"]:
        notes.append(
            f"{facts['late']} windows were recorded more than {LATE_MS // 1000} s late, up to "
            f"{facts['delay_ms'] / 1000:.0f} s: they count in the minute that they are of"
        )
    if facts["early"]:
        notes.append(
            f"{facts['early']} windows were recorded before their minute was over, up to "
            f"{-facts['least_ms'] / 1000:.1f} s: clocks of discovery nodes are ahead of the "
            "cluster manager's, or that one went back"
        )
    return notes
