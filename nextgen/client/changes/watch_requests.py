"""What a subscriber says on one change stream, in order, while it is not said yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.stream import WATCHES_PER_STREAM_MAX
from protos.nextgen.v1.shard_service_pb2 import (
    WatchAdd,
    WatchOpen,
    WatchRemove,
    WatchRenew,
    WatchShardRequest,
)

_WAITING_MAX = 2 * WATCHES_PER_STREAM_MAX
"""Every watch of a stream may be added, and every one removed, before the shard reads it."""


class WatchRequests:
    """The requests of one stream; begins with its opening."""

    def __init__(self, shard_id: int, subscriber_id: str) -> None:
        opening = WatchOpen(shard_id=shard_id, subscriber_id=subscriber_id)
        self._waiting: deque[WatchShardRequest] = deque([WatchShardRequest(open=opening)])
        self._renewal: Callable[[], WatchRenew] | None = None
        self._is_overrun = False
        self._wake = asyncio.Event()
        self._wake.set()

    def add(self, add: WatchAdd) -> None:
        self._append(WatchShardRequest(add=add))

    def remove(self, watch_id: int) -> None:
        self._append(WatchShardRequest(remove=WatchRemove(watch_id=watch_id)))

    def renew(self, acked_position: int, asked_at_ms: int) -> None:
        """Acknowledge a position; only the newest that waits is said."""
        renewal = WatchRenew(acked_position=acked_position, asked_at_ms=asked_at_ms)
        self.renew_with(lambda: renewal)

    def renew_with(self, renewal: Callable[[], WatchRenew]) -> None:
        """Acknowledge what ``renewal`` says at the moment it is sent, behind every request that
        was made before; only the newest that waits is asked."""
        self._renewal = renewal
        self._wake.set()

    async def write_to(self, call: Any) -> None:
        """Say what there is to say, for ever.

        Raises:
            Overloaded: The shard does not read: the stream has to begin anew.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting or self._renewal is not None:
                if self._is_overrun:
                    raise Overloaded(f"{_WAITING_MAX} requests wait for the shard to read them")
                # Behind what it may be about.
                if self._waiting:
                    await call.write(self._waiting.popleft())
                    continue
                renewal, self._renewal = self._renewal, None
                assert renewal is not None, "nobody else takes it"
                await call.write(WatchShardRequest(renew=renewal()))

    def _append(self, request: WatchShardRequest) -> None:
        if len(self._waiting) > _WAITING_MAX:
            self._is_overrun = True
            return
        self._waiting.append(request)
        self._wake.set()
