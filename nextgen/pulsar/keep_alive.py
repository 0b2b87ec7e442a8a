"""Signs of life of all connections of one server, with one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Protocol

from nextgen.kernel.limits.pulsar import PULSAR_KEEP_ALIVE_MS
from nextgen.pulsar.inbound import InboundBudget

TICK_MS_MIN = 200
"""Least milliseconds between two ticks; an interval has thirty ticks if they are no shorter."""

_TURNS = 30


class Watched(Protocol):
    """A connection as its ``KeepAlive`` sees it."""

    keep_alive_bucket: int

    def check_alive(self) -> None: ...


class KeepAlive:
    """Calls ``check_alive`` of every connection once an interval, a part of them each tick.

    The first call comes after one interval, or up to a tick earlier. With ten thousand connections,
    a timer for each would double their memory.
    """

    def __init__(
        self, *, interval_ms: int = PULSAR_KEEP_ALIVE_MS, inbound: InboundBudget | None = None
    ) -> None:
        self._tick_ms = max(TICK_MS_MIN, interval_ms // _TURNS)
        self._buckets: list[set[Watched]] = [
            set() for _ in range(max(1, interval_ms // self._tick_ms))
        ]
        self._at = 0
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None
        self.inbound = inbound or InboundBudget()
        """Bounds these connections before CONNECT, and their incomplete frames."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Watched]:
        """Iterate over the connections; they may be added and removed meanwhile."""
        return iter([connection for bucket in self._buckets for connection in bucket])

    def add(self, connection: Watched) -> None:
        connection.keep_alive_bucket = self._at
        self._buckets[self._at].add(connection)
        self._count += 1
        if self._timer is None:
            self._arm()

    def discard(self, connection: Watched) -> None:
        bucket = self._buckets[connection.keep_alive_bucket]
        if connection in bucket:
            bucket.remove(connection)
            self._count -= 1
            if not self._count and self._emptied is not None:
                self._emptied.set()

    async def wait_until_empty(self) -> None:
        """Return when no connection is left. For one caller, after the last was added."""
        if self._count:
            self._emptied = asyncio.Event()
            await self._emptied.wait()

    def close(self) -> None:
        """Stop the timers. Remaining connections are no longer checked."""
        self.inbound.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._tick_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._at = (self._at + 1) % len(self._buckets)
        for connection in list(self._buckets[self._at]):
            connection.check_alive()
        if self._count:
            self._arm()
