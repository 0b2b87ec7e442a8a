"""``nextgen pipeline load``."""

from __future__ import annotations

from pathlib import Path

import typer

from pipelines.running.options import (
    DEFAULT_HEAP,
    DEFAULT_MASTER,
    ExportArgument,
    HeapOption,
    JsonFlag,
    MasterOption,
    OutOption,
    ReportOption,
    run_job,
)

OUT_DEFAULT = Path("load")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(load)


def load(
    export: ExportArgument,
    out: OutOption = OUT_DEFAULT,
    report: ReportOption = None,
    master: MasterOption = DEFAULT_MASTER,
    heap: HeapOption = DEFAULT_HEAP,
    json_output: JsonFlag = False,
) -> None:
    """Report load by broker, topic and tenant: series, percentiles, growth, skew, forecast."""
    from pipelines.load.job import JOB, run

    run_job(
        JOB,
        lambda spark: run(spark, export, out, report=report),
        master=master,
        heap=heap,
        as_json=json_output,
    )
