"""What this process costs, from the operating system, and what it carries, from its own counts."""

from __future__ import annotations

import psutil

from brokers.adapters.pulsar_front import PulsarFront
from brokers.ports.session import Clock, Load, TrafficRates


class ProcessLoadMeter:
    """Measures between calls: the first reading has no shares and no rates.

    ``front``, if it is set, is where messages go through.
    """

    def __init__(self, clock: Clock) -> None:
        self.front: PulsarFront | None = None
        self._clock = clock
        self._process = psutil.Process()
        self._process.cpu_percent(interval=None)
        self._counted = (0, 0, 0, 0)
        self._counted_at_ms = clock()

    def __call__(self) -> Load:
        with self._process.oneshot():
            return Load(
                cpu_fraction=self._process.cpu_percent(interval=None) / 100,
                memory_bytes=self._process.memory_info().rss,
                connections=0 if self.front is None else self.front.connection_count,
                rates=self._rates(),
            )

    def _rates(self) -> TrafficRates:
        if self.front is None:
            return TrafficRates()
        traffic = self.front.traffic
        counted = (traffic.messages_in, traffic.messages_out, traffic.bytes_in, traffic.bytes_out)
        now_ms = self._clock()
        before, self._counted = self._counted, counted
        passed_s = (now_ms - self._counted_at_ms) / 1000
        self._counted_at_ms = now_ms
        if passed_s <= 0:
            return TrafficRates()
        return TrafficRates(
            *((now - then) / passed_s for now, then in zip(counted, before, strict=True))
        )
