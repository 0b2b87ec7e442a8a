"""The broker's metrics for Prometheus, computed at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from brokers.adapters.pulsar.front import PulsarFront
from brokers.ports.plugin import PluginFault
from brokers.service.client_limits.broker_clients import Use
from brokers.service.session.agent import BrokerAgent
from brokers.service.sidecar.sidecar import Sidecar
from brokers.service.traffic import LATENCY_BOUNDS_S, Latency
from nextgen.runtime.security.authentication.authentication_metrics import authentications
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authorization.authorizer import Authorizer

_COUNTERS = {
    "deliveries_applied": "Steps of the session's sequence that were applied.",
    "sessions_established": "Sessions begun with the broker manager.",
    "sessions_voided": "Sessions that ended with everything they had been assigned.",
    "connections_opened": "Connections tried to a broker manager.",
    "heartbeats_echoed": "Heartbeats that the broker manager confirmed.",
    "names_checked": "Names in Serves requests.",
}


class BrokerCollector(Collector):
    """Registered once per process. ``front`` is None if the broker serves no clients,
    ``authenticator`` if they prove no role, ``sidecar`` if it is no stock broker's."""

    def __init__(
        self,
        agent: BrokerAgent,
        front: PulsarFront | None,
        authenticator: Authenticator | None = None,
        sidecar: Sidecar | None = None,
    ) -> None:
        self._sidecar = sidecar
        self._agent = agent
        self._front = front
        self._authenticator = authenticator

    def collect(self) -> Iterator[Metric]:
        session = self._agent.session
        holding = session.holding
        gauges = {
            "units": ("Topics and partitions assigned here.", len(holding.assignments)),
            "tombstones": ("Released units that are remembered.", holding.tombstones),
            "namespaces": ("Namespaces whose metadata is here.", len(holding.namespaces)),
            "tenants": ("Tenants whose metadata is here.", len(holding.tenants)),
            "registered": ("1 while the session is connected.", int(self._agent.is_registered)),
            "session_epoch": ("Epoch of the session, 0 without one.", session.epoch),
            "sync_position": ("Last applied number of the sequence.", session.applied_sequence),
        }
        yield from _gauges(gauges)
        counts = self._agent.counters.as_dict()
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"nextgen_broker_{name}", text, value=counts[name])
        yield authentications({} if self._authenticator is None else self._authenticator.counts)
        yield from _of_stock_broker(self._sidecar)
        if self._front is not None:
            yield from _of_clients(self._front)
            yield from _of_limits(self._front)
            yield from _of_permissions(self._front.authorizer)


def _of_stock_broker(sidecar: Sidecar | None) -> Iterator[Metric]:
    connected = sidecar is not None and sidecar.greeting is not None
    yield from _gauges(
        {"plugin_connected": ("1 while a stock broker's plug-in is connected.", int(connected))}
    )
    removed = 0 if sidecar is None else sidecar.removals.removed
    text = "Topics that Pulsar deleted and that were removed from the inventory."
    yield from _counters({"stock_topics_removed": (text, removed)})
    faults = CounterMetricFamily(
        "nextgen_broker_stock_faults",
        "What was wrong with a stock broker or its plug-in, by what it was.",
        labels=["kind"],
    )
    for fault in PluginFault:
        faults.add_metric([fault.value], 0 if sidecar is None else sidecar.faults.counts[fault])
    yield faults


def _of_clients(front: PulsarFront) -> Iterator[Metric]:
    topics = list(front.topics)
    shadows = [each.as_shadow for each in topics if each.as_shadow is not None]
    yield from _gauges(
        {
            "pulsar_connections": ("Pulsar clients connected.", front.connection_count),
            "pulsar_unfinished_bytes": (
                "Bytes of frames that clients have not sent completely.",
                front.unfinished_bytes,
            ),
            "topics_open": ("Topics and partitions whose ledger is open.", len(topics)),
            "topic_watchers": (
                "Watchers of topic lists by pattern.",
                front.topic_watches.watchers,
            ),
            "topics_failed": ("Those that could not be opened.", len(front.topics.errors)),
            "producers": ("Producers connected.", sum(len(each.producers) for each in topics)),
            "consumers": ("Consumers connected.", sum(each.consumers for each in topics)),
            "subscriptions": ("Subscriptions.", sum(len(each.subscriptions) for each in topics)),
            "source_streams": (
                "Brokers whose shadows topics here feed, this one included.",
                front.sources.stream_count,
            ),
            "sources_followed": (
                "Topics here that feed shadows, once for each of these brokers.",
                front.sources.source_count,
            ),
            "shadows": ("Shadow topics open.", len(shadows)),
            "shadows_away": (
                "Those whose source sends nothing at present.",
                sum(bool(each.away) for each in shadows),
            ),
            "ledger_bytes": (
                "Kept by open topics; what shadows show is their sources'.",
                sum(each.ledger.byte_count for each in topics if each.as_shadow is None),
            ),
            "backlog_bytes": (
                "What the slowest durable subscription of each open topic has before it.",
                sum(each.backlog_bytes for each in topics),
            ),
        }
    )
    traffic = front.traffic
    counters = {
        "pulsar_connections_dropped": (
            "Pulsar clients closed for incomplete frames, or without CONNECT among too many.",
            front.dropped_connections,
        ),
        "messages_in": ("Messages stored.", traffic.messages_in),
        "messages_out": ("Messages sent to consumers.", traffic.messages_out),
        "bytes_in": ("Payload bytes stored.", traffic.bytes_in),
        "bytes_out": ("Payload bytes sent to consumers.", traffic.bytes_out),
        "entries_out": ("Entries sent to consumers.", traffic.entries_out),
    }
    yield from _counters(counters)
    yield _histogram("append_seconds", "From SEND to durable and not fenced.", front.append_latency)


def _of_limits(front: PulsarFront) -> Iterator[Metric]:
    throttled = sum(connection.is_throttled for connection in front.connections())
    yield from _gauges(
        {
            "connections_throttled": (
                "Pulsar clients that are not read at present because of a rate.",
                throttled,
            )
        }
    )
    clients = front.clients
    yield from _counters(
        {
            "publish_throttled": (
                "Times that a Pulsar client was not read because of a rate.",
                clients.publish_waits,
            ),
            "dispatch_throttled": (
                "Times that a subscription waited because of a rate.",
                clients.dispatch_waits,
            ),
        }
    )
    refused = CounterMetricFamily(
        "nextgen_broker_clients_refused",
        "Connections, producers, consumers and subscriptions refused because of a limit.",
        labels=["kind"],
    )
    for use in Use:
        refused.add_metric([use.value], clients.refused[use])
    yield refused


def _of_permissions(authorizer: Authorizer | None) -> Iterator[Metric]:
    found = Counter(authorizer.counts() | authorizer.gauges() if authorizer else ())
    text = "Tenants, namespaces and topics whose permissions are followed."
    yield from _gauges({"permission_objects": (text, found["permission_objects"])})
    for name, text in (
        ("permissions_refused", "Requests that were refused for want of a permission."),
        (
            "permissions_revoked",
            "Connections that ended because a permission in use was taken back.",
        ),
    ):
        yield CounterMetricFamily(f"nextgen_broker_{name}", text, value=found[name])


def _gauges(gauges: dict[str, tuple[str, int]]) -> Iterator[Metric]:
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(f"nextgen_broker_{name}", text, value=value)


def _counters(counters: dict[str, tuple[str, int]]) -> Iterator[Metric]:
    for name, (text, value) in counters.items():
        yield CounterMetricFamily(f"nextgen_broker_{name}", text, value=value)


def _histogram(name: str, text: str, latency: Latency) -> Metric:
    """Return a histogram; Prometheus wants its buckets cumulative."""
    buckets: list[tuple[str, float]] = []
    cumulated = 0
    for bound, count in zip([*LATENCY_BOUNDS_S, float("inf")], latency.counts, strict=True):
        cumulated += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), cumulated))
    return HistogramMetricFamily(
        f"nextgen_broker_{name}", text, buckets=buckets, sum_value=latency.seconds
    )
