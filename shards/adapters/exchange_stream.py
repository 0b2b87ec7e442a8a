"""One ``Exchange`` stream at the server: many requests in flight, answered out of order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from nextgen.client.transport.request_fields import RequestFields, TooManyFields
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import InvalidRequest, MetadataError, Overloaded
from nextgen.kernel.limits.cluster import EXCHANGE_IN_FLIGHT_MAX, GRPC_MESSAGE_BYTES_MAX
from nextgen.tasks.background import start
from protos.nextgen.v1.shard_service_pb2 import ShardRequest, ShardResponse
from shards.metrics import NodeMetrics
from shards.node.request_dispatcher import RequestDispatcher

_FIELDS = RequestFields(ShardRequest)


class ExchangeStream:
    """Reads requests until the client ends the stream; lives as long as the call."""

    def __init__(self, dispatcher: RequestDispatcher, context: Any, metrics: NodeMetrics) -> None:
        self._dispatcher = dispatcher
        self._context = context
        self._in_flight_gauge = metrics.exchange_in_flight
        self._outbox: deque[ShardResponse] = deque()
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ending = False

    async def serve(self, requests: Any) -> None:
        """Answer requests until the stream ends; those in flight then are abandoned."""
        serving = asyncio.current_task()
        assert serving is not None
        # If answers can no longer be written, the client must notice: the call ends.
        writer = start(
            "exchange_answers",
            self._write(),
            on_failure=lambda _: serving.cancel(),
            expected=grpc.aio.BaseError,
        )
        try:
            async for data in requests:
                self._take(data)
            # The client has half-closed the stream and still waits for answers.
            if self._tasks:
                await asyncio.wait(self._tasks)
            await self._drained(writer)
        finally:
            for task in self._tasks:
                task.cancel()
            writer.cancel()
            await asyncio.gather(writer, *self._tasks, return_exceptions=True)

    async def _drained(self, writer: asyncio.Task[None]) -> None:
        """Return once every answer was passed to gRPC, or none can be any more."""
        self._is_ending = True
        self._wake.set()
        await asyncio.wait((writer,))

    def _take(self, data: bytes) -> None:
        try:
            _FIELDS.check(data)
            request = ShardRequest.FromString(data)
        except TooManyFields as error:
            self._refuse(0, error)
            return
        except DecodeError:
            # The request's id cannot be decoded either, so the answer carries none.
            self._refuse(0, InvalidRequest(f"a request of {len(data)} bytes is malformed"))
            return
        # Answers that a slow client has not read yet count too: their number grows.
        if len(self._tasks) + len(self._outbox) >= EXCHANGE_IN_FLIGHT_MAX:
            busy = Overloaded(f"{EXCHANGE_IN_FLIGHT_MAX} requests are in flight on this stream")
            self._refuse(request.request_id, busy)
            return
        loop = asyncio.get_running_loop()
        start("exchange_request", self._answer(request, loop.time()), self._tasks)

    async def _answer(self, request: ShardRequest, arrived_at: float) -> None:
        self._in_flight_gauge.inc()
        waited_ms = (asyncio.get_running_loop().time() - arrived_at) * 1_000
        try:
            self._send(await self._dispatcher.answer(request, waited_ms=waited_ms))
        finally:
            self._in_flight_gauge.dec()

    def _refuse(self, request_id: int, error: MetadataError) -> None:
        self._send(ShardResponse(request_id=request_id, error=to_detail(error)))

    def _send(self, response: ShardResponse) -> None:
        self._outbox.append(response)
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                response = self._outbox[0]
                data = response.SerializeToString()
                if len(data) > GRPC_MESSAGE_BYTES_MAX:
                    large = InvalidRequest(f"the answer has {len(data)} bytes, ask for less")
                    response = ShardResponse(request_id=response.request_id, error=to_detail(large))
                    data = response.SerializeToString()
                await self._context.write(data)
                self._outbox.popleft()
            if self._is_ending:
                return
