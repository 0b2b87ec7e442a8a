"""``asyncio.timeout`` as Python 3.11.3 mended it, on every supported Python.

Before 3.11.3 (Debian 12 has 3.11.2) an expired timeout raises ``TimeoutError`` only if the task's
``cancelling()`` count is 0 afterwards, and not if it is what it was when the timeout was entered
(gh-102780). A task whose count has been left above 0 is then ended by its own timeouts.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import final

from nextgen.tasks.cancellation import cancel_requests


@final
class Timeout:
    """An ``asyncio.Timeout`` that raises ``TimeoutError`` whenever it alone ended its block.

    A cancellation from elsewhere that arrives meanwhile has priority, as it has in ``asyncio``.
    """

    def __init__(self, when: float | None) -> None:
        self._timeout = asyncio.timeout_at(when)
        self._cancel_requests = 0

    def __repr__(self) -> str:
        return repr(self._timeout)

    def when(self) -> float | None:
        """Return the loop time at which the block is cancelled, or None."""
        return self._timeout.when()

    def expired(self) -> bool:
        """Return whether the timeout cancelled the block."""
        return self._timeout.expired()

    def reschedule(self, when: float | None) -> None:
        """Cancel the block at ``when`` by the loop's clock instead, or never if it is None."""
        self._timeout.reschedule(when)

    async def __aenter__(self) -> Timeout:
        self._cancel_requests = cancel_requests()
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._timeout.__aexit__(kind, error, traceback)
        if (
            kind is asyncio.CancelledError
            and self._timeout.expired()
            and cancel_requests() <= self._cancel_requests
        ):
            raise TimeoutError from error


def timeout(delay_s: float | None) -> Timeout:
    """Limit an ``async with`` block to ``delay_s``; None is no limit.

    Raises:
        TimeoutError: From the block, which was cancelled.
    """
    return timeout_at(None if delay_s is None else asyncio.get_running_loop().time() + delay_s)


def timeout_at(when: float | None) -> Timeout:
    """Do as ``timeout``, until ``when`` by the loop's clock."""
    return Timeout(when)
