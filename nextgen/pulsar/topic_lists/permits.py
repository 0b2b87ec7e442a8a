"""Memory that lists of topics may take at a time, shared by all clients of a process (PIP-442)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.listing import (
    TOPIC_LISTS_IN_FLIGHT_BYTES_MAX,
    TOPIC_LISTS_WAIT_MS_MAX,
    TOPIC_LISTS_WAITING_MAX,
)
from nextgen.tasks.timeouts import timeout


class MemoryPermits:
    """Bytes that are granted in the order of the requests, and wait for others' to be returned.

    A request for more than there is altogether is granted when nobody else has any.
    """

    def __init__(
        self,
        bytes_max: int = TOPIC_LISTS_IN_FLIGHT_BYTES_MAX,
        *,
        waiting_max: int = TOPIC_LISTS_WAITING_MAX,
        wait_ms_max: int = TOPIC_LISTS_WAIT_MS_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._waiting_max = waiting_max
        self._wait_ms_max = wait_ms_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.bytes_held = 0
        self.refused = 0
        """Requests that found too many others waiting, or waited too long."""

    def __repr__(self) -> str:
        return f"<MemoryPermits held={self.bytes_held} waiting={len(self._waiting)}>"

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncGenerator[None]:
        """Hold ``size_bytes`` within the block, after waiting for them if need be.

        Raises:
            Overloaded: Too many requests wait, or this one waited too long.
        """
        size_bytes = min(size_bytes, self._bytes_max)
        if self._waiting or self.bytes_held + size_bytes > self._bytes_max:
            await self._wait(size_bytes)
        else:
            self.bytes_held += size_bytes
        try:
            yield
        finally:
            self.bytes_held -= size_bytes
            self._grant()

    async def _wait(self, size_bytes: int) -> None:
        if len(self._waiting) >= self._waiting_max:
            self.refused += 1
            raise Overloaded(f"{len(self._waiting)} lists of topics wait for memory")
        granted = asyncio.get_running_loop().create_future()
        place = (size_bytes, granted)
        self._waiting.append(place)
        try:
            async with timeout(self._wait_ms_max / 1_000):
                await granted
        except BaseException as error:
            self._give_up(place)
            if isinstance(error, TimeoutError):
                self.refused += 1
                raise Overloaded(
                    f"lists of topics took all memory for {self._wait_ms_max} ms"
                ) from error
            raise

    def _give_up(self, place: tuple[int, asyncio.Future[None]]) -> None:
        if place[1].done() and not place[1].cancelled():
            self.bytes_held -= place[0]
        else:
            self._waiting.remove(place)
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            size_bytes, granted = self._waiting[0]
            if self.bytes_held + size_bytes > self._bytes_max:
                return
            self._waiting.popleft()
            self.bytes_held += size_bytes
            granted.set_result(None)
