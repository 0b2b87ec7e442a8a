"""Waits between two rounds of something, for a time that may change while it waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from nextgen.tasks.timeouts import timeout


class ChangingInterval:
    """The time between two rounds. ``seconds`` returns it as it is at present.

    Call ``changed`` when it may be another one. One task at a time waits.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Have a wait that has begun end by the present interval, counted from its beginning."""
        self._changed.set()

    async def wait(self) -> None:
        """Return when the interval has passed since this call."""
        now = asyncio.get_running_loop().time
        began_at = now()
        while (left := began_at + self._seconds() - now()) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with timeout(left):
                    await self._changed.wait()
