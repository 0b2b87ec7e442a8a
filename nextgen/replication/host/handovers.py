"""The handovers of one process that stops: no replica is closed before all of them are over.

Closing a view, a journal and their threads takes the event loop for a tenth of a second. The
successors of the other groups, and callers of those groups, would wait for that.
"""

from __future__ import annotations

import asyncio


class Handovers:
    """Counts the groups of one process that are handing over. Used on the event loop."""

    def __init__(self) -> None:
        self._under_way = 0
        self._waiters: set[asyncio.Future[None]] = set()

    def begin(self) -> None:
        """Note that a group begins to stop, leader or not."""
        self._under_way += 1

    def end(self) -> None:
        """Record that a group no longer leads here, or that no successor takes over."""
        self._under_way -= 1
        assert self._under_way >= 0, "a handover ended that had not begun"
        if not self._under_way:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self) -> None:
        """Return once no handover is under way. Each has a deadline, so this has, too."""
        while self._under_way:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
