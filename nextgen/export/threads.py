"""Blocking work off the event loop, which never outlives who asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from nextgen.tasks.background import join

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Return what ``work`` returns, from a thread.

    A thread cannot be cancelled: who is cancelled waits for its end all the same, so that what it
    writes to is not closed under it.
    """
    running = join(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        if not running.cancelled():
            running.exception()
        raise
