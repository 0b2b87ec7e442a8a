"""The ``Clock`` port on the event loop's own clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class LoopClock:
    """The clock and timers of the running event loop. Create it on that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def unix_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1_000)

    def call_at(self, monotonic_ms: int, callback: Callable[[], None]) -> Callable[[], None]:
        # One millisecond more: the loop may be early by up to its clock's resolution, and a
        # callback that reads the time must find that it is due.
        return self._loop.call_at((monotonic_ms + 1) / 1_000, callback).cancel
