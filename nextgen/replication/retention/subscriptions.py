"""Listeners and waiters: how a replicated log reports commits and role changes.

Both live on the event loop. A listener that fails is logged; the others still run.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class ListenerSet(Generic[T]):
    """Callables that receive each value, in the order in which they subscribed."""

    def __init__(self) -> None:
        self._listeners: dict[int, Callable[[T], None]] = {}
        self._keys = itertools.count()

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: Callable[[T], None]) -> Callable[[], None]:
        """Subscribe ``listener`` and return a function that unsubscribes it."""
        key = next(self._keys)
        self._listeners[key] = listener

        def unsubscribe() -> None:
            self._listeners.pop(key, None)

        return unsubscribe

    def tell(self, value: T) -> None:
        """Call every listener with ``value``."""
        for listener in tuple(self._listeners.values()):
            call_listener(listener, value)


def call_listener(listener: Callable[[T], None], value: T) -> None:
    """Call ``listener``; an exception of its own is logged and goes no further."""
    try:
        listener(value)
    except Exception:
        _logger.exception("a listener of the replicated log failed")


class ProgressWaiters:
    """Futures that resolve when a number that only grows has reached a value."""

    def __init__(self, reached: int) -> None:
        self._reached = reached
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._sequence = itertools.count()

    async def wait(self, value: int) -> None:
        """Return once the number is at least ``value``; raises the error given to ``fail``."""
        reached = self.begin(value)
        if reached is not None:
            await reached

    def begin(self, value: int) -> asyncio.Future[None] | None:
        """Return the future that ``wait`` waits for, None if there is nothing to wait for."""
        if value <= self._reached:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (value, next(self._sequence), future))
        return future

    @property
    def waiting(self) -> int:
        """Number of waiters, cancelled ones included."""
        return len(self._waiting)

    def advance(self, value: int) -> None:
        """Note that the number is at least ``value``."""
        self._reached = max(self._reached, value)
        while self._waiting and self._waiting[0][0] <= self._reached:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Fail every waiter with ``error``."""
        waiting, self._waiting = self._waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(error)
