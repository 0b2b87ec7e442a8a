"""Forks of the runs without guards: what they report, and what becomes of those that do not end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.batch import worker_pool
from tests.simulation.forked import run_forked
from tests.simulation.mutant_tests import first_failure
from tests.simulation.mutants.catalog import BY_NAME

Report = Callable[[object], None]


def test_reports_come_in_order_and_changes_stay_in_the_child() -> None:
    found = ["before"]

    def work(report: Report) -> None:
        found.append("in the child")
        report(found)
        report("x" * 300_000)

    outcome = run_forked(work, seconds_max=60)

    assert outcome.is_complete
    assert outcome.reports == [["before", "in the child"], "x" * 300_000]
    assert found == ["before"]


def test_a_child_that_dies_or_raises_leaves_what_it_reported_before() -> None:
    def dies(report: Report) -> None:
        report(1)
        os.kill(os.getpid(), signal.SIGKILL)

    def raises(report: Report) -> None:
        report(1)
        raise ValueError

    for work in (dies, raises):
        outcome = run_forked(work, seconds_max=60)

        assert outcome.reports == [1]
        assert not outcome.is_complete


def test_a_child_that_does_not_end_is_killed() -> None:
    def work(report: Report) -> None:
        report(os.getpid())
        signal.pause()

    outcome = run_forked(work, seconds_max=0.5)

    assert not outcome.is_complete
    with pytest.raises(ProcessLookupError):
        os.kill(outcome.reports[0], 0)


def test_without_its_guard_a_test_fails_with_it_holds_and_one_that_dies_has_failed(
    tmp_path: Path,
) -> None:
    deadly = tmp_path / "test_deadly.py"
    deadly.write_text("import os\ndef test_dies():\n    os._exit(70)\n")
    mutant = BY_NAME["deliveries-are-kept-when-done"]

    # In a process of its own, as they are in a run: one pytest inside another waits for ever.
    with worker_pool() as pool:
        failed = pool.submit(first_failure, mutant.tests, mutant.name).result()
        holds = pool.submit(first_failure, [failed], None).result() is None
        died = pool.submit(first_failure, [str(deadly)], None).result()

    assert failed.partition("::")[0] in mutant.tests
    assert holds
    assert died.endswith("test_deadly.py::test_dies")
