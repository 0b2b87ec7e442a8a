"""Admits calls of clients only with proof of their role, if the cluster asks for it (ADR 0146)."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from nextgen.client.transport.node_calls import CLIENT_CALLS
from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import MetadataError, Unauthenticated
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authentication.header import HEADER, credentials_in
from nextgen.tasks.timeouts import timeout

if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    # Generic in its stubs only.
    _Interceptor = grpc.aio.ServerInterceptor

_Handler = Any
_Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]]

EXPIRED = "the proof of the caller's role has expired: call again with a new one"


class ClientGate(_Interceptor):
    """Refuses a client's call without a valid proof, before its request is read.

    A stream ends when the proof expires that it began with. Calls between processes are not looked
    at: see ``MemberGate``. Without an authenticator every call is admitted.
    """

    def __init__(self, authenticator: Authenticator | None) -> None:
        self._authenticator = authenticator

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> _Handler:
        handler = await continuation(handler_call_details)
        authenticator = self._authenticator
        if (
            authenticator is None
            or handler is None
            or handler_call_details.method not in CLIENT_CALLS
        ):
            return handler
        header = _header_in(handler_call_details.invocation_metadata)
        try:
            credentials = credentials_in(header, None, authenticator)
            found = authenticator.authenticate_now(credentials)
            if found is None:
                found = await authenticator.authenticate(credentials)
        except MetadataError as error:
            return _refusing(error)
        if found.expires_at_s is None or not handler.response_streaming:
            return handler
        return _ending(handler, found.expires_at_s, authenticator)


def _header_in(metadata: Iterable[tuple[str, Any]] | None) -> str | None:
    given = next((value for key, value in metadata or () if key == HEADER), None)
    return given if isinstance(given, str) else None


def _refusing(flaw: MetadataError) -> _Handler:
    async def refuse(_requests: Any, context: Any) -> NoReturn:
        await abort(context, flaw)

    # A stream's handler answers before it reads, so this serves every kind of call.
    return grpc.stream_stream_rpc_method_handler(refuse)


def _ending(handler: _Handler, expires_at_s: float, authenticator: Authenticator) -> _Handler:
    """Return ``handler`` with an end."""
    behaviour = handler.stream_stream or handler.unary_stream

    async def run(request: Any, context: Any) -> None:
        limit = timeout(max(0.0, expires_at_s - authenticator.now()))
        try:
            async with limit:
                await behaviour(request, context)
        except TimeoutError:
            if authenticator.now() < expires_at_s:
                raise
            await abort(context, Unauthenticated(EXPIRED))

    async def generate(request: Any, context: Any) -> AsyncIterator[Any]:
        async for response in behaviour(request, context):
            if authenticator.now() >= expires_at_s:
                await abort(context, Unauthenticated(EXPIRED))
            yield response

    ended = generate if inspect.isasyncgenfunction(behaviour) else run
    make = (
        grpc.stream_stream_rpc_method_handler
        if handler.request_streaming
        else grpc.unary_stream_rpc_method_handler
    )
    return make(ended, handler.request_deserializer, handler.response_serializer)
