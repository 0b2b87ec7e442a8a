"""The agent's numbers in Prometheus' form, read when somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from brokers.service.agent import BrokerAgent

_COUNTERS = {
    "deliveries_applied": "Steps of the session's sequence that were applied.",
    "sessions_established": "Sessions begun with the broker manager.",
    "sessions_voided": "Sessions that ended with everything they had been assigned.",
    "connections_opened": "Connections tried to a broker manager.",
    "heartbeats_echoed": "Heartbeats that the broker manager confirmed.",
    "names_checked": "Names asked for in Serves.",
}


class BrokerCollector(Collector):
    """Registered once per process."""

    def __init__(self, agent: BrokerAgent) -> None:
        self._agent = agent

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
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"nextgen_broker_{name}", text, value=value)
        counts = self._agent.counters.as_dict()
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"nextgen_broker_{name}", text, value=counts[name])
