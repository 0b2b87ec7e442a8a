"""Measures this process' load: resources by the operating system, traffic by its own counters."""

from __future__ import annotations

from pathlib import Path

import psutil

from brokers.adapters.pulsar.front import PulsarFront
from brokers.adapters.unit_meter import UnitMeter
from brokers.ports.session import Clock
from brokers.service.traffic import counted, rates_between
from nextgen.kernel.governance.broker_load import BrokerLoad, Rates, UnitLoad

USABLE_CORES = 1
"""Cores that a broker can use: everything except waiting for disks runs on one thread."""

CGROUP_MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")
"""Files in which the kernel has the container's memory limit: a number, or "max"."""


class ProcessLoadMeter:
    """Measures the load between calls: the first reading has no shares and no rates.

    ``front``, if it is set, has the counters of messages. ``clock`` never goes back, ``wall_clock``
    is Unix time, both in milliseconds.
    """

    def __init__(
        self, clock: Clock, wall_clock: Clock, memory_limit_file: Path = CGROUP_MEMORY_MAX
    ) -> None:
        self.front: PulsarFront | None = None
        self._clock = clock
        self._wall_clock = wall_clock
        self._process = psutil.Process()
        self._process.cpu_percent(interval=None)
        self._memory_limit_bytes = memory_limit_bytes(memory_limit_file)
        self._units = UnitMeter()
        self._counted = (0, 0, 0, 0)
        self._counted_at_ms = clock()
        self._measured_at_ms = 0

    def __call__(self) -> BrokerLoad:
        # The report with the later time wins, so it must grow even if the wall clock is set back.
        self._measured_at_ms = max(self._measured_at_ms + 1, self._wall_clock())
        rates, busiest = self._rates()
        with self._process.oneshot():
            return BrokerLoad(
                open_topics=0 if self.front is None else len(self.front.topics),
                connections=0 if self.front is None else self.front.connection_count,
                producers=self._units.producers,
                consumers=self._units.consumers,
                cpu_fraction=self._process.cpu_percent(interval=None) / 100,
                cores=USABLE_CORES,
                memory_bytes=self._process.memory_info().rss,
                memory_limit_bytes=self._memory_limit_bytes,
                rates=rates,
                busiest=busiest,
                measured_at_ms=self._measured_at_ms,
            )

    def _rates(self) -> tuple[Rates, tuple[UnitLoad, ...]]:
        if self.front is None:
            return Rates(), ()
        counts, now_ms = counted(self.front.traffic), self._clock()
        before, self._counted = self._counted, counts
        passed_ms, self._counted_at_ms = now_ms - self._counted_at_ms, now_ms
        busiest = self._units.measure(
            self.front.topics, now_ms=now_ms, wall_ms=self._measured_at_ms
        )
        return rates_between(before, counts, passed_ms), busiest


def memory_limit_bytes(limit_file: Path) -> int:
    """Return the memory that this process may use: the container's limit or the machine's."""
    total = int(psutil.virtual_memory().total)
    try:
        limit = int(limit_file.read_text())
    except (OSError, ValueError):
        return total
    return min(limit, total)
