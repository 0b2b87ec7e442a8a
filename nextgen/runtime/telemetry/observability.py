"""Observability of every process: its traces, its release, its event loop and its disk.

Processor time, memory and open files are ``prometheus_client``'s own ``process_`` metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from nextgen.kernel.limits.trace import (
    LATENCY_BUCKETS_MS,
    LOOP_IDLE_PERCENT,
    LOOP_LAG_IDLE_INTERVAL_MS,
    LOOP_LAG_INTERVAL_MS,
    LOOP_STALL_MS,
)
from nextgen.runtime.settings import TraceSettings
from nextgen.runtime.telemetry.trace_export import start_tracing, version
from nextgen.tasks.background import failures, keep

LATENCY_BUCKETS_S = tuple(bound / 1_000 for bound in LATENCY_BUCKETS_MS)
"""Bounds of every latency histogram, so that they can be compared."""


class ProcessCollector(Collector):
    """Release and disk of this process, read at each scrape with one call of ``statvfs``."""

    def __init__(self, component: str, directory: Path | None) -> None:
        self._component = component
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        build = InfoMetricFamily("nextgen_build", "The release that runs, and as what.")
        build.add_metric([], {"version": version(), "component": self._component})
        yield build
        if self._directory is None:
            return
        try:
            disk = os.statvfs(self._directory)
        except OSError:
            return
        yield GaugeMetricFamily(
            "nextgen_disk_free_bytes",
            "Free for this process on the file system of its data.",
            value=disk.f_bavail * disk.f_frsize,
        )
        yield GaugeMetricFamily(
            "nextgen_disk_size_bytes",
            "Size of the file system of its data.",
            value=disk.f_blocks * disk.f_frsize,
        )


class TaskCollector(Collector):
    """Counts failures of this process's background tasks; the log names them."""

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "nextgen_task_failures",
            "Background tasks that ended by an error, or were started again after one.",
            value=failures.total(),
        )


class LoopLag:
    """Measures how late the event loop runs due timers. Its owner runs ``run`` as a task."""

    stalls: ClassVar[int] = 0
    """Stalls of this process, for a worker, whose metrics its first process shows."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "nextgen_event_loop_lag_seconds",
            "How late a timer of the event loop ran.",
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._stalls = Counter(
            "nextgen_event_loop_stalls",
            "Times that the event loop was more than 250 ms late.",
            registry=registry,
        )

    async def run(self) -> None:
        """Observe for ever."""
        clock = asyncio.get_running_loop().time
        interval_ms = LOOP_LAG_INTERVAL_MS
        while True:
            began_at, used_s = clock(), time.thread_time()
            await asyncio.sleep(interval_ms / 1_000)
            passed_s = clock() - began_at
            self.observe(passed_s - interval_ms / 1_000)
            interval_ms = next_interval_ms(time.thread_time() - used_s, passed_s)

    def observe(self, late_s: float) -> None:
        """Record the delay of a timer."""
        self._seconds.observe(max(0.0, late_s))
        if late_s * 1_000 > LOOP_STALL_MS:
            self._stalls.inc()
            LoopLag.stalls += 1


def next_interval_ms(used_s: float, passed_s: float) -> int:
    """Return when to measure next, if the loop's thread used ``used_s`` of the ``passed_s``."""
    is_idle = used_s * 100 < passed_s * LOOP_IDLE_PERCENT
    return LOOP_LAG_IDLE_INTERVAL_MS if is_idle else LOOP_LAG_INTERVAL_MS


@asynccontextmanager
async def observed(
    settings: TraceSettings,
    *,
    component: str,
    node_id: str,
    directory: Path | None = None,
    registry: CollectorRegistry = REGISTRY,
) -> AsyncIterator[None]:
    """Trace and measure this process while the body runs. ``directory`` is where its data is.

    Raises:
        RefusesToStart: The trace file cannot be written.
    """
    # The process's start time tells when counters began; a series for each costs a third more.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    stop_tracing = start_tracing(settings, component=component, node_id=node_id)
    registry.register(ProcessCollector(component, directory))
    registry.register(TaskCollector())
    lag = keep("event_loop_lag", LoopLag(registry).run)
    try:
        yield
    finally:
        lag.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await lag
        stop_tracing()
