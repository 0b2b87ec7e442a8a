"""One multiplexed ``ShardService.Exchange`` stream per endpoint, shared by all requests to it.

    request() ──▶ outbox ──▶ one writer ──▶ stream ──▶ one reader ──▶ future

Requests share messages by Nagle's rule (RFC 896): while the latest message has no answer, further
requests wait in ``RequestOutbox`` and go together. A lone request is sent at once.

A stream that breaks fails all its pending requests at once; the next request connects anew.
Nothing reconnects in the background: an idle pool does nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from nextgen.client.routing.request_outbox import RequestOutbox, is_slow
from nextgen.client.transport.channel import close_channel, open_channel, wait_connected
from nextgen.client.wire.errors import error_of_rpc, from_detail
from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    InvalidRequest,
    MetadataError,
    Overloaded,
    Unauthenticated,
    Unavailable,
)
from nextgen.kernel.limits.cluster import (
    GRPC_MESSAGE_BYTES_MAX,
    RECONNECT_PAUSE_MS,
    SILENT_CONNECTION_MS,
)
from nextgen.kernel.limits.stream import EXCHANGE_IN_FLIGHT_MAX
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.tasks.background import cancel_and_wait, join, start
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.shard_service_pb2 import ShardRequest, ShardResponse

_EXCHANGE = "/nextgen.v1.ShardService/Exchange"
_SILENCE_MS_SUSPECT = 1_500

ABANDON_MS = 300
"""Milliseconds within which a deposed leader that runs has answered all its requests."""


class NotConnected(Unavailable):
    """There is no connection to the endpoint; nothing was sent. Never sent over the wire."""


@dataclass(slots=True)
class _Pending:
    """One request without an answer."""

    shard_id: int
    future: asyncio.Future[ShardResponse]


class _Connection:
    """One open stream. Dead for good once ``is_closed``."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.is_closed = False
        self._loop = asyncio.get_running_loop()
        self._channel = open_channel(endpoint, NodeRole.SHARD_NODE)
        self._pending: dict[int, _Pending] = {}
        self._outbox = RequestOutbox()
        self._request_id = 0
        self._heard_at = self._loop.time()
        self._pending_since = self._heard_at  # Not after the oldest pending request was sent.
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    async def open(self) -> None:
        """Connect and start the stream.

        Raises:
            NotConnected: No process listens at the endpoint.
        """
        try:
            await wait_connected(self._channel, self.endpoint)
        except BaseException as error:
            self.is_closed = True
            await close_channel(self._channel)
            if isinstance(error, Unavailable):
                raise NotConnected(str(error)) from error
            raise
        exchange: Any = self._channel.stream_stream(
            _EXCHANGE, request_serializer=None, response_deserializer=None
        )
        call = exchange()
        self._heard_at = self._loop.time()
        self._tasks = [
            start("exchange_writer", self._write_requests(call), on_failure=self._broke),
            start("exchange_reader", self._read_answers(call), on_failure=self._broke),
        ]

    async def request(self, request: ShardRequest, *, timeout_ms: int) -> ShardResponse:
        if self.is_closed:
            raise NotConnected(f"the connection to {self.endpoint} is closed")
        if len(self._pending) >= EXCHANGE_IN_FLIGHT_MAX:
            raise Overloaded(f"{EXCHANGE_IN_FLIGHT_MAX} requests wait for {self.endpoint}")
        self._request_id += 1
        request_id = self._request_id
        request.request_id = request_id
        request.timeout_ms = timeout_ms
        request.takes_batches = True
        data = request.SerializeToString()
        if len(data) > GRPC_MESSAGE_BYTES_MAX:
            raise InvalidRequest(
                f"request has {len(data)} bytes, at most {GRPC_MESSAGE_BYTES_MAX} are allowed"
            )
        future: asyncio.Future[ShardResponse] = self._loop.create_future()
        if not self._pending:
            self._pending_since = self._loop.time()
        self._pending[request_id] = _Pending(request.shard_id, future)
        self._outbox.put(request_id, data, is_slow=is_slow(request))
        sent_at = self._loop.time()
        try:
            async with timeout(timeout_ms / 1_000):
                return await future
        except TimeoutError as error:
            self._suspect(sent_at)
            raise DeadlineExceeded(
                f"{self.endpoint} did not answer within {timeout_ms} ms"
            ) from error
        finally:
            self._pending.pop(request_id, None)
            self._outbox.withdraw(request_id)

    def _suspect(self, sent_at: float) -> None:
        """Close the connection if nothing was received since ``sent_at``.

        A frozen peer, or one whose machine is gone, never closes its end.
        """
        silence_ms = (self._loop.time() - sent_at) * 1_000
        if self._heard_at < sent_at and silence_ms >= _SILENCE_MS_SUSPECT:
            self.close(f"{self.endpoint} is silent")

    @property
    def silence_ms(self) -> float:
        """Milliseconds without an answer while requests were pending, 0 if none is."""
        if not self._pending:
            return 0.0
        return (self._loop.time() - max(self._heard_at, self._pending_since)) * 1_000

    def waiting_for(self, shard_id: int) -> list[int]:
        """Return the ids of the shard's pending requests."""
        return [
            request_id
            for request_id, pending in self._pending.items()
            if pending.shard_id == shard_id
        ]

    def give_up(self, request_ids: list[int], reason: str) -> None:
        """Fail those of the requests that are still pending."""
        for request_id in request_ids:
            pending = self._pending.pop(request_id, None)
            if pending is not None and not pending.future.done():
                pending.future.set_exception(ConnectionLost(reason))

    def close(self, reason: str, kind: type[MetadataError] = ConnectionLost) -> None:
        """Fail all pending requests with an error of this kind, and close the stream."""
        if self.is_closed:
            return
        self.is_closed = True
        for pending in self._pending.values():
            if not pending.future.done():
                pending.future.set_exception(kind(reason))
        self._pending.clear()
        self._outbox.close()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._tasks.append(join(close_channel(self._channel)))

    def _broke(self, error: BaseException) -> None:
        self.close(f"the connection to {self.endpoint} broke: {error!r}")

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write_requests(self, call: Any) -> None:
        try:
            while True:
                await call.write(await self._outbox.take())
        except (grpc.RpcError, asyncio.InvalidStateError) as error:
            self._ended_by(error)

    async def _read_answers(self, call: Any) -> None:
        try:
            while True:
                data = await call.read()
                if not isinstance(data, bytes):  # The stream's end.
                    self.close(f"{self.endpoint} ended the stream")
                    return
                self._heard_at = self._loop.time()
                response = ShardResponse.FromString(data)
                for encoded in response.batch:
                    self._dispatch(ShardResponse.FromString(encoded))
                if not response.batch:
                    self._dispatch(response)
        except (grpc.RpcError, DecodeError) as error:
            self._ended_by(error)

    def _ended_by(self, error: Exception) -> None:
        reason = error_of_rpc(error) if isinstance(error, grpc.RpcError) else repr(error)
        if isinstance(reason, Unauthenticated):
            # The peer refused it unread, and would do so again.
            self.close(f"{self.endpoint}: {reason}", Unauthenticated)
        else:
            self.close(f"the stream to {self.endpoint} broke: {reason}")

    def _dispatch(self, response: ShardResponse) -> None:
        if response.more:
            return  # A message of an earlier release's shard node: the answer follows.
        self._outbox.answered(response.request_id, takes_batches=response.takes_batches)
        pending = self._pending.pop(response.request_id, None)
        if pending is None or pending.future.done():
            return  # Its caller stopped waiting.
        if response.HasField("error"):
            pending.future.set_exception(from_detail(response.error))
        else:
            pending.future.set_result(response)


def _retrieve(task: asyncio.Task[_Connection]) -> None:
    """Mark the exception as retrieved: all waiters may have been cancelled."""
    if not task.cancelled():
        task.exception()


class ExchangePool:
    """Connections to shard nodes, opened when first needed. Owned by one event loop.

    ``shard_map_version`` is stamped into every request.
    """

    def __init__(self, shard_map_version: Callable[[], int]) -> None:
        self._shard_map_version = shard_map_version
        self._connections: dict[str, _Connection] = {}
        self._opening: dict[str, asyncio.Task[_Connection]] = {}
        self._not_before: dict[str, float] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def __repr__(self) -> str:
        in_flight = sum(connection.in_flight for connection in self._connections.values())
        return f"<ExchangePool connections={len(self._connections)} in_flight={in_flight}>"

    def is_connected(self, endpoint: str) -> bool:
        """Return whether a request to ``endpoint`` would find an open stream."""
        connection = self._connections.get(endpoint)
        return connection is not None and not connection.is_closed

    async def request(
        self,
        endpoint: str,
        request: ShardRequest,
        *,
        timeout_ms: int,
    ) -> ShardResponse:
        """Send ``request`` to ``endpoint`` (host:port) and return its answer.

        Request id, shard map version and timeout of ``request`` are filled in here, so one
        object must not be in two calls at the same time. Cancelling, like a deadline, ends the
        wait; the request itself is withdrawn only if it was not sent yet.

        Raises:
            MetadataError: The error in the answer.
            NotConnected: Nothing was sent. Definite; a kind of ``Unavailable``.
            Overloaded: ``EXCHANGE_IN_FLIGHT_MAX`` requests are pending there already. Definite.
            ConnectionLost: The stream broke after sending. Indefinite.
            DeadlineExceeded: No answer within ``timeout_ms``. Indefinite.
        """
        assert timeout_ms > 0, f"a request cannot wait {timeout_ms} ms"
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1_000
        connection = self._connections.get(endpoint)
        if connection is None or connection.is_closed:
            connection = await self._opened(endpoint)
        remaining_ms = int((deadline - loop.time()) * 1_000)
        if remaining_ms <= 0:
            raise NotConnected(f"{endpoint} was connected too late to send anything")
        request.shard_map_version = self._shard_map_version()
        return await connection.request(request, timeout_ms=remaining_ms)

    def drop(self, endpoint: str, reason: str) -> None:
        """Close the connection to ``endpoint``; its requests fail with ``ConnectionLost``."""
        connection = self._connections.pop(endpoint, None)
        if connection is not None:
            self._retire(connection, f"the connection to {endpoint} was dropped: {reason}")

    def abandon(self, shard_id: int, *, leader: str) -> None:
        """Give up the shard's requests that are pending at other endpoints than ``leader``.

        A deposed leader answers within ``ABANDON_MS``, a frozen one never. Requests on a silent
        connection fail at once, the others after ``ABANDON_MS``. Requests sent later are not
        affected, so reads from followers go on.
        """
        for endpoint, connection in self._connections.items():
            request_ids = connection.waiting_for(shard_id)
            if endpoint != leader and request_ids:
                delay_ms = 0 if connection.silence_ms > SILENT_CONNECTION_MS else ABANDON_MS
                asyncio.get_running_loop().call_later(
                    delay_ms / 1_000,
                    connection.give_up,
                    request_ids,
                    f"{endpoint} does not lead shard {shard_id} any more and did not answer",
                )

    async def stop(self) -> None:
        """Close every connection. Pending requests fail with ``ConnectionLost``."""
        self._is_stopped = True
        await cancel_and_wait(*self._opening.values())
        for endpoint in list(self._connections):
            self.drop(endpoint, "stopping")
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _opened(self, endpoint: str) -> _Connection:
        if self._is_stopped:
            raise NotConnected("this process is stopping")
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before.get(endpoint, 0.0):
            raise NotConnected(f"{endpoint} refused a connection a moment ago")
        opening = self._opening.get(endpoint)
        if opening is None:
            opening = join(self._open(endpoint))
            opening.add_done_callback(_retrieve)
            self._opening[endpoint] = opening
        # Shielded: other callers wait for the same connection.
        return await asyncio.shield(opening)

    async def _open(self, endpoint: str) -> _Connection:
        try:
            stale = self._connections.pop(endpoint, None)
            if stale is not None:
                self._retire(stale, f"{endpoint} is gone")
            connection = _Connection(endpoint)
            await connection.open()
        except MetadataError:
            now = asyncio.get_running_loop().time()
            self._not_before = {at: t for at, t in self._not_before.items() if t > now}
            self._not_before[endpoint] = now + RECONNECT_PAUSE_MS / 1_000
            raise
        finally:
            self._opening.pop(endpoint, None)
        self._connections[endpoint] = connection
        return connection

    def _retire(self, connection: _Connection, reason: str) -> None:
        connection.close(reason)
        start("exchange_close", connection.wait_closed(), self._closing)
