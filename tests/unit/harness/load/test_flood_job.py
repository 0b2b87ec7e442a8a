"""How a flood of lookups is counted: refused is different from unanswered."""

from __future__ import annotations

import pytest

from nextgen.harness.load.jobs.lookup_flood import (
    FAILED,
    LATE,
    REFUSED,
    SERVED,
    Phase,
    outcome_of,
    recovered_s,
)


@pytest.mark.parametrize(
    ("code", "retryable", "outcome"),
    [
        ("OVERLOADED", True, REFUSED),
        ("NO_CAPACITY", True, REFUSED),
        ("DEADLINE_EXCEEDED", True, LATE),
        ("CONNECTION_LOST", True, LATE),
        ("NOT_FOUND", False, FAILED),
    ],
)
def test_an_outcome_follows_from_the_code(code: str, retryable: bool, outcome: str):
    assert outcome_of(code, retryable=retryable) == outcome


def test_a_phase_tells_every_bucket_up_to_its_last_answer():
    phase = Phase("flood", asked=30)
    phase.outcomes.update({SERVED: 20, REFUSED: 10})
    phase.served_by_bucket.update({0: 5, 3: 15})

    told = phase.as_json()

    assert told["served_by_bucket"] == [5, 0, 0, 15]
    assert (told[SERVED], told[REFUSED], told[LATE], told[FAILED]) == (20, 10, 0, 0)


@pytest.mark.parametrize(
    ("served", "seconds"),
    [
        ([10, 10, 10, 10, 3], 0.0),
        ([0, 9, 10, 10, 3], 1.0),
        ([10, 0, 10, 10, 3, 0, 7], 1.0),
        ([10, 10, 10, 9, 10], None),
        ([10, 10, 10], None),
        ([], None),
    ],
)
def test_goodput_is_back_when_every_later_bucket_of_the_phase_is_full(served, seconds):
    assert recovered_s(served, 500, 2.1, 10) == seconds
    assert recovered_s(served, 500, 0.4, 10) is None
