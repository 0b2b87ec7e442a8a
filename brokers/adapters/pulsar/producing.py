"""PRODUCER, SEND and CLOSE_PRODUCER: the producing half of a connection.

PRODUCER ──▶ (topic opens, producer waits its turn) ──▶ PRODUCER_SUCCESS ──▶ SEND ──▶ SEND_RECEIPT
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
from brokers.ports.client_info import ClientInfo
from brokers.ports.producer import Publication
from brokers.service.entry_metadata import stamp_problem
from brokers.service.producing.producers import Producer, ProducerRequest
from brokers.service.topics.topic import Topic
from brokers.wire import is_managed, stated_schema
from nextgen.kernel.limits.pulsar import (
    HANDLES_PER_CONNECTION_MAX,
    PRODUCER_NAME_BYTES_MAX,
    PULSAR_BATCH_MESSAGES_MAX,
    SUBSCRIPTION_NAME_BYTES_MAX,
)
from nextgen.kernel.routing.names import parse_topic
from nextgen.pulsar.admission.command_access import Kept
from nextgen.pulsar.frames import MalformedFrame
from nextgen.pulsar.payload import ChecksumMismatch, open_payload
from protos.pulsar import PulsarApi_pb2 as pulsar

_SEQUENCE_ID_MAX = 2**63 - 1
_CLOSE_WITH_URL_VERSION = 5
"""Clients below this version do not know CLOSE_PRODUCER from a broker."""


class ProducerHandle:
    """One producer id of one connection, from PRODUCER to its end. A ``ProducerSink``."""

    __slots__ = (
        "_producing",
        "creating",
        "is_ended",
        "kept",
        "producer",
        "producer_id",
        "request_id",
        "schema_version",
        "topic",
    )

    def __init__(self, producing: Producing, producer_id: int, request_id: int, kept: Kept) -> None:
        self._producing = producing
        self.kept = kept
        """The permission that it goes on using."""
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

    @property
    def client(self) -> ClientInfo:
        return self._producing.connection.client

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
        """Connect a producer, or refuse it."""
        request = command.producer
        known = self._handles.get(request.producer_id)
        if known is not None:
            self._again(known, request.request_id)
            return
        try:
            self._check(request)
            schema = stated_schema(request.schema) if request.HasField("schema") else None
        except Refusal as refusal:
            self.connection.refuse(request.request_id, refusal)
            return
        kept = self.connection.keep(command)
        handle = ProducerHandle(self, request.producer_id, request.request_id, kept)
        self._handles[request.producer_id] = handle
        self._closed.discard(request.producer_id)
        # Do not keep the command: the producer may wait as long as another one has the topic.
        work = self._create(
            handle, request.topic, _request(request), schema, request.initial_subscription_name
        )
        handle.creating = self.connection.start(work)

    def on_send(self, command: pulsar.BaseCommand, payload: bytes) -> None:
        """Store a message.

        Raises:
            MalformedFrame: The command violates the protocol.
        """
        send = command.send
        handle = self._handles.get(send.producer_id)
        if handle is None or handle.producer is None:
            if send.producer_id in self._closed:
                return  # The client does not know yet. It will send the message to the new owner.
            raise MalformedFrame(f"SEND of producer {send.producer_id}, which does not exist")
        try:
            publication = _publication(send, payload)
        except ChecksumMismatch as error:
            self.send_failed(send.producer_id, send.sequence_id, ServerError.CHECKSUM, str(error))
            return
        except Refusal as refusal:
            self.send_failed(send.producer_id, send.sequence_id, refusal.code, refusal.message)
            return
        if send.HasField("txnid_least_bits") or send.HasField("txnid_most_bits"):
            message = "transactions are not supported"
            self.send_failed(send.producer_id, send.sequence_id, ServerError.NOT_ALLOWED, message)
            return
        self.connection.count_pending(len(payload))
        handle.producer.publish(publication)
        topic = handle.topic
        if topic is not None:
            if topic.ledger.is_congested:
                self.connection.hold_for_storage()
            throttle = topic.limits.throttle
            if throttle is not None:
                throttle.charge(self.connection, publication.message_count, len(payload))

    def on_close(self, command: pulsar.BaseCommand) -> None:
        """Close a producer after all its SENDs are answered."""
        request = command.close_producer
        handle = self._handles.pop(request.producer_id, None)
        if handle is not None:
            handle.kept.release()
        if handle is None or handle.producer is None:
            if handle is not None and handle.creating is not None:
                handle.is_ended = True
                handle.creating.cancel()
                handle.creating = None
            self.connection.send(success(request.request_id))
            return
        self.connection.start(self._finish(handle, request.request_id))

    def end(self, handle: ProducerHandle, broker_url: str) -> None:
        """Close a producer from the broker's side."""
        if handle.is_ended or handle.producer is None:
            return  # A producer that is not connected yet gets an answer to its PRODUCER instead.
        handle.is_ended = True
        handle.kept.release()
        if self._handles.get(handle.producer_id) is handle:
            del self._handles[handle.producer_id]
            self._closed.add(handle.producer_id)
        if self.connection.protocol_version < _CLOSE_WITH_URL_VERSION:
            self.connection.close_after_flush()
            return
        self.connection.send_command(close_producer(handle.producer_id, broker_url))

    def closed(self) -> None:
        """Remove all producers: the connection is closed."""
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
            busy = f"producer {handle.producer_id} is being connected already"
            self.connection.refuse(request_id, Refusal(ServerError.SERVICE_NOT_READY, busy))
            return
        self._succeed(handle, handle.producer, request_id)

    def _check(self, request: pulsar.CommandProducer) -> None:
        problem = None
        if request.txn_enabled:
            problem = "transactions are not supported"
        elif len(self._handles) >= HANDLES_PER_CONNECTION_MAX:
            problem = f"a connection has at most {HANDLES_PER_CONNECTION_MAX} producers"
        elif len(request.producer_name.encode()) > PRODUCER_NAME_BYTES_MAX:
            problem = f"a producer's name has at most {PRODUCER_NAME_BYTES_MAX} bytes"
        elif len(request.initial_subscription_name.encode()) > SUBSCRIPTION_NAME_BYTES_MAX:
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
                name = parse_topic(topic_name)
                topic = await self.connection.front.topics.open(name, create=True)
                handle.topic = topic
                producer, handle.schema_version = await topic.add_producer(
                    request, handle, schema, initial_subscription
                )
                handle.producer = producer
                self._succeed(handle, producer, handle.request_id)
        finally:
            # Break a reference cycle: the cancelled task's frames refer to the handle.
            handle.creating = None
            if handle.producer is None:
                handle.kept.release()
                if self._handles.get(handle.producer_id) is handle:
                    del self._handles[handle.producer_id]

    async def _finish(self, handle: ProducerHandle, request_id: int) -> None:
        assert handle.producer is not None, "the producer is connected"
        assert handle.topic is not None, "the producer is connected"
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


def _request(request: pulsar.CommandProducer) -> ProducerRequest:
    return ProducerRequest(
        producer_id=request.producer_id,
        name=request.producer_name,
        is_name_generated=bool(request.producer_name) and not request.user_provided_producer_name,
        mode=AccessMode(int(request.producer_access_mode)),
        topic_epoch=request.topic_epoch if request.HasField("topic_epoch") else None,
        epoch=request.epoch,
        is_managed=is_managed(request.metadata),
    )


def _publication(send: pulsar.CommandSend, payload: bytes) -> Publication:
    if send.HasField("message_id"):
        # Only Pulsar's replicators to shadow topics set it. Here shadows share their storage.
        raise Refusal(ServerError.NOT_ALLOWED, "a message's id is given by the broker")
    metadata = open_payload(payload).metadata
    count = metadata.num_messages_in_batch
    if not 1 <= count <= PULSAR_BATCH_MESSAGES_MAX:
        raise MalformedFrame(f"a batch of {count} messages")
    if max(send.sequence_id, send.highest_sequence_id) > _SEQUENCE_ID_MAX - count:
        raise MalformedFrame(f"{send.sequence_id} is no sequence id")
    problem = stamp_problem(metadata)
    if problem is not None:
        raise Refusal(ServerError.NOT_ALLOWED, problem)
    chunk = None
    if metadata.num_chunks_from_msg > 1:
        if not 0 <= metadata.chunk_id < metadata.num_chunks_from_msg:
            raise MalformedFrame(f"{metadata.chunk_id} is no chunk of a message")
        chunk = Chunk(metadata.chunk_id, metadata.num_chunks_from_msg)
    return Publication(payload, send.sequence_id, send.highest_sequence_id, count, chunk)
