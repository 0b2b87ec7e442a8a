"""Admits calls between processes by the role in the caller's certificate (ADR 0144).

TLS has verified the certificate before anything of a call is read. Here it is decided whether its
holder may call the method. A stream is refused before its first message is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import structlog
from prometheus_client import Counter

from nextgen.client.transport.node_calls import OPEN_CALLS, callers_of
from nextgen.client.transport.open_calls import OpenCalls
from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import Unauthenticated
from nextgen.runtime.security.exclusions import excluded
from nextgen.runtime.security.node_identity import NodeIdentity, NodeRole, identity_of
from nextgen.runtime.security.process_tls import tls_in_use

if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    # Generic in its stubs only.
    _Interceptor = grpc.aio.ServerInterceptor

_Handler = Any
_Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]]

_refused = Counter(
    "nextgen_calls_of_wrong_role",
    "Calls between processes whose caller has a certificate for something else.",
)
_logger = structlog.get_logger(__name__)


def caller_of(context: Any) -> NodeIdentity | None:
    """Return the identity in the certificate of a call's caller; None without one."""
    names = context.auth_context().get("peer_uri") or ()
    return identity_of(name.decode("utf-8", "replace") for name in names)


def check_caller(context: Any, kinds: frozenset[NodeRole], node_id: str) -> None:
    """Return if the caller may act as the node ``node_id``, of one of the roles ``kinds``.

    Workers act for their node, operators as guests of any name. Without certificates there is
    nothing to compare.

    Raises:
        Unauthenticated: Its certificate is for another node, or another role.
    """
    if tls_in_use() is None:
        return
    caller = caller_of(context)
    if caller is not None and caller.role in kinds:
        of_worker = node_id.startswith(f"{caller.name}.w")
        if caller.name == node_id or of_worker or caller.role is NodeRole.OPERATOR:
            return
    raise Unauthenticated(f"the caller's certificate is not for node {node_id!r}")


def check_role(context: Any, role: NodeRole) -> None:
    """Return if the caller has a certificate of ``role``, or there are no certificates.

    Raises:
        Unauthenticated: Its certificate is of another role.
    """
    if tls_in_use() is None:
        return
    caller = caller_of(context)
    if caller is None or caller.role is not role:
        raise Unauthenticated(f"the caller's certificate is of no {role}")


def roles_of_kind(kind: str) -> frozenset[NodeRole]:
    """Return whose certificates a node may have that joins as ``kind``; none for no kind."""
    return _ROLES_OF_KIND.get(kind, frozenset())


_ROLES_OF_KIND = {
    "shard": frozenset({NodeRole.SHARD_NODE}),
    "broker": frozenset({NodeRole.BROKER}),
    "discovery": frozenset({NodeRole.DISCOVERY}),
    # Guests, who only listen: workers and operators.
    "client": frozenset({NodeRole.DISCOVERY, NodeRole.OPERATOR}),
}


class RoleGate(_Interceptor):
    """Refuses a call that its caller's role may not make, and every call of an excluded node.

    ``cluster_id`` is that of this process. Calls in flight of a node that is excluded are ended.
    """

    def __init__(self, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._calls = OpenCalls()

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> _Handler:
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None or method in OPEN_CALLS:
            return handler
        return self._checked(method, handler)

    def _checked(self, method: str, handler: _Handler) -> _Handler:
        roles = callers_of(method)
        inner = (
            handler.unary_unary
            or handler.unary_stream
            or handler.stream_unary
            or handler.stream_stream
        )

        async def answer(request: Any, context: Any) -> Any:
            caller = await self._admitted(method, roles, context)
            try:
                with self._calls.of(caller.name):
                    return await inner(request, context)
            except asyncio.CancelledError:
                await self._end_if_excluded(caller, context)
                raise

        async def stream(request: Any, context: Any) -> Any:
            caller = await self._admitted(method, roles, context)
            try:
                with self._calls.of(caller.name) as call:
                    answers = inner(request, context)
                    if not hasattr(answers, "__aiter__"):
                        await answers
                        return
                    async with aclosing(answers):
                        async for each in answers:
                            with call.sending():
                                yield each
            except asyncio.CancelledError:
                await self._end_if_excluded(caller, context)
                raise

        make = MAKERS[handler.request_streaming, handler.response_streaming]
        return make(
            stream if handler.response_streaming else answer,
            handler.request_deserializer,
            handler.response_serializer,
        )

    async def _end_if_excluded(self, caller: NodeIdentity, context: Any) -> None:
        """Give a call that was ended because its caller is excluded that status."""
        if caller.name in excluded():
            await abort(context, Unauthenticated(f"{caller.name} is excluded from the cluster"))

    async def _admitted(
        self, method: str, roles: frozenset[NodeRole], context: Any
    ) -> NodeIdentity:
        caller = caller_of(context)
        if caller is None or caller.cluster_id != self._cluster_id:
            flaw = "the caller's certificate is for no process of this cluster"
        elif caller.role not in roles:
            flaw = f"a {caller.role} may not call {method}"
        elif caller.name in excluded():
            flaw = f"{caller.name} is excluded from the cluster"
        else:
            return caller
        _refused.inc()
        _logger.warning(
            "a call came with a certificate for something else",
            method=method,
            reason=flaw,
            peer=context.peer(),
        )
        return await abort(context, Unauthenticated(flaw))


MAKERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
