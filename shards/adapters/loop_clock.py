"""Real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from shards.ports import Cancellable


class LoopClock:
    """The running event loop's clock. Used on the loop only."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at(self, when: float, callback: Callable[[], None]) -> Cancellable:
        delay = max(0.0, when - time.monotonic())
        return asyncio.get_running_loop().call_later(delay, callback)
