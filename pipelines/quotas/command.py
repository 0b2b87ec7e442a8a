"""``pipeline quotas``: quotas of brokers and tenants, as a file to apply."""

from __future__ import annotations

from typing import Annotated

import typer

from nextgen.kernel.errors import InvalidRequest
from pipelines.quotas.model import HEADROOM_PERCENT, HEADROOM_PERCENT_MAX, Question
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


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(quotas)


def quotas(
    export: ExportArgument,
    out: OutOption,
    headroom: Annotated[
        int,
        typer.Option(
            "--headroom", min=0, max=HEADROOM_PERCENT_MAX, help="Percent of brokers to keep free."
        ),
    ] = HEADROOM_PERCENT,
    floor: Annotated[
        int, typer.Option("--floor", min=0, help="Least units of a tenant; at least one a shard.")
    ] = 0,
    version: Annotated[
        int,
        typer.Option(
            "--quota-version", min=0, help="Version of the quotas. 0: the export's last, plus 1."
        ),
    ] = 0,
    report: ReportOption = None,
    master: MasterOption = DEFAULT_MASTER,
    heap: HeapOption = DEFAULT_HEAP,
    json_output: JsonFlag = False,
) -> None:
    """Make quotas from the load of brokers and the assignments of tenants.

    Writes quotas.json to the folder, for 'nextgen quotas apply', and beside it tables that explain
    each quota. The same export gives the same file.
    """
    from pipelines.quotas.job import JOB, run

    try:
        question = Question(headroom, floor, version)
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from None
    run_job(
        JOB,
        lambda spark: run(spark, export, out, question, report=report),
        master=master,
        heap=heap,
        as_json=json_output,
    )
