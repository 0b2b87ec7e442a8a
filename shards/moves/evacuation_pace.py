"""A steady rate of units, so that the end of an evacuation can be computed.

The last of N units goes N ÷ rate seconds after the first one could go. Unused time is lost, except
``_BURST_SECONDS`` of it: after a minute without capacity there is no burst of a minute's units.
"""

from __future__ import annotations

from collections.abc import Callable

EVACUATION_UNITS_PER_BATCH_MAX = 500
"""Units that leave a broker in one record: what the whole cluster may assign anew in a second."""

EVACUATION_BATCHES_MAX = 8
"""Batches of one session in flight: one begins every 200 ms, and may wait a second for caches to
acknowledge its moves."""

_BURST_SECONDS = 0.5
"""A batch may take this long without slowing the evacuation."""

PACE_INTERVAL_SECONDS = 0.2
"""Between two batches: each costs a commit and a message, whatever its size."""


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
        """Spend and return the units that may go at this moment, at most ``units_max``."""
        now = self._now()
        earned = self._earned + (now - self._as_of) * rate
        most = 1.0 + rate * (PACE_INTERVAL_SECONDS + _BURST_SECONDS)
        self._as_of = now
        units = min(int(min(earned, most)), units_max)
        self._earned = min(earned, most) - units
        return units

    def give_back(self, units: int) -> None:
        """Return units that were taken and not used."""
        self._earned += units

    def wait_seconds(self, rate: float) -> float:
        """Return after how many seconds ``take`` returns units, at least one interval."""
        missing = max(0.0, 1.0 - self._earned)
        return max(PACE_INTERVAL_SECONDS, missing / rate)


def share_of_rate(units_per_second: float, units: int, units_of_all: int, shards: int) -> float:
    """Return this shard's part of a rate for the whole cluster.

    The part is proportional to its units, so that all shards end at the same time, or equal if
    ``units_of_all`` is unknown. That number is from a report and may be old, so a shard takes at
    least half and at most twice an equal part.
    """
    equal = units_per_second / shards
    if units_of_all <= 0:
        return equal
    by_units = units_per_second * min(1.0, units / units_of_all)
    return min(units_per_second, max(equal / 2, min(2 * equal, by_units)))
