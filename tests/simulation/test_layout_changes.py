"""Splits, merges, new buckets, migrations, prunes and deletions of subscriptions in which somebody
is gone after any step, or a leader goes on while another one leads.

One run for each step: every proposal, every commit, and every call of a broker, when it is sent and
when it has taken effect. See ``crashes`` for what is checked.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.support.scalable.crashes import (
    MERGE,
    MIGRATE,
    REBUCKET,
    SPLIT,
    Crash,
    Operation,
    run_deletion,
    run_operation,
    run_prune,
)

LEADER = frozenset({"leader"})
BROKER = frozenset({"broker"})
BOTH = LEADER | BROKER
DEPOSED = frozenset({"deposed"})

IN_EACH_RUN = [
    pytest.param(SPLIT, LEADER, True, id="split-late"),
    pytest.param(MERGE, BROKER, False, id="merge-broker"),
    pytest.param(MERGE, BOTH, False, id="merge-both"),
    pytest.param(REBUCKET, LEADER, False, id="rebucket-leader"),
    pytest.param(MIGRATE, BOTH, True, id="migrate-some"),
    pytest.param(SPLIT, DEPOSED, False, id="split-deposed"),
]
AT_NIGHT = [
    pytest.param(SPLIT, LEADER, False, id="split-leader", marks=pytest.mark.slow),
    pytest.param(SPLIT, BROKER, False, id="split-broker", marks=pytest.mark.slow),
    pytest.param(SPLIT, BOTH, False, id="split-both", marks=pytest.mark.slow),
    pytest.param(MERGE, LEADER, False, id="merge-leader", marks=pytest.mark.slow),
    pytest.param(MERGE, LEADER, True, id="merge-late", marks=pytest.mark.slow),
    pytest.param(REBUCKET, BROKER, False, id="rebucket-broker", marks=pytest.mark.slow),
    pytest.param(REBUCKET, BOTH, False, id="rebucket-both", marks=pytest.mark.slow),
    pytest.param(REBUCKET, LEADER, True, id="rebucket-late", marks=pytest.mark.slow),
    pytest.param(MIGRATE, LEADER, False, id="migrate-leader", marks=pytest.mark.slow),
    pytest.param(MIGRATE, BROKER, False, id="migrate-broker", marks=pytest.mark.slow),
    pytest.param(MIGRATE, BOTH, False, id="migrate-both", marks=pytest.mark.slow),
    pytest.param(MIGRATE, LEADER, True, id="migrate-late", marks=pytest.mark.slow),
    pytest.param(MERGE, DEPOSED, False, id="merge-deposed", marks=pytest.mark.slow),
    pytest.param(REBUCKET, DEPOSED, False, id="rebucket-deposed", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("operation", "victims", "is_late"), [*IN_EACH_RUN, *AT_NIGHT])
@pytest.mark.timeout(300)
def test_an_operation_ends_once_whoever_is_gone_after_any_step(
    tmp_path: Path, operation: Operation, victims: frozenset[str], *, is_late: bool
) -> None:
    """``is_late``: what a leader sent before it was gone takes effect when the next one leads."""
    went_on = 0
    # A migration has twice the steps, and the same code as a split.
    is_sample = operation is MIGRATE and is_late and victims is BOTH
    for at in itertools.count(step=7 if is_sample else 1):
        crash = Crash(at, victims, is_late)

        run_operation(tmp_path / str(at), operation, crash)

        went_on += crash.went_on
        if not crash.gone_at:
            break

    assert at > 20, f"there are only the steps {crash.steps}"
    assert bool(went_on) is (victims == DEPOSED)


@pytest.mark.parametrize(
    ("victims", "is_late"),
    [
        pytest.param(LEADER, True, id="late"),
        pytest.param(BOTH, False, id="both", marks=pytest.mark.slow),
        pytest.param(BROKER, False, id="broker", marks=pytest.mark.slow),
        pytest.param(LEADER, False, id="leader", marks=pytest.mark.slow),
        pytest.param(DEPOSED, False, id="deposed", marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(300)
def test_a_drained_segment_is_pruned_and_removed_whoever_is_gone_after_any_step(
    tmp_path: Path, victims: frozenset[str], *, is_late: bool
) -> None:
    for at in itertools.count():
        crash = Crash(at, victims, is_late)

        run_prune(tmp_path / str(at), crash)

        if not crash.gone_at:
            break

    assert at > 8, f"there are only the steps {crash.steps}"


@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(LEADER, id="leader"),
        pytest.param(BOTH, id="both", marks=pytest.mark.slow),
        pytest.param(BROKER, id="broker", marks=pytest.mark.slow),
        pytest.param(DEPOSED, id="deposed", marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(300)
def test_reports_of_a_deleted_subscription_count_for_nothing_whoever_is_gone_after_any_step(
    tmp_path: Path, victims: frozenset[str]
) -> None:
    for at in itertools.count():
        crash = Crash(at, victims)

        run_deletion(tmp_path / str(at), crash)

        if not crash.gone_at:
            break

    assert at > 8, f"there are only the steps {crash.steps}"
