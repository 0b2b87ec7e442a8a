"""A ``LookupStream``: many lookups in flight to any discovery node that answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from nextgen.client.discovery.lookups import check_heeded, lookup_request
from nextgen.client.discovery.nodes import SERVICE, DiscoveryNodes
from nextgen.client.discovery.own_writes import OwnWrites
from nextgen.client.model import TopicLocation, location_of
from nextgen.client.transport.channel import close_channel, open_channel, wait_connected
from nextgen.client.wire.errors import error_of_rpc, from_detail
from nextgen.kernel.errors import ConnectionLost, DeadlineExceeded, MetadataError, Unavailable
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.telemetry import tracing
from nextgen.tasks.background import cancel_and_wait, start
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import LookupRequest, LookupResponse

_BACKOFF_MS = 50


class LookupStream:
    """Looks topics up over one stream. Use as an async context manager, or ``close`` it.

    A stream that breaks is opened again at the next node, and pending lookups are sent again: a
    node's death costs callers a pause and no error.
    """

    def __init__(self, nodes: DiscoveryNodes, own_writes: OwnWrites, *, timeout_ms: int) -> None:
        self._nodes = nodes
        self._own_writes = own_writes
        self._timeout_ms = timeout_ms
        # A node that hangs must leave time for the next one.
        self._share_ms = timeout_ms // 2
        self._request_id = 0
        self._connection: _Connection | None = None
        self._opening = asyncio.Lock()
        self.reconnects = 0
        """How often the stream was opened again."""

    async def __aenter__(self) -> LookupStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the stream. Pending lookups fail with ``ConnectionLost``."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close("the stream was closed")

    async def lookup(
        self,
        topics: Sequence[str],
        *,
        fresh: bool = False,
        min_epochs: Mapping[str, int] | None = None,
    ) -> list[TopicLocation]:
        """Return where each of ``topics`` is served, in the same order.

        A name without a location carries the reason; see ``TopicLocation``. ``fresh`` and
        ``min_epochs`` are those of ``Client.lookup``.

        Raises:
            InvalidRequest: Too many topics, or none.
            MetadataError: No discovery node answered in time.
        """
        request = lookup_request(
            topics,
            fresh=fresh,
            min_epochs=min_epochs or {},
            positions=self._own_writes.recent(),
        )
        response = await self._answered(request)
        check_heeded(request, response)
        return [location_of(answer) for answer in response.answers]

    async def request(self, topics: Sequence[str], *, trace_id: str = "") -> LookupResponse:
        """As ``lookup``, with the undecoded response. For load generators and benchmarks."""
        positions = self._own_writes.recent()
        return await self._answered(
            LookupRequest(topics=topics, trace_id=trace_id, positions=positions)
        )

    async def _answered(self, request: LookupRequest) -> LookupResponse:
        count = len(request.topics)
        assert count <= NAMES_PER_LOOKUP_MAX, f"{count} names in one message"
        if tracing.active is None:
            request.trace_id = request.trace_id or tracing.traceparent()
            return await self._request(request)
        with tracing.span("client.LookupStream", request.trace_id or None, topics=count):
            request.trace_id = tracing.traceparent()
            return await self._request(request)

    async def _request(self, request: LookupRequest) -> LookupResponse:
        self._request_id += 1
        request_id = request.request_id = self._request_id
        data = request.SerializeToString()
        error: MetadataError | None = None
        try:
            async with timeout(self._timeout_ms / 1_000):
                while True:
                    try:
                        connection = await self._connected()
                        response = await connection.ask(request_id, data, self._share_ms)
                        break
                    except (ConnectionLost, Unavailable) as failure:
                        error = failure
                        await asyncio.sleep(_BACKOFF_MS / 1_000)
        except TimeoutError as expired:
            message = f"no discovery node answered within {self._timeout_ms} ms"
            raise DeadlineExceeded(f"{message}: {error}" if error else message) from expired
        if response.HasField("error"):
            raise from_detail(response.error)
        return response

    async def _connected(self) -> _Connection:
        async with self._opening:
            connection = self._connection
            if connection is not None and not connection.is_closed:
                return connection
            if connection is not None:
                self._nodes.fail_over(connection.endpoint)
                self.reconnects += 1
                await connection.close("the stream is opened anew")
            connection = _Connection(self._nodes.endpoint)
            # Kept even if it does not open: the next attempt then goes to another node.
            self._connection = connection
            await connection.open()
            return connection


class _Connection:
    """One stream to one node. Dead for good once ``is_closed``."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.is_closed = False
        self._pending: dict[int, asyncio.Future[LookupResponse]] = {}
        self._outbox: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._channel = open_channel(endpoint, NodeRole.DISCOVERY)
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        try:
            await wait_connected(self._channel, self.endpoint)
        except BaseException:
            self.is_closed = True
            await close_channel(self._channel)
            raise
        stream: Any = self._channel.stream_stream(
            SERVICE + "LookupStream",
            request_serializer=None,
            response_deserializer=LookupResponse.FromString,
        )
        call = stream()
        self._tasks = [
            start("lookup_writer", self._write_requests(call), on_failure=self._broke),
            start("lookup_reader", self._read_answers(call), on_failure=self._broke),
        ]

    async def ask(self, request_id: int, data: bytes, timeout_ms: int) -> LookupResponse:
        if self.is_closed:
            raise ConnectionLost(f"the stream to {self.endpoint} is closed")
        future: asyncio.Future[LookupResponse] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = future
        self._outbox.append(data)
        self._wake.set()
        try:
            async with timeout(timeout_ms / 1_000):
                return await future
        except TimeoutError as error:
            self._fail(f"{self.endpoint} does not answer")
            raise ConnectionLost(f"{self.endpoint} does not answer") from error
        finally:
            self._pending.pop(request_id, None)

    async def close(self, reason: str) -> None:
        self._fail(reason)
        await cancel_and_wait(*self._tasks)
        await close_channel(self._channel)

    def _fail(self, reason: str) -> None:
        self.is_closed = True
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionLost(reason))
        self._pending.clear()

    def _broke(self, error: BaseException) -> None:
        self._fail(f"the stream to {self.endpoint} broke: {error!r}")

    async def _write_requests(self, call: Any) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._outbox:
                    await call.write(self._outbox.popleft())
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            self._fail(f"the stream to {self.endpoint} broke: {error!r}")

    async def _read_answers(self, call: Any) -> None:
        reason = f"{self.endpoint} ended the stream"
        try:
            while True:
                response = await call.read()
                if not isinstance(response, LookupResponse):
                    break
                future = self._pending.get(response.request_id)
                if future is not None and not future.done():
                    future.set_result(response)
        except grpc.RpcError as error:
            reason = f"the stream to {self.endpoint} broke: {error_of_rpc(error)}"
        except DecodeError as error:
            reason = f"{self.endpoint} does not speak this protocol: {error}"
        self._fail(reason)
