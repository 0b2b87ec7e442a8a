"""How many units may go by now: a steady rate, so that the end of an evacuation can be foretold.

The last of N units goes N ÷ rate seconds after the first could have. Time that was not used is
lost but for ``_BURST_SECONDS`` of it: after a minute without capacity no minute's worth goes at
once.
"""

from __future__ import annotations

from collections.abc import Callable

_BURST_SECONDS = 0.5
"""As long as one batch may take to be decided without slowing the whole."""

PACE_INTERVAL_SECONDS = 0.2
"""Between two batches: a commit and a message each, whatever their size."""


class Pace:
    """Units per second, spent as they go. ``now`` is a monotonic clock in seconds.

    ``rate`` may change with each call; what was earned before stays.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._earned = 0.0
        self._as_of = now()

    def __repr__(self) -> str:
        return f"<Pace earned={self._earned:.1f}>"

    def take(self, rate: float, units_max: int) -> int:
        """Return how many units may go at this moment, at most ``units_max``; they are spent."""
        now = self._now()
        earned = self._earned + (now - self._as_of) * rate
        most = 1.0 + rate * (PACE_INTERVAL_SECONDS + _BURST_SECONDS)
        self._as_of = now
        units = min(int(min(earned, most)), units_max)
        self._earned = min(earned, most) - units
        return units

    def give_back(self, units: int) -> None:
        """Return what was taken and not used."""
        self._earned += units

    def wait_seconds(self, rate: float) -> float:
        """Return after how long ``take`` gives something, at least one interval."""
        missing = max(0.0, 1.0 - self._earned)
        return max(PACE_INTERVAL_SECONDS, missing / rate)


def share_of_rate(units_per_second: float, units: int, units_of_all: int, shards: int) -> float:
    """Return this shard's part of a rate that is meant for the whole cluster.

    By its part of all units, if that is known, so that all shards end at the same time; equal
    parts if not. What is known is a report and may be old: a shard takes at most twice and at
    least half of an equal part.
    """
    equal = units_per_second / shards
    if units_of_all <= 0:
        return equal
    by_units = units_per_second * min(1.0, units / units_of_all)
    return min(units_per_second, max(equal / 2, min(2 * equal, by_units)))
