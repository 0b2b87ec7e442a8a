"""A bound on how many topics a second change hands: their clients notice each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

BATCHES_PER_SECOND = 4
"""A rate is kept in steps of a quarter of a second: few requests, and no burst of a second."""


class Pace:
    """At most ``per_second`` in any second, in batches."""

    def __init__(
        self,
        per_second: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._next_at = clock()

    def batches(self, items: Sequence[T], *, at_most: int) -> Iterator[Sequence[T]]:
        """Yield the items in batches as large as fit into one step; ``take`` each before use."""
        size = min(at_most, max(1, self._per_second // BATCHES_PER_SECOND))
        for start in range(0, len(items), size):
            yield items[start : start + size]

    async def take(self, count: int) -> None:
        """Return when ``count`` more may be begun."""
        now = self._clock()
        begins_at = max(self._next_at, now)
        self._next_at = begins_at + count / self._per_second
        if begins_at > now:
            await self._sleep(begins_at - now)
