"""The page of the job: rows by table, shard and tenant, and differences to a live cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.rebuild import tables, transform
from pipelines.rebuild.job import read_table
from pipelines.reporting.page import ROWS_SHOWN_MAX, Page
from pipelines.running.summary import Summary

TENANTS_SHOWN = 50
_BAR = "#33506e"


def write_report(
    spark: SparkSession, path: Path, folder: Path, summary: Summary, differences: Path | None = None
) -> None:
    """Write the page of a rebuild whose tables are in ``folder``, whole or not at all."""
    numbers = summary.numbers
    rows: dict[str, int] = numbers["rows"]
    page = Page("Rebuilt from events", f"{summary.rows_read:,} events, {sum(rows.values()):,} rows")
    for sentence in summary.findings:
        page.add_text("Finding", sentence)
    page.add_table("Tables", ("table", "rows"), list(rows.items()))
    page.add_table("Events", ("use", "events"), [*summary.rows_accounted.items()])
    shards = _by_shard(spark, folder, numbers["positions"])
    page.add_plot("Topics by shard", _bars([row[0] for row in shards], [row[2] for row in shards]))
    page.add_table("Shards", ("shard", "as of position", "topics", "units assigned"), shards)
    largest = transform.topics_by_tenant(read_table(spark, folder, tables.TOPICS))
    page.add_table(
        "Tenants with the most topics",
        ("tenant", "topics", "partitions"),
        [tuple(row) for row in largest.limit(TENANTS_SHOWN).collect()],
    )
    if differences is not None:
        found = spark.read.parquet(str(differences)).orderBy("kind", "shard_id", "key")
        page.add_table(
            "Differences to the live cluster",
            found.columns,
            [tuple(row) for row in found.limit(ROWS_SHOWN_MAX).collect()],
            f"{numbers['differences']:,} of {numbers['live_items']:,} objects that were compared.",
        )
    page.write(path)
    summary.outputs["report"] = str(path)


def _by_shard(
    spark: SparkSession, folder: Path, positions: dict[str, int]
) -> list[tuple[str, int, int, int]]:
    topics, units = (
        {str(row["shard_id"]): row["count"] for row in table.groupBy("shard_id").count().collect()}
        for table in (
            read_table(spark, folder, tables.TOPICS),
            read_table(spark, folder, tables.ASSIGNMENTS).where(F.col("broker_id") != ""),
        )
    )
    return [
        (shard, position, topics.get(shard, 0), units.get(shard, 0))
        for shard, position in positions.items()
    ]


def _bars(names: Sequence[str], values: Sequence[Any]) -> Figure:
    figure = Figure(figsize=(8, 2.6))
    axes = figure.add_subplot()
    axes.bar(names, values, color=_BAR)
    axes.set_xlabel("shard")
    axes.set_ylabel("topics")
    return figure
