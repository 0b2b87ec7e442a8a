"""``BrokerSessionService`` over gRPC: brokers connect here to the manager of their shard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from nextgen.client.cluster.view import ClusterView
from nextgen.client.transport.role_gate import check_caller, roles_of_kind
from nextgen.client.wire.errors import to_detail
from nextgen.kernel.errors import (
    DeadlineExceeded,
    InvalidRequest,
    MetadataError,
    Unavailable,
    WrongCluster,
)
from nextgen.kernel.limits.cluster import SESSION_TTL_MS
from nextgen.tasks.background import cancel_and_wait, start
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.broker_service_pb2 import BrokerHello, BrokerMessage, ManagerMessage
from shards.metrics import NodeMetrics
from shards.node.request_dispatcher import RequestDispatcher
from shards.sessions.broker_sessions import BrokerSessions
from shards.sessions.session_soft_state import BrokerConnection

SERVICE_NAME = "nextgen.v1.BrokerSessionService"


class BrokerSessionServicer:
    """Serves the broker managers of the shards that this node leads."""

    def __init__(
        self,
        cluster_id: str,
        dispatcher: RequestDispatcher,
        view: ClusterView,
        metrics: NodeMetrics,
    ) -> None:
        self._delivery_messages = metrics.delivery_messages
        self._cluster_id = cluster_id
        self._dispatcher = dispatcher
        self._view = view

    def add_to(self, server: grpc.aio.Server) -> None:
        connect = grpc.stream_stream_rpc_method_handler(
            self._connect,
            request_deserializer=BrokerMessage.FromString,
            response_serializer=ManagerMessage.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE_NAME, {"Connect": connect}),)
        )

    async def _connect(self, messages: AsyncIterator[BrokerMessage], context: Any) -> None:
        try:
            hello = await _first(messages)
            if hello is None:
                return
            check_caller(context, roles_of_kind("broker"), hello.broker_id)
            sessions = self._sessions_of(hello)
            async with timeout(SESSION_TTL_MS / 1000):
                connection = await sessions.connect(hello)
            try:
                await self._converse(sessions, connection, messages, context)
            finally:
                sessions.disconnect(connection)
        except TimeoutError:
            late = DeadlineExceeded("the session was not recorded in time")
            await context.write(ManagerMessage(error=to_detail(late)))
        except MetadataError as error:
            version = self._view.shard_map_version
            detail = to_detail(error, shard_map_version=version)
            await context.write(ManagerMessage(error=detail))

    async def _converse(
        self,
        sessions: BrokerSessions,
        connection: BrokerConnection,
        messages: AsyncIterator[BrokerMessage],
        context: Any,
    ) -> None:
        """Forward messages both ways until the broker leaves or the connection fails.

        Raises:
            MetadataError: The reason for which the manager ends the stream.
        """

        async def listen() -> None:
            try:
                async for message in messages:
                    sessions.receive(connection, message)
                connection.fail(Unavailable("the broker ended the stream"))
            except MetadataError as error:
                connection.fail(error)

        def broke(error: BaseException) -> None:
            connection.fail(Unavailable(f"the session's messages broke: {error!r}"))

        listener = start("broker_session_messages", listen(), on_failure=broke)
        try:
            while True:
                for message in connection.take_messages():
                    if message.HasField("deliveries"):
                        self._delivery_messages.inc()
                    await context.write(message)
                if connection.error is not None:
                    raise connection.error
                await connection.changed.wait()
        finally:
            await cancel_and_wait(listener)

    def _sessions_of(self, hello: BrokerHello) -> BrokerSessions:
        if hello.cluster_id != self._cluster_id:
            raise WrongCluster(
                f"broker {hello.broker_id} belongs to cluster {hello.cluster_id!r}, "
                f"this is {self._cluster_id!r}: give it the addresses of its own cluster"
            )
        shard_id = self._view.shard_for_key(hello.broker_id)
        if shard_id is None:
            raise Unavailable("no shard map is known here yet")
        return self._dispatcher.replica(shard_id).leading().brokers.sessions


async def _first(messages: AsyncIterator[BrokerMessage]) -> BrokerHello | None:
    try:
        async with timeout(SESSION_TTL_MS / 1000):
            message = await anext(messages, None)
    except TimeoutError:
        raise InvalidRequest(f"no hello within {SESSION_TTL_MS} ms") from None
    if message is not None and message.WhichOneof("body") != "hello":
        raise InvalidRequest("the first message of a broker is hello")
    return message.hello if message is not None else None
