"""A call of ``ShardService.Watch`` over a channel of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nextgen.client.channel import close_channel, open_channel, wait_connected
from protos.nextgen.v1.shard_service_pb2 import WatchShardRequest, WatchShardUpdate

_WATCH = "/nextgen.v1.ShardService/Watch"


@asynccontextmanager
async def watch_call(endpoint: str) -> AsyncIterator[Any]:
    """Connect to ``endpoint`` (host:port) and yield the call; both are gone at the end.

    Raises:
        Unavailable: Nobody is there. What the call itself raises is gRPC's.
    """
    channel = open_channel(endpoint)
    try:
        await wait_connected(channel, endpoint)
        watch: Any = channel.stream_stream(
            _WATCH,
            request_serializer=WatchShardRequest.SerializeToString,
            response_deserializer=WatchShardUpdate.FromString,
        )
        call = watch()
        try:
            yield call
        finally:
            call.cancel()
    finally:
        await close_channel(channel)
