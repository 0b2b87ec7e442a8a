"""Tests without a guard, in a fork of a process that has imported all of them already."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Sequence

import pytest

from tests.simulation.forked import run_forked
from tests.simulation.mutants.catalog import BY_NAME, MUTANTS
from tests.simulation.mutants.mutant import removed

TESTS_SECONDS_MAX = 600
"""For the tests of one mutant. The one that runs by then counts as failed."""

_ARGUMENTS = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore")
_HELD_OR_FAILED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
_NO_SUCH_TEST = pytest.ExitCode.NO_TESTS_COLLECTED


def first_failure(arguments: Sequence[str], mutant: str | None) -> str | None:
    """Return the first test that fails without the guard of a mutant, None if all hold.

    A test in which the process dies, or that does not end in time, fails.

    Raises:
        AssertionError: pytest could not run them: the mutant or the names of its tests are wrong.
    """
    assert arguments, "without arguments pytest would run every test there is"
    _import_all()

    def work(report: Callable[[object], None]) -> None:
        with contextlib.ExitStack() as stack, contextlib.redirect_stdout(io.StringIO()) as output:
            if mutant is not None:
                stack.enter_context(removed(BY_NAME[mutant]))
            code = pytest.main([*_ARGUMENTS, *arguments], [_Reporter(report)])
            report(("ended", int(code), output.getvalue()))

    outcome = run_forked(work, seconds_max=TESTS_SECONDS_MAX)
    begun = failed = None
    for kind, *found in outcome.reports:
        if kind == "begins":
            begun = found[0]
        elif kind == "fails":
            failed = failed or found[0]
        else:
            code, output = found
            assert code in (*_HELD_OR_FAILED, _NO_SUCH_TEST), f"pytest broke: {output}"
    assert outcome.is_complete or begun is not None, f"{arguments} ended before their first test"
    return failed if outcome.is_complete else failed or begun


class _Reporter:
    """A pytest plugin that reports which test begins, and which one fails."""

    def __init__(self, report: Callable[[object], None]) -> None:
        self._report = report

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._report(("begins", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._report(("fails", report.nodeid))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._report(("fails", report.nodeid))


@functools.cache
def _import_all() -> None:
    """Import every module that any fork will need."""
    files = sorted({test.partition("::")[0] for mutant in MUTANTS for test in mutant.tests})
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = pytest.main([*_ARGUMENTS, "--collect-only", *files])
    assert code == pytest.ExitCode.OK, f"pytest broke: {output.getvalue()}"
