"""The comparison as a table and as a plot, for docs/flows/balance.md."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.support.balance.cluster import STEP_SECONDS
from benchmarks.support.balance.comparison import GOAL, Outcome

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "flows" / "balance.md"
PLOT = ROOT / "docs" / "flows" / "balance.svg"
RESULTS = ROOT / "benchmarks" / "results"
SUFFIX = "balance-strategies.json"
BEGIN, END = "<!-- comparison: begin -->", "<!-- comparison: end -->"

HEADER = (
    "| workload | strategy | imbalance, mean · p99 | minutes to 1.15 | topics moved (bundles) | "
    "unavailable, topic-seconds |\n|---|---|---|---|---|---|\n"
)
_PLOTTED_STEPS = 10
"""Steps that one point of the plot is the mean of: five minutes."""


def table(outcomes: Iterable[Mapping[str, Any]]) -> str:
    """Return the comparison as a table, a row for each workload and strategy."""
    rows = []
    before = ""
    for each in outcomes:
        name = "" if each["workload"] == before else each["workload"]
        if name and each["best_possible"] >= 1.01:
            name += f" (best possible {each['best_possible']:.2f})"
        before = each["workload"]
        mean = f"{each['imbalance']:.2f}"
        mean = f"**{mean}**" if each["imbalance"] <= GOAL else mean
        minutes = each["minutes_to_goal"]
        bundles = f" ({each['bundle_moves']:,})" if each["bundle_moves"] else ""
        rows.append(
            f"| {name} | {each['strategy']} | {mean} · {each['imbalance_p99']:.2f} | "
            f"{'never' if minutes is None else f'{minutes:.0f}'} | "
            f"{each['topic_moves']:,}{bundles} | {each['unavailable_topic_seconds']:.1f} |\n"
        )
    return HEADER + "".join(rows)


def with_table(page: str, text: str) -> str:
    """Return the page with ``text`` between its markers."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{text}{END}{after}"


def last_results() -> dict[str, Any]:
    """Return the results of the last whole run that was written."""
    latest = max(RESULTS.glob(f"*-{SUFFIX}"))
    found: dict[str, Any] = json.loads(latest.read_text())
    return found


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write the imbalance over time as vectors, one picture for each workload."""
    # An extra: the comparison itself needs none.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(each.workload for each in outcomes))
    columns = 3
    figure = Figure(figsize=(12, 2.6 * -(-len(names) // columns)), layout="constrained")
    for number, name in enumerate(names):
        axes = figure.add_subplot(-(-len(names) // columns), columns, number + 1)
        for each in outcomes:
            if each.workload == name:
                hours, values = _points(each.course)
                axes.plot(hours, values, label=each.strategy, linewidth=1)
        axes.axhline(GOAL, color="grey", linewidth=0.5, linestyle=":")
        axes.set_title(name, fontsize=9)
        axes.set_ylim(1.0, 2.0)
        axes.tick_params(labelsize=7)
        if number == 0:
            axes.legend(fontsize=7)
    figure.supxlabel("hours", fontsize=8)
    figure.supylabel("highest load by capacity, of the mean", fontsize=8)
    written = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "balance"}):
        figure.savefig(written, format="svg", metadata={"Date": None})
    path.write_text(_shorter(written.getvalue()))


def _shorter(svg: str) -> str:
    """Return the picture with a tenth of a pixel as its unit, and without spaces at line ends."""
    return re.sub(r" +\n", "\n", re.sub(r"(\d\.\d)\d+", r"\1", svg))


def _points(course: Sequence[float]) -> tuple[list[float], list[float]]:
    hours, values = [], []
    for first in range(0, len(course), _PLOTTED_STEPS):
        part = course[first : first + _PLOTTED_STEPS]
        hours.append((first + len(part) / 2) * STEP_SECONDS / 3_600)
        values.append(round(sum(part) / len(part), 3))
    return hours, values
