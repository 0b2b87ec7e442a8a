"""The queue of a subscriber's requests that were not sent on its change stream yet, in order."""

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
"""Enough to add and remove every watch of a stream before the shard reads a request."""


class WatchRequests:
    """The requests of one stream; the first one opens it."""

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

    def renew(
        self,
        acked_position: int,
        asked_at_ms: int,
        *,
        creations_may_wait: bool = False,
        may_rest: bool = False,
    ) -> None:
        """Queue the acknowledgement of a position; it replaces one that was not sent yet."""
        renewal = WatchRenew(
            acked_position=acked_position,
            asked_at_ms=asked_at_ms,
            creations_may_wait=creations_may_wait,
            may_rest=may_rest,
        )
        self.renew_with(lambda: renewal)

    def renew_with(self, renewal: Callable[[], WatchRenew]) -> None:
        """Queue an acknowledgement behind all earlier requests; it replaces one that was not sent
        yet. ``renewal`` is called when it is sent, for its content at that moment."""
        self._renewal = renewal
        self._wake.set()

    async def write_to(self, call: Any) -> None:
        """Send queued requests to ``call`` until cancelled.

        Raises:
            Overloaded: The shard does not read its requests. The stream has to start anew.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting or self._renewal is not None:
                if self._is_overrun:
                    raise Overloaded(f"{_WAITING_MAX} requests wait for the shard to read them")
                # After the requests of watches that it may acknowledge.
                if self._waiting:
                    await call.write(self._waiting.popleft())
                    continue
                renewal, self._renewal = self._renewal, None
                assert renewal is not None, "no other task takes it"
                await call.write(WatchShardRequest(renew=renewal()))

    def _append(self, request: WatchShardRequest) -> None:
        if len(self._waiting) > _WAITING_MAX:
            self._is_overrun = True
            return
        self._waiting.append(request)
        self._wake.set()
