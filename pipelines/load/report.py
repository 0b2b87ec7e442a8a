"""The page of the job: shape of the day, heat map of brokers, hot topics, skew, forecast."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from pipelines.iso_time import time_at
from pipelines.load.model import HOURS_SHOWN_MAX, Shown
from pipelines.load.verdict import date_of
from pipelines.reporting.page import Page, plain_label
from pipelines.running.summary import Summary

_BAR = "#33506e"
_MEGA = 1_000_000.0

_SEEN = (
    "A broker reports its busiest topics and a sum of the others. So figures of topics, "
    "namespaces and tenants cover the busiest topics only: the quiet ones are in the sums of "
    "brokers only."
)

_LINE = (
    "The straight line through the hourly units, and the capacity that is granted of live "
    "sessions. No date: the line does not rise. A fit near 0 means that there is no line."
)


def write_report(path: Path, source: str, summary: Summary, facts: Any, shown: Shown) -> None:
    """Write the page, whole or not at all."""
    page = Page(
        "Load history",
        f"{source}: {facts.reports:,} reports of {facts.brokers:,} brokers, "
        f"{time_at(facts.first_ms):%Y-%m-%d %H:%M} to {time_at(facts.last_ms):%Y-%m-%d %H:%M} UTC",
        summary.sentence,
    )
    page.add_plot("Shape of the day", _shape(shown.shape), "Relative to the mean of all hours.")
    page.add_plot(
        "Brokers by hour of the day", _heat(shown.heat), "Megabytes a second, in and out."
    )
    page.add_table("When capacity runs out", *_forecast(shown.forecast, facts.last_ms), _LINE)
    page.add_table("Hot topics", *_statistics(shown.hot_topics), f"{_UNITS} {_SEEN}")
    page.add_table("Tenants", *_statistics(shown.tenants))
    page.add_table("Brokers", *_statistics(shown.brokers))
    page.add_table("Skew", *_table(shown.skew, _SKEW), "1 is even: the most loaded by the mean.")
    page.add_table("Shards", *_table(shown.shards, _SHARDS))
    if facts.skewed:
        page.add_text(
            "Clocks",
            f"{facts.skewed:,} reports were measured more than five minutes away from the time at "
            "which the leader recorded them. Hours are by the leader's clock.",
        )
    page.write(path)


_RATES = ("mean", "p50", "p95", "p99", "max")
_SKEW = ("level", "names", "mean", "most", "max_over_mean", "variation")
_SHARDS = ("shard_id", "events", "topics_created", "assignments")
_FORECAST = ("scope", "units_now", "units_per_day", "fit", "capacity_units", "days_left")
_UNITS = (
    "Mean, percentiles and maximum are megabytes a second, in and out, of hourly means. "
    "Growth is a part of the mean, each day."
)


def _table(rows: Sequence[Any], columns: Sequence[str]) -> tuple[list[str], list[list[Any]]]:
    headings = [name.replace("_", " ") for name in columns]
    return headings, [[row[name] for name in columns] for row in rows]


def _statistics(rows: Sequence[Any]) -> tuple[list[str], list[list[Any]]]:
    headings = ["name", "hours", *(f"{name} MB/s" for name in _RATES), "growth per day"]
    return headings, [
        [
            *(row["name"], row["hours"]),
            *(None if row[name] is None else row[name] / _MEGA for name in _RATES),
            row["growth_per_day"],
        ]
        for row in rows
    ]


def _forecast(rows: Sequence[Any], last_ms: int) -> tuple[list[str], list[list[Any]]]:
    """Return the table of the forecast with the date on which capacity runs out."""
    headings, cells = _table(rows, _FORECAST)
    dates = [date_of(row["days_left"], last_ms) for row in rows]
    return [*headings, "date (UTC)"], [[*row, date] for row, date in zip(cells, dates, strict=True)]


def _shape(rows: Sequence[Any]) -> Figure:
    figure = Figure(figsize=(9, 3))
    axes = figure.subplots()
    axes.bar([row.hour_of_day for row in rows], [row.relative or 0.0 for row in rows], color=_BAR)
    axes.set_xlabel("hour, UTC")
    axes.set_ylabel("load by mean")
    return figure


def _heat(rows: Sequence[Any]) -> Figure:
    names = sorted({row.name for row in rows})
    means = {(row.name, row.hour_of_day): row.mean / _MEGA for row in rows}
    cells = [[means.get((name, hour), 0.0) for hour in range(HOURS_SHOWN_MAX)] for name in names]
    figure = Figure(figsize=(9, 1.2 + 0.28 * len(names)))
    axes = figure.subplots()
    image = axes.imshow(cells, aspect="auto", cmap="viridis")
    axes.set_yticks(range(len(names)), [plain_label(name) for name in names])
    axes.set_xlabel("hour, UTC")
    figure.colorbar(image, ax=axes, label="MB/s")
    return figure
