"""The load job ends in until when capacity lasts."""

from __future__ import annotations

import pytest

from pipelines.load.verdict import BROKER_LOST, CLUSTER, DAYS_SHOWN_MAX, load_verdict

NEW_YEAR_2026_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("whole", "without_one", "sentence"),
    [
        (
            22.2,
            18.4,
            "capacity lasts 22 days, until 2026-01-23; "
            "without the largest broker it lasts 18 days, until 2026-01-19",
        ),
        (
            None,
            DAYS_SHOWN_MAX + 1,
            "capacity does not run out by this trend; "
            "without the largest broker it does not run out by this trend",
        ),
        (
            DAYS_SHOWN_MAX,
            0.0,
            "capacity lasts 36,500 days, until 2125-12-08; "
            "without the largest broker it is used up",
        ),
    ],
)
def test_the_sentence_names_days_and_dates(
    whole: float | None, without_one: float | None, sentence: str
) -> None:
    left = {CLUSTER: whole, BROKER_LOST: without_one, "broker-1": 3.0}

    assert load_verdict(left, NEW_YEAR_2026_MS) == sentence
