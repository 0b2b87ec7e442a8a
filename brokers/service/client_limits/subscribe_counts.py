"""Counts how often each consumer of a topic has subscribed in a period."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from nextgen.kernel.limits.inbound import SUBSCRIBERS_COUNTED_MAX


class SubscribeCounts:
    """``clock`` gives seconds that never go backwards."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_s = 0.0
        self._counts: dict[Hashable, int] = {}

    def admit(self, consumer: Hashable, most: int, period_seconds: int) -> bool:
        """Count a subscribe; return False, and count nothing, beyond ``most`` in this period."""
        now_s = self._clock()
        if now_s - self._began_s >= period_seconds:
            self._began_s = now_s
            self._counts.clear()
        count = self._counts.get(consumer, 0)
        if count >= most:
            return False
        if not count and len(self._counts) >= SUBSCRIBERS_COUNTED_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[consumer] = count + 1
        return True
