"""A shard node's condition for Prometheus, read when asked for. The only label is the shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shards.replica import Replica


class NodeCollector(Collector):
    """One sample per replica of this node and number."""

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
        diverged = GaugeMetricFamily(
            "nextgen_replication_diverged",
            "1 while a view is known to differ from the others'.",
            labels=["group"],
        )
        for shard_id, replica in sorted(self._replicas.items()):
            diverged.add_metric([str(shard_id)], float(bool(replica.log.status.divergence)))
        yield diverged


_GAUGES = {
    "leads": "1 while this replica leads and may decide.",
    "term": "Raft term.",
    "commit_position": "Last committed event.",
    "applied_position": "Last event in the view.",
    "view_lag_ms": "Age of the oldest committed entry that the view has not applied.",
    "journal_bytes": "Size of the journal.",
    "log_pins": "Readers that keep a part of the journal.",
    "pinned_bytes": "Journal that is kept for them alone.",
    "snapshots": "Snapshots written since the start.",
    "snapshots_installed": "Snapshots that came from a leader since the start.",
    "snapshot_ms": "What writing the newest snapshot took.",
    "elections": "Elections won since the start.",
    "disk_full": "1 while this replica's disk is full, or nearly so, and takes no writes.",
    "broker_sessions": "Live broker sessions of this leader.",
    "units_in_flight": "Units on their way to a broker.",
    "lease_units": "Units leased to this leader, all brokers together.",
    "subscribers": "Open assignment streams.",
}


def _values(replica: Replica) -> dict[str, float]:
    status, leader = replica.log.status, replica.leader
    return {
        "leads": float(leader is not None),
        "term": status.term,
        "commit_position": status.commit_position,
        "applied_position": status.applied.position,
        "view_lag_ms": status.view_lag_ms,
        "journal_bytes": status.journal_bytes,
        "log_pins": status.log_pins,
        "pinned_bytes": status.pinned_bytes,
        "snapshots": status.snapshots,
        "snapshots_installed": status.snapshots_installed,
        "snapshot_ms": status.snapshot_ms,
        "elections": status.elections,
        "disk_full": float(bool(status.disk_trouble)),
        "broker_sessions": leader.brokers.sessions.count if leader else 0,
        "units_in_flight": leader.topics.units_in_flight if leader else 0,
        "lease_units": leader.leases.units_leased if leader else 0,
        "subscribers": leader.feed.subscriber_count if leader else 0,
    }
