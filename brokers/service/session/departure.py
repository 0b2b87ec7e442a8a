"""A broker's departure: other brokers take its units first, if there are any.

    signal to stop ─▶ no unit, or no other broker ─▶ stop at once
                   ╰▶ drain request ─▶ the cluster state shows the drain ─▶ no unit left ─▶ stop
                                 ╰─ refused, too late, or cut off ────────────────────────▶ stop

Units that are left at the end are unavailable like those of any closed session, until their next
lookup assigns them.
"""

from __future__ import annotations

from typing import Protocol

import structlog

from brokers.ports.session import Clock, Sleep
from nextgen.kernel.limits.placement import DRAIN_UNITS_PER_SECOND_MAX, REASSIGN_UNITS_PER_SECOND

LOOK_MS = 200
"""Between two checks of the remaining units."""

ACCEPTED_MS_MAX = 5_000
"""A drain request without effect by then was refused or lost: a commit at the manager, one at the
cluster manager, and a push take some 20 ms, an election a second or two."""

CUT_OFF_MS_MAX = 1_500
"""After this long without a manager no units will be moved. An election takes less."""

_logger = structlog.get_logger(__name__)


class Leaving(Protocol):
    """The leaving broker; ``BrokerAgent`` is one."""

    @property
    def is_registered(self) -> bool: ...

    @property
    def units_held(self) -> int: ...

    def ask_drain(self, units_per_second: int) -> None:
        """Request a drain of this broker."""
        ...


class Neighbours(Protocol):
    """The state of the brokers in the cluster."""

    def may_take_units(self) -> bool:
        """Return whether there is another live broker of this kind that may be assigned units."""
        ...

    def is_draining(self) -> bool:
        """Return whether the cluster state shows that this broker drains."""
        ...


class Departure:
    """One broker's departure. ``clock`` is in milliseconds."""

    def __init__(
        self, broker: Leaving, neighbours: Neighbours, *, clock: Clock, sleep: Sleep
    ) -> None:
        self._broker = broker
        self._neighbours = neighbours
        self._clock = clock
        self._sleep = sleep

    async def leave(self, drain_ms_max: int) -> int:
        """Wait until no unit is left or waiting is of no use; return the number of units left."""
        units, began_at_ms = self._broker.units_held, self._clock()
        if not units:
            return 0
        if not drain_ms_max or not self._neighbours.may_take_units():
            _logger.info("leaving with units, no other broker takes them", units=units)
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
            return "no other broker takes units any more"
        if cut_off_ms >= CUT_OFF_MS_MAX:
            return "cut off from the manager"
        if waited_ms >= ACCEPTED_MS_MAX and not self._neighbours.is_draining():
            return "the drain was refused or undone"
        return ""


def _rate(units: int, drain_ms_max: int) -> int:
    """Return a rate at which half of the time suffices, because some units are refused at first.

    It is at least the rate for lost units: the cluster would bear as much if the broker had died.
    """
    needed = units * 2_000 // drain_ms_max + 1
    return min(max(needed, REASSIGN_UNITS_PER_SECOND), DRAIN_UNITS_PER_SECOND_MAX)
