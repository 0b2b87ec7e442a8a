"""One Pulsar client's connection to a broker: passes each command to its handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from brokers.adapters.pulsar.answers import TRANSACTIONS, error_code, no_transactions
from brokers.adapters.pulsar.consuming import Consuming
from brokers.adapters.pulsar.producing import Producing
from brokers.adapters.pulsar.requests import ClientRequests, Front
from brokers.domain.refusal import Refusal
from brokers.domain.schemas.schema import Schema, version_bytes
from brokers.ports.client_info import ClientInfo
from brokers.service.client_limits.broker_clients import Claim
from brokers.wire import stated_schema
from nextgen.kernel.errors import Overloaded
from nextgen.kernel.governance.access import ANONYMOUS, Principal
from nextgen.kernel.limits.pulsar import BROKER_LISTINGS_MAX
from nextgen.kernel.routing.names import InvalidName, parse_topic
from nextgen.pulsar.admission.refusals import shown
from nextgen.pulsar.frames import MalformedFrame
from nextgen.pulsar.greeting import NO_REQUEST_ID
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.pulsar.metadata_commands import needed_of
from nextgen.pulsar.scalable_topics.refusals import no_scalable_topics
from nextgen.pulsar.scalable_topics.session import SCALABLE_TOPICS, ScalableSession
from nextgen.pulsar.topic_lists.session import TopicListSession
from protos.pulsar import PulsarApi_pb2 as pulsar


class BrokerConnection(ClientRequests):
    """Serves one client: passes commands to ``Producing`` and ``Consuming``, or handles them."""

    __slots__ = ("_claims", "_consuming", "_producing", "_scalable", "_watching")

    def __init__(self, keep_alive: KeepAlive, front: Front) -> None:
        super().__init__(keep_alive, front)
        self._producing: Producing | None = None
        self._consuming: Consuming | None = None
        self._watching: TopicListSession | None = None
        self._scalable: ScalableSession | None = None
        self._claims: list[Claim] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        try:
            self._claims.append(self.front.clients.connect(self.client.host))
        except Refusal as refusal:
            # Before CONNECT, as in Pulsar.
            self.send_error(NO_REQUEST_ID, error_code(refusal.code), refusal.message)
            self.close_after_flush()

    def admit(self, connect: pulsar.CommandConnect, principal: Principal) -> None:
        role = "" if principal is ANONYMOUS else principal.name
        try:
            self._claims.append(self.front.clients.admit(ClientInfo(self.peer, "", role)))
        except Refusal as refusal:
            self.send_error(NO_REQUEST_ID, error_code(refusal.code), refusal.message)
            self.close_after_flush()
            return
        super().admit(connect, principal)

    # Hooks -----------------------------------------------------------------------------------

    def handle(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        kind = command.type
        if kind == pulsar.BaseCommand.SEND:
            self.producing.on_send(command, payload)
            return
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, command)
        elif self.front.metadata.handles(kind):
            self._on_metadata(command)
        elif kind in TRANSACTIONS:
            self.send_command(no_transactions(command))
        elif kind in SCALABLE_TOPICS:
            self._on_scalable(command)
        elif kind != pulsar.BaseCommand.AUTH_RESPONSE:
            raise MalformedFrame(f"{pulsar.BaseCommand.Type.Name(kind)} is not for a broker")

    def resumed_writing(self) -> None:
        if self._consuming is not None:
            self._consuming.resumed()

    def closed(self) -> None:
        super().closed()
        for claim in self._claims:
            claim.release()
        if self._producing is not None:
            self._producing.closed()
        if self._consuming is not None:
            self._consuming.closed()
        if self._watching is not None:
            self._watching.close()
        if self._scalable is not None:
            self._scalable.close()

    # Services --------------------------------------------------------------------------------

    @property
    def producing(self) -> Producing:
        if self._producing is None:
            self._producing = Producing(self)
        return self._producing

    @property
    def consuming(self) -> Consuming:
        if self._consuming is None:
            self._consuming = Consuming(self)
        return self._consuming

    # Inside ----------------------------------------------------------------------------------

    def _on_metadata(self, command: pulsar.BaseCommand) -> None:
        if command.type != pulsar.BaseCommand.GET_TOPICS_OF_NAMESPACE:
            self.start(self._answer_metadata(needed_of(command)))
            return
        front = self.front
        if front.listings >= BROKER_LISTINGS_MAX:
            overloaded = Overloaded(f"{front.listings} namespaces are being listed")
            self.send_command(front.metadata.failure(command, overloaded))
            return
        front.listings += 1
        listing = self.start(self._answer_metadata(needed_of(command)))
        # Count by a callback: a task that is cancelled before it starts never runs its ``finally``.
        listing.add_done_callback(lambda _: front.listed())

    async def _answer_metadata(self, command: pulsar.BaseCommand) -> None:
        self.front.metadata.send(self, await self.front.metadata.answer(command))

    def _on_get_or_create_schema(self, command: pulsar.BaseCommand) -> None:
        request = command.getOrCreateSchema
        try:
            schema: Schema | Refusal = stated_schema(request.schema)
        except Refusal as refusal:
            schema = refusal
        self.start(self._get_or_create_schema(request.request_id, request.topic, schema))

    async def _get_or_create_schema(
        self, request_id: int, topic_name: str, schema: Schema | Refusal
    ) -> None:
        answer = pulsar.CommandGetOrCreateSchemaResponse(request_id=request_id)
        try:
            name = parse_topic(topic_name)
            if isinstance(schema, Refusal):
                raise schema
            topic = await self.front.topics.open(name, create=True)
            version = await topic.schemas.add(schema)
            answer.schema_version = version_bytes(version)
        except Refusal as refusal:
            answer.error_code = error_code(refusal.code)
            answer.error_message = shown(refusal.message)
        except InvalidName as error:
            answer.error_code = pulsar.InvalidTopicName
            answer.error_message = shown(str(error))
        self.send_command(
            pulsar.BaseCommand(
                type=pulsar.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
                getOrCreateSchemaResponse=answer,
            )
        )

    def _on_scalable(self, command: pulsar.BaseCommand) -> None:
        services = self.front.scalable
        if services is None:
            answer = no_scalable_topics(command)
            if answer is not None:
                self.send_command(answer)
            return
        if self._scalable is None:
            self._scalable = ScalableSession(self, services)
        self._scalable.handle(command)

    def _on_watch(self, command: pulsar.BaseCommand) -> None:
        if self._watching is None:
            self._watching = TopicListSession(self, self.front.watches)
        self._watching.handle(command)


_Handler = Callable[[BrokerConnection, pulsar.BaseCommand], None]

_HANDLERS: dict[int, _Handler] = {
    pulsar.BaseCommand.PRODUCER: lambda to, command: to.producing.on_producer(command),
    pulsar.BaseCommand.CLOSE_PRODUCER: lambda to, command: to.producing.on_close(command),
    pulsar.BaseCommand.SUBSCRIBE: lambda to, command: to.consuming.on_subscribe(command),
    pulsar.BaseCommand.FLOW: lambda to, command: to.consuming.on_flow(command),
    pulsar.BaseCommand.ACK: lambda to, command: to.consuming.on_ack(command),
    pulsar.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: (
        lambda to, command: to.consuming.on_redeliver(command)
    ),
    pulsar.BaseCommand.UNSUBSCRIBE: lambda to, command: to.consuming.on_unsubscribe(command),
    pulsar.BaseCommand.SEEK: lambda to, command: to.consuming.on_seek(command),
    pulsar.BaseCommand.GET_LAST_MESSAGE_ID: (
        lambda to, command: to.consuming.on_get_last_message_id(command)
    ),
    pulsar.BaseCommand.CONSUMER_STATS: lambda to, command: to.consuming.on_stats(command),
    pulsar.BaseCommand.CLOSE_CONSUMER: lambda to, command: to.consuming.on_close(command),
    pulsar.BaseCommand.GET_OR_CREATE_SCHEMA: BrokerConnection._on_get_or_create_schema,
    pulsar.BaseCommand.WATCH_TOPIC_LIST: BrokerConnection._on_watch,
    pulsar.BaseCommand.WATCH_TOPIC_LIST_CLOSE: BrokerConnection._on_watch,
}
