"""The summary of many seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from tests.simulation.kinds import Cell
from tests.simulation.report import Kind, SeedReport


@dataclass(slots=True)
class Summary:
    """Of the seeds of one kind."""

    kind: Kind
    seeds: int = 0
    steps: int = 0
    virtual_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    cells: Counter[Cell] = field(default_factory=Counter)
    failures: list[SeedReport] = field(default_factory=list)

    def add(self, report: SeedReport) -> None:
        self.seeds += 1
        self.steps += report.steps
        self.virtual_seconds += report.virtual_seconds
        self.faults.update(report.faults)
        self.cells.update(report.cells)
        if report.failure is not None:
            self.failures.append(report)

    def never_reached(self, possible: Iterable[Cell]) -> list[Cell]:
        return sorted(cell for cell in possible if not self.cells[cell])


def print_summary(console: Console, summary: Summary, possible: frozenset[Cell]) -> None:
    """Print numbers, the coverage table, and the cells of it that no seed reached."""
    console.rule(f"{summary.kind}: {summary.seeds} seeds")
    console.print(
        f"{summary.steps:,} steps, {summary.virtual_seconds / 3600:,.1f} simulated hours, "
        f"{sum(summary.faults.values()):,} faults, {len(summary.failures)} failed"
    )
    console.print(
        "faults: " + ", ".join(f"{name} {count:,}" for name, count in summary.faults.most_common())
    )
    _print_table(console, summary, possible)
    missing = summary.never_reached(possible)
    if missing:
        console.print(f"possible and never reached ({len(missing)} of {len(possible)}):")
        console.print("; ".join(f"{fault} at {state}" for fault, state in missing))
    elif possible:
        console.print(f"all {len(possible)} possible cells were reached")
    for report in summary.failures:
        console.print(f"FAILED {report.kind} {report.seed}: {report.failure}", markup=False)
        console.print(f"  make sim SEED={report.seed} KIND={report.kind} TRACE=1", markup=False)


def _print_table(console: Console, summary: Summary, possible: frozenset[Cell]) -> None:
    cells = {*summary.cells, *possible}
    faults = sorted({fault for fault, _ in cells})
    states = sorted({state for _, state in cells})
    letters = [chr(ord("A") + number) for number in range(len(states))]
    table = Table(title="faults by the state of what they hit", title_justify="left")
    table.add_column("fault")
    for letter in letters:
        table.add_column(letter, justify="right")
    for fault in faults:
        shown = (_shown(summary, (fault, state), possible) for state in states)
        table.add_row(fault, *shown)
    console.print(table)
    legend = zip(letters, states, strict=True)
    console.print(", ".join(f"{letter} {state}" for letter, state in legend))
    if possible:
        console.print("blank: cannot be by its nature; 0: can be and was never reached")


def _shown(summary: Summary, cell: Cell, possible: frozenset[Cell]) -> str:
    count = summary.cells[cell]
    if count:
        return str(count) if count < 10_000 else f"{count // 1000}k"
    return "0" if cell in possible else ""
