"""One ``Exchange`` stream at the server: many requests in flight, answered out of order.

Requests of one message are begun in one turn of the loop, so their proposals share an entry.
Answers that are ready together go in one message, to a client that takes batches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from nextgen.client.transport.request_fields import RequestFields, TooManyFields
from nextgen.client.transport.role_gate import check_role
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import InvalidRequest, MetadataError, Overloaded
from nextgen.kernel.limits.cluster import GRPC_MESSAGE_BYTES_MAX
from nextgen.kernel.limits.stream import (
    EXCHANGE_BATCH_BYTES_MAX,
    EXCHANGE_BATCH_REQUESTS_MAX,
    EXCHANGE_IN_FLIGHT_MAX,
)
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.tasks.background import start
from protos.nextgen.v1.shard_service_pb2 import ShardRequest, ShardResponse
from shards.metrics import NodeMetrics
from shards.node.request_dispatcher import RequestDispatcher

_FIELDS = RequestFields(ShardRequest)

_BEGUN_TOGETHER = frozenset(
    {"execute", "use_topics", "get", "lookup", "assign", "release", "grant"}
)
"""Requests whose cost grows with their own bytes, which are few in a message of several."""

_OF_SHARD_NODES = frozenset({"copy_slots", "release_slots", "get_outcomes"})
"""Requests that only the leaders of other shards have to make. Whoever could release slots without
adopting them would leave them to nobody."""


class ExchangeStream:
    """Reads requests until the client ends the stream; lives as long as the call."""

    def __init__(self, dispatcher: RequestDispatcher, context: Any, metrics: NodeMetrics) -> None:
        self._dispatcher = dispatcher
        self._context = context
        self._in_flight_gauge = metrics.exchange_in_flight
        self._outbox: deque[bytes] = deque()
        """Encoded answers that were not passed to gRPC yet."""
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ending = False
        self._takes_batches = False
        """Whether the client has set ``takes_batches``."""

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
        request = self._decoded(data)
        if request is None:
            return
        batch = request.batch
        if not batch:
            self._begin(request)
            return
        if len(batch) > EXCHANGE_BATCH_REQUESTS_MAX:
            large = f"{EXCHANGE_BATCH_REQUESTS_MAX} requests go in a message, not {len(batch)}"
            self._refuse(0, InvalidRequest(large))
            return
        requests = [each for encoded in batch if (each := self._decoded(encoded)) is not None]
        self._dispatcher.read_ahead(requests)
        turns = 0
        for each in requests:
            turns += each.WhichOneof("body") not in _BEGUN_TOGETHER
            self._begin(each, turns)

    def _decoded(self, data: bytes) -> ShardRequest | None:
        """Return the request in ``data``; None if it was refused."""
        try:
            _FIELDS.check(data)
            return ShardRequest.FromString(data)
        except TooManyFields as error:
            self._refuse(0, error)
        except DecodeError:
            # The request's id cannot be decoded either, so the answer carries none.
            self._refuse(0, InvalidRequest(f"a request of {len(data)} bytes is malformed"))
        return None

    def _begin(self, request: ShardRequest, turns: int = 0) -> None:
        """Begin a request, ``turns`` of the loop from now."""
        self._takes_batches = self._takes_batches or request.takes_batches
        # Answers that a slow client has not read yet count too: their number grows.
        if len(self._tasks) + len(self._outbox) >= EXCHANGE_IN_FLIGHT_MAX:
            busy = Overloaded(f"{EXCHANGE_IN_FLIGHT_MAX} requests are in flight on this stream")
            self._refuse(request.request_id, busy)
            return
        if request.WhichOneof("body") in _OF_SHARD_NODES:
            try:
                check_role(self._context, NodeRole.SHARD_NODE)
            except MetadataError as error:
                self._refuse(request.request_id, error)
                return
        loop = asyncio.get_running_loop()
        start("exchange_request", self._answer(request, loop.time(), turns), self._tasks)

    async def _answer(self, request: ShardRequest, arrived_at: float, turns: int) -> None:
        self._in_flight_gauge.inc()
        try:
            for _ in range(turns):
                await asyncio.sleep(0)
            waited_ms = (asyncio.get_running_loop().time() - arrived_at) * 1_000
            self._send(await self._dispatcher.answer(request, waited_ms=waited_ms))
        finally:
            self._in_flight_gauge.dec()

    def _refuse(self, request_id: int, error: MetadataError) -> None:
        self._send(ShardResponse(request_id=request_id, error=to_detail(error)))

    def _send(self, response: ShardResponse) -> None:
        self._outbox.append(_encoded(response))
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                batch = self._next_answers()
                data = (
                    ShardResponse(batch=batch).SerializeToString() if len(batch) > 1 else batch[0]
                )
                await self._context.write(data)
                for _ in batch:
                    self._outbox.popleft()
            if self._is_ending:
                return

    def _next_answers(self) -> list[bytes]:
        """Return the next answers that share a message. They stay in the outbox."""
        first = self._outbox[0]
        if not self._takes_batches:
            return [first]
        size = len(first)
        batch = [first]
        for data in islice(self._outbox, 1, EXCHANGE_BATCH_REQUESTS_MAX):
            size += len(data)
            if size > EXCHANGE_BATCH_BYTES_MAX:
                break
            batch.append(data)
        return batch


def _encoded(response: ShardResponse) -> bytes:
    response.takes_batches = True
    data = response.SerializeToString()
    if len(data) <= GRPC_MESSAGE_BYTES_MAX:
        return data
    large = InvalidRequest(f"the answer has {len(data)} bytes, ask for less")
    refused = ShardResponse(request_id=response.request_id, error=to_detail(large))
    refused.takes_batches = True
    return refused.SerializeToString()
