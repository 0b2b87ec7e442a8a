"""A test that passes behind its time limit has failed, see ``tests/conftest.py``."""

from __future__ import annotations

import time
from collections.abc import Generator

import pytest

from tests.conftest import STARTED, pytest_runtest_makereport

CASES = [(59.0, "passed"), (61.0, "failed")]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("seconds_ago", "outcome"), CASES, ids=["in time", "behind its limit"])
def test_a_test_passes_within_its_time_limit_only(
    seconds_ago: float,
    outcome: str,
    request: pytest.FixtureRequest,
) -> None:
    # Given: the limit interrupted a task that nobody awaits, and the test went on to pass.
    item = request.node
    began = item.stash[STARTED]
    report = pytest.TestReport(item.nodeid, item.location, {}, "passed", None, "call")

    # When
    item.stash[STARTED] = time.monotonic() - seconds_ago
    try:
        judged = through(pytest_runtest_makereport(item, _called()), report)
    finally:
        item.stash[STARTED] = began

    # Then
    assert judged.outcome == outcome


def _called() -> pytest.CallInfo[None]:
    return pytest.CallInfo.from_call(lambda: None, "call")


def through(
    hook: Generator[None, pytest.TestReport, pytest.TestReport], report: pytest.TestReport
) -> pytest.TestReport:
    """Return what a wrapper of a hook makes of ``report``."""
    next(hook)
    try:
        hook.send(report)
    except StopIteration as ended:
        return ended.value
    raise AssertionError("the wrapper did not end")
