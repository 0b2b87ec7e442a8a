"""The traffic of each open topic: rates between two reads of its counters.

A broker may have tens of thousands of open topics, so each measurement reads only some of them, in
turn: no topic's rate is older than ``topics / UNITS_LOOKED_AT_MAX`` measurements.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from brokers.service.topics.topic import Topic
from brokers.service.traffic import Traffic, counted, rates_between
from nextgen.kernel.governance.broker_load import Rates, UnitLoad
from nextgen.kernel.limits.placement import BUSIEST_UNITS_MAX

UNITS_LOOKED_AT_MAX = 5_000
"""Topics whose counters one measurement reads, which takes a few milliseconds of the loop."""


@dataclass(slots=True)
class _Seen:
    """A topic's counters at the last measurement of it."""

    traffic: Traffic
    counted: tuple[int, int, int, int]
    at_ms: int
    load: UnitLoad


class UnitMeter:
    """Measures rates between calls. A topic has no rates at its first measurement."""

    def __init__(self, looked_at_max: int = UNITS_LOOKED_AT_MAX) -> None:
        self._looked_at_max = looked_at_max
        self._seen: dict[str, _Seen] = {}
        self._next = 0
        self.producers = 0
        """Rates of all open topics, by the last measurement of each."""
        self.consumers = 0

    def __repr__(self) -> str:
        return f"<UnitMeter topics={len(self._seen)} next={self._next}>"

    def measure(
        self, topics: Iterable[Topic], *, now_ms: int, wall_ms: int
    ) -> tuple[UnitLoad, ...]:
        """Measure the next topics; return the busiest of all topics with traffic, by bytes."""
        every = list(topics)
        if self._next >= len(every):
            self._next = 0
        if self._next == 0:
            self._forget_closed(every)
        for topic in every[self._next : self._next + self._looked_at_max]:
            self._look(topic, now_ms, wall_ms)
        self._next += self._looked_at_max
        loads = [seen.load for seen in self._seen.values() if seen.load.rates.bytes_both_ways > 0]
        return tuple(
            heapq.nlargest(BUSIEST_UNITS_MAX, loads, key=lambda each: each.rates.bytes_both_ways)
        )

    def _look(self, topic: Topic, now_ms: int, wall_ms: int) -> None:
        name, traffic, counts = topic.unit.name, topic.traffic, counted(topic.traffic)
        seen = self._seen.get(name)
        rates = Rates()
        # A topic that is opened again counts from zero.
        if seen is not None and seen.traffic is traffic:
            rates = rates_between(seen.counted, counts, now_ms - seen.at_ms)
        load = UnitLoad(
            name,
            topic.unit.unit,
            rates,
            len(topic.producers),
            topic.consumers,
            wall_ms,
            topic.policy.is_bound,
        )
        if seen is not None:
            self._uncount(seen)
        self.producers += load.producers
        self.consumers += load.consumers
        self._seen[name] = _Seen(traffic, counts, now_ms, load)

    def _forget_closed(self, every: Iterable[Topic]) -> None:
        opened = {topic.unit.name for topic in every}
        for name in self._seen.keys() - opened:
            self._uncount(self._seen.pop(name))

    def _uncount(self, seen: _Seen) -> None:
        self.producers -= seen.load.producers
        self.consumers -= seen.load.consumers
