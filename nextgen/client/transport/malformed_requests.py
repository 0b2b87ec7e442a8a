"""Refuses, for every server, messages that cannot be decoded as the method's request.

gRPC itself answers them with UNKNOWN and a traceback in the server's diagnostics. A caller cannot
distinguish that from a request that got lost on the way, and a client library would retry it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from nextgen.client.transport.request_fields import RequestFields, TooManyFields
from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import InvalidRequest

if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    # Generic in its stubs only.
    _Interceptor = grpc.aio.ServerInterceptor

_Handler = Any
_Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]]


class MalformedRequests(_Interceptor):
    """Ends the one call that brought a malformed message, with the reason INVALID_REQUEST.

    In a stream the servicer's read raises ``InvalidRequest``, which it may handle; unhandled, the
    error ends the call. Methods that take bytes check them themselves. A message of too many
    fields is refused in the same way, and never decoded.
    """

    def __init__(self) -> None:
        # By method: a call of an unknown method is refused before its request is read.
        self._made: dict[str, tuple[_Handler, _Handler]] = {}

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> _Handler:
        handler = await continuation(handler_call_details)
        if handler is None or (handler.request_deserializer is None and handler.request_streaming):
            return handler
        method = handler_call_details.method
        known = self._made.get(method)
        if known is None or known[0] is not handler:
            make = _streaming if handler.request_streaming else _single
            known = self._made[method] = (handler, make(handler, method))
        return known[1]


def _single(handler: _Handler, method: str) -> _Handler:
    """Return a handler of one request. gRPC decodes the request before the handler runs, so a
    request that cannot be decoded reaches the handler as an error value."""
    if handler.request_deserializer is None:
        return grpc.unary_unary_rpc_method_handler(
            _checked(handler.unary_unary), None, handler.response_serializer
        )
    decode = _counted(handler.request_deserializer)

    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError:
            return _malformed(data, method)
        except TooManyFields as error:
            # Without its traceback, which refers to the data.
            return InvalidRequest(str(error))

    if handler.response_streaming:
        behaviour = handler.unary_stream

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            try:
                if isinstance(request, InvalidRequest):
                    await abort(context, request)
                async for response in behaviour(request, context):
                    yield response
            except grpc.aio.AbortError as error:
                del request
                raise _without_frames(error) from None

        answer = stream if inspect.isasyncgenfunction(behaviour) else _checked(behaviour)
        return grpc.unary_stream_rpc_method_handler(answer, decoded, handler.response_serializer)
    return grpc.unary_unary_rpc_method_handler(
        _checked(handler.unary_unary), decoded, handler.response_serializer
    )


def _counted(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return ``decode`` with a check of the number of fields, if it decodes a message."""
    kind = getattr(decode, "__self__", None)
    if not (isinstance(kind, type) and issubclass(kind, Message)):
        return decode
    check = RequestFields(kind).check

    def counted(data: bytes) -> Any:
        check(data)
        return decode(data)

    return counted


def _checked(behaviour: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Any]:
    async def answer(request: Any, context: Any) -> Any:
        try:
            if isinstance(request, InvalidRequest):
                await abort(context, request)
            return await behaviour(request, context)
        except grpc.aio.AbortError as error:
            del request
            raise _without_frames(error) from None

    return answer


def _without_frames(error: grpc.aio.AbortError) -> grpc.aio.AbortError:
    """Return the error that ends a call, without its traceback.

    gRPC keeps the error with the call, and the traceback's frames refer to the call: a cycle that
    would hold the request, possibly megabytes, until the next garbage collection.
    """
    error.__context__ = None
    return error.with_traceback(None)


def _streaming(handler: _Handler, method: str) -> _Handler:
    decode = _counted(handler.request_deserializer)

    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError as error:
            raise _malformed(data, method) from error

    if not handler.response_streaming:
        return grpc.stream_unary_rpc_method_handler(
            _ending(handler.stream_unary), decoded, handler.response_serializer
        )
    behaviour = handler.stream_stream

    async def stream(requests: Any, context: Any) -> AsyncIterator[Any]:
        try:
            try:
                async for response in behaviour(requests, context):
                    yield response
            except InvalidRequest as error:
                await abort(context, error)
        except grpc.aio.AbortError as error:
            raise _without_frames(error) from None

    answer = stream if inspect.isasyncgenfunction(behaviour) else _ending(behaviour)
    return grpc.stream_stream_rpc_method_handler(answer, decoded, handler.response_serializer)


def _ending(behaviour: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Any]:
    async def answer(requests: Any, context: Any) -> Any:
        try:
            try:
                return await behaviour(requests, context)
            except InvalidRequest as error:
                await abort(context, error)
        except grpc.aio.AbortError as error:
            raise _without_frames(error) from None

    return answer


def _malformed(data: bytes, method: str) -> InvalidRequest:
    name = method.rpartition("/")[2]
    return InvalidRequest(f"a message of {len(data)} bytes is not what {name} takes")
