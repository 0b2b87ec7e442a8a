"""A call that streams in both directions, over a channel of its own or a shared one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from nextgen.client.transport.channel import wait_connected
from nextgen.client.transport.shared_channels import SharedChannels
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import ConnectionLost

WATCH = "/nextgen.v1.ShardService/Watch"


@asynccontextmanager
async def stream_call(
    endpoint: str,
    method: str,
    request_type: type[Message],
    response_type: type[Message],
    channels: SharedChannels | None = None,
) -> AsyncIterator[Any]:
    """Connect to ``endpoint`` (host:port) and yield the call; close both at the end.

    The streams with the same ``channels`` share a connection to each process.

    Raises:
        Unavailable: No process accepted the connection.
        ConnectionLost: The peer was silent for longer than the caller waited, or sent bytes that
            are no message.
        MetadataError: The error with which the call ended.
    """
    try:
        async with (channels or SharedChannels()).to(endpoint) as channel:
            await wait_connected(channel, endpoint)
            start: Any = channel.stream_stream(
                method,
                request_serializer=request_type.SerializeToString,
                response_deserializer=response_type.FromString,
            )
            call = start()
            try:
                yield call
            finally:
                call.cancel()
    except TimeoutError as error:
        raise ConnectionLost(f"{endpoint} is silent") from error
    except grpc.RpcError as error:
        raise error_of_rpc(error) from error
    except (asyncio.InvalidStateError, DecodeError) as error:
        raise ConnectionLost(f"the watch at {endpoint} broke: {error!r}") from error
