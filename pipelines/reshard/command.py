"""``pipeline reshard``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from pipelines.reshard import job
from pipelines.reshard.job import ReshardOptions
from pipelines.running.options import (
    DEFAULT_HEAP,
    DEFAULT_MASTER,
    HeapOption,
    JsonFlag,
    MasterOption,
    OutOption,
    ReportOption,
    run_job,
)
from pipelines.running.summary import Summary

OUT_DEFAULT = Path("reshard")

SETTINGS = {"spark.sql.codegen.wholeStage": "false"}
"""The hash of names is many small expressions. One method of all of them is too large for the JVM
to translate to machine code. Compiled one by one they take half the time."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(job.JOB)(reshard)


def reshard(
    names: Annotated[
        str, typer.Option("--names", metavar="EXPORT|generated:N", help="The names to count.")
    ],
    shards_to: Annotated[
        int, typer.Option("--shards-to", min=1, help="Number of shards after the change.")
    ],
    shards_from: Annotated[
        int | None,
        typer.Option("--shards-from", min=1, help="Shards before it; default: the export's."),
    ] = None,
    map_file: Annotated[
        Path | None,
        typer.Option("--map", help="The present map, as JSON: version, and ranges by shard."),
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", min=0.001, help="Items that a shard moves per second.")
    ] = job.ITEMS_PER_SECOND,
    out: OutOption = OUT_DEFAULT,
    report: ReportOption = None,
    master: MasterOption = DEFAULT_MASTER,
    heap: HeapOption = DEFAULT_HEAP,
    json_output: JsonFlag = False,
) -> None:
    """Plan another number of shards: which slots move, in which order, and how long it takes."""
    if shards_from is not None and map_file is not None:
        raise typer.BadParameter("--shards-from and --map say the same thing: give one of them")
    options = ReshardOptions(
        names=names,
        shards_to=shards_to,
        shards_from=shards_from,
        map_file=map_file,
        items_per_second=rate,
    )

    def work(spark: SparkSession) -> Summary:
        return job.run(spark, options, out, report)

    run_job(job.JOB, work, master=master, heap=heap, as_json=json_output, settings=SETTINGS)
