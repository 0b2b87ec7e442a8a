"""gRPC channels to the brokers that were called last, for calls to whichever broker has a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio

from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import ConnectionLost, DeadlineExceeded, Unavailable
from nextgen.kernel.limits.pulsar import BROKER_CHANNELS_MAX
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.tasks.background import start
from nextgen.tasks.cancellation import cancel_requests


class BrokerChannels:
    """At most ``BROKER_CHANNELS_MAX`` of them. Owned by one event loop; ``stop`` it at the end."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<BrokerChannels channels={len(self._channels)}>"

    def __len__(self) -> int:
        return len(self._channels)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the endpoints, the least recently used first."""
        return iter(self._channels)

    async def call(
        self, endpoint: str, path: str, request: Any, response_type: Any, *, timeout_ms: int
    ) -> Any:
        """Call a unary method of the broker at ``endpoint``; return its ``response_type``.

        Raises:
            MetadataError: The broker refused, or could not be reached.
        """
        call: Any = self._channel(endpoint).unary_unary(
            path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response_type.FromString,
        )
        requests = cancel_requests()
        try:
            return await call(request, timeout=timeout_ms / 1_000)
        except grpc.RpcError as error:
            failure = error_of_rpc(error)
            if isinstance(failure, Unavailable | ConnectionLost | DeadlineExceeded):
                self._forget(endpoint)
            raise failure from error
        except asyncio.CancelledError:
            # Closing the channel cancels its calls, not the tasks that wait for them.
            if cancel_requests() > requests:
                raise
            raise ConnectionLost(f"the channel to {endpoint} was closed") from None

    async def stop(self) -> None:
        """Close all channels; calls on them end."""
        for endpoint in tuple(self._channels):
            self._forget(endpoint)
        await asyncio.gather(*self._closing)

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        """Return the channel to a broker, which becomes the one used last."""
        channel = self._channels.pop(endpoint, None)
        if channel is None:
            if len(self._channels) >= BROKER_CHANNELS_MAX:
                self._forget(next(iter(self._channels)))
            channel = open_channel(endpoint, NodeRole.BROKER)
        self._channels[endpoint] = channel
        return channel

    def _forget(self, endpoint: str) -> None:
        channel = self._channels.pop(endpoint, None)
        if channel is not None:
            start("channel_close", close_channel(channel), self._closing)
