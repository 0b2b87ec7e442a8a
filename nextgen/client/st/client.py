"""The client of scalable topics."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, Self, TypeVar

from nextgen.client.st.connection.brokers import Brokers
from nextgen.client.st.connection.memory import Memory
from nextgen.client.st.connection.pool import LinkPool
from nextgen.client.st.consuming.checkpoint_consumer import CheckpointConsumer, ReadingStart
from nextgen.client.st.consuming.namespace_consumer import (
    NamespaceQueueConsumer,
    NamespaceStreamConsumer,
)
from nextgen.client.st.consuming.queue_consumer import QueueConsumer
from nextgen.client.st.consuming.settings import (
    NOT_OF_NAMESPACES,
    QUEUE_ONLY,
    ConsumerSettings,
    DeadLetterPolicy,
    InitialPosition,
    checked_filters,
    checked_namespace,
    checked_subscription,
)
from nextgen.client.st.consuming.stream_consumer import StreamConsumer
from nextgen.client.st.domain.checkpoints import Checkpoint
from nextgen.client.st.errors import AlreadyClosed, InvalidSettings
from nextgen.client.st.producing.producer import Producer
from nextgen.client.st.producing.settings import ProducerSettings
from nextgen.client.st.schemas.schema import Schema, bytes_
from nextgen.client.st.settings import (
    ClientSettings,
    Token,
    not_negative,
    refuse_unsupported,
)
from nextgen.kernel.limits.pulsar import PULSAR_KEEP_ALIVE_MS
from nextgen.kernel.limits.scalable import (
    ST_MEMORY_BYTES_DEFAULT,
    ST_OPERATION_TIMEOUT_MS_DEFAULT,
)

Value = TypeVar("Value")

UNSUPPORTED = {
    "transactions": "this client has no transactions",
    "transaction_policy": "this client has no transactions",
    "proxy": "a proxy of Pulsar is found by lookups; others, by the TLS name of a host, are not",
    "open_telemetry": "trace around the calls",
    "max_connection_idle_ms": "connections stay open until the client is closed",
}
"""Settings of the Java client that this one does not have, and what to do."""


class _Closeable(Protocol):
    is_closed: bool

    async def close(self) -> None: ...


class PulsarClient:
    """A client of one Pulsar cluster. Make it in a running event loop, and ``close`` it.

    ``service_url``: ``pulsar://host:port``, or ``pulsar+ssl://`` for TLS, several hosts by commas:
    discovery nodes of this project, or stock brokers from 5.0 on.
    ``operation_timeout_ms``: for creating producers and consumers, and for each request.
    ``memory_limit_bytes``: of messages that wait to be stored; ``send`` waits beyond it.
    ``keep_alive_ms``: between two PINGs; a connection on which nothing came in between is closed,
    so one that is dead is noticed within twice this time.
    ``connections_per_broker``: segments take turns on so many connections to each broker.
    ``listener_name``: which advertised address of the brokers to use.
    ``token``: proves who the client is, or a function that returns a fresh one, which is called for
    each connection and whenever a server wants a new proof.
    ``tls``: instead of a context with the system's certificates; it may have a certificate of the
    client, and decides whether names of hosts are verified.

    Raises:
        InvalidSettings: A setting is out of its range or contradicts another one.
        NotSupported: A setting of the Java client that this one does not have.
    """

    def __init__(
        self,
        service_url: str,
        *,
        operation_timeout_ms: int = ST_OPERATION_TIMEOUT_MS_DEFAULT,
        memory_limit_bytes: int = ST_MEMORY_BYTES_DEFAULT,
        keep_alive_ms: int = PULSAR_KEEP_ALIVE_MS,
        connections_per_broker: int = 1,
        listener_name: str = "",
        token: Token | None = None,
        tls: ssl.SSLContext | None = None,
        **unsupported: Any,
    ) -> None:
        refuse_unsupported(unsupported, UNSUPPORTED)
        self._settings = ClientSettings(
            service_url,
            operation_timeout_ms,
            memory_limit_bytes,
            keep_alive_ms,
            connections_per_broker,
            listener_name,
            token,
            tls,
        ).checked()
        self._pool = LinkPool(self._settings)
        self._brokers = Brokers(self._settings, self._pool)
        self._memory = Memory(memory_limit_bytes)
        self._open: dict[_Closeable, None] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<PulsarClient {self._settings.service_url}, {len(self._pool)} connections>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def create_producer(
        self, topic: str, *, schema: Schema[Value] | None = None, **settings: Any
    ) -> Producer[Value]:
        """Return a producer for a topic.

        ``name``: of the producer, for deduplication; the server makes one up otherwise.
        ``access_mode``: ``AccessMode``; the exclusive ones attach to every segment at once.
        ``compression``: ``Compression`` of batches.
        ``batching_enabled``, ``batching_delay_ms``, ``batch_messages_max``, ``batch_bytes_max``:
        a batch leaves when nothing else is on its way, or is this old or large.
        ``chunking_enabled``: a message that is larger than an entry may be is sent in several, of
        ``chunk_bytes`` each (0: as large as the server takes).
        ``send_timeout_ms``: a message that is not stored in time fails; 0 is no limit.
        ``properties``: what operators see of the producer.
        ``create_if_missing``: whether the server may create the topic.

        Raises:
            TopicNotFound: There is no such topic.
            NotSupported: The server has no scalable topics, or this client not the setting.
            ScalableTopicError: Any other reason.
        """
        self._check_open()
        producer: Producer[Value] = Producer(
            topic,
            _schema_or_bytes(schema),
            ProducerSettings.of(settings),
            brokers=self._brokers,
            memory=self._memory,
            timeout_ms=self._settings.operation_timeout_ms,
        )
        await producer.start()
        self._keep(producer)
        return producer

    async def queue_consumer(
        self, topic: str, subscription: str, *, schema: Schema[Value] | None = None, **settings: Any
    ) -> QueueConsumer[Value]:
        """Return a consumer that shares the topic's messages with others of its subscription.

        ``consumer_name``, ``priority_level``: for the broker's choice among consumers.
        ``initial_position``: where a new subscription begins (``InitialPosition``).
        ``receiver_queue``: messages of one segment that are received ahead.
        ``negative_ack_delay_ms``: when a message comes again that was acknowledged negatively;
        ``negative_ack_backoff`` (``RedeliveryBackoff``) instead: later each time.
        ``ack_timeout_ms``: a message that the application took comes again if it is not
        acknowledged in this time, after a further pause by ``ack_timeout_backoff``; 0 is no limit.
        ``dead_letter`` (``DeadLetterPolicy``): a message that came again too often goes to another
        topic, as bytes, with properties that name its origin.
        ``properties``, ``subscription_properties``: what operators see of the consumer, and what
        the server keeps with a subscription that this consumer makes.
        ``create_if_missing``: whether the server may create the topic.

        Raises as ``create_producer`` does.
        """
        self._check_open()
        consumer: QueueConsumer[Value] = QueueConsumer(
            topic,
            checked_subscription(subscription),
            _schema_or_bytes(schema),
            ConsumerSettings.of(settings),
            brokers=self._brokers,
            timeout_ms=self._settings.operation_timeout_ms,
            make_letter_producer=self._letter_producer,
        )
        await consumer.start()
        self._keep(consumer)
        return consumer

    async def stream_consumer(
        self, topic: str, subscription: str, *, schema: Schema[Value] | None = None, **settings: Any
    ) -> StreamConsumer[Value]:
        """Return a consumer that gets each key's messages in order and acknowledges cumulatively.

        ``consumer_name`` is its identity in the group: one that comes back with the same name
        within the server's grace period has the same segments. The other settings are those of
        ``queue_consumer``, without those about single messages. Raises as ``create_producer`` does.
        """
        self._check_open()
        consumer: StreamConsumer[Value] = StreamConsumer(
            topic,
            checked_subscription(subscription),
            _schema_or_bytes(schema),
            ConsumerSettings.of(settings, refused=QUEUE_ONLY),
            brokers=self._brokers,
            timeout_ms=self._settings.operation_timeout_ms,
        )
        await consumer.start()
        self._keep(consumer)
        return consumer

    async def namespace_queue_consumer(
        self,
        namespace: str,
        subscription: str,
        *,
        property_filters: Mapping[str, str] | None = None,
        schema: Schema[Value] | None = None,
        **settings: Any,
    ) -> NamespaceQueueConsumer[Value]:
        """Return a queue of all scalable topics of ``tenant/namespace`` that have the properties in
        ``property_filters``, as they come and go.

        The settings are those of ``queue_consumer``, without ``create_if_missing``, for each topic.
        With ``initial_position`` EARLIEST nothing is missed of a topic that comes later.

        Raises as ``create_producer`` does.
        """
        self._check_open()
        consumer: NamespaceQueueConsumer[Value] = NamespaceQueueConsumer(
            checked_namespace(namespace),
            checked_filters(property_filters),
            checked_subscription(subscription),
            _schema_or_bytes(schema),
            _of_existing(ConsumerSettings.of(settings, refused=NOT_OF_NAMESPACES)),
            brokers=self._brokers,
            timeout_ms=self._settings.operation_timeout_ms,
            make_letter_producer=self._letter_producer,
        )
        await consumer.start()
        self._keep(consumer)
        return consumer

    async def namespace_stream_consumer(
        self,
        namespace: str,
        subscription: str,
        *,
        property_filters: Mapping[str, str] | None = None,
        schema: Schema[Value] | None = None,
        **settings: Any,
    ) -> NamespaceStreamConsumer[Value]:
        """Do as ``namespace_queue_consumer``, with a ``stream_consumer`` of each topic."""
        self._check_open()
        refused = QUEUE_ONLY | NOT_OF_NAMESPACES
        consumer: NamespaceStreamConsumer[Value] = NamespaceStreamConsumer(
            checked_namespace(namespace),
            checked_filters(property_filters),
            checked_subscription(subscription),
            _schema_or_bytes(schema),
            _of_existing(ConsumerSettings.of(settings, refused=refused)),
            brokers=self._brokers,
            timeout_ms=self._settings.operation_timeout_ms,
        )
        await consumer.start()
        self._keep(consumer)
        return consumer

    async def checkpoint_consumer(
        self,
        topic: str,
        *,
        schema: Schema[Value] | None = None,
        checkpoint: Checkpoint | bytes | None = None,
        start_at_ms: int | None = None,
        group: str | None = None,
        **settings: Any,
    ) -> CheckpointConsumer[Value]:
        """Return a consumer that reads the whole topic and keeps no place at the server.

        It begins behind ``checkpoint``, or with messages published from ``start_at_ms`` on, or at
        ``initial_position``. The consumers of a ``group`` share the segments, and each has
        checkpoints of what it read; one that gets a segment of another begins it at its own start.
        The other settings are those of ``stream_consumer``.

        Raises:
            InvalidCheckpoint: ``checkpoint`` is none, or one of another topic.
            ScalableTopicError: As ``create_producer``.
        """
        self._check_open()
        checked = ConsumerSettings.of(settings, refused=QUEUE_ONLY)
        if checkpoint is not None and start_at_ms is not None:
            raise InvalidSettings("reading begins at a checkpoint or at a time, not at both")
        if start_at_ms is not None:
            not_negative("start_at_ms", start_at_ms)
        if isinstance(checkpoint, bytes):
            checkpoint = Checkpoint.from_bytes(checkpoint)
        consumer: CheckpointConsumer[Value] = CheckpointConsumer(
            topic,
            _schema_or_bytes(schema),
            checked,
            ReadingStart(checked.initial_position, checkpoint, start_at_ms),
            brokers=self._brokers,
            timeout_ms=self._settings.operation_timeout_ms,
            group="" if group is None else checked_subscription(group),
        )
        await consumer.start()
        self._keep(consumer)
        return consumer

    async def reader(
        self, topic: str, *, schema: Schema[Value] | None = None, **settings: Any
    ) -> CheckpointConsumer[Value]:
        """Return a ``checkpoint_consumer`` whose ``initial_position`` is EARLIEST by default."""
        settings.setdefault("initial_position", InitialPosition.EARLIEST)
        return await self.checkpoint_consumer(topic, schema=schema, **settings)

    async def _letter_producer(self, policy: DeadLetterPolicy) -> Producer[bytes]:
        """Return a producer for dead letters. It belongs to the consumer that asks for it."""
        if policy.initial_subscription:
            consumer: QueueConsumer[bytes] = await self.queue_consumer(
                policy.topic,
                policy.initial_subscription,
                initial_position=InitialPosition.EARLIEST,
            )
            await consumer.close()
        return await self.create_producer(policy.topic, chunking_enabled=True)

    async def close(self) -> None:
        """Close all producers, after they have flushed, all consumers and connections."""
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.gather(*(each.close() for each in self._open))
        await self._pool.close()

    async def shutdown(self) -> None:
        """End at once: what waits fails with ``AlreadyClosed``."""
        self._is_closed = True
        self._memory.fail(AlreadyClosed("the client was closed"))
        self._pool.abort()
        for each in list(self._open):
            await (each.shutdown() if isinstance(each, Producer) else each.close())
        await self._pool.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise AlreadyClosed("the client is closed")

    def _keep(self, opened: _Closeable) -> None:
        for each in [each for each in self._open if each.is_closed]:
            del self._open[each]
        self._open[opened] = None


def _of_existing(settings: ConsumerSettings) -> ConsumerSettings:
    """Return the settings for a topic that the server has named: it creates none."""
    return replace(settings, create_if_missing=False)


def _schema_or_bytes(schema: Schema[Any] | None) -> Schema[Any]:
    if schema is None:
        return bytes_
    if not isinstance(schema, Schema):
        raise InvalidSettings(f"schema is {schema!r}, not a Schema")
    return schema
