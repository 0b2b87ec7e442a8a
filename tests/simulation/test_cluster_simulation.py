"""The whole cluster under random faults; every seed is another history, the same each time.

One run by hand: ``make sim SEED=7 KIND=cluster``. Seeds that ever failed: ``failed_seeds.txt``.
"""

from __future__ import annotations

import pytest

from tests.simulation.report import SeedReport
from tests.support.cluster_simulation.run import ClusterRun

SEEDS = (1, 2)
QUICK = (1,)
"""Of them, those in each run of the tests; the others in `make sim` and `make nightly`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        given: int | None = metafunc.config.getoption("--seed")
        seeds = SEEDS if given is None else (given,)
        slow = () if given is not None else set(SEEDS) - set(QUICK)
        metafunc.parametrize(
            "seed",
            [
                pytest.param(seed, id=f"seed-{seed}", marks=[pytest.mark.slow] * (seed in slow))
                for seed in seeds
            ],
        )


@pytest.mark.timeout(300)
def test_the_cluster_keeps_its_promises_whatever_happens(seed: int) -> None:
    run = ClusterRun(seed)

    report = run.run()

    assert report.failure is None, report.failure
    answers = run.ledger.answers
    assert answers["created"] > 40, "too little was written to prove anything"
    assert answers["located"] > 40, "too little was looked up to prove anything"
    assert answers["moved"] > 2
    assert answers["read"] > 2
    assert answers["effective"] > 2, "too few policies were set to prove anything"
    assert answers["drained"] + answers["unloaded"] > 0
    assert run.simulation is not None
    assert (len(run.simulation.proofs) > 100) == run.simulation.plan.has_secret
    assert run.simulation.invariants.freshness.judged > 400, "too few lookups were judged"
    assert run.simulation.invariants.freshness.judged_absent > 100, "too few absences were judged"
    assert run.simulation.storage.answers > 500, "too few messages were acknowledged"
    assert sum(report.faults.values()) > 15


@pytest.mark.timeout(300)
@pytest.mark.parametrize("faults", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_one_seed_gives_the_same_history_twice(faults: int) -> None:
    def run() -> SeedReport:
        return ClusterRun(5, faults=faults).run()

    first, second = run(), run()

    assert first == second
    assert first.steps > 5_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_another_seed_gives_another_history() -> None:
    hashes = {ClusterRun(seed, faults=0).run().trace_hash for seed in (1, 2)}

    assert len(hashes) == 2
