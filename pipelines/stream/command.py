"""``pipeline stream``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import SparkSession

from pipelines.running.options import (
    DEFAULT_HEAP,
    DEFAULT_MASTER,
    ExportArgument,
    HeapOption,
    JsonFlag,
    MasterOption,
    run_job,
)
from pipelines.running.summary import Summary
from pipelines.stream import job
from pipelines.stream.job import StreamOptions

OUT_DEFAULT = Path("stream")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(job.JOB)(stream)


def stream(
    export: ExportArgument,
    once: Annotated[
        bool, typer.Option("--once", help="Read what is there, then end; default: until Ctrl-C.")
    ] = False,
    delay_s: Annotated[
        float,
        typer.Option("--delay-s", min=0, help="An event further behind the latest one is late."),
    ] = job.DELAY_MS / 1000,
    every_s: Annotated[
        float, typer.Option("--every-s", min=0.1, help="Seconds between reads of the manifest.")
    ] = job.EVERY_S,
    rows_per_batch: Annotated[
        int, typer.Option("--rows-per-batch", min=1, help="Rows of one micro-batch at most.")
    ] = job.ROWS_PER_BATCH,
    out: Annotated[
        Path, typer.Option("--out", help="Folder of tables and checkpoint; a restart resumes.")
    ] = OUT_DEFAULT,
    master: MasterOption = DEFAULT_MASTER,
    heap: HeapOption = DEFAULT_HEAP,
    json_output: JsonFlag = False,
) -> None:
    """Keep tables of inventory, load and assignment changes up to date with a growing export."""
    options = StreamOptions(
        is_once=once,
        delay_ms=round(delay_s * 1000),
        rows_per_batch=rows_per_batch,
        every_s=every_s,
    )

    def work(spark: SparkSession) -> Summary:
        return job.run(spark, export, out, options, _batch_line(json_output))

    run_job(job.JOB, work, master=master, heap=heap, as_json=json_output)


def _batch_line(as_json: bool) -> Any:
    def show(batch: dict[str, Any]) -> None:
        if as_json:
            sys.stderr.write(json.dumps(batch) + "\n")
        else:
            sys.stderr.write(
                f"batch {batch['batch']}: {batch['rows']:,} events, {batch['duration_ms']:,} ms\n"
            )

    return show
