"""What this process costs, from the operating system."""

from __future__ import annotations

import psutil

from brokers.ports.manager import Load


class ProcessLoadMeter:
    """Measures between calls: the first reading has a processor share of zero."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent(interval=None)

    def __call__(self) -> Load:
        with self._process.oneshot():
            return Load(
                cpu_fraction=self._process.cpu_percent(interval=None) / 100,
                memory_bytes=self._process.memory_info().rss,
            )
