"""Counters and gauges of one replica, for whoever exports metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ReplicaStatistics:
    """Since the replica was opened. Written on the loop only."""

    commits: int = 0
    """Records committed under this replica's leadership."""
    entries: int = 0
    """Entries appended, by this replica or by a leader."""
    syncs: int = 0
    """Times that pending bytes became durable."""
    last_sync_ms: float = 0.0
    """What the newest of them took, from the append on."""
    elections: int = 0
    """Elections won."""
    truncations: int = 0
    """Uncommitted entries that a leader cut off."""
    snapshots: int = 0
    """Snapshots written."""
    last_snapshot_ms: float = 0.0
    """What the newest of them took, until the view was durable too."""
    snapshots_installed: int = 0
    """Snapshots that came from a leader."""
