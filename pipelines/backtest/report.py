"""The page of the job: what happened, whether it follows from the log, and what would have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from pyspark.sql import Row

from pipelines.backtest.model import (
    CHANGED,
    DIFFERENCES,
    HOURS,
    OPERATIONS,
    RECORDED,
    SAME,
    SUMS,
    TOPICS,
)
from pipelines.durations import HOUR_MS
from pipelines.iso_time import time_at
from pipelines.reporting.page import Page
from pipelines.running.summary import Summary

_NAMES = {
    RECORDED: "recorded",
    SAME: "the same policy, simulated",
    CHANGED: "the changed policy, simulated",
}
_COLOURS = {RECORDED: "#33506e", SAME: "#8fa3b8", CHANGED: "#b8433a"}

_WHAT_IS_COMPARED = (
    "Each recorded action is decided again: from its own arguments, and from the loads, consumers, "
    "policies and clocks of the events before it. Between actions nothing may have been due for "
    "longer than the slack."
)
_HOW_SIMULATED = (
    "Traffic, consumers and what operators asked for are the recorded ones. A split divides a "
    "segment's load evenly over its hashes, or as smaller segments on record had it; a merge adds. "
    "The second line is the same policy in the same model: how far it is from the first is the "
    "error of the model."
)
_COLUMNS = (
    "scenario",
    "splits",
    "merges",
    "rebuckets",
    "segments at the end",
    "most of a topic",
    "segment hours",
    "hot hours",
    "hot hours by its own policy",
    "hours with more consumers than segments",
)
_SUMS_TEXT = (
    "Hot: hours of topics in which a segment had a rate above the recorded policy's threshold for "
    "a split. Segment hours are what segments cost."
)


def write_report(
    path: Path, source: str, summary: Summary, shown: Mapping[str, Sequence[Row]]
) -> None:
    """Write the page, whole or not at all."""
    numbers = summary.numbers
    page = Page(
        "Splits and merges, decided again",
        f"{source}: {numbers['topics']:,} scalable topics, {numbers['actions']:,} actions, "
        f"{numbers['decisions']:,} decisions; slack {numbers['slack_s']:,.0f} s",
        summary.sentence,
    )
    page.add_text("What is compared", _WHAT_IS_COMPARED)
    if shown[DIFFERENCES]:
        columns = ("topic", "shard_id", "position", "what", "recorded", "decided")
        arguments = ("recorded_arguments", "decided_arguments")
        page.add_table(
            "Differences",
            [each.replace("_", " ") for each in (*columns, *arguments)],
            [[row[each] for each in (*columns, *arguments)] for row in shown[DIFFERENCES]],
        )
    has_others = len(shown[SUMS]) > 1
    if has_others:
        page.add_text("How other policies are simulated", _HOW_SIMULATED)
    page.add_table(
        "Scenarios", _COLUMNS, [_sums(row) for row in _in_order(shown[SUMS])], _SUMS_TEXT
    )
    hours = shown[HOURS]
    page.add_plot("Segments", _lines(hours, _segments, "active segments"))
    page.add_plot("Hot topics", _lines(hours, _hot, "topics above a threshold"))
    page.add_plot("Operations", _lines(hours, _operations, "operations per hour"))
    page.add_table(
        "Operations by reason",
        ("scenario", "kind", "reason", "asked by", "operations"),
        [
            (_NAMES[row["scenario"]], row["kind"], row["reason"], row["asked_by"], row["count"])
            for row in _in_order(shown[OPERATIONS])
        ],
    )
    page.add_table("Topics", *_topics(shown[TOPICS], has_others))
    for note in numbers["notes"]:
        page.add_text("Note", note)
    page.write(path)


def _in_order(rows: Sequence[Row]) -> list[Row]:
    order = list(_NAMES)
    return sorted(rows, key=lambda row: order.index(row["scenario"]))


def _sums(row: Row) -> list[Any]:
    plain = ("splits", "merges", "rebuckets", "segments_last", "segments_max")
    times = ("segment_ms", "hot_ms", "own_hot_ms", "short_ms")
    return [
        _NAMES[row["scenario"]],
        *(row[each] for each in plain),
        *(row[each] / HOUR_MS for each in times),
    ]


def _topics(rows: Sequence[Row], has_others: bool) -> tuple[list[str], list[list[Any]], str]:
    scenarios = list(_NAMES) if has_others else [RECORDED]
    columns = ["topic"]
    for scenario in scenarios:
        columns += [f"{_NAMES[scenario]}: {each}" for each in ("segment h", "hot h", "operations")]
    cells = [
        [row["topic"], *(cell for scenario in scenarios for cell in _topic(row, scenario))]
        for row in rows
    ]
    return columns, cells, "Those first whose segments the changed policy changes most."


def _topic(row: Row, scenario: str) -> list[Any]:
    times = [row[f"{scenario}_{each}"] for each in ("segment_ms", "hot_ms")]
    hours = [None if each is None else each / HOUR_MS for each in times]
    return [*hours, row[f"{scenario}_operations"]]


def _segments(row: Row) -> float:
    return float(row["segment_ms"]) / HOUR_MS


def _hot(row: Row) -> float:
    return float(row["hot_ms"]) / HOUR_MS


def _operations(row: Row) -> float:
    return float(row["operations"])


def _lines(rows: Sequence[Row], value: Any, label: str) -> Figure:
    """Draw one line for each scenario, a point for each hour: the mean over the hour."""
    figure = Figure(figsize=(9, 3))
    axes = figure.subplots()
    for scenario, name in _NAMES.items():
        of_it = [row for row in rows if row["scenario"] == scenario]
        if of_it:
            times: Any = [time_at(row["hour_ms"]) for row in of_it]
            points = [value(row) for row in of_it]
            axes.plot(times, points, label=name, color=_COLOURS[scenario], drawstyle="steps-post")
    axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure
