"""Requests that wait to be written to one stream, and which of them share a message.

    put ──▶ waiting ──▶ take ──▶ message ──▶ first answer to it
                          ▲                      │
                          ╰───── may be sent ◀───┴── or the hold is over

A node answers requests of one message together if it can: they share one turn of its loop, one
entry of a log and one message of answers. Under load this saves most of the cost of a request.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from nextgen.kernel.limits.stream import (
    EXCHANGE_BATCH_BYTES_MAX,
    EXCHANGE_BATCH_REQUESTS_MAX,
    EXCHANGE_HOLD_BEHIND_SLOW_MS,
    EXCHANGE_HOLD_MS,
)
from protos.nextgen.v1.shard_service_pb2 import CONSISTENCY_EFFECTIVE, ShardRequest


def is_slow(request: ShardRequest) -> bool:
    """Return whether its answer may wait for more than a commit."""
    body = request.WhichOneof("body")
    if body == "execute":
        return request.execute.consistency == CONSISTENCY_EFFECTIVE
    if body == "get":
        return bool(request.get.min_position)
    return not request.HasField("use_topics")


class RequestOutbox:
    """The encoded requests of one stream, oldest first. Owned by one event loop.

    Until the peer is known to take batches each request is a message of its own, sent at once.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[int, tuple[bytes, bool]] = OrderedDict()
        """By request id: its bytes, and whether it is slow. A request whose caller has given up is
        removed, so a slow peer does no work for it."""
        self._bytes = 0
        self._takes_batches = False
        self._first_of_latest = 0
        """The least request id of the latest message. Ids grow in the order of ``put``."""
        self._hold: asyncio.TimerHandle | None = None
        """Set while requests wait for the first answer to the latest message."""
        self._may_send = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, request_id: int, data: bytes, *, is_slow: bool) -> None:
        """Have a request sent. ``request_id`` is greater than any before."""
        self._waiting[request_id] = data, is_slow
        self._bytes += len(data)
        if self._hold is None or self._is_full:
            self._may_send.set()

    def withdraw(self, request_id: int) -> None:
        """Remove a request that was not sent yet, because its caller has given up."""
        withdrawn = self._waiting.pop(request_id, None)
        if withdrawn is not None:
            self._bytes -= len(withdrawn[0])

    def answered(self, request_id: int, *, takes_batches: bool) -> None:
        """Note an answer. One to the latest message ends the wait of those behind it."""
        self._takes_batches = self._takes_batches or takes_batches
        if request_id >= self._first_of_latest:
            self._release()

    async def take(self) -> bytes:
        """Return the next message, once it may be sent."""
        while not self._waiting or (self._hold is not None and not self._is_full):
            self._may_send.clear()
            await self._may_send.wait()
        return self._message()

    def close(self) -> None:
        """Send nothing more."""
        self._waiting.clear()
        self._bytes = 0
        self._release()

    @property
    def _is_full(self) -> bool:
        return (
            len(self._waiting) >= EXCHANGE_BATCH_REQUESTS_MAX
            or self._bytes >= EXCHANGE_BATCH_BYTES_MAX
        )

    def _message(self) -> bytes:
        self._release()
        self._first_of_latest = next(iter(self._waiting))
        first, all_slow = self._pop()
        if not self._takes_batches:
            return first
        size = len(first)
        batch = [first]
        while self._waiting and len(batch) < EXCHANGE_BATCH_REQUESTS_MAX:
            size += len(next(iter(self._waiting.values()))[0])
            if size > EXCHANGE_BATCH_BYTES_MAX:
                break
            data, is_slow = self._pop()
            batch.append(data)
            all_slow = all_slow and is_slow
        hold_ms = EXCHANGE_HOLD_BEHIND_SLOW_MS if all_slow else EXCHANGE_HOLD_MS
        self._hold = asyncio.get_running_loop().call_later(hold_ms / 1_000, self._release)
        return first if len(batch) == 1 else ShardRequest(batch=batch).SerializeToString()

    def _pop(self) -> tuple[bytes, bool]:
        _, (data, is_slow) = self._waiting.popitem(last=False)
        self._bytes -= len(data)
        return data, is_slow

    def _release(self) -> None:
        if self._hold is not None:
            self._hold.cancel()
            self._hold = None
        if self._waiting:
            self._may_send.set()
