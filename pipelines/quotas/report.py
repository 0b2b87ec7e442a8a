"""The page of the job: quotas of brokers and of tenants, and how they were made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from pyspark.sql import Row

from nextgen.kernel.governance.quota_file import QuotaFile
from pipelines.quotas.model import Question, Shares
from pipelines.reporting.page import Page, plain_label
from pipelines.running.summary import Summary

BARS_MAX = 30
"""Brokers or tenants in one plot."""

_CAPACITY, _QUOTA, _PEAK = "#c9d3df", "#33506e", "#b8433a"

_RULES = (
    "A broker's quota is its capacity less the headroom, or the number of units at which its load "
    "would reach that level, if that is less. A tenant's quota is the need of its fullest shard "
    "times the number of shards, because quotas are divided evenly among shards. The need is the "
    "most units that it had there, or its 95th percentile over hours plus the headroom. If "
    "tenants need more than brokers have, each gets its floor and a share of the rest."
)


def write_report(
    path: Path,
    quotas: QuotaFile,
    question: Question,
    shares: Shares,
    summary: Summary,
    brokers: Sequence[Row],
    tenants: Sequence[Row],
) -> None:
    """Write the page, whole or not at all. The rows are the largest quotas first."""
    page = Page(
        f"Quotas, version {quotas.version}",
        f"{len(quotas.brokers):,} brokers with {shares.available_units:,} units, "
        f"{len(quotas.tenants):,} tenants that need {shares.needed_units:,}; headroom "
        f"{question.headroom_percent} %, made from {quotas.source}",
    )
    page.add_text("How quotas are made", _RULES)
    if brokers:
        page.add_plot("Brokers", _bars(brokers, "broker_id", "capacity_units", "capacity"))
        columns: tuple[str, ...] = (
            "broker",
            "quota",
            "capacity",
            "units p95",
            "peak",
            "load ‰ p95",
            "peak ‰",
        )
        names: tuple[str, ...] = (
            *("broker_id", "quota_units", "capacity_units", "units_p95", "units_peak"),
            *("permille_p95", "permille_peak"),
        )
        page.add_table("Brokers", columns, [[row[name] for name in names] for row in brokers])
    if tenants:
        page.add_plot("Tenants", _bars(tenants, "tenant", "need_units", "need"))
        columns = ("tenant", "quota", "need", "units at the end", "p95", "peak")
        names = ("tenant", "quota_units", "need_units", "units", "units_p95", "units_peak")
        page.add_table("Tenants", columns, [[row[name] for name in names] for row in tenants])
    for note in summary.numbers["notes"]:
        page.add_text("Note", note)
    if summary.findings:
        page.add_table("Findings", ("finding",), [(each,) for each in summary.findings])
    page.write(path)


def _bars(rows: Sequence[Row], name: str, behind: str, label: str) -> Figure:
    shown = rows[:BARS_MAX]
    places = range(len(shown))
    figure = Figure(figsize=(9, 0.28 * len(shown) + 1.2))
    axes = figure.subplots()
    axes.barh(places, [row[behind] for row in shown], color=_CAPACITY, label=label)
    axes.barh(
        places, [row["quota_units"] for row in shown], height=0.4, color=_QUOTA, label="quota"
    )
    peaks = [row["units_peak"] or 0 for row in shown]
    axes.plot(peaks, places, "|", color=_PEAK, markersize=9, label="peak")
    axes.set_yticks(places, labels=[plain_label(row[name]) for row in shown])
    axes.invert_yaxis()
    axes.set_xlabel("units")
    axes.legend(loc="lower right", frameon=False)
    return figure
