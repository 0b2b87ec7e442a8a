"""The report of one process of a discovery node: numbers that can be summed over its workers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from discovery.domain.answer_cache import AnswerCache
from discovery.service.counters import DiscoveryCounters
from nextgen.client.routing.router import RouterStatistics
from nextgen.kernel.limits.cluster import ROUTER_RETRIES_MAX
from nextgen.runtime.telemetry.observability import LoopLag

COLD_PREFIX = "cold_lookups_"
"""Begins the names of the counts of cold lookups by time taken; their buckets' numbers follow."""

COLD_SUM = "cold_lookups_ms"
ANSWERED_PREFIX = "answered_lookups_"
"""As ``COLD_PREFIX``, of all lookups by the latency that clients saw."""

ANSWERED_SUM = "answered_lookups_ms"
RETRIES_PREFIX = "routed_with_"
RESULT_PREFIX = "lookups_"


@dataclass(slots=True)
class Report:
    """Numbers of one process, or of several together."""

    counts: Counter[str] = field(default_factory=Counter)
    """Counters since the start; those of ended processes are included."""

    gauges: Counter[str] = field(default_factory=Counter)
    """Present values, by the name of the gauge."""

    watch_ages_s: dict[str, float] = field(default_factory=dict)
    """Seconds since the last update of each shard, by shard id; the oldest of all processes."""

    watch_resets: Counter[str] = field(default_factory=Counter)
    """Number of times that a shard's cached answers were dropped, by shard id."""

    def to_json(self) -> str:
        """Return the report as one line."""
        return json.dumps(
            [self.counts, self.gauges, self.watch_ages_s, self.watch_resets],
            separators=(",", ":"),
        )

    @staticmethod
    def from_json(text: str) -> Report:
        """Return the report that ``to_json`` made.

        Raises:
            ValueError: It is none.
        """
        parts = json.loads(text)
        if not isinstance(parts, list) or len(parts) != 4:
            raise ValueError("a report has four parts")
        if not all(isinstance(part, dict) for part in parts):
            raise ValueError("each part of a report is a map")
        counts, gauges, ages, resets = parts
        return Report(Counter(counts), Counter(gauges), dict(ages), Counter(resets))


class ProcessReporter:
    """Makes the report of this process."""

    def __init__(
        self,
        counters: DiscoveryCounters,
        cache: AnswerCache,
        routed: RouterStatistics,
        gauges: Callable[[], dict[str, int]],
        watches: Callable[[], Iterable[tuple[int, float, int]]],
    ) -> None:
        self._counters = counters
        self._cache = cache
        self._routed = routed
        self._gauges = gauges
        self._watches = watches
        """Shard id, age in seconds and resets of each watch."""

    def report(self) -> Report:
        """Return the present report."""
        report = Report()
        counts = report.counts
        counts.update(self._counters.as_map())
        for number, count in enumerate(self._counters.cold_latency_ms):
            counts[f"{COLD_PREFIX}{number}"] = count
        counts[COLD_SUM] = int(self._counters.cold_latency_sum_ms)
        tally = self._counters.tally
        for number, count in enumerate(tally.counts()):
            counts[f"{ANSWERED_PREFIX}{number}"] = count
        counts[ANSWERED_SUM] = int(tally.latency_sum_ms)
        counts["failed_by_us"] = tally.errors
        counts["event_loop_stalls"] = LoopLag.stalls
        counts["routed_requests"] = self._routed.requests
        counts["routed_failures"] = self._routed.failures
        counts["retries"] = self._routed.retries_total
        for retries in range(ROUTER_RETRIES_MAX + 1):
            counts[f"{RETRIES_PREFIX}{retries}_retries"] = self._routed.retries[retries]
        report.gauges["cached_answers"] = len(self._cache)
        report.gauges["streams_open"] = self._counters.streams_open
        report.gauges.update(self._gauges())
        for shard_id, age_s, resets in self._watches():
            report.watch_ages_s[str(shard_id)] = age_s
            report.watch_resets[str(shard_id)] = resets
        return report


def merged(reports: Iterable[Report]) -> Report:
    """Return the sum of several processes' reports."""
    total = Report()
    for report in reports:
        total.counts.update(report.counts)
        total.gauges.update(report.gauges)
        total.watch_resets.update(report.watch_resets)
        for shard_id, age_s in report.watch_ages_s.items():
            total.watch_ages_s[shard_id] = max(age_s, total.watch_ages_s.get(shard_id, age_s))
    return total


def retries_of(report: Report) -> list[int]:
    """Return, by number of retries, how many requests needed so many."""
    counts = report.counts
    return [counts[f"{RETRIES_PREFIX}{n}_retries"] for n in range(ROUTER_RETRIES_MAX + 1)]


def as_map(report: Report) -> dict[str, int]:
    """Return all numbers by name, as ``GetCounters`` gives them."""
    retries = RouterStatistics(retries=retries_of(report))
    numbers = {
        name: count
        for name, count in report.counts.items()
        if not name.startswith((COLD_PREFIX, ANSWERED_PREFIX))
    }
    return {**numbers, **report.gauges, "retries_p99": retries.retries_quantile(0.99)}
