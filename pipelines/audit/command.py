"""``pipeline audit``: finds the faults of an export, event by event."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from pipelines.audit.job import JOB, LAG_S, run
from pipelines.audit.report import write_report
from pipelines.running.options import (
    DEFAULT_HEAP,
    DEFAULT_MASTER,
    ExportArgument,
    HeapOption,
    JsonFlag,
    MasterOption,
    ReportOption,
    run_job,
)
from pipelines.running.summary import Summary


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(JOB)(audit)


def audit(
    export: ExportArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for all findings, as Parquet; it is replaced."),
    ] = None,
    lag: Annotated[
        int,
        typer.Option("--lag", min=0, help="Seconds by which shards of the export may lie apart."),
    ] = LAG_S,
    report: ReportOption = None,
    master: MasterOption = DEFAULT_MASTER,
    heap: HeapOption = DEFAULT_HEAP,
    json_output: JsonFlag = False,
) -> None:
    """Find gaps, overlaps, orphans, broken rules and damaged files; ends with 4 if there are any.

    Each finding names its events as shard:position.
    """

    def work(spark: SparkSession) -> Summary:
        summary, result = run(spark, export, out=out, lag_s=lag)
        if report is not None:
            write_report(report, summary, result)
            summary.outputs["report"] = str(report)
        return summary

    run_job(JOB, work, master=master, heap=heap, as_json=json_output)
