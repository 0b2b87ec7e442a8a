"""The discovery node's metrics for Prometheus, made from a report at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from discovery.service.counters import COLD_LATENCY_BUCKETS_MS
from discovery.service.report import (
    ANSWERED_PREFIX,
    ANSWERED_SUM,
    COLD_PREFIX,
    COLD_SUM,
    RESULT_PREFIX,
    Report,
    retries_of,
)
from discovery.service.watches.registry import (
    OPEN_PREFIX,
    RELAYED_PREFIX,
    SLOW_PREFIX,
    WATCH_KINDS,
)
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.lookup_slo import LOOKUP_WINDOW_BOUNDS_MS
from nextgen.runtime.security.authentication.authentication_metrics import authentications

_COUNTERS = (
    ("lookup_messages", "lookup_messages", "Lookup messages read"),
    (
        "absent_answers",
        "answers_absent",
        "Names answered as absent without asking their shard",
    ),
    ("topics_created", "topics_created", "Topics created through this node"),
    ("writes", "writes", "Writes that a shard answered"),
    ("writes_refused", "writes_refused", "Writes that the rules refused"),
    (
        "writes_without_positions",
        "writes_without_positions",
        "Writes of clients that do not say when they were issued",
    ),
    ("reads", "reads", "Reads of the inventories"),
    ("topics_moved", "topics_moved", "Topics moved by this node"),
    ("invalid_requests", "requests_invalid", "Requests refused unread"),
    ("routed_failures", "routed_failures", "Requests to shards that failed"),
    ("pulsar_lookups", "pulsar_lookups", "LOOKUP commands of Pulsar clients"),
    ("pulsar_partition_reads", "pulsar_partition_reads", "Questions for a topic's partitions"),
    (
        "pulsar_partition_reads_from_cache",
        "pulsar_partition_reads_from_cache",
        "Questions for a topic's partitions that no shard was asked",
    ),
    ("pulsar_other_commands", "pulsar_other_commands", "Other commands of Pulsar clients"),
    ("pulsar_overloads", "pulsar_overloads", "Commands refused because too many waited"),
    (
        "pulsar_connections_refused",
        "pulsar_connections_refused",
        "Pulsar clients closed because there were too many",
    ),
    (
        "pulsar_connections_dropped",
        "pulsar_connections_dropped",
        "Pulsar clients closed for incomplete frames, or without CONNECT among too many",
    ),
    ("http_requests", "http_requests", "Lookups over HTTP, and requests to the Admin REST"),
    ("failed_lookups", "failed_by_us", "Lookups failed by trouble of ours, or too slow"),
    (
        "event_loop_stalls",
        "event_loop_stalls",
        "Times that an event loop of the node was more than 250 ms late, its workers' included",
    ),
    ("worker_restarts", "worker_restarts", "Workers that ended and were started again"),
    ("layout_updates", "layout_updates", "Layouts of scalable topics sent to watchers"),
    ("layout_watches_refused", "layout_watches_refused", "Watches of layouts that were refused"),
    (
        "namespace_updates",
        "namespace_updates",
        "Lists of scalable topics, and changes of them, sent to watchers of namespaces",
    ),
    (
        "namespace_watches_refused",
        "namespace_watches_refused",
        "Watches of namespaces' scalable topics that were refused",
    ),
    (
        "consumer_assignments",
        "consumer_assignments",
        "Segments of scalable topics assigned to consumers, as sent to them",
    ),
    (
        "consumer_sessions_refused",
        "consumer_sessions_refused",
        "Registrations of consumers of scalable topics that were refused",
    ),
    (
        "consumer_sessions_replaced",
        "consumer_sessions_replaced",
        "Consumers of scalable topics that came back by another connection",
    ),
    (
        "consumer_segments_renewed",
        "consumer_segments_renewed",
        "Sealed segments given anew to consumers that did not acknowledge their end",
    ),
    ("topic_list_updates", "topic_list_updates", "Updates of topic lists sent to watchers"),
    (
        "topic_list_refreshes",
        "topic_list_refreshes",
        "Net differences of topic lists, for watchers that were far behind",
    ),
    (
        "topic_list_requests_refused",
        "topic_list_requests_refused",
        "Watchers of topic lists, and lists, that were refused",
    ),
    (
        "topic_list_lookups_elsewhere",
        "topic_list_lookups_elsewhere",
        "Lookups of patterns answered with a broker, for want of memory for watchers",
    ),
    (
        "topic_lists_unchanged",
        "topic_lists_unchanged",
        "Listings whose client had the list already, answered without names",
    ),
    (
        "permissions_refused",
        "permissions_refused",
        "Requests that were refused for want of a permission",
    ),
    (
        "permissions_revoked",
        "permissions_revoked",
        "Connections and calls that ended because a permission in use was taken back",
    ),
)
"""Name of the metric, name in the report, meaning."""

_GAUGES = (
    ("cached_answers", "cached_answers", "Answers in the cache"),
    ("absent_names", "absent_names", "Names that are remembered as absent"),
    ("lookup_streams", "streams_open", "Lookup streams that are open"),
    ("pulsar_connections", "pulsar_connections", "Pulsar clients that are connected"),
    (
        "pulsar_unfinished_bytes",
        "pulsar_unfinished_bytes",
        "Bytes of frames that clients have not sent completely",
    ),
    ("pulsar_commands_waiting", "pulsar_commands_waiting", "Commands that wait for shards"),
    ("topic_watchers", "topic_watchers", "Watchers of topic lists by pattern"),
    ("layout_watches", "layout_watches", "Watches of layouts of scalable topics"),
    ("namespace_watches", "namespace_watches", "Watches of namespaces' scalable topics"),
    ("layouts_followed", "layouts_followed", "Layouts that are followed for these watches"),
    ("consumer_sessions", "consumer_sessions", "Consumers of scalable topics with a session"),
    ("consumers_attached", "consumers_attached", "Consumers that shards know to be here"),
    ("topic_lists", "topic_lists", "Topic lists that are kept and followed"),
    ("topic_list_names", "topic_list_names", "Names in these lists"),
    ("topic_list_bytes", "topic_list_bytes", "Memory of these lists and of places at them"),
    (
        "topic_lists_bytes_in_flight",
        "topic_lists_bytes_in_flight",
        "Bytes of topic lists that clients have not read",
    ),
    (
        "permission_objects",
        "permission_objects",
        "Tenants, namespaces and topics whose permissions are followed",
    ),
    ("processes", "processes", "Processes that answer Pulsar clients, this one included"),
)


def _kinds_of(kind: type[MetadataError]) -> Iterator[type[MetadataError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds_of(each)


_OUTCOMES = frozenset(
    ["assigned"]
    + [code.value.lower() for code in RejectionCode]
    + [kind.reason.lower() for kind in _kinds_of(MetadataError)]
)
"""Possible outcomes of a lookup; answers from the cache are counted separately."""


class DiscoveryCollector(Collector):
    """Turns reports into metrics; costs nothing between two scrapes."""

    def __init__(self, report: Callable[[], Report]) -> None:
        self._report = report

    def collect(self) -> Iterable[Metric]:
        report = self._report()
        yield _lookups(report)
        yield _cold_latency(report)
        yield _answered(report)
        yield _windows(report)
        yield _retries(report)
        yield from _watch_lag(report)
        yield from _watches(report)
        yield authentications(report.counts)
        for name, key, text in _GAUGES:
            yield _gauge(name, text, report.gauges[key])
        for name, key, text in _COUNTERS:
            yield _counter(name, text, report.counts[key])


def _lookups(report: Report) -> Metric:
    family = CounterMetricFamily(
        "nextgen_discovery_lookups", "Names looked up, by outcome", labels=["outcome"]
    )
    outcomes = Counter({"cached": report.counts["answers_from_cache"]})
    for name, count in report.counts.items():
        if name.startswith(RESULT_PREFIX):
            outcome = name.removeprefix(RESULT_PREFIX)
            # Codes come from shards, which may be of a later release.
            outcomes[outcome if outcome in _OUTCOMES else "other"] += count
    for outcome, count in sorted(outcomes.items()):
        family.add_metric([outcome], count)
    return family


def _cold_latency(report: Report) -> Metric:
    bounds = [str(bucket / 1_000) for bucket in COLD_LATENCY_BUCKETS_MS]
    bounds.append("+Inf")
    return _histogram(
        "cold_lookup_seconds",
        "Time a shard took to answer a name that was not cached",
        bounds,
        [report.counts[f"{COLD_PREFIX}{number}"] for number in range(len(bounds))],
        report.counts[COLD_SUM] / 1_000,
    )


def _answered(report: Report) -> Metric:
    bounds = [*(str(bound / 1_000) for bound in LOOKUP_WINDOW_BOUNDS_MS), "+Inf"]
    return _histogram(
        "answered_lookup_seconds",
        "Time from a lookup to its answer, answers from the cache included",
        bounds,
        [report.counts[f"{ANSWERED_PREFIX}{number}"] for number in range(len(bounds))],
        report.counts[ANSWERED_SUM] / 1_000,
    )


def _windows(report: Report) -> Metric:
    family = CounterMetricFamily(
        "nextgen_discovery_lookup_windows",
        "Minutes of lookups of each process, by whether they kept the objective",
        labels=["outcome"],
    )
    for outcome in ("good", "bad"):
        family.add_metric([outcome], report.counts[f"lookup_windows_{outcome}"])
    return family


def _retries(report: Report) -> Metric:
    retries = retries_of(report)
    return _histogram(
        "request_retries",
        "Internal retries of a request to a shard",
        [*map(str, range(len(retries) - 1)), "+Inf"],
        retries,
        report.counts["retries"],
    )


def _watch_lag(report: Report) -> Iterator[Metric]:
    age = GaugeMetricFamily(
        "nextgen_discovery_watch_age_seconds",
        "Time since the last update of a shard's assignments, the oldest of all processes; "
        "0 while its lease rests",
        labels=["shard"],
    )
    resets = CounterMetricFamily(
        "nextgen_discovery_watch_resets",
        "Times a shard's cached answers had to be forgotten",
        labels=["shard"],
    )
    for shard_id, age_s in sorted(report.watch_ages_s.items(), key=lambda item: int(item[0])):
        age.add_metric([shard_id], age_s)
        resets.add_metric([shard_id], report.watch_resets[shard_id])
    yield age
    yield resets


def _watches(report: Report) -> Iterator[Metric]:
    """Yield the numbers of the watches of programs, by kind: five of each."""
    watches = GaugeMetricFamily(
        "nextgen_discovery_watches", "Watches of programs that are open", labels=["kind"]
    )
    relayed = CounterMetricFamily(
        "nextgen_discovery_watch_events_relayed",
        "Events queued for watchers, once for each of them",
        labels=["kind"],
    )
    slow = CounterMetricFamily(
        "nextgen_discovery_watches_ended_as_slow",
        "Watches ended because their watcher did not read",
        labels=["kind"],
    )
    for kind in WATCH_KINDS:
        watches.add_metric([kind], report.gauges[f"{OPEN_PREFIX}{kind}"])
        relayed.add_metric([kind], report.counts[f"{RELAYED_PREFIX}{kind}"])
        slow.add_metric([kind], report.counts[f"{SLOW_PREFIX}{kind}"])
    yield watches
    yield relayed
    yield slow
    yield _gauge(
        "watch_lag_positions",
        "Events of a shard that the watcher furthest behind was not sent yet",
        report.gauges["watch_lag_positions"],
    )
    yield _gauge(
        "watch_lag_seconds",
        "How long the oldest update has waited for its watcher to read",
        report.gauges["watch_lag_ms"] / 1_000,
    )
    yield _gauge(
        "watch_bytes",
        "Memory that the watches of programs count for",
        report.gauges["watch_bytes"],
    )
    yield CounterMetricFamily(
        "nextgen_discovery_watches_refused",
        "Watches of programs for which there was no memory",
        report.counts["watches_refused"],
    )


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
