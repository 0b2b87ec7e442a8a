"""A quarantine ends by the clock of who looks at it, however wrong that clock is."""

from __future__ import annotations

import pytest

from nextgen.kernel.governance.quarantine import is_quarantined
from nextgen.kernel.limits.placement import QUARANTINE_MS

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("left_ms", "expected"),
    [
        (-1, False),
        (0, False),
        (1, True),
        (QUARANTINE_MS, True),
        (2 * QUARANTINE_MS, True),
        (2 * QUARANTINE_MS + 1, False),
    ],
)
def test_it_lasts_until_its_end_and_at_most_twice_its_length_by_any_clock(
    left_ms: int, expected: bool
) -> None:
    assert is_quarantined(NOW_MS + left_ms, NOW_MS) is expected


def test_no_stamp_is_no_quarantine() -> None:
    assert not is_quarantined(0, NOW_MS)


@pytest.mark.parametrize("leap_ms", [-HOUR_MS, HOUR_MS])
def test_a_clock_that_leapt_an_hour_closes_no_broker(leap_ms: int) -> None:
    assert not is_quarantined(NOW_MS + QUARANTINE_MS, NOW_MS + leap_ms)
