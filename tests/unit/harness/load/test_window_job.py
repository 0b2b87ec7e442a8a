"""A window of lookups is judged by what it holds: at its bounds it is good, beyond them bad."""

from __future__ import annotations

import pytest

from nextgen.harness.load.jobs.lookup_windows import FIRST_ERRORS_TOLD, Window
from nextgen.kernel.governance.lookup_slo import LOOKUP_MS_MAX, LOOKUP_P99_MS_MAX


def window(*latencies_ms: float, failed: int = 0) -> Window:
    made = Window()
    for place, latency_ms in enumerate(latencies_ms):
        made.add(latency_ms, "no leader" if place < failed else "")
    return made


def test_a_window_without_lookups_is_not_bad():
    assert not Window().as_json()["is_bad"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (window(*[LOOKUP_P99_MS_MAX] * 100), ""),
        (window(*[1.0] * 99, LOOKUP_MS_MAX), ""),
        (window(*[1.0] * 98, *[LOOKUP_P99_MS_MAX + 1] * 2), "p99 is 1001 ms"),
        (window(*[1.0] * 999, LOOKUP_MS_MAX + 1), "one took 3001 ms"),
        (window(*[1.0] * 100, failed=1), ""),
        (window(*[1.0] * 100, failed=2), "2 of 100 failed"),
    ],
)
def test_the_objective_holds_at_its_bounds_and_not_beyond(given: Window, reason: str):
    told = given.as_json()

    assert told["why_bad"] == reason
    assert told["is_bad"] == bool(reason)


def test_expired_requests_count_as_failed():
    told = window(1.0, LOOKUP_MS_MAX, LOOKUP_MS_MAX + 1).as_json()

    assert (told["lookups"], told["errors"]) == (3, 1)
    assert told["first_errors"] == ["took longer than 3000 ms"]


def test_a_few_errors_are_listed():
    told = window(*[1.0] * 10, failed=10).as_json()

    assert told["first_errors"] == ["no leader"] * FIRST_ERRORS_TOLD
