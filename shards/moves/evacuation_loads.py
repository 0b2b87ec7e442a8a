"""The last load report of each broker session, kept beyond the end of the session.

The directory forgets the load of a session that ends, and an evacuation needs it just then, to
begin with the busiest units. The rates of units are smoothed over the reports, for rebalances.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from operator import itemgetter

from nextgen.client.wire.broker_load import rate_of
from nextgen.kernel.limits.placement import BUSIEST_UNITS_MAX, LOAD_REPORT_MS_MAX
from protos.nextgen.v1.events_pb2 import LoadReport
from shards.domain.placement.measured_loads import STEADY_INTERVALS, smoothed
from shards.ports import BrokerDirectory

RATES_PER_SESSION_MAX = 4 * BUSIEST_UNITS_MAX
"""Smoothed rates kept of a session: of the last report's units and of earlier, fading ones."""


class EvacuationLoads:
    """The last load of each session, for one term of one shard's leader."""

    def __init__(self, directory: BrokerDirectory) -> None:
        self._directory = directory
        self._reports: dict[str, LoadReport] = {}
        self._rates: dict[str, dict[str, int]] = {}
        """By session: the smoothed rates of the units that its reports name."""

    def __repr__(self) -> str:
        return f"<EvacuationLoads sessions={len(self._reports)}>"

    def look(self, wanted: Collection[str]) -> None:
        """Read new reports; forget sessions that are neither live nor ``wanted``."""
        live = {broker.session_id for broker in self._directory.live()}
        for session_id in live:
            report = self._directory.load(session_id)
            if report is not None:
                self._take(session_id, report)
        for session_id in set(self._reports) - live - set(wanted):
            del self._reports[session_id]
            del self._rates[session_id]

    def units_reported(self, session_id: str) -> int:
        """Return how many units of all shards the broker reported, 0 without a report."""
        report = self._reports.get(session_id)
        return 0 if report is None else report.topics

    def busiest(self, session_id: str) -> list[str]:
        """Return names of units, the busiest first."""
        report = self._reports.get(session_id)
        if report is None:
            return []
        return [each.name for each in sorted(report.busiest, key=rate_of, reverse=True)]

    def rates(self, session_id: str) -> dict[str, int]:
        """Return the smoothed rates of the session's busiest units, by name."""
        return self._rates.get(session_id, {})

    def unnamed_rate(self, session_id: str) -> int:
        """Return the even part of the broker's traffic of each unit that its report does not name.

        0 without a report.
        """
        report = self._reports.get(session_id)
        if report is None:
            return 0
        rest = rate_of(report) - sum(map(rate_of, report.busiest))
        return max(0, rest) // max(1, report.topics - len(report.busiest))

    def _take(self, session_id: str, report: LoadReport) -> None:
        before = self._reports.get(session_id)
        if before is not None and before.measured_at_ms >= report.measured_at_ms:
            return
        self._reports[session_id] = report
        known = self._rates.get(session_id)
        reported = {each.name: rate_of(each) for each in report.busiest}
        if known is None:
            self._rates[session_id] = reported
            return
        passed_ms = 1 if before is None else report.measured_at_ms - before.measured_at_ms
        rates = {
            name: smoothed(
                known.get(name, 0),
                reported.get(name, 0),
                passed_ms=passed_ms,
                known_ms=STEADY_INTERVALS * LOAD_REPORT_MS_MAX,
                interval_ms=LOAD_REPORT_MS_MAX,
            )
            for name in sorted(known.keys() | reported.keys())
        }
        busiest = heapq.nlargest(RATES_PER_SESSION_MAX, rates.items(), key=itemgetter(1))
        self._rates[session_id] = {name: rate for name, rate in busiest if rate}
