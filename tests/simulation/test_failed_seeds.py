"""Every seed that ever failed is run again, for ever: the quickest in each run, all nightly."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.simulation import kinds
from tests.simulation.kinds import FAILED_SEEDS, failed_seeds, remember_failed, run_one
from tests.simulation.report import Kind, SeedReport

FAILED = failed_seeds()
QUICK: set[tuple[Kind, int]] = {
    *(("engine", seed) for seed in (100, 104, 135, 1011, 5008, 37788, 37826, 39199)),
}
"""Seeds of a second or two. The others together take minutes: `make nightly` runs them."""

CASES = [
    pytest.param(
        kind, seed, id=f"{kind}-{seed}", marks=[pytest.mark.slow] * ((kind, seed) not in QUICK)
    )
    for kind, seed in FAILED
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_a_seed_that_failed_once_holds(kind: Kind, seed: int) -> None:
    report = run_one(kind, seed)

    assert report.failure is None, f"make sim SEED={seed} KIND={kind} TRACE=1: {report.failure}"


def test_quick_seeds_are_among_those_that_failed() -> None:
    assert {*FAILED} >= QUICK


def test_a_seed_that_fails_is_remembered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "failed_seeds.txt"
    path.write_text(FAILED_SEEDS.read_text())
    monkeypatch.setattr(kinds, "FAILED_SEEDS", path)
    report = SeedReport(99_999, "engine", 1, 1.0, {}, {}, "", "two leaders\nin term 3")

    remember_failed(report, date(2026, 1, 2))
    remember_failed(report, date(2026, 1, 3))

    assert failed_seeds() == [*FAILED, ("engine", 99_999)]
    assert path.read_text().splitlines()[-1] == ("engine 99999 2026-01-02 two leaders in term 3")
