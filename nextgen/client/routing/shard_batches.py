"""Requests to shards that many callers share.

    put in line ──▶ (other callers of this turn put theirs) ─▶ taken, a batch a task
                              ▲                                       │
                              └──── the line has room again ◀─────────┘

Each line decides what it holds, the order in which it is sent, and how much may be under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from nextgen.tasks.background import cancel_and_wait

Batch_co = TypeVar("Batch_co", covariant=True)
Batch = TypeVar("Batch")


class Line(Protocol[Batch_co]):
    """The queue of one shard. ``take`` counts what it returns as under way."""

    def __len__(self) -> int: ...

    @property
    def has_room(self) -> bool:
        """Whether another batch may be under way, if there is anything for it."""

    def take(self) -> Batch_co | None:
        """Remove and return the next batch, None if none may be sent yet."""


TakenLine = TypeVar("TakenLine", bound=Line[Any])


class _Shard(Generic[TakenLine]):
    __slots__ = ("is_due", "line")

    def __init__(self, line: TakenLine) -> None:
        self.line = line
        self.is_due = False


class ShardBatches(Generic[TakenLine, Batch]):
    """Sends batches for one kind of request. Owned by one event loop; ``stop`` it at the end.

    ``begin`` starts a task for a batch, in the set that it is given. The task sends the batch,
    answers all its callers, also on failure, and calls ``send_soon`` when the line has room again.
    """

    def __init__(
        self,
        new_line: Callable[[], TakenLine],
        begin: Callable[[int, TakenLine, Batch, set[asyncio.Task[None]]], object],
    ) -> None:
        self._new_line = new_line
        self._begin = begin
        self._shards: dict[int, _Shard[TakenLine]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_stopped = False

    def __len__(self) -> int:
        """Return how many batches are under way."""
        return len(self._tasks)

    def line(self, shard_id: int) -> TakenLine:
        """Return the line of a shard. Call ``send_soon`` after putting something into it."""
        return self._shard(shard_id).line

    def lines(self) -> list[TakenLine]:
        return [shard.line for shard in self._shards.values()]

    def send_soon(self, shard_id: int) -> None:
        """Send the line in the loop's next iteration, so that callers of this one share batches."""
        shard = self._shard(shard_id)
        if self.is_stopped or shard.is_due or not shard.line or not shard.line.has_room:
            return
        shard.is_due = True
        asyncio.get_running_loop().call_soon(self._send, shard_id, shard)

    async def stop(self) -> None:
        """Send nothing more, and cancel what is under way."""
        self.is_stopped = True
        await cancel_and_wait(*self._tasks)

    def _shard(self, shard_id: int) -> _Shard[TakenLine]:
        shard = self._shards.get(shard_id)
        if shard is None:
            shard = self._shards[shard_id] = _Shard(self._new_line())
        return shard

    def _send(self, shard_id: int, shard: _Shard[TakenLine]) -> None:
        shard.is_due = False
        while shard.line and not self.is_stopped:
            batch = shard.line.take()
            if batch is None:
                return
            self._begin(shard_id, shard.line, batch, self._tasks)
