"""Where the simulations of each kind are, and which cells of their tables can be filled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

from tests.simulation.report import KINDS, Kind, SeedReport

Echo = Callable[[str], None]
Cell = tuple[str, str]

FAILED_SEEDS = Path(__file__).parent / "failed_seeds.txt"
"""``kind seed date sentence``, one line for each seed that ever failed. Committed."""


def run_one(kind: Kind, seed: int, echo: Echo | None = None) -> SeedReport:
    """Run one seed. ``echo`` gets a line for everything that happens."""
    # Imported here: the worker of one kind needs nothing of the other.
    if kind == "engine":
        from tests.simulation.engine.run import run_seed as run_engine

        return run_engine(seed, echo)
    from tests.support.cluster_simulation.run import run_seed as run_cluster

    return run_cluster(seed, echo)


def import_all() -> None:
    """Import both simulations, so that forks of this process need not."""
    import tests.simulation.engine.run
    import tests.support.cluster_simulation.run  # noqa: F401


def possible_cells(kind: Kind) -> frozenset[Cell]:
    """Return the cells that can be reached by their nature; empty if that is not written down."""
    if kind == "engine":
        from tests.simulation.engine.faults import POSSIBLE_CELLS

        return POSSIBLE_CELLS
    return frozenset()


def failed_seeds() -> list[tuple[Kind, int]]:
    """Return every seed that ever failed, in the order of the list."""
    found: list[tuple[Kind, int]] = []
    for line in FAILED_SEEDS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            kind, seed, *_ = line.split(maxsplit=3)
            known = next((name for name in KINDS if name == kind), None)
            assert known is not None, f"a seed of an unknown kind: {line}"
            found.append((known, int(seed)))
    return found


def remember_failed(report: SeedReport, today: date) -> None:
    """Append a seed that failed to the list, once."""
    if (report.kind, report.seed) not in failed_seeds():
        sentence = " ".join((report.failure or "").split())[:200]
        with FAILED_SEEDS.open("a") as file:
            file.write(f"{report.kind} {report.seed} {today} {sentence}\n")
