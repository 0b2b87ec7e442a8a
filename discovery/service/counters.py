"""Counters of this process since its start. The metrics page reads them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from discovery.domain.lookup_windows import LookupTally

COLD_LATENCY_BUCKETS_MS = (1, 10, 100, 200, 1_000)


class DiscoveryCounters:
    """Counters of one process. Written by the services, read by ``GetCounters`` and metrics."""

    def __init__(self) -> None:
        self.names_looked_up = 0
        self.answers_from_cache = 0
        self.lookup_messages = 0
        self.lookups_by_result: Counter[str] = Counter()
        """Names answered by a shard or refused here: ``assigned`` or the rejection code."""
        self.streams_open = 0
        self.topics_created = 0
        self.writes = 0
        self.writes_refused = 0
        self.writes_without_positions = 0
        """Commands of clients that do not say how far the shard was when they were issued."""
        self.reads = 0
        self.topics_moved = 0
        self.requests_invalid = 0
        self.pulsar_lookups = 0
        """LOOKUP commands, however they were answered."""
        self.pulsar_partition_reads = 0
        self.pulsar_partition_reads_from_cache = 0
        self.pulsar_other_commands = 0
        self.pulsar_overloads = 0
        """Commands answered that too many wait."""
        self.pulsar_connections_refused = 0
        self.pulsar_connections_dropped = 0
        self.http_requests = 0
        self.cold_latency_ms = [0] * (len(COLD_LATENCY_BUCKETS_MS) + 1)
        """Names by the time a shard took to answer; the last bucket has no bound."""
        self.cold_latency_sum_ms = 0.0
        self.tally = LookupTally()
        """Lookups by the latency that clients saw; the service level objective is judged by it."""

    @property
    def names_read(self) -> int:
        """Names that were looked up, or whose partitions were read."""
        return self.names_looked_up + self.pulsar_partition_reads

    def add_cold(self, latency_ms: float, names: int) -> None:
        """Count ``names`` answered by a shard after ``latency_ms``."""
        self.cold_latency_ms[bisect_left(COLD_LATENCY_BUCKETS_MS, latency_ms)] += names
        self.cold_latency_sum_ms += latency_ms * names

    def as_map(self) -> dict[str, int]:
        """Return all counters by name."""
        counters = {
            "names_looked_up": self.names_looked_up,
            "answers_from_cache": self.answers_from_cache,
            "lookup_messages": self.lookup_messages,
            "topics_created": self.topics_created,
            "writes": self.writes,
            "writes_refused": self.writes_refused,
            "writes_without_positions": self.writes_without_positions,
            "reads": self.reads,
            "topics_moved": self.topics_moved,
            "requests_invalid": self.requests_invalid,
            "pulsar_lookups": self.pulsar_lookups,
            "pulsar_partition_reads": self.pulsar_partition_reads,
            "pulsar_partition_reads_from_cache": self.pulsar_partition_reads_from_cache,
            "pulsar_other_commands": self.pulsar_other_commands,
            "pulsar_overloads": self.pulsar_overloads,
            "pulsar_connections_refused": self.pulsar_connections_refused,
            "pulsar_connections_dropped": self.pulsar_connections_dropped,
            "http_requests": self.http_requests,
        }
        for result, count in self.lookups_by_result.items():
            counters[f"lookups_{result.lower()}"] = count
        return counters
