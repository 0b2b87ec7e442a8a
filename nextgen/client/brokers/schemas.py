"""Reading topics' schemas at the brokers that serve them, over ``BrokerService.GetSchema``."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import ConnectionLost, DeadlineExceeded, Unavailable
from nextgen.kernel.limits.cluster import REQUEST_TIMEOUT_DEFAULT_MS
from nextgen.kernel.limits.pulsar import SCHEMA_CHANNELS_MAX
from nextgen.pulsar.metadata_commands import StoredSchema
from nextgen.tasks.background import start
from nextgen.tasks.cancellation import cancel_requests
from protos.nextgen.v1 import broker_service_pb2 as pb

_GET_SCHEMA = "/nextgen.v1.BrokerService/GetSchema"


class BrokerSchemas:
    """Keeps channels to the brokers used last. Owned by one event loop; ``stop`` it at the end."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<BrokerSchemas channels={len(self._channels)}>"

    async def read(self, endpoint: str, topic: str, version: bytes | None) -> StoredSchema | None:
        """Return a version of the topic's schema, or the latest; None if there is none.

        ``endpoint`` is the gRPC address of the broker that serves ``topic``.

        Raises:
            MetadataError: The broker could not be reached, or does not serve the topic.
        """
        if not endpoint:
            raise Unavailable(f"the broker that has {topic} gives no address for its schemas")
        call: Any = self._channel(endpoint).unary_unary(
            _GET_SCHEMA,
            request_serializer=pb.GetSchemaRequest.SerializeToString,
            response_deserializer=pb.GetSchemaResponse.FromString,
        )
        request = pb.GetSchemaRequest(topic=topic, version=version or b"")
        requests = cancel_requests()
        try:
            response: pb.GetSchemaResponse = await call(
                request, timeout=REQUEST_TIMEOUT_DEFAULT_MS / 1_000
            )
        except grpc.RpcError as error:
            failure = error_of_rpc(error)
            if isinstance(failure, Unavailable | ConnectionLost | DeadlineExceeded):
                self._forget(endpoint)
            raise failure from error
        except asyncio.CancelledError:
            # Closing the channel cancels its calls, not the tasks that wait for them.
            if cancel_requests() > requests:
                raise
            raise Unavailable(f"the channel to {endpoint} was closed") from None
        if not response.found:
            return None
        return StoredSchema(
            version=response.version,
            name=response.name,
            kind=response.kind,
            data=response.data,
            properties=dict(response.properties),
        )

    async def stop(self) -> None:
        """Close all channels; calls on them end."""
        for endpoint in tuple(self._channels):
            self._forget(endpoint)
        await asyncio.gather(*self._closing)

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        """Return the channel to a broker, which becomes the one used last."""
        channel = self._channels.pop(endpoint, None)
        if channel is None:
            if len(self._channels) >= SCHEMA_CHANNELS_MAX:
                self._forget(next(iter(self._channels)))
            channel = open_channel(endpoint)
        self._channels[endpoint] = channel
        return channel

    def _forget(self, endpoint: str) -> None:
        channel = self._channels.pop(endpoint, None)
        if channel is not None:
            start("channel_close", close_channel(channel), self._closing)
