"""One Pulsar client at a broker: its commands, each to whoever carries it out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from brokers.adapters.pulsar_answers import TRANSACTIONS, error_code, no_transactions, success
from brokers.adapters.pulsar_consuming import Consuming
from brokers.adapters.pulsar_producing import Producing
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.schema import Schema, version_bytes
from brokers.service.topics import Topics
from brokers.wire import stated_schema
from nextgen.kernel.errors import Overloaded
from nextgen.kernel.names import InvalidName, parse_topic
from nextgen.kernel.pulsar_limits import (
    BROKER_LISTINGS_MAX,
    CONNECTION_PENDING_BYTES_MAX,
    CONNECTION_REQUESTS_MAX,
    LEDGER_PENDING_ENTRY_BYTES,
    LIVENESS_CHECK_MS,
)
from nextgen.pulsar.connection import Greeting, PulsarConnection
from nextgen.pulsar.frames import MalformedFrame, RawFrame
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.pulsar.metadata_commands import MetadataCommands, needed_of, shown
from nextgen.pulsar.scalable_topics import SCALABLE_TOPICS, no_scalable_topics
from nextgen.tasks.background import start
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar

_logger = structlog.get_logger(__name__)

_PING = pulsar.BaseCommand(type=pulsar.BaseCommand.PING, ping=pulsar.CommandPing())


@dataclass(slots=True)
class Front:
    """What all connections of a broker share."""

    topics: Topics
    metadata: MetadataCommands
    greeting: Greeting = field(default_factory=Greeting)
    producers: int = 0
    consumers: int = 0
    listings: int = 0
    """Namespaces that are being listed."""

    def listed(self) -> None:
        self.listings -= 1


class BrokerConnection(PulsarConnection):
    """Serves one client. Whatever takes long is a task of the connection, and ends with it."""

    __slots__ = (
        "_alive",
        "_consuming",
        "_is_held_for_requests",
        "_is_held_for_storage",
        "_pending_bytes",
        "_producing",
        "_tasks",
        "clock",
        "front",
    )

    def __init__(self, keep_alive: KeepAlive, front: Front) -> None:
        super().__init__(keep_alive, front.greeting)
        self.front = front
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self._producing: Producing | None = None
        self._consuming: Consuming | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending_bytes = 0
        self._is_held_for_storage = False
        self._is_held_for_requests = False
        self._alive: asyncio.Event | None = None

    # Hooks -----------------------------------------------------------------------------------

    def handle_raw(self, frame: RawFrame) -> bool:
        if self._alive is not None:
            self._alive.set()
            self._alive = None
        return False

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
            answer = no_scalable_topics(command)
            if answer is not None:
                self.send_command(answer)
        elif kind != pulsar.BaseCommand.AUTH_RESPONSE:
            raise MalformedFrame(f"{pulsar.BaseCommand.Type.Name(kind)} is not for a broker")

    def resumed_writing(self) -> None:
        if self._consuming is not None:
            self._consuming.resumed()

    def closed(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._producing is not None:
            self._producing.closed()
        if self._consuming is not None:
            self._consuming.closed()

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

    @property
    def producer_count(self) -> int:
        return 0 if self._producing is None else len(self._producing)

    @property
    def consumer_count(self) -> int:
        return 0 if self._consuming is None else len(self._consuming)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Carry out what takes long. Ends with the connection."""
        task = start("pulsar_request", work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        if len(self._tasks) >= CONNECTION_REQUESTS_MAX and not self._is_held_for_requests:
            self._is_held_for_requests = True
            self.hold_reading()
        return task

    @contextmanager
    def answering(self, request_id: int) -> Iterator[None]:
        """Answer a request whose work is refused, or fails, inside."""
        try:
            yield
        except Refusal as refusal:
            self.refuse(request_id, refusal)
        except InvalidName as error:
            self.refuse(request_id, Refusal(ServerError.INVALID_TOPIC_NAME, str(error)))
        except Exception:
            _logger.exception("a Pulsar request failed", peer=self.peer)
            self.refuse(request_id, Refusal(ServerError.UNKNOWN, "the broker failed"))

    def refuse(self, request_id: int, refusal: Refusal) -> None:
        self.send_error(request_id, error_code(refusal.code), refusal.message)

    def count_pending(self, size_bytes: int) -> None:
        """A payload was given to storage. Beyond the limit nothing more is read."""
        self._pending_bytes += size_bytes + LEDGER_PENDING_ENTRY_BYTES
        if self._pending_bytes > CONNECTION_PENDING_BYTES_MAX:
            self.hold_for_storage()

    def count_settled(self, size_bytes: int, *, is_congested: bool) -> None:
        """Storage has answered for a payload."""
        self._pending_bytes -= size_bytes + LEDGER_PENDING_ENTRY_BYTES
        if not self._is_held_for_storage:
            return
        has_room = not is_congested and self._pending_bytes <= CONNECTION_PENDING_BYTES_MAX // 2
        # What congests storage may be others': with nothing under way there is no later moment.
        if has_room or not self._pending_bytes:
            self._is_held_for_storage = False
            self._release()

    def hold_for_storage(self) -> None:
        """Read nothing more until storage has caught up."""
        if not self._is_held_for_storage and self._pending_bytes:
            self._is_held_for_storage = True
            self.hold_reading()

    async def is_alive(self) -> bool:
        """Ask the client for a sign of life; if none comes its connection is dropped."""
        if not self.is_open:
            return False
        if self._is_held_for_storage or self._is_held_for_requests:
            return True  # Its answer would not be read.
        if self._alive is None:
            self._alive = asyncio.Event()
            self.send_command(_PING)
        alive = self._alive
        try:
            async with timeout(LIVENESS_CHECK_MS / 1000):
                await alive.wait()
        except TimeoutError:
            self.abort("gives no sign of life, and its producer's name is wanted")
            return False
        return self.is_open

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
        # Not at the end of the task: one that is cancelled before it begins has no end.
        listing.add_done_callback(lambda _: front.listed())

    async def _answer_metadata(self, command: pulsar.BaseCommand) -> None:
        self.send_command(await self.front.metadata.answer(command))

    def _on_get_or_create_schema(self, command: pulsar.BaseCommand) -> None:
        asked = command.getOrCreateSchema
        try:
            schema: Schema | Refusal = stated_schema(asked.schema)
        except Refusal as refusal:
            schema = refusal
        self.start(self._get_or_create_schema(asked.request_id, asked.topic, schema))

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

    def _on_watch_topic_list(self, command: pulsar.BaseCommand) -> None:
        message = "topic lists are not watched here: ask for them"
        self.send_error(command.watchTopicList.request_id, pulsar.NotAllowedError, message)

    def _on_watch_topic_list_close(self, command: pulsar.BaseCommand) -> None:
        self.send(success(command.watchTopicListClose.request_id))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._is_held_for_requests and len(self._tasks) < CONNECTION_REQUESTS_MAX // 2:
            self._is_held_for_requests = False
            self._release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.error("a Pulsar request failed", peer=self.peer, exc_info=error)
            self.close_after_flush()

    def _release(self) -> None:
        if not self._is_held_for_storage and not self._is_held_for_requests:
            self.release_reading()


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
    pulsar.BaseCommand.WATCH_TOPIC_LIST: BrokerConnection._on_watch_topic_list,
    pulsar.BaseCommand.WATCH_TOPIC_LIST_CLOSE: BrokerConnection._on_watch_topic_list_close,
}
