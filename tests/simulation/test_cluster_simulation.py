"""The whole cluster under random faults; every seed is another history, the same each time.

One run by hand: ``make sim SEED=7 KIND=cluster``. Seeds that ever failed: ``failed_seeds.txt``.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace

import pytest

from nextgen.harness.history.model import Operation, OperationKind
from tests.simulation.report import SeedReport
from tests.support.cluster_simulation.clients.contenders import TOPICS, Records, judge
from tests.support.cluster_simulation.run import ClusterRun

SEEDS = (1, 2)
"""Long histories of `make nightly`; `make sim SEEDS=n` runs others."""

SHORT, SHORT_FAULTS = 3, 8
"""A seed whose run takes seconds: the history of each run of the tests."""


@functools.cache
def short_run() -> tuple[ClusterRun, SeedReport]:
    """Return a run of the short seed and its report; the tests of this file share them."""
    run = ClusterRun(SHORT, faults=SHORT_FAULTS)
    return run, run.run()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        given: int | None = metafunc.config.getoption("--seed")
        seeds = SEEDS if given is None else (given,)
        metafunc.parametrize("seed", seeds, ids=[f"seed-{seed}" for seed in seeds])


@pytest.mark.timeout(300)
def test_the_cluster_keeps_its_promises_in_a_short_history() -> None:
    run, report = short_run()

    assert report.failure is None, report.failure
    assert run.simulation is not None
    answers = run.ledger.answers
    assert min(answers[kind] for kind in ("created", "located", "moved", "effective")) > 0, answers
    assert run.simulation.invariants.freshness.judged > 100, "too few lookups were judged"
    assert run.simulation.storage.answers > 100, "too few messages were acknowledged"
    assert sum(report.faults.values()) >= SHORT_FAULTS, report.faults


@pytest.mark.slow
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
def test_one_seed_gives_the_same_history_twice() -> None:
    _, first = short_run()

    second = ClusterRun(SHORT, faults=SHORT_FAULTS).run()

    assert first == second
    assert first.steps > 5_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_seed_gives_the_same_long_history_twice() -> None:
    first, second = (ClusterRun(5, faults=8).run() for _ in range(2))

    assert first == second


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_another_seed_gives_another_history() -> None:
    hashes = {ClusterRun(seed, faults=0).run().trace_hash for seed in (1, 2)}

    assert len(hashes) == 2


@pytest.mark.timeout(300)
def test_a_spoilt_answer_of_a_simulated_cluster_is_found() -> None:
    """What contending clients are answered is judged, and found if it is wrong."""
    run, report = short_run()
    assert report.failure is None, report.failure
    assert run.simulation is not None
    entries = run.simulation.invariants.entries
    answered = [each for each in run.records if isinstance(each, Operation) and each.is_ok]
    counts = Counter(op.kind for op in answered if op.key in TOPICS or op.client == "grower")
    # A topic is given up behind several changes, which a short run may not come to; these clients
    # know their topics by one name.
    usual = set(OperationKind) - {OperationKind.DELETE_SUBSCRIPTION, OperationKind.RENAME}
    assert all(counts[kind] > 0 for kind in usual), counts
    assert judge(run.records, entries) == ()

    def spoilt(wanted: OperationKind, **value: object) -> set[str]:
        victim = next(op for op in reversed(answered) if op.kind is wanted and op.value)
        wrong = replace(victim, value={**victim.value, **value})
        records = Records(wrong if each is victim else each for each in run.records)
        return {finding.check for finding in judge(records, entries)}

    assert "linearizability" in spoilt(OperationKind.GET, version=999)
    assert "linearizability" in spoilt(OperationKind.SET_PROPERTIES, version=999)
    assert "acked set" in spoilt(OperationKind.CREATE, id="another")
    assert "lookups" in spoilt(OperationKind.LOOKUP, broker_id="another")
