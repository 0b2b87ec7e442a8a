"""Reads of tenants and namespaces that are asked for about the same time go as one.

    decisions of all topic controllers of a node ──▶ one round for each home shard ──▶ its leader

A decision needs what was read after it began, so it joins no round that has left: it waits for the
next one. That leaves when the last one is back, or ``READ_ROUND_MS`` after it, twice as long after
it for each further one that is not back. Without rounds each decision reads by itself as long as a
stream of policies is late, which is when the node is busy: the reads make it busier, and the stream
later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from nextgen.kernel.errors import DeadlineExceeded, MetadataError
from nextgen.kernel.limits.placement import READ_ROUND_MS
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import Item, Kind
from protos.nextgen.v1.shard_service_pb2 import ObjectName
from shards.ports import HomeShards, MetadataReader

_Key = tuple[Kind, str]
_Read = Callable[[Sequence[ObjectName], int], Awaitable[Sequence[Item]]]


class JoinedReads:
    """``MetadataReader`` over another one. Owned by one event loop.

    Requests of one subscriber about one home shard share rounds. An error of a round is the error
    of every request in it.
    """

    def __init__(self, metadata: MetadataReader, homes: HomeShards) -> None:
        self._metadata = metadata
        self._homes = homes
        self._lines: dict[tuple[int, str], _Line] = {}

    def __repr__(self) -> str:
        return f"<JoinedReads lines={len(self._lines)}>"

    async def read(
        self, names: Sequence[ObjectName], *, timeout_ms: int, subscriber_id: str = ""
    ) -> Sequence[Item]:
        """See ``MetadataReader.read``."""
        by_home: dict[int, list[ObjectName]] = {}
        for name in names:
            by_home.setdefault(self._homes.home_of(name.kind, name.name), []).append(name)
        rounds = [
            self._line(home, subscriber_id).board(group, timeout_ms)
            for home, group in by_home.items()
        ]
        try:
            async with timeout(timeout_ms / 1_000):
                for each in rounds:
                    # Unlike await, wait leaves the shared future alone when this is cancelled.
                    await asyncio.wait((each,))
        except TimeoutError as error:
            raise DeadlineExceeded(f"nothing was read within {timeout_ms} ms") from error
        found: dict[_Key, Item] = {}
        for each in rounds:
            found.update(each.result())
        return [found[name.kind, name.name] for name in names]

    def _line(self, home: int, subscriber_id: str) -> _Line:
        line = self._lines.get((home, subscriber_id))
        if line is None:

            async def read(names: Sequence[ObjectName], timeout_ms: int) -> Sequence[Item]:
                return await self._metadata.read(
                    names, timeout_ms=timeout_ms, subscriber_id=subscriber_id
                )

            line = self._lines[home, subscriber_id] = _Line(read)
        return line


class _Line:
    """The rounds of one subscriber to one home shard, one after the other."""

    def __init__(self, read: _Read) -> None:
        self._read = read
        self._next: _Round | None = None
        self._in_flight = 0
        self._left_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def board(
        self, names: Sequence[ObjectName], timeout_ms: int
    ) -> asyncio.Future[dict[_Key, Item]]:
        """Return what the next round will read, these names among it."""
        if self._next is None:
            self._next = _Round()
            loop = asyncio.get_running_loop()
            at = self._left_at + _pause_s(self._in_flight) if self._in_flight else loop.time()
            self._timer = loop.call_at(at, self._leave)
        self._next.names.update(((name.kind, name.name), name) for name in names)
        self._next.timeout_ms = max(self._next.timeout_ms, timeout_ms)
        return self._next.items

    def _leave(self) -> None:
        leaving, self._next = self._next, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if leaving is None:
            return
        self._in_flight += 1
        self._left_at = asyncio.get_running_loop().time()
        start("joined_read", self._carry_out(leaving), self._tasks)

    async def _carry_out(self, leaving: _Round) -> None:
        try:
            found = await self._read(list(leaving.names.values()), leaving.timeout_ms)
            leaving.items.set_result(dict(zip(leaving.names, found, strict=True)))
        except MetadataError as error:
            leaving.items.set_exception(error)
            leaving.items.exception()  # Mark it as retrieved: all who asked may be gone.
        finally:
            leaving.items.cancel()  # No effect unless the task itself was ended.
            self._in_flight -= 1
            self._leave()


def _pause_s(in_flight: int) -> float:
    """Return how long the next round waits behind the last one, if so many are not back."""
    return READ_ROUND_MS / 1_000 * 2.0 ** (in_flight - 1)


class _Round:
    """What is asked for in one request to a home shard."""

    def __init__(self) -> None:
        self.names: dict[_Key, ObjectName] = {}
        self.timeout_ms = 0
        self.items: asyncio.Future[dict[_Key, Item]] = asyncio.get_running_loop().create_future()
