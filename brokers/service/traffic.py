"""Counters of messages in and out, and latencies of storage, for metrics and the load report."""

from __future__ import annotations

from bisect import bisect_left

from nextgen.kernel.governance.broker_load import Rates

LATENCY_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the buckets of ``Latency``. A group fsync takes half a millisecond or more."""


class Traffic:
    """Messages and payload bytes, in and out. Everything is also counted in ``total``."""

    __slots__ = ("_total", "bytes_in", "bytes_out", "entries_out", "messages_in", "messages_out")

    def __init__(self, total: Traffic | None = None) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.messages_out = 0
        self.bytes_out = 0
        self.entries_out = 0
        self._total = total

    def count_in(self, messages: int, size_bytes: int) -> None:
        self.messages_in += messages
        self.bytes_in += size_bytes
        if self._total is not None:
            self._total.count_in(messages, size_bytes)

    def count_out(self, entries: int, messages: int, size_bytes: int) -> None:
        self.entries_out += entries
        self.messages_out += messages
        self.bytes_out += size_bytes
        if self._total is not None:
            self._total.count_out(entries, messages, size_bytes)


def counted(traffic: Traffic) -> tuple[int, int, int, int]:
    """Return the counters in the order of ``Rates``."""
    return (traffic.messages_in, traffic.messages_out, traffic.bytes_in, traffic.bytes_out)


def rates_between(
    before: tuple[int, int, int, int], after: tuple[int, int, int, int], passed_ms: int
) -> Rates:
    """Return the rates between two counts; zeros if no time has passed."""
    if passed_ms <= 0:
        return Rates()
    return Rates(
        *(1000 * (now - then) / passed_ms for then, now in zip(before, after, strict=True))
    )


class Rate:
    """Messages and bytes per second between two readings of ever growing counts."""

    __slots__ = ("_bytes", "_messages", "bytes_per_s", "messages_per_s")

    def __init__(self) -> None:
        self.messages_per_s = 0.0
        self.bytes_per_s = 0.0
        self._messages = 0
        self._bytes = 0

    def measure(self, messages: int, size_bytes: int, seconds: float) -> None:
        """Set the rates; ``seconds`` have passed since the last reading, 0: this is the first."""
        if seconds:
            self.messages_per_s = (messages - self._messages) / seconds
            self.bytes_per_s = (size_bytes - self._bytes) / seconds
        self._messages, self._bytes = messages, size_bytes


class Latency:
    """A histogram of durations."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        """A count per bound, not cumulative, and one for longer durations."""
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.seconds += seconds
