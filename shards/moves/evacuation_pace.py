"""How fast units leave: at a steady rate in each shard, and in turns in all shards of a node.

The last of N units goes N ÷ rate seconds after the first one could go, so the end of an evacuation
can be computed. Unused time is lost, except ``_BURST_SECONDS`` of it: after a minute without
capacity there is no burst of a minute's units.

    shards of a node ──▶ turns, first come first served ──▶ units in flight ≤ a bound
                           ▲                                  │
                           ╰── a batch is over ◀──────────────╯

A node that cannot keep up with the rates of its shards would begin more and more: its event loop
runs late, heartbeats of brokers wait behind assignments, sessions end, and their units have to be
evacuated as well. With a bound the rate falls to what the node and the brokers can carry out, and
the batches of shards that wait for a turn become larger. While the loop is late there is one batch
at a time, so that it gets to the heartbeats.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from nextgen.kernel.limits.placement import (
    EVACUATION_LATE_MS,
    LOST_UNITS_IN_FLIGHT_MAX,
    MOVED_UNITS_IN_FLIGHT_MAX,
)

EVACUATION_UNITS_PER_BATCH_MAX = 500
"""Units that leave a broker in one record: what the whole cluster may assign anew in a second."""

EVACUATION_BATCHES_MAX = 8
"""Batches of one session in flight: one begins every 200 ms, and may wait a second for caches to
acknowledge its moves."""

_BURST_SECONDS = 0.5
"""A batch may take this long without slowing the evacuation."""

PACE_INTERVAL_SECONDS = 0.2
"""Between two batches: each costs a commit and a message, whatever its size."""

UNITS_WHILE_LATE_MAX = 64
"""Units of the one batch in flight while the loop is late: some tens of milliseconds of work."""


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


class EvacuationTurns:
    """Units in flight of one kind of evacuations, at most ``units_max``. Owned by one event loop.

    Whoever takes units MUST give them back once they have left their broker, or could not.
    """

    def __init__(self, units_max: int) -> None:
        self._units_max = units_max
        self._in_flight = 0
        self._is_late = False
        self._waiting: deque[tuple[int, asyncio.Future[int]]] = deque()

    def __repr__(self) -> str:
        return (
            f"<EvacuationTurns in_flight={self._in_flight} waiting={len(self._waiting)} "
            f"late={self._is_late}>"
        )

    @property
    def units_in_flight(self) -> int:
        """Units that were taken and not given back."""
        return self._in_flight

    async def take(self, units: int) -> int:
        """Wait for the turn of ``units``; return how many of them may go, at least one."""
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        place = units, turn
        self._waiting.append(place)
        self._grant()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(turn.result())
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(place)
                self._grant()
            raise

    def give_back(self, units: int) -> None:
        """Note that units are in flight no more, or never were."""
        self._in_flight -= units
        assert self._in_flight >= 0, "units were given back that nobody took"
        self._grant()

    def note_late(self, late_s: float) -> None:
        """Note how late a timer of the event loop ran."""
        self._is_late = late_s * 1_000 > EVACUATION_LATE_MS
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            units, turn = self._waiting[0]
            if turn.cancelled():  # Its task has not run since.
                self._waiting.popleft()
                continue
            granted = self._allowed(units)
            if not granted:
                return
            self._waiting.popleft()
            self._in_flight += granted
            turn.set_result(granted)

    def _allowed(self, units: int) -> int:
        """Return how many of these units may go now: 0, or as many as may go at a time."""
        if self._is_late:
            return 0 if self._in_flight else min(units, UNITS_WHILE_LATE_MAX)
        most = min(units, self._units_max)
        return most if self._in_flight + most <= self._units_max else 0


class NodeEvacuations:
    """The turns of all shards of a node. Moved units wait for caches and for each other, and are
    served meanwhile; those of lost brokers are not, and have turns of their own."""

    def __init__(self) -> None:
        self.lost = EvacuationTurns(LOST_UNITS_IN_FLIGHT_MAX)
        self.moves = EvacuationTurns(MOVED_UNITS_IN_FLIGHT_MAX)
