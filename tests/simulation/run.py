"""The runner behind ``make sim``: one seed again, or many seeds with a table at the end.

python -m tests.simulation.run --seed 1234 [--kind engine] [--trace]
python -m tests.simulation.run --seeds 1000 [--from 1] [--kind cluster]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.batch import Batch
from tests.simulation.kinds import possible_cells, remember_failed, run_one
from tests.simulation.report import KINDS, Kind, SeedReport
from tests.simulation.summary import Summary, print_summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 when everything held."""
    given = _parse(arguments)
    kinds: tuple[Kind, ...] = (given.kind,) if given.kind else KINDS
    console = Console()
    if given.seed is not None:
        # Unless both are asked for, a seed means one history.
        kind = given.kind or "engine"
        return _replay(console, kind, given.seed, trace=given.trace)
    first = getattr(given, "from")
    return _run_many(console, kinds, range(first, first + given.seeds))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed once")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds of each kind")
    parser.add_argument("--from", type=int, default=1, help="the first of them")
    parser.add_argument("--kind", choices=KINDS)
    return parser.parse_args(arguments)


def _replay(console: Console, kind: Kind, seed: int, *, trace: bool) -> int:
    echo = (lambda line: console.print(line, markup=False, soft_wrap=True)) if trace else None
    report = run_one(kind, seed, echo)
    console.print(
        f"{kind} {seed}: {report.steps:,} steps, {report.virtual_seconds:.1f} simulated seconds, "
        f"{sum(report.faults.values())} faults, trace {report.trace_hash}"
    )
    console.print(f"FAILED: {report.failure}" if report.failure else "all held", markup=False)
    return int(report.failure is not None)


def _run_many(console: Console, kinds: Sequence[Kind], seeds: range) -> int:
    summaries = {kind: Summary(kind) for kind in kinds}
    batch = Batch([(kind, seed) for seed in seeds for kind in kinds])
    for report in batch.done:
        summaries[report.kind].add(report)
    if batch.done:
        console.print(f"{len(batch.done)} seeds were done before the interruption")
    began = time.monotonic()
    ran = 0
    with _progress(console) as progress:
        task = progress.add_task(
            "seeds", total=len(seeds) * len(kinds), completed=len(batch.done), failed=0
        )
        for report in batch.run():
            ran += 1
            summaries[report.kind].add(report)
            if report.failure is not None:
                _tell_failure(console, report)
            failed = sum(len(summary.failures) for summary in summaries.values())
            progress.update(task, advance=1, failed=failed)
    elapsed_s = time.monotonic() - began
    for kind, summary in summaries.items():
        print_summary(console, summary, possible_cells(kind))
    if ran:
        console.print(f"{ran} seeds in {elapsed_s:,.0f} s: {ran / elapsed_s:.2f} seeds/s")
    return int(any(summary.failures for summary in summaries.values()))


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeRemainingColumn(),
        console=console,
    )


def _tell_failure(console: Console, report: SeedReport) -> None:
    remember_failed(report, datetime.now(UTC).date())
    console.print(f"FAILED {report.kind} {report.seed}: {report.failure}", markup=False)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings have one order then, in this process and in its children.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.run", *sys.argv[1:]])
    sys.exit(main())
