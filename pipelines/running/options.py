"""Options that all jobs share, and the frame of a run: session, clock, summary, exit code."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from nextgen.kernel.errors import MetadataError
from nextgen.runtime.lifecycle.exit_code import ExitCode, code_of, print_error
from pipelines.exports.input import damage_refused
from pipelines.running.progress import spark_progress
from pipelines.running.session import HEAP, LOCAL_MASTER, open_session
from pipelines.running.summary import Summary, print_summary

ExportArgument = Annotated[
    str, typer.Argument(metavar="EXPORT", help="Folder or URL of an export of the event log.")
]
MasterOption = Annotated[
    str, typer.Option("--master", help="Spark master: local[N], spark://host:port, yarn, ...")
]
HeapOption = Annotated[str, typer.Option("--heap", help="Memory of the driver's JVM.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON line.")]
OutOption = Annotated[
    Path, typer.Option("--out", help="Folder for what the job writes; it is replaced.")
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Also write a report for people to this HTML file.")
]

DEFAULT_MASTER = LOCAL_MASTER
DEFAULT_HEAP = HEAP


def run_job(
    job: str,
    work: Callable[[SparkSession], Summary],
    *,
    master: str,
    heap: str,
    as_json: bool,
    settings: Mapping[str, str] | None = None,
    afterwards: Callable[[Summary], None] | None = None,
) -> None:
    """Run ``work`` in a session of its own, print its summary, and exit with its exit code.

    ``afterwards`` runs after the session has ended, for steps that do not need Spark. Expected
    errors become one sentence on stderr.
    """
    began = time.monotonic()
    try:
        with (
            open_session(job, master=master, heap=heap, settings=settings) as spark,
            spark_progress(spark, job, is_shown=not as_json),
            damage_refused(),
        ):
            summary = work(spark)
        if afterwards is not None:
            afterwards(summary)
    except MetadataError as error:
        print_error(str(error))
        raise typer.Exit(code_of(error)) from None
    summary.elapsed_s = time.monotonic() - began
    print_summary(summary, as_json=as_json)
    if not summary.is_ok:
        raise typer.Exit(ExitCode.CHECK_FAILED)
