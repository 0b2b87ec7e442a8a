"""One Raft group under random faults; every seed is another history, the same each time.

Many seeds: ``make sim SEEDS=1000``. One of them again: ``make sim SEED=7 KIND=engine``.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.engine.faults import CHANGES, FAULTS
from tests.simulation.engine.run import run_seed
from tests.simulation.report import SeedReport

SEEDS = range(1, 13)
QUICK = {*SEEDS} - {2, 7, 12}
"""Of them, those in each run of the tests; the long ones in `make sim` and `make nightly`."""
ROOT = Path(__file__).parents[2]

SHORT, ANOTHER_SHORT = 4, 1
"""Seeds of less than two seconds."""

REPLAY = f"""
import json
from tests.simulation.engine.run import run_seed
report = run_seed({SHORT})
print(json.dumps([report.trace_hash, report.steps, report.faults, report.failure]))
"""


@functools.cache
def report_of(seed: int) -> SeedReport:
    """Return what a run of the seed reports; the tests of this file share it."""
    return run_seed(seed)


@pytest.fixture(scope="module")
def hit() -> Counter[str]:
    """Every fault that the seeds below have injected, by kind."""
    return Counter()


@pytest.mark.parametrize(
    "seed",
    [pytest.param(seed, marks=[pytest.mark.slow] * (seed not in QUICK)) for seed in SEEDS],
)
def test_nothing_acknowledged_is_lost_whatever_happens(seed: int, hit: Counter[str]) -> None:
    report = report_of(seed)

    assert report.failure is None, f"make sim SEED={seed} KIND=engine TRACE=1: {report.failure}"
    assert report.steps > 5_000, "the group did too little to prove anything"
    assert sum(report.faults.values()) > 10
    hit.update(report.faults)


def test_the_seeds_above_have_seen_nearly_every_fault(hit: Counter[str]) -> None:
    kinds = {fault.name for fault in FAULTS} | set(CHANGES)

    assert len(kinds - set(hit)) <= 2, f"never injected: {sorted(kinds - set(hit))}"


def test_a_seed_gives_the_same_history_in_every_process() -> None:
    """Also where sets of strings have another order: this process has one of its own."""
    here = report_of(SHORT)

    done = subprocess.run(
        [sys.executable, "-c", REPLAY],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    elsewhere = json.loads(done.stdout.splitlines()[-1])
    assert elsewhere == [here.trace_hash, here.steps, here.faults, here.failure]
    assert report_of(ANOTHER_SHORT).trace_hash != here.trace_hash
