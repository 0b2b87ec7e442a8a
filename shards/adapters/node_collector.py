"""A shard node's gauges for Prometheus, computed at each scrape. The only label is the shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shards.domain.slots.events import SlotRanges
from shards.node.replica import Replica


class NodeCollector(Collector):
    """Yields one sample per metric and replica of this node."""

    def __init__(self, replicas: Mapping[int, Replica]) -> None:
        self._replicas = replicas

    def collect(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(f"nextgen_shard_{name}", text, labels=["shard"])
            for name, text in _GAUGES.items()
        }
        for shard_id, replica in sorted(self._replicas.items()):
            for name, value in _values(replica).items():
                families[name].add_metric([str(shard_id)], value)
        yield from families.values()


_GAUGES = {
    "leads": "1 while this replica leads and may decide.",
    "broker_sessions": "Live broker sessions of this leader.",
    "metadata_names": "Names followed for the brokers of this leader.",
    "session_parents": "Tenants and namespaces of the broker session that has the most of them.",
    "metadata_watches": "Watches that follow them, at all home shards.",
    "units_in_flight": "Units on their way to a broker.",
    "deliveries_unacked": "Deliveries that brokers have not confirmed, all sessions together.",
    "used_units": "Units assigned by this leader, at its last lease request.",
    "lease_units": "Units leased to this leader, all brokers together.",
    "scalable_topics": "Scalable topics of this leader.",
    "scalable_topics_at_work": "Those of them of which something was begun and is not finished.",
    "scalable_consumers": "Registered consumers of scalable topics that are connected to a node.",
    "scalable_consumers_in_grace": "Those whose connection ended, and who keep their segments.",
    "slots": "Slots of this leader.",
    "slots_outgoing": "Slots that it gives or gave away, while rows of them are left here.",
    "slots_incoming": "Slots that are on their way to it.",
    "slots_refused": "Proposals in its term that were refused because a slot was not its own.",
    "subscribers": "Leased watches: discovery nodes that answer from memory.",
    "watch_streams": "Open change streams.",
    "watches": "Watches on them.",
}


def _values(replica: Replica) -> dict[str, float]:
    leader = replica.leader
    slots = leader.state.slots if leader else None
    return {
        "leads": float(leader is not None),
        "broker_sessions": leader.brokers.sessions.count if leader else 0,
        "metadata_names": leader.brokers.metadata.name_count if leader else 0,
        "session_parents": leader.brokers.sessions.parents_max if leader else 0,
        "metadata_watches": leader.brokers.metadata.watch_count if leader else 0,
        "units_in_flight": leader.topics.units_in_flight if leader else 0,
        "deliveries_unacked": leader.brokers.sessions.unsynced if leader else 0,
        "used_units": leader.leases.units_used if leader else 0,
        "lease_units": leader.leases.units_leased if leader else 0,
        "scalable_topics": leader.scalable.topics if leader else 0,
        "scalable_topics_at_work": leader.scalable.topics_at_work if leader else 0,
        "scalable_consumers": leader.consumers.attached if leader else 0,
        "scalable_consumers_in_grace": leader.consumers.in_grace if leader else 0,
        "slots": slots.owned().count(1) if slots else 0,
        "slots_outgoing": sum(_count(move.ranges) for move in slots.outgoing()) if slots else 0,
        "slots_incoming": sum(_count(move.ranges) for move in slots.incoming()) if slots else 0,
        "slots_refused": leader.state.proposer.refused_for_slots if leader else 0,
        "subscribers": replica.changes.leased_count,
        "watch_streams": replica.changes.stream_count,
        "watches": replica.changes.watch_count,
    }


def _count(ranges: SlotRanges) -> int:
    return sum(last + 1 - first for first, last in ranges)
