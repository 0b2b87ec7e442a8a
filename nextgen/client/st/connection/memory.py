"""The memory that messages of one client may take until they are stored."""

from __future__ import annotations

import asyncio
from collections import deque

from nextgen.client.st.errors import MemoryLimitReached


class Memory:
    """Counts bytes. Whoever waits for some gets them in order; a message that is larger than the
    limit gets its turn when nothing else is held."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used_bytes = 0

    def take_nowait(self, size_bytes: int) -> None:
        """Take bytes.

        Raises:
            MemoryLimitReached: There are not so many.
        """
        if not self._try(size_bytes):
            raise MemoryLimitReached(
                f"{self.used_bytes} bytes wait to be stored, at most {self._limit_bytes} may"
            )

    async def take(self, size_bytes: int) -> None:
        """Wait for bytes."""
        if self._try(size_bytes):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size_bytes)
            raise

    def give(self, size_bytes: int) -> None:
        """Give bytes back."""
        self.used_bytes -= size_bytes
        while self._waiting:
            wanted, turn = self._waiting[0]
            if not turn.done() and not self._has_room(wanted):
                return
            self._waiting.popleft()
            if not turn.done():
                self.used_bytes += wanted
                turn.set_result(None)

    def fail(self, error: Exception) -> None:
        """Fail everybody who waits."""
        waiting, self._waiting = self._waiting, deque()
        for _, turn in waiting:
            if not turn.done():
                turn.set_exception(error)

    def _try(self, size_bytes: int) -> bool:
        if self._waiting or not self._has_room(size_bytes):
            return False
        self.used_bytes += size_bytes
        return True

    def _has_room(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= self._limit_bytes
