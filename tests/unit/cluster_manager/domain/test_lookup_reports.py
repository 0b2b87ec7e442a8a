"""Each minute of a discovery process is taken once; what cannot be is refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_manager.domain.lookup_reports import (
    INITIAL,
    LookupReports,
    LookupWindowRecorded,
    RecordLookupWindow,
    decide,
    evolve,
)
from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.governance.lookup_slo import LATENCY_CLASSES, LookupWindow
from nextgen.kernel.limits.cluster import NODE_ID_BYTES_MAX
from nextgen.kernel.limits.placement import (
    LOOKUP_PROCESS_BYTES_MAX,
    LOOKUP_PROCESSES_MAX,
    LOOKUP_WINDOW_AHEAD_MS_MAX,
    LOOKUP_WINDOW_LATE_MS_MAX,
    LOOKUPS_PER_WINDOW_MAX,
)

MINUTE_MS = 60_000
BEGAN_MS = 29_396_667 * MINUTE_MS
NOW_MS = BEGAN_MS + MINUTE_MS
COUNTS = (10, *[0] * (LATENCY_CLASSES - 1))
WINDOW = LookupWindow("d1", "w1-7", BEGAN_MS, 0, COUNTS)


def decided(window=WINDOW, state=INITIAL, now_ms=NOW_MS):
    return decide(state, RecordLookupWindow(window, now_ms))


def after(*windows):
    state = INITIAL
    for window in windows:
        state = evolve(state, LookupWindowRecorded(window))
    return state


def test_a_window_is_recorded_as_it_was_reported():
    assert decided() == Accepted((LookupWindowRecorded(WINDOW),))


def test_the_same_minute_of_a_process_is_taken_once():
    decision = decided(state=after(WINDOW))

    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.ALREADY_EXISTS


def test_a_minute_before_the_last_that_was_taken_is_too_late():
    earlier = replace(WINDOW, began_at_ms=BEGAN_MS - MINUTE_MS)

    assert decided(earlier, after(WINDOW)).code is RejectionCode.ALREADY_EXISTS


@pytest.mark.parametrize(
    "other",
    [
        replace(WINDOW, node_id="d2"),
        replace(WINDOW, process="w1-8"),
        replace(WINDOW, began_at_ms=BEGAN_MS + MINUTE_MS),
    ],
)
def test_other_processes_and_later_minutes_are_taken_beside_it(other):
    assert decided(other, after(WINDOW)) == Accepted((LookupWindowRecorded(other),))


@pytest.mark.parametrize(
    ("window", "word"),
    [
        (replace(WINDOW, began_at_ms=BEGAN_MS + 1), "minute"),
        (replace(WINDOW, process=""), "process"),
        (replace(WINDOW, process="w" * (LOOKUP_PROCESS_BYTES_MAX + 1)), "process"),
        (replace(WINDOW, node_id=""), "no node"),
        (replace(WINDOW, node_id="n" * (NODE_ID_BYTES_MAX + 1)), "no node"),
        (replace(WINDOW, latency_counts=(0,) * LATENCY_CLASSES), "0 lookups"),
        (
            replace(WINDOW, latency_counts=(LOOKUPS_PER_WINDOW_MAX + 1, *COUNTS[1:])),
            "possible",
        ),
        (replace(WINDOW, errors=11), "11 errors of 10"),
        (replace(WINDOW, latency_counts=(*COUNTS[:-1], 1)), "too long"),
    ],
)
def test_a_window_that_cannot_be_is_refused_by_name(window, word):
    decision = decided(window)

    assert isinstance(decision, Rejected)
    assert word in decision.message
    assert decision.code is RejectionCode.NOT_ALLOWED


def test_what_is_just_possible_is_taken():
    for window in (
        replace(WINDOW, process="w" * LOOKUP_PROCESS_BYTES_MAX),
        replace(WINDOW, node_id="n" * NODE_ID_BYTES_MAX),
        replace(WINDOW, errors=10),
        replace(WINDOW, latency_counts=(LOOKUPS_PER_WINDOW_MAX, *COUNTS[1:])),
    ):
        assert isinstance(decided(window), Accepted)


def test_the_future_and_the_past_have_bounds():
    soonest = BEGAN_MS - LOOKUP_WINDOW_AHEAD_MS_MAX
    latest = BEGAN_MS + LOOKUP_WINDOW_LATE_MS_MAX

    assert isinstance(decided(now_ms=soonest), Accepted)
    assert "future" in decided(now_ms=soonest - 1).message
    assert isinstance(decided(now_ms=latest), Accepted)
    assert "too late" in decided(now_ms=latest + 1).message


def full(began_at_ms):
    keys = {("d1", f"w1-{number}"): began_at_ms for number in range(LOOKUP_PROCESSES_MAX)}
    return LookupReports(keys)


def test_lookup_processes_max_may_report_and_one_more_may_not():
    state = full(BEGAN_MS - MINUTE_MS)

    refused = decided(replace(WINDOW, process="another"), state)

    assert refused.code is RejectionCode.LIMIT_EXCEEDED
    assert isinstance(decided(WINDOW, state), Accepted)


def test_processes_that_are_long_gone_make_room():
    gone_ms = BEGAN_MS - 2 * LOOKUP_WINDOW_LATE_MS_MAX - MINUTE_MS
    window = replace(WINDOW, process="another")

    decision = decided(window, full(gone_ms))

    assert isinstance(decision, Accepted)
    assert dict(evolve(full(gone_ms), decision.events[0]).last_began_at_ms) == {
        ("d1", "another"): BEGAN_MS
    }
