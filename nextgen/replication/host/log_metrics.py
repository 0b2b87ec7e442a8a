"""Prometheus metrics of every replicated log of a process, and of the mesh between them.

The label is the shard; the cluster manager's own log is shard 0. Everything is computed at each
scrape and costs nothing in between.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from nextgen.replication.ports import LogStatus
from nextgen.replication.statistics import SYNC_BUCKETS_S, ReplicaStatistics

DISK_KINDS = ("journal", "view", "snapshots")
"""Folders of a replica that are measured separately; the others are small."""

_Value = Callable[[LogStatus], float]

_GAUGES: Mapping[str, tuple[str, _Value]] = {
    "term": ("Raft term.", lambda status: status.term),
    "commit_position": ("Last committed event.", lambda status: status.commit_position),
    "applied_position": ("Last event in the view.", lambda status: status.applied.position),
    "first_position": ("Oldest event that is kept.", lambda status: status.first_position),
    "view_lag_seconds": (
        "Age of the oldest committed entry that the view has not applied.",
        lambda status: status.view_lag_ms / 1_000,
    ),
    "journal_bytes": (
        "Size of the journal, reserved space included.",
        lambda status: status.journal_bytes,
    ),
    "pins": ("Readers that keep a part of the journal.", lambda status: status.log_pins),
    "pinned_bytes": ("Journal that is kept for pins alone.", lambda status: status.pinned_bytes),
    "readers": ("Pins with a name, which survive a restart.", lambda status: status.log_readers),
    "snapshot_write_seconds": (
        "What writing the newest snapshot took.",
        lambda status: status.snapshot_ms / 1_000,
    ),
    "propose_queue_records": (
        "Records proposed that no entry has taken up.",
        lambda status: status.records_waiting,
    ),
    "entries_in_flight": (
        "Entries appended and not yet committed.",
        lambda status: status.entries_in_flight,
    ),
    "disk_full": (
        "1 while this replica's disk is full, or nearly so, and takes no writes.",
        lambda status: float(bool(status.disk_trouble)),
    ),
    "diverged": (
        "1 while a view is known to differ from the others'.",
        lambda status: float(bool(status.divergence)),
    ),
}

_STATUS_COUNTERS: Mapping[str, tuple[str, _Value]] = {
    "pins_broken": (
        "Pins of readers that were broken: their log was cut before them.",
        lambda status: status.pins_broken,
    ),
    "readers_expired": (
        "Named readers that did not renew their pin.",
        lambda status: status.readers_expired,
    ),
}

_COUNTERS: Mapping[str, tuple[str, Callable[[ReplicaStatistics], float]]] = {
    "elections": ("Elections won by this replica.", lambda counts: counts.elections),
    "commits": ("Records committed by this leader.", lambda counts: counts.commits),
    "entries": ("Entries appended here.", lambda counts: counts.entries),
    "truncated_entries": ("Uncommitted entries cut off.", lambda counts: counts.truncations),
    "compactions": (
        "Times that the log was cut behind what its view has on disk.",
        lambda counts: counts.compactions,
    ),
    "snapshots_written": (
        "Snapshots written for followers that the log does not reach back to.",
        lambda counts: counts.snapshots,
    ),
    "snapshots_installed": (
        "Snapshots that came from a leader.",
        lambda counts: counts.snapshots_installed,
    ),
}


class LogCollector(Collector):
    """``logs`` gives the open logs by shard; ``directory`` has one folder for each."""

    def __init__(self, logs: Callable[[], Mapping[int, LogStatus]], directory: Path) -> None:
        self._logs = logs
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        logs = sorted(self._logs().items())
        for name, (text, value) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"nextgen_replication_{name}", text, labels=["shard"])
            for shard_id, status in logs:
                gauge.add_metric([str(shard_id)], value(status))
            yield gauge
        counted = [(str(shard), status.statistics) for shard, status in logs if status.statistics]
        for name, (text, count) in _COUNTERS.items():
            counter = CounterMetricFamily(f"nextgen_replication_{name}", text, labels=["shard"])
            for shard, statistics in counted:
                counter.add_metric([shard], count(statistics))
            yield counter
        for name, (text, value) in _STATUS_COUNTERS.items():
            counter = CounterMetricFamily(f"nextgen_replication_{name}", text, labels=["shard"])
            for shard_id, status in logs:
                counter.add_metric([str(shard_id)], value(status))
            yield counter
        yield _syncs(counted)
        yield self._sizes([shard_id for shard_id, _ in logs])

    def _sizes(self, shard_ids: Sequence[int]) -> Metric:
        family = GaugeMetricFamily(
            "nextgen_replication_disk_bytes",
            "Bytes of a replica's files, by what they are.",
            labels=["shard", "kind"],
        )
        for shard_id in shard_ids:
            folder = self._directory / f"group-{shard_id}"
            for kind in DISK_KINDS:
                family.add_metric([str(shard_id), kind], _bytes_below(folder / kind))
        return family


class MeasuredMesh(Protocol):
    """Metrics of a mesh."""

    @property
    def connection_count(self) -> int: ...
    @property
    def outbox_bytes(self) -> int: ...
    @property
    def unproven_count(self) -> int: ...
    @property
    def refused_count(self) -> int: ...


class MeshCollector(Collector):
    """The connections of the Raft mesh, all peers together."""

    def __init__(self, mesh: MeasuredMesh) -> None:
        self._mesh = mesh

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "nextgen_mesh_peers",
            "Processes that the Raft mesh is connected to.",
            value=self._mesh.connection_count,
        )
        yield GaugeMetricFamily(
            "nextgen_mesh_peers_unproven",
            "Peers on the Raft mesh that have not proven the cluster secret.",
            value=self._mesh.unproven_count,
        )
        yield CounterMetricFamily(
            "nextgen_mesh_connections_refused",
            "Connections to the Raft mesh closed before it was known which node had made them.",
            value=self._mesh.refused_count,
        )
        yield GaugeMetricFamily(
            "nextgen_mesh_outbox_bytes",
            "Bytes for peers that they have not taken yet.",
            value=self._mesh.outbox_bytes,
        )


def _syncs(counted: Sequence[tuple[str, ReplicaStatistics]]) -> Metric:
    family = HistogramMetricFamily(
        "nextgen_replication_fsync_seconds",
        "From an append to the journal until it was on this disk.",
        labels=["shard"],
    )
    bounds = [*map(str, SYNC_BUCKETS_S), "+Inf"]
    for shard, statistics in counted:
        buckets: list[tuple[str, float]] = []
        cumulated = 0
        for bound, count in zip(bounds, statistics.sync_counts, strict=True):
            cumulated += count
            buckets.append((bound, cumulated))
        family.add_metric([shard], buckets, statistics.sync_seconds)
    return family


def _bytes_below(folder: Path) -> int:
    """Return the size of a folder's files; a file may disappear during the scan."""
    total = 0
    try:
        with os.scandir(folder) as found:
            for each in found:
                try:
                    total += each.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue
    except (FileNotFoundError, NotADirectoryError):
        return total
    return total
