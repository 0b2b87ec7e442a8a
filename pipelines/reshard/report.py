"""The plan as a page: shards before and after, slots, and the order of moves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipelines.reporting.page import Page
from pipelines.running.summary import Summary

SHOWN_MAX = 500
"""Rows of one table that the driver collects."""

BINS = 60


def write_report(path: Path, summary: Summary, tables: Mapping[str, DataFrame]) -> None:
    """Write the page for the plan in ``tables``."""
    numbers = summary.numbers
    subtitle = (
        f"{numbers['shards_before']} to {numbers['shards_after']} shards: "
        f"{numbers['slots_moved']:,} slots with {numbers['topics_moved']:,} topics move in "
        f"{numbers['rounds']} rounds, about {numbers['duration_s']:,.0f} s"
    )
    page = Page("Reshard plan", subtitle)
    for sentence in summary.findings:
        page.add_text("Finding", sentence)
    shards = tables["shards"].orderBy("shard_id").limit(SHOWN_MAX).collect()
    page.add_plot(
        "Topics by shard",
        _bars([(row.shard_id, row.topics_before, row.topics_after) for row in shards]),
    )
    page.add_table("Shards", tables["shards"].columns, [tuple(row) for row in shards])
    page.add_plot("Topics by slot", _histogram(tables["slots"]), "How many slots hold how many.")
    page.add_table("Skew of slots", ("what", "value"), list(numbers["skew"].items()))
    moves = tables["moves"].orderBy("round", "from_shard").limit(SHOWN_MAX).collect()
    page.add_table(
        "Moves",
        tables["moves"].columns,
        [tuple(row) for row in moves],
        "Pairs of one round run at the same time; the next round begins when all have ended.",
    )
    page.write(path)


def _bars(rows: list[tuple[int, int, int]]) -> Figure:
    figure = Figure(figsize=(9, 3))
    axes = figure.add_subplot()
    places = range(len(rows))
    axes.bar([place - 0.2 for place in places], [row[1] for row in rows], 0.4, label="before")
    axes.bar([place + 0.2 for place in places], [row[2] for row in rows], 0.4, label="after")
    axes.set_xticks(list(places), [str(row[0]) for row in rows])
    axes.set_xlabel("shard")
    axes.set_ylabel("topics")
    axes.legend()
    return figure


def _histogram(slots: DataFrame) -> Figure:
    """Draw a histogram that Spark made: at most ``BINS`` bars."""
    limits = slots.agg(f.min("topics"), f.max("topics")).first()
    assert limits is not None, "there are slots"
    low, high = limits
    width = max(1.0, (high - low + 1) / BINS)
    bin_of = f.floor((f.col("topics") - low) / width)
    bins = slots.groupBy(bin_of.alias("bin")).count().orderBy("bin").limit(BINS + 1).collect()
    figure = Figure(figsize=(9, 3))
    axes = figure.add_subplot()
    axes.bar([low + row["bin"] * width for row in bins], [row["count"] for row in bins], width)
    axes.set_xlabel("topics in a slot")
    axes.set_ylabel("slots")
    return figure
