"""How a broker leaves: it has its units taken to others first, if there is anybody to take them.

    asked to stop ─▶ nothing held, or nobody else ─▶ gone at once
                  ╰▶ wish ─▶ the cluster says that it drains ─▶ nothing held any more ─▶ gone
                                ╰─ refused, too late, or cut off ────────────────────────▶ gone

Whatever it still holds in the end is lost to its clients for as long as the units of a broker that
closed its session are: they are assigned anew when they are looked up.
"""

from __future__ import annotations

from typing import Protocol

import structlog

from brokers.ports.session import Clock, Sleep
from nextgen.kernel.limits.placement import DRAIN_UNITS_PER_SECOND_MAX, REASSIGN_UNITS_PER_SECOND

LOOK_MS = 200
"""Between two looks at what is still held."""

ACCEPTED_MS_MAX = 5_000
"""A wish of which nothing is seen by then was refused, or nobody there records it: a commit at the
manager, one at the cluster manager, and a push take some 20 ms, an election a second or two."""

CUT_OFF_MS_MAX = 1_500
"""Without a manager for so long nobody takes units away. An election takes less."""

_logger = structlog.get_logger(__name__)


class Leaving(Protocol):
    """The broker that leaves; ``BrokerAgent`` is one."""

    @property
    def is_registered(self) -> bool: ...

    @property
    def units_held(self) -> int: ...

    def ask_drain(self, units_per_second: int) -> None:
        """Ask the manager to have this broker emptied."""
        ...


class Neighbours(Protocol):
    """What the cluster says of the brokers."""

    def may_take_units(self) -> bool:
        """Say whether another broker lives that may be given units."""
        ...

    def is_draining(self) -> bool:
        """Say whether this broker is being emptied, as far as is known here."""
        ...


class Departure:
    """One broker's way out. ``clock`` is in milliseconds."""

    def __init__(
        self, broker: Leaving, neighbours: Neighbours, *, clock: Clock, sleep: Sleep
    ) -> None:
        self._broker = broker
        self._neighbours = neighbours
        self._clock = clock
        self._sleep = sleep

    async def leave(self, drain_ms_max: int) -> int:
        """Return how many units are held still, when none is or waiting would be of no use."""
        units, began_at_ms = self._broker.units_held, self._clock()
        if not units:
            return 0
        if not drain_ms_max or not self._neighbours.may_take_units():
            _logger.info("leaving with units, nobody takes them", units=units)
            return units
        self._broker.ask_drain(_rate(units, drain_ms_max))
        seen_at_ms = began_at_ms
        why = ""
        while self._broker.units_held and not why:
            await self._sleep(LOOK_MS / 1000)
            now = self._clock()
            if self._broker.is_registered:
                seen_at_ms = now
            why = self._why_stop(now - began_at_ms, now - seen_at_ms, drain_ms_max)
        left, took_ms = self._broker.units_held, self._clock() - began_at_ms
        _logger.info("leaving", units=units, left=left, took_ms=took_ms, why=why or "empty")
        return left

    def _why_stop(self, waited_ms: int, cut_off_ms: int, drain_ms_max: int) -> str:
        if waited_ms >= drain_ms_max:
            return "time is up"
        if not self._neighbours.may_take_units():
            return "nobody else takes units any more"
        if cut_off_ms >= CUT_OFF_MS_MAX:
            return "cut off from the manager"
        if waited_ms >= ACCEPTED_MS_MAX and not self._neighbours.is_draining():
            return "the drain was refused or undone"
        return ""


def _rate(units: int, drain_ms_max: int) -> int:
    """Return a rate by which half of the time is enough: some units are refused at first.

    At least that of lost units: whoever stops the broker waits, and it is as much as the cluster
    would do if the broker just died.
    """
    needed = units * 2_000 // drain_ms_max + 1
    return min(max(needed, REASSIGN_UNITS_PER_SECOND), DRAIN_UNITS_PER_SECOND_MAX)
