"""What went wrong between a sidecar and its broker: a line in the log, a count in the metric."""

from __future__ import annotations

from collections import Counter

import structlog

from brokers.ports.plugin import PluginFault

_logger = structlog.get_logger(__name__)


class PluginFaults:
    """Counts each fault, and logs each reason of it once until the next connection."""

    def __init__(self) -> None:
        self.counts: Counter[PluginFault] = Counter()
        self._logged: dict[PluginFault, str] = {}

    def __repr__(self) -> str:
        return f"<PluginFaults {dict(self.counts)}>"

    def note(self, fault: PluginFault, why: str) -> None:
        """Count a fault; log it unless it was the last of its kind that was logged."""
        self.counts[fault] += 1
        if self._logged.get(fault) != why:
            self._logged[fault] = why
            _logger.warning("stock broker fault", kind=fault.value, why=why)

    def begin_anew(self) -> None:
        """Log each reason again from here on: a plug-in is connected."""
        self._logged.clear()
