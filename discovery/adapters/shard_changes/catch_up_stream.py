"""Reads one shard for one watcher, over a connection that nothing else uses.

It never reads ahead: updates that the watcher has not taken stay at the shard, by the stream's
flow control.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import grpc
import grpc.aio

from nextgen.client.changes.shard_watch import WatchLink
from nextgen.client.transport.stream_call import WATCH, stream_call
from nextgen.client.wire.errors import error_of_rpc, from_detail
from nextgen.kernel.errors import NotLeader, Unavailable
from nextgen.kernel.limits.cluster import CONNECT_TIMEOUT_MS
from nextgen.kernel.limits.stream import WATCH_SILENCE_MS_MAX
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import Kind
from protos.nextgen.v1.shard_service_pb2 import (
    WatchAdd,
    WatchOpen,
    WatchShardRequest,
    WatchShardUpdate,
)

_WATCH_ID = 1


class CatchUpStreams:
    """See ``discovery.ports.CatchUpReader``. Asks the shard's leader."""

    def __init__(self, node_id: str, link: WatchLink) -> None:
        self._node_id = node_id
        self._link = link
        self._opened = 0

    async def read(
        self,
        shard_id: int,
        *,
        kind: Kind,
        prefix: str,
        names: Sequence[str],
        from_position: int,
    ) -> AsyncGenerator[WatchShardUpdate]:
        """See ``CatchUpReader.read``."""
        endpoint = await self._leader(shard_id)
        self._opened += 1
        subscriber_id = f"{self._node_id}.catch-up-{self._opened}"
        requests = (
            WatchShardRequest(open=WatchOpen(shard_id=shard_id, subscriber_id=subscriber_id)),
            WatchShardRequest(
                add=WatchAdd(
                    watch_id=_WATCH_ID,
                    kinds=[kind],
                    prefix=prefix,
                    names=names,
                    from_position=from_position,
                )
            ),
        )
        async with stream_call(endpoint, WATCH, WatchShardRequest, WatchShardUpdate) as call:
            try:
                async with timeout(CONNECT_TIMEOUT_MS / 1_000):
                    for request in requests:
                        await call.write(request)
                is_caught_up = False
                while True:
                    update = await _read(call, endpoint)
                    # Positions of the whole stream apply to this watch once it has caught up.
                    is_caught_up = is_caught_up or _is_caught_up_mark(update)
                    if update.watch_id or is_caught_up:
                        yield update
            except grpc.RpcError as error:
                raise error_of_rpc(error) from error

    async def _leader(self, shard_id: int) -> str:
        await self._link.wait_until(lambda view: view.leader_endpoint(shard_id) is not None)
        endpoint = self._link.view.leader_endpoint(shard_id)
        assert endpoint is not None, "a leader was known a moment ago"
        return endpoint


async def _read(call: Any, endpoint: str) -> WatchShardUpdate:
    async with timeout(WATCH_SILENCE_MS_MAX / 1_000):
        update = await call.read()
    if not isinstance(update, WatchShardUpdate):
        code = await call.code()
        raise Unavailable(f"{endpoint} ended the watch ({code.name})")
    if update.HasField("error"):
        error = from_detail(update.error)
        # Any replica serves a watch; one that names another has lost its shard.
        raise Unavailable(str(error)) if isinstance(error, NotLeader) else error
    return update


def _is_caught_up_mark(update: WatchShardUpdate) -> bool:
    """Return whether ``update`` carries nothing but the watch's id and a position."""
    return bool(update.watch_id and update.position) and not (
        update.events or update.items or update.snapshot_complete or update.reset
    )
