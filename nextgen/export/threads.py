"""Runs blocking work off the event loop. The work never outlives its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from nextgen.tasks.background import join

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Return the result of ``work``, which runs in a thread.

    A thread cannot be cancelled. So a cancelled caller waits until the thread ends, and does not
    close a file that the thread still writes to.
    """
    running = join(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        if not running.cancelled():
            running.exception()
        raise
