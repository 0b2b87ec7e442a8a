"""Admits calls of clients only with proof of their role, if the cluster asks for it (ADR 0146).

Whoever has a certificate of an operator needs no other proof (ADR 0158). A client's certificate
proves the role that it names, if the cluster takes certificates and the call has no other proof.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, cast

import grpc
import grpc.aio

from nextgen.client.transport.caller import OPERATOR, set_caller
from nextgen.client.transport.node_calls import CLIENT_CALLS
from nextgen.client.transport.role_gate import MAKERS, caller_of
from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import MetadataError, Unauthenticated
from nextgen.kernel.governance.access import Principal
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authentication.grpc_certificate import certificate_of
from nextgen.runtime.security.authentication.header import HEADER, ORIGINAL, credentials_in
from nextgen.runtime.security.authentication.provider import Authenticated
from nextgen.runtime.security.exclusions import excluded
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.security.process_tls import tls_in_use
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

    def __init__(self, authenticator: Authenticator | None, cluster_id: str = "") -> None:
        """``cluster_id``: whose operators need no proof but their certificate."""
        self._authenticator = authenticator
        self._cluster_id = cluster_id

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
        metadata = handler_call_details.invocation_metadata
        header, original = _text_in(metadata, HEADER), _text_in(metadata, ORIGINAL) or ""
        has_certificates = tls_in_use() is not None and bool(self._cluster_id)
        if has_certificates and not header and authenticator.takes_certificates:

            def by_certificate(context: Any) -> _Handler:
                return _of_certificate(handler, context, original, authenticator)

            return self._unless_operator(handler, by_certificate)
        try:
            credentials = credentials_in(header, None, authenticator)
            found = authenticator.authenticate_now(credentials)
            if found is None:
                found = await authenticator.authenticate(credentials)
            admitted = _admitted(handler, found, original, authenticator)
        except MetadataError as error:
            admitted = _refusing(error)
        return self._unless_operator(handler, lambda _: admitted) if has_certificates else admitted

    def _unless_operator(self, handler: _Handler, admitted: Callable[[Any], _Handler]) -> _Handler:
        """Return a handler that passes calls of operators to ``handler``, and other calls to the
        handler that ``admitted`` returns for their context."""

        def choose(context: Any) -> Callable[[Any, Any], Any]:
            holder = caller_of(context)
            if (
                holder is None
                or holder.role is not NodeRole.OPERATOR
                or holder.cluster_id != self._cluster_id
                or holder.name in excluded()
            ):
                return _behaviour(admitted(context))
            set_caller(OPERATOR)
            return _behaviour(handler)

        async def answer(request: Any, context: Any) -> Any:
            return await choose(context)(request, context)

        async def stream(request: Any, context: Any) -> Any:
            answers = choose(context)(request, context)
            if not hasattr(answers, "__aiter__"):
                await answers
                return
            async for each in answers:
                yield each

        return _made(handler, stream if handler.response_streaming else answer)


def _text_in(metadata: Iterable[tuple[str, Any]] | None, name: str) -> str | None:
    given = next((value for key, value in metadata or () if key == name), None)
    return given if isinstance(given, str) else None


def _behaviour(handler: _Handler) -> Callable[[Any, Any], Any]:
    found = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    assert found is not None, "a handler has one of four"
    return cast(Callable[[Any, Any], Any], found)


def _made(handler: _Handler, behaviour: Callable[[Any, Any], Any]) -> _Handler:
    make = MAKERS[handler.request_streaming, handler.response_streaming]
    return make(behaviour, handler.request_deserializer, handler.response_serializer)


def _of_certificate(
    handler: _Handler, context: Any, original: str, authenticator: Authenticator
) -> _Handler:
    """Return the handler of a call without a header: its role is that of its certificate."""
    try:
        credentials = credentials_in(None, certificate_of(context), authenticator)
        found = authenticator.authenticate_now(credentials)
        assert found is not None, "no certificate takes long to check"
        return _admitted(handler, found, original, authenticator)
    except MetadataError as error:
        return _refusing(error)


def _admitted(
    handler: _Handler, found: Authenticated, original: str, authenticator: Authenticator
) -> _Handler:
    """Return ``handler`` for a client that has proved its role.

    Raises:
        Forbidden: The client acts for another that it may not act for.
    """
    admitted = _acting(handler, authenticator.principal(found.role, original))
    if found.expires_at_s is None or not handler.response_streaming:
        return admitted
    return _ending(admitted, found.expires_at_s, authenticator)


def _acting(handler: _Handler, principal: Principal) -> _Handler:
    """Return ``handler`` for calls of ``principal``."""
    behaviour = _behaviour(handler)

    async def answer(request: Any, context: Any) -> Any:
        set_caller(principal)
        return await behaviour(request, context)

    async def generate(request: Any, context: Any) -> AsyncIterator[Any]:
        set_caller(principal)
        async for response in behaviour(request, context):
            yield response

    is_generated = inspect.isasyncgenfunction(behaviour)
    return _made(handler, generate if is_generated else answer)


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
