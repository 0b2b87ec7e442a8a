"""The discovery service's page for Prometheus, read from the counters when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from discovery.adapters.assignment_watch import AssignmentWatch
from discovery.domain.answer_cache import AnswerCache
from discovery.ports import Clock
from discovery.service.counters import COLD_LATENCY_BUCKETS_MS, DiscoveryCounters
from nextgen.client.routing import RouterStatistics


class DiscoveryCollector(Collector):
    """Turns counters into metrics; costs nothing between two scrapes."""

    def __init__(
        self,
        counters: DiscoveryCounters,
        cache: AnswerCache,
        routed: RouterStatistics,
        watches: Mapping[int, AssignmentWatch],
        clock: Clock,
    ) -> None:
        self._counters = counters
        self._cache = cache
        self._routed = routed
        self._watches = watches
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        yield self._lookups()
        yield self._cold_latency()
        yield self._retries()
        yield from self._watch_lag()
        counters = self._counters
        yield _gauge("cached_answers", "Answers in the cache", len(self._cache))
        yield _gauge("lookup_streams", "Lookup streams that are open", counters.streams_open)
        yield _counter("lookup_messages", "Lookup messages read", counters.lookup_messages)
        yield _counter(
            "topics_created", "Topics created through this node", counters.topics_created
        )
        yield _counter("writes", "Writes that a shard answered", counters.writes)
        yield _counter("writes_refused", "Writes that the rules refused", counters.writes_refused)
        yield _counter("reads", "Reads of the inventories", counters.reads)
        yield _counter("topics_moved", "Topics moved by this node", counters.topics_moved)
        yield _counter("invalid_requests", "Requests refused unread", counters.requests_invalid)
        yield _counter("routed_failures", "Requests to shards that failed", self._routed.failures)

    def _lookups(self) -> Metric:
        family = CounterMetricFamily(
            "nextgen_discovery_lookups", "Names looked up, by result", labels=["result"]
        )
        family.add_metric(["cached"], self._counters.answers_from_cache)
        for result, count in self._counters.lookups_by_result.items():
            family.add_metric([result.lower()], count)
        return family

    def _cold_latency(self) -> Metric:
        bounds = [str(bucket / 1_000) for bucket in COLD_LATENCY_BUCKETS_MS]
        return _histogram(
            "cold_lookup_seconds",
            "Time a shard took to answer a name that was not cached",
            [*bounds, "+Inf"],
            self._counters.cold_latency_ms,
            self._counters.cold_latency_sum_ms / 1_000,
        )

    def _retries(self) -> Metric:
        retries = self._routed.retries
        return _histogram(
            "request_retries",
            "Internal retries of a request to a shard",
            [*map(str, range(len(retries) - 1)), "+Inf"],
            retries,
            self._routed.retries_total,
        )

    def _watch_lag(self) -> Iterator[Metric]:
        age = GaugeMetricFamily(
            "nextgen_discovery_watch_age_seconds",
            "Time since the last update of a shard's assignments",
            labels=["shard"],
        )
        resets = CounterMetricFamily(
            "nextgen_discovery_watch_resets",
            "Times a shard's cached answers had to be forgotten",
            labels=["shard"],
        )
        for shard_id, watch in sorted(self._watches.items()):
            age.add_metric([str(shard_id)], self._clock() - watch.heard_at)
            resets.add_metric([str(shard_id)], watch.resets)
        yield age
        yield resets


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"nextgen_discovery_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"nextgen_discovery_{name}", text, value=value)


def _histogram(
    name: str, text: str, bounds: list[str], counts: list[int], sum_value: float
) -> Metric:
    """Return a histogram; ``counts`` are per bucket, Prometheus wants them cumulative."""
    buckets: list[tuple[str, float]] = []
    cumulated = 0
    for bound, count in zip(bounds, counts, strict=True):
        cumulated += count
        buckets.append((bound, cumulated))
    return HistogramMetricFamily(
        f"nextgen_discovery_{name}", text, buckets=buckets, sum_value=sum_value
    )
