"""The progress of an export, for people and for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nextgen.export.format.manifest import ExportFile


@dataclass(slots=True)
class ShardProgress:
    """One shard. Counts are of this run; positions and times are of the whole export."""

    exported_position: int = 0
    commit_position: int = 0
    """The last position that a replica reported as committed."""
    oldest_waiting_ms: int | None = None
    """Unix time of the first event that was read but not exported yet."""
    exported_time_ms: int = 0
    """Unix time of the latest exported event, 0 before the first."""
    rows: int = 0
    bytes: int = 0
    files: int = 0
    untyped_events: int = 0

    @property
    def positions_behind(self) -> int:
        return max(0, self.commit_position - self.exported_position)

    def seconds_behind(self, now_ms: int) -> float:
        """Return the age of the first event that is not exported; 0 if all are."""
        since_ms = self.oldest_waiting_ms or self.exported_time_ms
        if not self.positions_behind or not since_ms:
            return 0.0
        return max(0, now_ms - since_ms) / 1000

    def published(self, file: ExportFile) -> None:
        """Count a file that was added to the manifest."""
        self.exported_position = file.last_position
        self.exported_time_ms = file.last_time_ms
        self.oldest_waiting_ms = None
        self.rows += file.rows
        self.bytes += file.bytes
        self.files += 1
        self.untyped_events += file.untyped_events


Progress = dict[int, ShardProgress]
"""Progress by shard, for ``SHARDS_MAX`` shards at most."""

_GAUGES: tuple[tuple[str, str, Callable[[ShardProgress, int], float]], ...] = (
    ("position", "Last exported position.", lambda one, _now: one.exported_position),
    ("positions_behind", "Committed and not exported.", lambda one, _now: one.positions_behind),
    ("seconds_behind", "Age of what is not exported.", lambda one, now: one.seconds_behind(now)),
)
_COUNTERS: tuple[tuple[str, str, Callable[[ShardProgress], int]], ...] = (
    ("rows", "Events exported.", lambda one: one.rows),
    ("bytes", "Bytes of files exported.", lambda one: one.bytes),
    ("files", "Files exported.", lambda one: one.files),
    ("untyped_events", "Events kept as bytes.", lambda one: one.untyped_events),
)


class ProgressMetrics(Collector):
    """Reports the present progress at each scrape. Its one label is the shard."""

    def __init__(
        self,
        progress: Mapping[int, ShardProgress],
        *,
        wall_clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._progress = progress
        self._now_ms = wall_clock_ms

    def registry(self) -> CollectorRegistry:
        """Return a registry with these metrics alone."""
        registry = CollectorRegistry()
        registry.register(self)
        return registry

    def collect(self) -> Iterable[Metric]:
        """Yield every metric with a sample for each shard."""
        now_ms = self._now_ms()
        shards = sorted(self._progress.items())
        yield from self._gauges(shards, now_ms)
        for name, text, counted in _COUNTERS:
            counter = CounterMetricFamily(f"nextgen_export_{name}", text, labels=["shard"])
            for shard_id, one in shards:
                counter.add_metric([str(shard_id)], counted(one))
            yield counter

    def _gauges(
        self, shards: list[tuple[int, ShardProgress]], now_ms: int
    ) -> Iterator[GaugeMetricFamily]:
        for name, text, value in _GAUGES:
            gauge = GaugeMetricFamily(f"nextgen_export_{name}", text, labels=["shard"])
            for shard_id, one in shards:
                gauge.add_metric([str(shard_id)], value(one, now_ms))
            yield gauge
