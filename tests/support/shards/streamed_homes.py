"""Home shards over real change streams, without sockets: what a subscriber says and is told passes
the real ends of both sides, in the harness's virtual time.

    homes = StreamedHomes()
    with homes.served(): in_shard(directory, scenario, homes=homes)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import patch

from nextgen.client.changes import shard_watch
from nextgen.client.changes.shard_watch import ShardWatch
from nextgen.kernel.errors import Unavailable
from protos.nextgen.v1.inventory_pb2 import Kind
from shards.adapters.shared_home_streams import SharedHomeStreams
from shards.adapters.watch_stream import WatchStream
from shards.ports import ShardWatching
from tests.support.shards.home_shards import CONTROLLERS
from tests.support.shards.watch_server import FakeLink
from tests.support.shards.watch_world import SHARD
from tests.support.simulated.virtual_time import VirtualTimeLoop

ENDPOINT = "node-1:1"


class StreamedHomes:
    """``HomeShards`` of one shard. ``replica_of`` is to be set before the first watch."""

    def __init__(self) -> None:
        self.link = FakeLink()
        self.link.place(ENDPOINT)
        self.link.lead(ENDPOINT)
        self.replica_of: Callable[[int], Any]
        self.is_reachable: Callable[[str], bool] = lambda _subscriber_id: True
        """Return whether a subscriber's stream reaches the shard."""
        self._shared = SharedHomeStreams(
            lambda shard_id: ShardWatch(shard_id, CONTROLLERS, self.link)
        )

    def home_of(self, kind: Kind, name: str, object_id: str = "") -> int:
        return SHARD

    def manager_shard(self, broker_id: str) -> int:
        return SHARD

    def note_leader(self, shard_id: int, term: int, node_id: str) -> None:
        """There is one leader, which the link knows."""

    def watch(self, shard_id: int, subscriber_id: str) -> ShardWatching:
        if subscriber_id == CONTROLLERS:
            return self._shared.share(shard_id)
        return ShardWatch(shard_id, subscriber_id, self.link)

    @contextmanager
    def served(self) -> Iterator[None]:
        """Let streams come here, and read their snapshots without threads, which have no place
        in virtual time."""
        with (
            patch.object(shard_watch, "stream_call", self._call),
            patch.object(VirtualTimeLoop, "run_in_executor", _run_at_once),
        ):
            yield

    @asynccontextmanager
    async def _call(self, *_arguments: Any) -> AsyncIterator[Any]:
        call = _Call(self)
        serving = asyncio.create_task(call.serve())
        try:
            yield call
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


def _run_at_once(
    loop: VirtualTimeLoop, _executor: None, work: Callable[..., Any], *arguments: Any
) -> asyncio.Future[Any]:
    future = loop.create_future()
    try:
        future.set_result(work(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future


class _Call:
    """Both ends of a call."""

    def __init__(self, homes: StreamedHomes) -> None:
        self._homes = homes
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._updates: asyncio.Queue[Any] = asyncio.Queue()

    async def serve(self) -> None:
        context = _Context(self._updates)
        await WatchStream(self._homes.replica_of, context).serve(self._asked())

    async def _asked(self) -> AsyncIterator[Any]:
        while True:
            yield await self._requests.get()

    async def write(self, request: Any) -> None:
        if request.HasField("open") and not self._homes.is_reachable(request.open.subscriber_id):
            await self._updates.put(Unavailable("nobody is there"))
            return
        await self._requests.put(request)

    async def read(self) -> Any:
        update = await self._updates.get()
        if isinstance(update, Unavailable):
            raise update
        return update


class _Context:
    def __init__(self, updates: asyncio.Queue[Any]) -> None:
        self._updates = updates

    async def write(self, update: Any) -> None:
        await self._updates.put(update)
