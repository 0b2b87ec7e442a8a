"""``pipeline rebuild``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from nextgen.kernel.errors import InvalidRequest
from pipelines.rebuild import job
from pipelines.rebuild.as_of import END, AsOf, parse_as_of
from pipelines.rebuild.verify import DIFFERENCES, REACHED_WITHIN_S, run_verified
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
from pipelines.running.summary import Summary

OUT_DEFAULT = Path("rebuilt")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(job.JOB)(rebuild)


def rebuild(
    export: ExportArgument,
    as_of: Annotated[
        str,
        typer.Option(
            "--as-of", metavar="WHEN", help="ISO time, or shard:position,...; default: the end."
        ),
    ] = "",
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare with a live cluster, at its positions.")
    ] = False,
    target: Annotated[
        str, typer.Option("--target", help="With --verify: host:port of discovery nodes.")
    ] = "",
    wait_s: Annotated[
        float,
        typer.Option("--wait-s", min=0, help="With --verify: wait until the export has caught up."),
    ] = REACHED_WITHIN_S,
    out: OutOption = OUT_DEFAULT,
    report: ReportOption = None,
    master: MasterOption = DEFAULT_MASTER,
    heap: HeapOption = DEFAULT_HEAP,
    json_output: JsonFlag = False,
) -> None:
    """Fold events into tenants, namespaces, topics, policies, assignments and sessions.

    As 'nextgen pipeline rebuild --verify', with neither EXPORT nor --target, it starts a cluster,
    runs chaos on it and verifies its history: --minutes, --seed, --rate, --events-min, --keep.
    """
    when = _when(as_of)
    targets = [endpoint.strip() for endpoint in target.split(",") if endpoint.strip()]
    if verify != bool(targets) or (verify and as_of):
        raise typer.BadParameter("--verify goes with --target, and its positions are the cluster's")

    def work(spark: SparkSession) -> Summary:
        if verify:
            summary = run_verified(spark, export, out, targets, wait_s)
        else:
            summary = job.run(spark, export, out, when)
        if report is not None:
            from pipelines.rebuild.report import write_report

            write_report(spark, report, out, summary, out / DIFFERENCES if verify else None)
        return summary

    run_job(
        job.JOB,
        work,
        master=master,
        heap=heap,
        as_json=json_output,
    )


def _when(text: str) -> AsOf:
    try:
        return parse_as_of(text) if text else END
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from None
