"""One ``Watch`` stream at the server, from its first message to its end.

The writer task is never cancelled while gRPC holds its message: if a subscriber does not read the
message in time, the call is ended instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from nextgen.client.wire.errors import abort, to_detail
from nextgen.kernel.errors import InvalidRequest, MetadataError, Overloaded, Unavailable
from nextgen.kernel.limits.stream import (
    WATCH_OPEN_MS_MAX,
    WATCH_STALLED_MS_MAX,
    WATCH_SUBSCRIBER_BYTES_MAX,
)
from nextgen.tasks.background import join
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.shard_service_pb2 import WatchOpen, WatchShardRequest, WatchShardUpdate
from shards.node.replica import Replica
from shards.watches.change_stream import ChangeStream

_STALLED_SECONDS = WATCH_STALLED_MS_MAX / 1000
_LOOKS_PER_STALL = 4


class WatchStream:
    """Serves a change stream over one call; lives as long as the call."""

    def __init__(self, replica_of: Callable[[int], Replica], context: Any) -> None:
        self._replica_of = replica_of
        self._context = context
        self._writing_since: float | None = None
        """When the message that gRPC cannot send yet was passed to it; None without such a one."""

    async def serve(self, requests: AsyncIterator[WatchShardRequest]) -> None:
        """Serve the subscriber until one side ends the stream."""
        try:
            opened = await _first(requests)
            if opened is None:
                return
            replica = self._replica_of(opened.shard_id)
            stream = replica.changes.open(opened.subscriber_id)
        except MetadataError as error:
            await self._context.write(WatchShardUpdate(error=to_detail(error)))
            return
        reader = join(_take_requests(requests, stream))
        writer = join(self._write(stream))
        try:
            is_stalled = await self._watch_over(reader, writer, stream)
            if is_stalled:
                replica.changes.source.metrics.stalled.inc()
                stream.close()
                late = f"{opened.subscriber_id} took nothing for {WATCH_STALLED_MS_MAX} ms"
                await abort(self._context, Overloaded(late))
        finally:
            stream.fail(Unavailable("the subscriber is gone"))
            stream.close()
            reader.cancel()
            if self._writing_since is None:
                writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)

    async def _watch_over(
        self, reader: asyncio.Task[None], writer: asyncio.Task[None], stream: ChangeStream
    ) -> bool:
        """Return False once the last update was sent, or True when the subscriber has stalled."""
        loop = asyncio.get_running_loop()
        awaited: set[asyncio.Task[None]] = {reader, writer}
        while not writer.done():
            await asyncio.wait(
                awaited,
                timeout=_STALLED_SECONDS / _LOOKS_PER_STALL,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if reader.done() and reader in awaited:
                awaited.discard(reader)
                failure = None if reader.cancelled() else reader.exception()
                is_ours = isinstance(failure, MetadataError)
                ended = Unavailable("the subscriber ended the stream")
                stream.fail(failure if is_ours else ended)  # type: ignore[arg-type]
            since = self._writing_since
            if since is not None and loop.time() - since > _STALLED_SECONDS:
                return True
        return False

    async def _write(self, stream: ChangeStream) -> None:
        while True:
            is_last = False
            try:
                update = await stream.next_update()
            except MetadataError as error:
                update, is_last = WatchShardUpdate(error=to_detail(error)), True
            self._writing_since = asyncio.get_running_loop().time()
            await self._context.write(update)
            self._writing_since = None
            if is_last:
                return


async def _first(requests: AsyncIterator[WatchShardRequest]) -> WatchOpen | None:
    try:
        async with timeout(WATCH_OPEN_MS_MAX / 1000):
            request = await anext(requests, None)
    except TimeoutError:
        raise InvalidRequest(f"a stream was not opened within {WATCH_OPEN_MS_MAX} ms") from None
    if request is None:
        return None
    if request.WhichOneof("body") != "open":
        raise InvalidRequest("the first message of a change stream opens it")
    subscriber_id = request.open.subscriber_id
    if not subscriber_id:
        raise InvalidRequest("a subscriber must send its id")
    if len(subscriber_id.encode()) > WATCH_SUBSCRIBER_BYTES_MAX:
        raise InvalidRequest(f"a subscriber's id has at most {WATCH_SUBSCRIBER_BYTES_MAX} bytes")
    return request.open


async def _take_requests(requests: AsyncIterator[WatchShardRequest], stream: ChangeStream) -> None:
    """Pass the subscriber's requests to ``stream`` until the subscriber half-closes the call.

    Raises:
        InvalidRequest: A message has no known body, or opens the stream a second time.
    """
    async for request in requests:
        await stream.wait_room()
        match request.WhichOneof("body"):
            case "add":
                stream.add(request.add)
            case "remove":
                stream.remove(request.remove.watch_id)
            case "renew":
                stream.renew(request.renew)
            case "open":
                raise InvalidRequest("this change stream was opened before")
            case _:
                raise InvalidRequest("a change stream does not know requests of this kind")
