"""The report of a bulk job: names by shard and namespace, and the rejected rows."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from pipelines.bulk.job import BulkResult
from pipelines.reporting.page import Page


def write_report(result: BulkResult, path: Path) -> None:
    """Write the page to ``path``."""
    accounted = result.summary.rows_accounted
    page = Page(
        "Bulk load",
        f"{result.summary.rows_read:,} rows: {accounted['topics']:,} topics, "
        f"{accounted['duplicates']:,} duplicates, {accounted['rejected']:,} rejected",
    )
    page.add_plot("Topics by shard", _bars(result), "Even shares differ by chance only.")
    page.add_table("Shards", ("shard", "topics"), result.shards)
    page.add_table("Largest namespaces", ("namespace", "topics"), result.namespaces)
    page.add_table(
        "Rejected",
        ("reason", "rows"),
        result.reasons,
        "The folder rejects has every rejected row as it was given.",
    )
    page.write(path)


def _bars(result: BulkResult) -> Figure:
    figure = Figure(figsize=(7, 3))
    axes = figure.subplots()
    shards = [str(shard) for shard, _ in result.shards]
    axes.bar(shards, [topics for _, topics in result.shards])
    axes.set_xlabel("shard")
    axes.set_ylabel("topics")
    return figure
