"""What went wrong between a sidecar and its broker: a line in the log, a count in the metric."""

from __future__ import annotations

from collections import Counter

import structlog

from brokers.ports.plugin import PluginFault
from brokers.ports.session import Clock
from nextgen.kernel.limits.stream import PLUGIN_FAULT_REPEATED_MS

_logger = structlog.get_logger(__name__)


class PluginFaults:
    """Counts each fault; logs its reason once, and again if it lasts."""

    def __init__(self, clock: Clock) -> None:
        self.counts: Counter[PluginFault] = Counter()
        self._clock = clock
        self._logged: dict[tuple[PluginFault, str], int] = {}
        """When each fault was logged with each reason, of those that were a moment ago."""

    def __repr__(self) -> str:
        return f"<PluginFaults {dict(self.counts)}>"

    def note(self, fault: PluginFault, why: str) -> None:
        """Count a fault; log it unless this reason of it was logged a moment ago."""
        self.counts[fault] += 1
        now_ms = self._clock()
        since_ms = now_ms - PLUGIN_FAULT_REPEATED_MS
        self._logged = {what: at for what, at in self._logged.items() if at > since_ms}
        if (fault, why) not in self._logged:
            self._logged[fault, why] = now_ms
            _logger.warning("stock broker fault", kind=fault.value, why=why)
