"""``pipeline slo``: availability and error budget from recorded windows of lookups."""

from __future__ import annotations

from typing import Annotated

import typer

from nextgen.kernel.errors import InvalidRequest
from pipelines.iso_time import time_ms_of
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
from pipelines.slo.model import OBJECTIVE_PER_CENT, Question

Since = Annotated[
    str, typer.Option("--since", metavar="TIME", help="First minute, ISO 8601; UTC without a zone.")
]
Until = Annotated[
    str, typer.Option("--until", metavar="TIME", help="Minutes before this time, ISO 8601.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(slo)


def slo(
    export: ExportArgument,
    out: OutOption,
    objective: Annotated[
        float,
        typer.Option("--objective", min=50.0, max=99.9999, help="Good minutes of a month, %."),
    ] = OBJECTIVE_PER_CENT,
    since: Since = "",
    until: Until = "",
    check: Annotated[
        bool, typer.Option("--check", help="A month that misses the objective is a finding.")
    ] = False,
    report: ReportOption = None,
    master: MasterOption = DEFAULT_MASTER,
    heap: HeapOption = DEFAULT_HEAP,
    json_output: JsonFlag = False,
) -> None:
    """Judge minutes, days and months of lookups as 'nextgen slo' does it live.

    The export must have the cluster manager's log (shard 0). Exits with 4 if a window is recorded
    twice or is impossible.
    """
    from pipelines.slo.job import JOB, run

    try:
        question = Question(
            objective_per_cent=objective,
            since_ms=time_ms_of("--since", since),
            until_ms=time_ms_of("--until", until),
            is_checked=check,
        )
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from None
    run_job(
        JOB,
        lambda spark: run(spark, export, out, question, report=report),
        master=master,
        heap=heap,
        as_json=json_output,
    )
