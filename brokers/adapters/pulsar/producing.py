"""PRODUCER, SEND and CLOSE_PRODUCER: the producing half of a connection.

PRODUCER ──▶ (topic opens, turn is waited for) ──▶ PRODUCER_SUCCESS ──▶ SEND ──▶ SEND_RECEIPT
"""

from __future__ import annotations

import asyncio

from brokers.adapters.pulsar.answers import (
    close_producer,
    error_code,
    send_error,
    send_receipt,
    success,
)
from brokers.adapters.pulsar.handles import ClosedIds
from brokers.adapters.pulsar.requests import ClientRequests
from brokers.domain.position import Position
from brokers.domain.producing.access import AccessMode
from brokers.domain.producing.deduplication import Chunk
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.schemas.schema import Schema, version_bytes
from brokers.ports.producer import Publication
from brokers.service.producing.producers import Producer, ProducerRequest
from brokers.service.topics.topic import Topic
from brokers.wire import stated_schema
from nextgen.kernel.limits.pulsar import (
    HANDLES_PER_CONNECTION_MAX,
    PRODUCER_NAME_BYTES_MAX,
    PULSAR_BATCH_MESSAGES_MAX,
    SUBSCRIPTION_NAME_BYTES_MAX,
)
from nextgen.kernel.routing.names import parse_topic
from nextgen.pulsar.frames import MalformedFrame
from nextgen.pulsar.payload import ChecksumMismatch, open_payload
from protos.pulsar import PulsarApi_pb2 as pulsar

_SEQUENCE_ID_MAX = 2**63 - 1
_CLOSE_WITH_URL_VERSION = 5
"""Clients below this version do not know that a broker closes a producer."""


class ProducerHandle:
    """One producer id of one connection, from PRODUCER to its end. A ``ProducerSink``."""

    __slots__ = (
        "_producing",
        "creating",
        "is_ended",
        "producer",
        "producer_id",
        "request_id",
        "schema_version",
        "topic",
    )

    def __init__(self, producing: Producing, producer_id: int, request_id: int) -> None:
        self._producing = producing
        self.producer_id = producer_id
        self.request_id = request_id
        self.creating: asyncio.Task[None] | None = None
        self.producer: Producer | None = None
        self.topic: Topic | None = None
        self.schema_version: int | None = None
        self.is_ended = False
        """The client or this broker has closed the producer: no further answer is sent."""

    @property
    def connection(self) -> object:
        return self._producing.connection

    def stored(self, publication: Publication, position: Position) -> None:
        if not self.is_ended:
            self._producing.connection.send(
                send_receipt(
                    self.producer_id,
                    publication.sequence_id,
                    publication.highest_sequence_id,
                    position,
                )
            )

    def failed(self, publication: Publication, code: int, message: str) -> None:
        if not self.is_ended:
            self._producing.send_failed(self.producer_id, publication.sequence_id, code, message)

    def settled(self, publication: Publication) -> None:
        topic = self.topic
        is_congested = topic is not None and topic.ledger.is_congested
        self._producing.connection.count_settled(
            len(publication.payload), is_congested=is_congested
        )

    def queued(self, name: str) -> None:
        self._producing.connection.send_command(
            pulsar.BaseCommand(
                type=pulsar.BaseCommand.PRODUCER_SUCCESS,
                producer_success=pulsar.CommandProducerSuccess(
                    request_id=self.request_id, producer_name=name, producer_ready=False
                ),
            )
        )

    def end(self, broker_url: str) -> None:
        self._producing.end(self, broker_url)

    async def is_alive(self) -> bool:
        return await self._producing.connection.is_alive()


class Producing:
    """The producers of one connection."""

    __slots__ = ("_closed", "_handles", "connection")

    def __init__(self, connection: ClientRequests) -> None:
        self.connection = connection
        self._handles: dict[int, ProducerHandle] = {}
        self._closed = ClosedIds(connection.clock)

    def __len__(self) -> int:
        return len(self._handles)

    def on_producer(self, command: pulsar.BaseCommand) -> None:
        """Let a producer in, or say why not."""
        asked = command.producer
        known = self._handles.get(asked.producer_id)
        if known is not None:
            self._again(known, asked.request_id)
            return
        try:
            self._check(asked)
            schema = stated_schema(asked.schema) if asked.HasField("schema") else None
        except Refusal as refusal:
            self.connection.refuse(asked.request_id, refusal)
            return
        handle = ProducerHandle(self, asked.producer_id, asked.request_id)
        self._handles[asked.producer_id] = handle
        self._closed.discard(asked.producer_id)
        # Not the command: a producer may wait for as long as another one has the topic.
        work = self._create(
            handle, asked.topic, _request(asked), schema, asked.initial_subscription_name
        )
        handle.creating = self.connection.start(work)

    def on_send(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        """Have a message stored.

        Raises:
            MalformedFrame: No client sends this.
        """
        send = command.send
        handle = self._handles.get(send.producer_id)
        if handle is None or handle.producer is None:
            if send.producer_id in self._closed:
                return  # It has not heard yet, and sends it again elsewhere.
            raise MalformedFrame(f"SEND of producer {send.producer_id}, which is not there")
        try:
            publication = _publication(send, payload)
        except ChecksumMismatch as error:
            self.send_failed(send.producer_id, send.sequence_id, ServerError.CHECKSUM, str(error))
            return
        if send.HasField("txnid_least_bits") or send.HasField("txnid_most_bits"):
            message = "transactions are not supported"
            self.send_failed(send.producer_id, send.sequence_id, ServerError.NOT_ALLOWED, message)
            return
        self.connection.count_pending(len(payload))
        handle.producer.publish(publication)
        if handle.topic is not None and handle.topic.ledger.is_congested:
            self.connection.hold_for_storage()

    def on_close(self, command: pulsar.BaseCommand) -> None:
        """Let a producer go once all it has sent is answered."""
        asked = command.close_producer
        handle = self._handles.pop(asked.producer_id, None)
        if handle is None or handle.producer is None:
            if handle is not None and handle.creating is not None:
                handle.is_ended = True
                handle.creating.cancel()
                handle.creating = None
            self.connection.send(success(asked.request_id))
            return
        self.connection.start(self._finish(handle, asked.request_id))

    def end(self, handle: ProducerHandle, broker_url: str) -> None:
        """Close a producer from the broker's side."""
        if handle.is_ended or handle.producer is None:
            return  # One that is being let in gets an answer instead.
        handle.is_ended = True
        if self._handles.get(handle.producer_id) is handle:
            del self._handles[handle.producer_id]
            self._closed.add(handle.producer_id)
        if self.connection.protocol_version < _CLOSE_WITH_URL_VERSION:
            self.connection.close_after_flush()
            return
        self.connection.send_command(close_producer(handle.producer_id, broker_url))

    def closed(self) -> None:
        """The connection is gone."""
        handles, self._handles = self._handles, {}
        for handle in handles.values():
            handle.is_ended = True
            handle.creating = None
            if handle.producer is not None and handle.topic is not None:
                handle.topic.producers.remove(handle.producer)

    def send_failed(self, producer_id: int, sequence_id: int, code: int, message: str) -> None:
        self.connection.send_command(
            send_error(producer_id, sequence_id, error_code(code), message)
        )

    def _again(self, handle: ProducerHandle, request_id: int) -> None:
        if handle.producer is None:
            busy = f"producer {handle.producer_id} is being let in already"
            self.connection.refuse(request_id, Refusal(ServerError.SERVICE_NOT_READY, busy))
            return
        self._succeed(handle, handle.producer, request_id)

    def _check(self, asked: pulsar.CommandProducer) -> None:
        problem = None
        if asked.txn_enabled:
            problem = "transactions are not supported"
        elif len(self._handles) >= HANDLES_PER_CONNECTION_MAX:
            problem = f"a connection has at most {HANDLES_PER_CONNECTION_MAX} producers"
        elif len(asked.producer_name.encode()) > PRODUCER_NAME_BYTES_MAX:
            problem = f"a producer's name has at most {PRODUCER_NAME_BYTES_MAX} bytes"
        elif len(asked.initial_subscription_name.encode()) > SUBSCRIPTION_NAME_BYTES_MAX:
            problem = f"a subscription's name has at most {SUBSCRIPTION_NAME_BYTES_MAX} bytes"
        if problem is not None:
            raise Refusal(ServerError.NOT_ALLOWED, problem)

    async def _create(
        self,
        handle: ProducerHandle,
        topic_name: str,
        request: ProducerRequest,
        schema: Schema | None,
        initial_subscription: str,
    ) -> None:
        try:
            with self.connection.answering(handle.request_id):
                topic = await self.connection.front.topics.open(
                    parse_topic(topic_name), create=True
                )
                handle.topic = topic
                producer, handle.schema_version = await topic.add_producer(
                    request, handle, schema, initial_subscription
                )
                handle.producer = producer
                self._succeed(handle, producer, handle.request_id)
        finally:
            # A task that was cancelled holds its frames, and they the handle: a cycle.
            handle.creating = None
            if handle.producer is None and self._handles.get(handle.producer_id) is handle:
                del self._handles[handle.producer_id]

    async def _finish(self, handle: ProducerHandle, request_id: int) -> None:
        assert handle.producer is not None, "it was let in"
        assert handle.topic is not None, "it was let in"
        try:
            await handle.topic.settle(handle.producer)
        finally:
            handle.topic.producers.remove(handle.producer)
        self.connection.send(success(request_id))
        handle.is_ended = True

    def _succeed(self, handle: ProducerHandle, producer: Producer, request_id: int) -> None:
        version = handle.schema_version
        self.connection.send_command(
            pulsar.BaseCommand(
                type=pulsar.BaseCommand.PRODUCER_SUCCESS,
                producer_success=pulsar.CommandProducerSuccess(
                    request_id=request_id,
                    producer_name=producer.name,
                    last_sequence_id=producer.last_sequence_id,
                    schema_version=None if version is None else version_bytes(version),
                    topic_epoch=producer.topic_epoch,
                    producer_ready=True,
                ),
            )
        )


def _request(asked: pulsar.CommandProducer) -> ProducerRequest:
    return ProducerRequest(
        producer_id=asked.producer_id,
        name=asked.producer_name,
        is_name_generated=bool(asked.producer_name) and not asked.user_provided_producer_name,
        mode=AccessMode(int(asked.producer_access_mode)),
        topic_epoch=asked.topic_epoch if asked.HasField("topic_epoch") else None,
        epoch=asked.epoch,
    )


def _publication(send: pulsar.CommandSend, payload: bytes) -> Publication:
    metadata = open_payload(payload).metadata
    count = metadata.num_messages_in_batch
    if not 1 <= count <= PULSAR_BATCH_MESSAGES_MAX:
        raise MalformedFrame(f"a batch of {count} messages")
    if max(send.sequence_id, send.highest_sequence_id) > _SEQUENCE_ID_MAX - count:
        raise MalformedFrame(f"{send.sequence_id} is no sequence id")
    chunk = None
    if metadata.num_chunks_from_msg > 1:
        if not 0 <= metadata.chunk_id < metadata.num_chunks_from_msg:
            raise MalformedFrame(f"{metadata.chunk_id} is no chunk of a message")
        chunk = Chunk(metadata.chunk_id, metadata.num_chunks_from_msg)
    return Publication(payload, send.sequence_id, send.highest_sequence_id, count, chunk)
