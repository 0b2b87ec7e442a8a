"""Waiting until the consumers of a subscription have left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from nextgen.tasks.timeouts import timeout


class Departures:
    """Wakes those who wait for consumers of one subscription to leave."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: asyncio.Event | None = None

    def note(self) -> None:
        """Note that a consumer has left."""
        if self._left is not None:
            self._left.set()
            self._left = None

    async def wait(self, is_done: Callable[[], bool], limit_ms: int) -> None:
        """Return when consumers have left so that ``is_done``, or after ``limit_ms``."""
        with contextlib.suppress(TimeoutError):
            async with timeout(limit_ms / 1_000):
                while not is_done():
                    if self._left is None:
                        self._left = asyncio.Event()
                    await self._left.wait()
