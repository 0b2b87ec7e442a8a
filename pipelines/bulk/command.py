"""``pipeline bulk``: writes load files of an inventory, and loads them if a cluster is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from nextgen.bulk.cluster_source import AskedCluster
from nextgen.bulk.loader import REFUSED, load_folder
from nextgen.bulk.progress_bar import load_progress
from nextgen.kernel.limits.cluster import SHARDS_MAX
from nextgen.kernel.routing.slots import SlotTable, initial_table
from nextgen.tasks.interrupts import run
from pipelines.bulk import job
from pipelines.bulk.report import write_report
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

OUT_DEFAULT = Path("load-files")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(job.JOB)(bulk)


def bulk(
    names: Annotated[
        str,
        typer.Argument(
            metavar="NAMES", help="Parquet with a column name, or text with a name in each line."
        ),
    ],
    target: Annotated[
        str,
        typer.Option(
            "--target", help="host:port of discovery nodes, with commas: use their map, and load."
        ),
    ] = "",
    shards: Annotated[
        int,
        typer.Option(
            "--shards", min=0, max=SHARDS_MAX, help="Without --target: a new cluster's shards."
        ),
    ] = 0,
    files_only: Annotated[
        bool, typer.Option("--files-only", help="With --target: use its map, load nothing.")
    ] = False,
    create_parents: Annotated[
        bool, typer.Option("--create-parents", help="Create missing tenants and namespaces.")
    ] = False,
    out: OutOption = OUT_DEFAULT,
    report: ReportOption = None,
    master: MasterOption = DEFAULT_MASTER,
    heap: HeapOption = DEFAULT_HEAP,
    json_output: JsonFlag = False,
) -> None:
    """Turn an inventory of names into load files, per shard and ascending, and load them."""
    endpoints = [each.strip() for each in target.split(",") if each.strip()]
    if bool(endpoints) == bool(shards):
        raise typer.BadParameter("give --target, or --shards for a future cluster")

    def work(spark: SparkSession) -> Summary:
        table = run(_table_of(endpoints)) if endpoints else _table_for(shards)
        made = job.run(spark, names, out, table)
        if report is not None:
            write_report(made, report)
            made.summary.outputs["report"] = str(report)
        return made.summary

    def load(summary: Summary) -> None:
        _load(summary, out, endpoints, parents=create_parents, is_shown=not json_output)

    run_job(
        job.JOB,
        work,
        master=master,
        heap=heap,
        as_json=json_output,
        afterwards=load if endpoints and not files_only else None,
    )


def _table_for(shards: int) -> SlotTable:
    return initial_table(range(1, shards + 1))


async def _table_of(endpoints: Sequence[str]) -> SlotTable:
    source = AskedCluster(endpoints)
    try:
        await source.ask()
    finally:
        await source.close()
    table = source.view.slot_table
    assert table is not None, "the request raises if there is no map"
    return table


def _load(
    summary: Summary, folder: Path, endpoints: Sequence[str], *, parents: bool, is_shown: bool
) -> None:
    with load_progress(is_shown=is_shown) as show:
        loaded = run(load_folder(folder, endpoints, parents=parents, on_loaded=show))
    summary.numbers["loaded"] = loaded.as_dict()
    if refused := loaded.total("refused"):
        summary.find(f"{refused} topics were refused by shards; {folder / REFUSED} says which")
    if not loaded.is_whole:
        summary.find("the shards did not answer for every name")
