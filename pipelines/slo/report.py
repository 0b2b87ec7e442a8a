"""The page of the job: months and their error budgets, days, worst minutes, units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from nextgen.kernel.governance.lookup_slo import (
    LOOKUP_MS_MAX,
    LOOKUP_P99_MS_MAX,
    LOOKUP_WINDOW_BOUNDS_MS,
)
from pipelines.iso_time import time_at
from pipelines.reporting.page import Page
from pipelines.running.summary import Summary
from pipelines.slo.model import Answer, Question
from pipelines.slo.verdict import one_row_a_minute

_GOOD, _BAD, _LINE = "#2f7d5b", "#b8433a", "#33506e"

_RULE = (
    f"A minute is bad if more than 1 % of its lookups took longer than {LOOKUP_P99_MS_MAX:,} ms, "
    f"one took longer than {LOOKUP_MS_MAX:,} ms, or more than 1 % failed by trouble of ours. "
    "Minutes without lookups are neither good nor bad."
)

_TOPICS = (
    "Lookups are not recorded by topic. These are the units whose ownership changed in bad "
    "minutes, which is where to look first: a change can be the cause, or the consequence of the "
    "same fault. Times of changes are those of shard leaders, minutes those of discovery nodes."
)

_SLOWER_THAN = ((10, "#8fbf8a"), (100, "#e3a93b"), (1_000, "#d06a2e"), (3_000, "#a02c2c"))
"""Bounds of classes in ms, with the colour of the line of lookups above them."""


def write_report(
    path: Path, source: str, question: Question, answer: Answer, summary: Summary
) -> None:
    """Write the page, whole or not at all."""
    numbers = summary.numbers
    page = Page(
        "Availability of lookups",
        f"{source}: {numbers['minutes']:,} minutes with lookups, "
        f"{numbers['bad_minutes']:,} bad, "
        f"{numbers['availability_per_cent']} % good; objective {question.objective_per_cent} %",
        summary.sentence,
    )
    page.add_text("What a bad minute is", _RULE)
    if answer.days:
        page.add_plot("Good minutes, day by day", _availability(answer.days, question))
        page.add_plot(
            "What is left of the month's error budget",
            _budget(answer.days),
            "Of the bad minutes that the objective allows in the whole calendar month.",
        )
        page.add_plot("Lookups that took longer", _latencies(answer.days))
    _add_tables(page, answer)
    for note in numbers["notes"]:
        page.add_text("Note", note)
    if summary.findings:
        findings = [(sentence,) for sentence in summary.findings]
        page.add_table("Findings", ("finding",), findings)
    page.write(path)


def _add_tables(page: Page, answer: Answer) -> None:
    page.add_table(
        "Months",
        (
            *("node", "month", "minutes", "bad", "good %", "budget burned %"),
            *("of the calendar month's %", "lookups", "failed", "p99 ms at most", "met"),
        ),
        [
            (
                row["node_id"] or "all nodes",
                row["month"],
                row["minutes"],
                row["bad_minutes"],
                row["availability_per_cent"],
                row["budget_burned_per_cent"],
                row["calendar_budget_burned_per_cent"],
                row["lookups"],
                row["errors"],
                _bound(row["p99_ms_at_most"]),
                row["is_met"],
            )
            for row in answer.months
        ],
    )
    page.add_table(
        "Worst minutes",
        ("minute (UTC)", "bad for", "lookups", "failed %", "above 1 s %", "changes", "why"),
        [
            (
                _minute(row["began_at_ms"]),
                ", ".join(["the cluster"] * (not row["node_id"]) + nodes),
                row["lookups"],
                row["failed_per_cent"],
                row["slow_per_cent"],
                row["changes"] or 0,
                row["why_bad"],
            )
            for row, nodes in one_row_a_minute(answer.worst_minutes)
        ],
    )
    page.add_table(
        "Units whose ownership changed in bad minutes",
        ("unit", "changes", "bad minutes", "assigned anew", "first", "last"),
        [
            (
                row["name"],
                row["changes"],
                row["bad_minutes"],
                row["reassigned"],
                _minute(row["first_began_at_ms"]),
                _minute(row["last_began_at_ms"]),
            )
            for row in answer.worst_topics
        ],
        _TOPICS,
    )
    page.add_table(
        "Why ownership changed in bad minutes",
        ("event", "reason", "changes"),
        [(row["event_type"], row["reason"], row["changes"]) for row in answer.reasons],
    )


# Plots ----------------------------------------------------------------------------------------


def _availability(days: Sequence[Any], question: Question) -> Figure:
    figure = Figure(figsize=(10, 3))
    axes = figure.subplots()
    shares = [row["availability_per_cent"] for row in days]
    colours = [_BAD if share < question.objective_per_cent else _GOOD for share in shares]
    axes.bar([row["day"] for row in days], shares, color=colours, width=0.8)
    objective = question.objective_per_cent
    axes.axhline(objective, color=_LINE, linewidth=1, label=f"objective {objective:g} %")
    axes.legend(loc="lower left", fontsize="small")
    lowest = min([*shares, question.objective_per_cent])
    # The interesting values lie right below a hundred.
    axes.set_ylim(max(0.0, lowest - (100 - lowest) * 0.2 - 0.01), 100)
    axes.set_ylabel("good minutes, %")
    figure.autofmt_xdate()
    return figure


def _budget(days: Sequence[Any]) -> Figure:
    figure = Figure(figsize=(10, 3))
    axes = figure.subplots()
    for month in dict.fromkeys(row["month"] for row in days):
        of_month = [row for row in days if row["month"] == month]
        left = [row["budget_left_per_cent"] for row in of_month]
        axes.step([row["day"] for row in of_month], left, where="post", marker=".", label=month)
    axes.axhline(0, color=_BAD, linewidth=1)
    axes.set_ylabel("budget left, %")
    axes.legend(loc="lower left", fontsize="small")
    figure.autofmt_xdate()
    return figure


def _latencies(days: Sequence[Any]) -> Figure:
    figure = Figure(figsize=(10, 3))
    axes = figure.subplots()
    dates = [row["day"] for row in days]
    for bound_ms, colour in _SLOWER_THAN:
        above = LOOKUP_WINDOW_BOUNDS_MS.index(bound_ms) + 1
        shares = [100 * sum(row["latency_counts"][above:]) / row["lookups"] for row in days]
        # A logarithmic axis has no zero: the line has a hole there.
        shown = [share or math.nan for share in shares]
        axes.plot(dates, shown, marker=".", color=colour, label=f"above {bound_ms:,} ms")
    axes.set_yscale("log")
    axes.set_ylabel("lookups, %")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")
    figure.autofmt_xdate()
    return figure


# Inside ---------------------------------------------------------------------------------------


def _minute(began_at_ms: int) -> str:
    return f"{time_at(began_at_ms):%Y-%m-%d %H:%M}"


def _bound(limit_ms: int | None) -> str:
    return f"above {LOOKUP_MS_MAX:,}" if limit_ms is None else f"{limit_ms:,}"
