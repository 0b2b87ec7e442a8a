"""Calls to any discovery node that answers: fail-over and retries of one logical request.

A retry sends the same message with the same command id and issued positions, so repeating an
attempt whose answer was lost is a no-op.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from nextgen.client.discovery.issued import IssuedPositions, is_command, is_issued, take_back
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.transport.retry_pause import retry_pause_ms
from nextgen.client.wire.errors import NOT_CONNECTED, error_of_rpc
from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    Definite,
    Indefinite,
    MetadataError,
    NotLeader,
    OutcomeForgotten,
    Overloaded,
    StaleShardMap,
    Unavailable,
)
from nextgen.kernel.limits.cluster import REQUEST_ANSWER_MARGIN_MS
from nextgen.kernel.limits.write import COMMAND_REPEATED_MS_MAX
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.security.tls_refusal import tls_refusal
from nextgen.runtime.telemetry import tracing
from protos.nextgen.v1.discovery_service_pb2 import GetPositionsRequest, GetPositionsResponse

SERVICE = "/nextgen.v1.DiscoveryService/"

Response = TypeVar("Response", bound=Message)

_RETRIED_DEFINITE = (NotLeader, Overloaded, StaleShardMap, Unavailable)
_RETRIED = (Indefinite, *_RETRIED_DEFINITE)
_BACKOFF_MS_MIN = 20
_BACKOFF_MS_MAX = 400
_ATTEMPT_MS_MIN = REQUEST_ANSWER_MARGIN_MS + 100
"""With less a discovery node would have no time for the request itself."""
_ATTEMPT_SHARE_MS_MIN = 1_000


class DiscoveryNodes:
    """The discovery nodes a client was given. One is in use until it fails, then the next.

    Each client begins at a random node, which spreads the load; with ``in_order``, at the first.
    """

    def __init__(self, endpoints: Sequence[str], *, in_order: bool = False) -> None:
        assert endpoints, "a client needs the address of a discovery node"
        self._endpoints = tuple(endpoints)
        self._turn = 0 if in_order else random.randrange(len(self._endpoints))
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._positions = IssuedPositions()

    @property
    def endpoint(self) -> str:
        """host:port of the node in use."""
        return self._endpoints[self._turn]

    def channel(self) -> grpc.aio.Channel:
        """Return the channel to the node in use."""
        return self.channel_to(self.endpoint)

    def channel_to(self, endpoint: str) -> grpc.aio.Channel:
        """Return the channel to one of the nodes."""
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = self._channels[endpoint] = open_channel(endpoint, NodeRole.DISCOVERY)
        return channel

    def fail_over(self, failed: str) -> None:
        """Use the next node from here on, unless another caller has moved on from ``failed``."""
        if self.endpoint == failed:
            self._turn = (self._turn + 1) % len(self._endpoints)

    async def close(self) -> None:
        await self._positions.close()
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await close_channel(channel)

    async def call(
        self,
        method: str,
        request: Message,
        response_type: type[Response],
        *,
        timeout_ms: int,
        is_repeatable: bool = True,
    ) -> Response:
        """Carry out one unary call, over all nodes and with retries until ``timeout_ms``.

        Unless the call ``is_repeatable``, it is not retried after an indefinite error. A command
        without issued positions gets them here. It keeps them after an indefinite error, so that
        the caller can repeat the same message; retries then end after
        ``COMMAND_REPEATED_MS_MAX``. They end at once when every node refuses the TLS of this
        process, or that it has none.

        Raises:
            MetadataError: The last attempt's error; indefinite if any attempt's was.
        """
        retried = _RETRIED if is_repeatable else _RETRIED_DEFINITE
        with tracing.span(f"client.{method}"):
            return await self._call(method, request, response_type, timeout_ms, retried)

    async def _call(
        self,
        method: str,
        request: Message,
        response_type: type[Response],
        timeout_ms: int,
        retried: tuple[type[MetadataError], ...],
    ) -> Response:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1_000
        backoff_ms = _BACKOFF_MS_MIN
        # A command with positions was sent in an earlier call, whose outcome is unknown here.
        is_new = not is_issued(request)
        was_indefinite = False
        refusal: MetadataError | None = None
        refusing: set[str] = set()
        while True:
            remaining_ms = max(1.0, (deadline - loop.time()) * 1_000)
            endpoint = self.endpoint
            try:
                if is_new and not was_indefinite:
                    await self._issue(endpoint, request, self._share_ms(remaining_ms))
                return await self.call_at(
                    endpoint,
                    method,
                    request,
                    response_type,
                    timeout_ms=self._share_ms(remaining_ms),
                )
            except OutcomeForgotten:
                raise
            except retried as failure:
                error = _explained(failure, refusal)
                refusal = refusal if isinstance(failure, DeadlineExceeded) else failure
            if isinstance(error, Indefinite) and not was_indefinite:
                was_indefinite = True
                deadline = min(deadline, loop.time() + COMMAND_REPEATED_MS_MAX / 1_000)
            self._react(endpoint, error)
            error = await self._tls_refusal(endpoint, error, refusing)
            pause_ms = retry_pause_ms(error, backoff_ms)
            # DEADLINE_EXCEEDED of an attempt without time would hide the actual cause.
            is_over = loop.time() + (pause_ms + _ATTEMPT_MS_MIN) / 1_000 >= deadline
            is_over = is_over or refusing.issuperset(self._endpoints)
            if not is_over:
                await asyncio.sleep(pause_ms / 1_000)
                # This process may have been suspended. A command sent after the deadline may
                # arrive when the outcome of its first attempt is forgotten.
                is_over = loop.time() >= deadline
            if is_over:
                if is_new and not was_indefinite and is_command(request):
                    take_back(request)
                raise _settled(error, was_indefinite=was_indefinite)
            backoff_ms = min(backoff_ms * 2, _BACKOFF_MS_MAX)

    async def _issue(self, endpoint: str, request: Message, timeout_ms: float) -> None:
        if not is_command(request):
            return

        async def read() -> GetPositionsResponse:
            return await self.call_at(
                endpoint,
                "GetPositions",
                GetPositionsRequest(),
                GetPositionsResponse,
                timeout_ms=timeout_ms,
            )

        await self._positions.stamp(request, read, timeout_ms)

    def _react(self, endpoint: str, error: MetadataError) -> None:
        if isinstance(error, ConnectionLost | DeadlineExceeded | Unavailable):
            self.fail_over(endpoint)
        if isinstance(error, Unavailable):
            # A shard may have been unknown when the positions were read.
            self._positions.forget()

    async def _tls_refusal(
        self, endpoint: str, error: MetadataError, refusing: set[str]
    ) -> MetadataError:
        """Return the reason for ``error`` if it is TLS, else ``error``. The nodes whose last answer
        that was are ``refusing``."""
        text = str(error)
        is_unconnected = isinstance(error, Unavailable) and NOT_CONNECTED in text
        refusal = await tls_refusal(endpoint, text) if is_unconnected else None
        if refusal is None:
            refusing.discard(endpoint)
            return error
        refusing.add(endpoint)
        return refusal

    async def call_at(
        self,
        endpoint: str,
        method: str,
        request: Message,
        response_type: type[Response],
        *,
        timeout_ms: float,
    ) -> Response:
        """Carry out one unary call at one node, without retries.

        Raises:
            MetadataError: The error of the call.
        """
        call: Any = self.channel_to(endpoint).unary_unary(
            SERVICE + method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response_type.FromString,
        )
        traceparent = tracing.traceparent()
        carried = ((tracing.METADATA_KEY, traceparent),) if traceparent else None
        try:
            response: Response = await call(request, timeout=timeout_ms / 1_000, metadata=carried)
        except grpc.RpcError as error:
            raise error_of_rpc(error) from error
        return response

    def _share_ms(self, remaining_ms: float) -> float:
        """Return the time for one attempt, so that time is left for other nodes if this one
        hangs."""
        if len(self._endpoints) == 1:
            return remaining_ms
        return min(remaining_ms, max(_ATTEMPT_SHARE_MS_MIN, remaining_ms / 2))


def _explained(error: MetadataError, earlier: MetadataError | None) -> MetadataError:
    """Return an error that names the attempt before, if its own attempt only ran out of time."""
    if earlier is None or not isinstance(error, DeadlineExceeded):
        return error
    explained = DeadlineExceeded(f"{error}; the attempt before failed: {earlier}")
    explained.__cause__ = error
    return explained


def _settled(error: MetadataError, *, was_indefinite: bool) -> MetadataError:
    if was_indefinite and isinstance(error, Definite):
        settled = DeadlineExceeded(f"it may have happened; the last attempt failed: {error}")
        settled.__cause__ = error
        return settled
    return error
