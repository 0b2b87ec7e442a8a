"""Counters and gauges of one replica, read by the metrics exporter."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

SYNC_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
"""Upper bounds of the counts of syncs: from a good disk to one that should be replaced."""


@dataclass(slots=True)
class ReplicaStatistics:
    """Since the replica was opened. Written on the loop only."""

    commits: int = 0
    """Records committed under this replica's leadership."""
    entries: int = 0
    """Entries appended, by this replica or by a leader."""
    syncs: int = 0
    """Times that pending bytes became durable."""
    sync_counts: list[int] = field(default_factory=lambda: [0] * (len(SYNC_BUCKETS_S) + 1))
    """Syncs by duration; the last count has no bound."""
    sync_seconds: float = 0.0
    """The total duration of all syncs."""
    elections: int = 0
    """Elections won."""
    truncations: int = 0
    """Uncommitted entries that a leader cut off."""
    compactions: int = 0
    """Times that the view was made durable and the log cut behind it."""
    snapshots: int = 0
    """Snapshots written for followers."""
    last_snapshot_ms: float = 0.0
    """Duration of writing the newest snapshot."""
    snapshots_installed: int = 0
    """Snapshots that came from a leader."""

    def add_sync(self, seconds: float) -> None:
        """Count one sync."""
        self.syncs += 1
        self.sync_counts[bisect_left(SYNC_BUCKETS_S, seconds)] += 1
        self.sync_seconds += seconds
