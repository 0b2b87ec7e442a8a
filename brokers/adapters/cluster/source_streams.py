"""Streams to the brokers that have the sources of this broker's shadows."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc.aio

from brokers.adapters.cluster.source_wire import UpdateReader, request_to_proto
from brokers.ports.source_stream import SourceRequest, SourceStream, SourceUpdate
from nextgen.client.cluster.view import ClusterView
from nextgen.client.transport.stream_call import stream_call
from nextgen.kernel.errors import ConnectionLost, Unavailable
from nextgen.kernel.limits.shadow import FEED_REQUESTS_PER_MESSAGE_MAX
from nextgen.tasks.background import cancel_and_wait, start
from protos.nextgen.v1 import broker_service_pb2 as wire

_FOLLOW_SOURCES = "/nextgen.v1.BrokerService/FollowSources"


class GrpcSourceStream(SourceStream):
    """A stream by gRPC. ``endpoint`` returns host:port, or None if the broker is not known."""

    def __init__(self, broker_id: str, endpoint: Callable[[], str | None]) -> None:
        self._broker_id = broker_id
        self._endpoint = endpoint
        self._requests: deque[SourceRequest] = deque()
        self._to_send = asyncio.Event()

    def send(self, request: SourceRequest) -> None:
        self._requests.append(request)
        self._to_send.set()

    async def run(self, take: Callable[[SourceUpdate], None]) -> None:
        endpoint = self._endpoint()
        if endpoint is None:
            raise Unavailable("the broker of the source is not known here, or not any more")
        reader = UpdateReader()
        async with stream_call(
            endpoint, _FOLLOW_SOURCES, wire.SourceRequests, wire.SourceUpdates
        ) as call:
            writing = start(
                "source_requests", self._write(call), expected=(grpc.RpcError, ConnectionLost)
            )
            try:
                while isinstance(message := await call.read(), wire.SourceUpdates):
                    for update in reader.updates(message):
                        take(update)
            finally:
                await cancel_and_wait(writing)
        raise ConnectionLost(f"{endpoint} has ended the stream")

    async def _write(self, call: Any) -> None:
        message = wire.SourceRequests(broker_id=self._broker_id)
        while True:
            try:
                await call.write(message)
            except asyncio.InvalidStateError as error:
                raise ConnectionLost("the stream is over") from error
            await self._to_send.wait()
            message = wire.SourceRequests()
            while self._requests and len(message.requests) < FEED_REQUESTS_PER_MESSAGE_MAX:
                message.requests.append(request_to_proto(self._requests.popleft()))
            if not self._requests:
                self._to_send.clear()


def endpoint_of(view: ClusterView, broker_id: str, session_id: str) -> str | None:
    """Return host:port of a broker in a session, None if that is not its present one."""
    broker = view.brokers.get(broker_id)
    if broker is None or not broker.is_live or broker.session_id != session_id:
        return None
    return broker.endpoints.grpc or None
