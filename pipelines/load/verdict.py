"""The answer of the job in one sentence. Needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.iso_time import time_at

CLUSTER = "cluster"
BROKER_LOST = "cluster, largest broker lost"
DAYS_SHOWN_MAX = 36_500
"""Days for which a forecast names a date; a line that takes longer is as good as level."""

_DAY_MS = 86_400_000


def load_verdict(days_left: Mapping[str, float | None], last_ms: int) -> str:
    """Return until when capacity lasts, and until when if the largest broker is lost.

    ``days_left`` are those of the scopes, behind ``last_ms``; None if the load does not rise.
    """
    return f"{_lasts(days_left.get(CLUSTER), last_ms)}; " + _lasts(
        days_left.get(BROKER_LOST), last_ms, "without the largest broker it"
    )


def date_of(days_left: float | None, last_ms: int) -> str:
    """Return the date on which capacity runs out, "" if it does not."""
    if days_left is None or days_left > DAYS_SHOWN_MAX:
        return ""
    return f"{time_at(last_ms + round(days_left * _DAY_MS)):%Y-%m-%d}"


def _lasts(days_left: float | None, last_ms: int, subject: str = "capacity") -> str:
    if days_left is not None and days_left <= 0:
        return f"{subject} is used up"
    date = date_of(days_left, last_ms)
    if days_left is None or not date:
        return f"{subject} does not run out by this trend"
    return f"{subject} lasts {days_left:,.0f} days, until {date}"
