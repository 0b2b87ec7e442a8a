"""Counters of a shard node. The only label is the shard, so their number is bounded."""

from __future__ import annotations

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

_ASSIGN_SECONDS = (0.001, 0.01, 0.1, 0.2, 1.0)
_COMMIT_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)


class NodeMetrics:
    """The metrics of one process. Make ``ShardMetrics`` of it for each shard."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"nextgen_shard_{name}", text, ["shard"], registry=registry)

        self.commits = counter("committed_events", "Events committed, as seen by this replica.")
        self.lookups = counter("lookups", "Names looked up at this leader.")
        self.assignments = counter("assignments", "Units assigned by this leader, moves apart.")
        self.moves = counter("moves", "Units moved by this leader.")
        self.commands = counter("commands", "Inventory commands carried out by this leader.")
        self.assign_latency = Histogram(
            "nextgen_shard_assign_seconds",
            "From a lookup's arrival to its broker's sync.",
            ["shard"],
            buckets=_ASSIGN_SECONDS,
            registry=registry,
        )
        self.commit_latency = Histogram(
            "nextgen_shard_commit_seconds",
            "From proposal to commit.",
            ["shard"],
            buckets=_COMMIT_SECONDS,
            registry=registry,
        )
        self.exchange_in_flight = Gauge(
            "nextgen_exchange_in_flight", "Requests being answered.", registry=registry
        )

    def counters(self) -> dict[str, int]:
        """Return the counts of all shards together, by name."""
        counted = {
            "commits": self.commits,
            "lookups": self.lookups,
            "assignments": self.assignments,
            "moves": self.moves,
            "commands": self.commands,
        }
        return {name: _total(counter) for name, counter in counted.items()}


def _total(counter: Counter) -> int:
    samples = (sample for metric in counter.collect() for sample in metric.samples)
    return int(sum(sample.value for sample in samples if sample.name.endswith("_total")))


class ShardMetrics:
    """The metrics of one shard; children are looked up once."""

    def __init__(self, node: NodeMetrics, shard_id: int) -> None:
        label = str(shard_id)
        self.commits = node.commits.labels(label)
        self.lookups = node.lookups.labels(label)
        self.assignments = node.assignments.labels(label)
        self.moves = node.moves.labels(label)
        self.commands = node.commands.labels(label)
        self.assign_latency = node.assign_latency.labels(label)
        self.commit_latency = node.commit_latency.labels(label)
