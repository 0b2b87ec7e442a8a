"""Decides when a broker reports its load: after a large change, and at least once a minute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nextgen.kernel.governance.broker_load import BrokerLoad, has_changed
from nextgen.kernel.limits.placement import LOAD_REPORT_MS_MAX, LOAD_REPORT_MS_MIN


class LoadReports:
    """Decides before each heartbeat whether it carries the load. ``measure`` need not fill in
    ``units``: ``due`` does."""

    def __init__(self, measure: Callable[[], BrokerLoad], clock: Callable[[], int]) -> None:
        self._measure = measure
        self._clock = clock
        self._last: BrokerLoad | None = None
        self._last_at_ms = 0
        self._reported: BrokerLoad | None = None
        self._reported_at_ms = 0

    def __repr__(self) -> str:
        return f"<LoadReports reported_at_ms={self._reported_at_ms if self._reported else None}>"

    def start_over(self) -> None:
        """Forget what was reported: a new manager has no load of this broker."""
        self._reported = None

    def due(self, units: int) -> BrokerLoad | None:
        """Return the load if the next heartbeat must carry it, else None."""
        now_ms = self._clock()
        load = self._current(now_ms)
        if load is None:
            return None
        load = replace(load, units=units)
        if (
            self._reported is not None
            and now_ms - self._reported_at_ms < LOAD_REPORT_MS_MAX
            and not has_changed(self._reported, load)
        ):
            return None
        self._reported, self._reported_at_ms = load, now_ms
        return load

    def _current(self, now_ms: int) -> BrokerLoad | None:
        """Return a measurement; None while the last one is recent and already reported."""
        if self._last is None or now_ms - self._last_at_ms >= LOAD_REPORT_MS_MIN:
            self._last, self._last_at_ms = self._measure(), now_ms
            return self._last
        # A measurement over a shorter time would be noise: a new manager gets the last one again.
        return self._last if self._reported is None else None
