"""The producer of one segment: on whatever broker serves it, as long as there is something to send.

It is opened when the first message comes. After a failure that may pass it is opened again, with
growing pauses, and the batches in flight are sent again before all others, under their sequence
ids, by which the broker recognises what it has stored.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Protocol

from nextgen.client.st.connection.brokers import Brokers, refusal_in
from nextgen.client.st.connection.link import Link
from nextgen.client.st.domain.backoff import Backoff
from nextgen.client.st.domain.outbox import Batch, Lane, Outbox
from nextgen.client.st.domain.positions import Position
from nextgen.client.st.errors import (
    ConnectionFailed,
    MessageTooLarge,
    ScalableTopicError,
    SegmentGone,
    TopicNotFound,
)
from nextgen.client.st.producing.encoding import SentBatch, encode_batch
from nextgen.client.st.producing.settings import AccessMode, ProducerSettings
from nextgen.client.st.wire import error_of, is_final, position_of
from nextgen.pulsar.frames import frame_head
from nextgen.tasks.background import start
from protos.pulsar import PulsarApi_pb2 as pulsar

UNSTORED = 2**64 - 1
"""Ledger id in the receipt of a message that the broker has stored before."""


class Owner(Protocol):
    """The producer of the whole topic."""

    brokers: Brokers
    outbox: Outbox
    settings: ProducerSettings
    schema: pulsar.Schema | None
    timeout_ms: int

    def stored(self, lane: Lane, batch: Batch, position: Position) -> None: ...
    def refused(self, lane: Lane, batch: Batch, error: ScalableTopicError) -> None: ...
    def segment_gone(self, lane: Lane, error: ScalableTopicError) -> None: ...
    def segment_refused(self, lane: Lane, error: ScalableTopicError) -> None: ...


class _Status(Enum):
    IDLE = auto()
    OPENING = auto()
    READY = auto()
    CLOSED = auto()


class SegmentProducer:
    """One lane's connection to its segment."""

    def __init__(self, owner: Owner, lane: Lane) -> None:
        self._owner = owner
        self._lane = lane
        self._status = _Status.IDLE
        self._link: Link | None = None
        self._attaching: Link | None = None
        self._early: list[pulsar.BaseCommand] = []
        self._producer_id = 0
        named = owner.settings.name
        self._name = f"{named}-seg-{lane.segment.segment_id}" if named else ""
        self._epoch = 0
        self._topic_epoch: int | None = None
        self._next_sequence_id = 0
        self._schema_version = b""
        self._backoff = Backoff()
        self._broker_url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return (
            f"<SegmentProducer {self._lane.segment.topic} {self._status.name}, "
            f"{len(self._lane.in_flight)} batches in flight, {self._lane.waiting} messages wait>"
        )

    def wake(self) -> None:
        """Send what may be sent; open the producer first if need be."""
        if self._status is _Status.READY:
            self._pump()
        elif self._status is _Status.IDLE and self._has_work():
            self._begin()

    async def attach(self) -> None:
        """Open the producer before there is anything to send.

        Raises:
            ScalableTopicError: The segment cannot be opened.
        """
        self._status = _Status.OPENING
        try:
            await self._attach(await self._owner.brokers.serving(self._lane.segment.topic))
        except ScalableTopicError:
            self._status = _Status.IDLE
            raise

    def restart(self) -> None:
        """The broker does not answer: open the producer again."""
        if self._status is _Status.READY:
            self._detach()
            self._begin(is_retry=True)

    def sealed(self) -> None:
        """The segment has left the layout. Without a connection no answer will come for what is in
        flight: no broker opens a producer for it any more."""
        if self._status in (_Status.OPENING, _Status.IDLE):
            for task in self._tasks:
                task.cancel()
            self._gone(SegmentGone(f"{self._lane.segment.topic} is sealed"))

    def close(self) -> None:
        """End at once. Harmless when closed already."""
        if self._status is not _Status.CLOSED:
            self._detach()
            self._status = _Status.CLOSED
            for task in self._tasks:
                task.cancel()

    async def wait_closed(self) -> None:
        """Wait for what ``close`` left running."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Receiver ---------------------------------------------------------------------------------

    def received(self, link: Link, command: pulsar.BaseCommand, payload: bytes) -> None:
        if link is not self._link:
            if link is self._attaching:
                # It came right behind the answer, which nobody has looked at yet.
                self._early.append(command)
            return
        if command.type == pulsar.BaseCommand.SEND_RECEIPT:
            self._receipt(command.send_receipt)
        elif command.type == pulsar.BaseCommand.SEND_ERROR:
            self._send_error(command.send_error)
        elif command.type == pulsar.BaseCommand.CLOSE_PRODUCER:
            closing = command.close_producer
            self._broker_url = self._owner.brokers.chosen(
                closing.assignedBrokerServiceUrl, closing.assignedBrokerServiceUrlTls
            )
            self._lost(is_told=True)

    def resumed(self, link: Link) -> None:
        if link is self._link and self._status is _Status.READY:
            self._pump()

    def link_lost(self, link: Link) -> None:
        if link is self._link:
            self._lost(is_told=True)

    # Opening ----------------------------------------------------------------------------------

    def _has_work(self) -> bool:
        return bool(self._lane.waiting or self._lane.in_flight)

    def _begin(self, *, is_retry: bool = False) -> None:
        if not self._lane.is_active:
            self._gone(SegmentGone(f"{self._lane.segment.topic} is sealed"))
            return
        self._status = _Status.OPENING
        start("st-segment-producer", self._open(is_retry=is_retry), self._tasks)

    async def _open(self, *, is_retry: bool) -> None:
        if is_retry and not self._broker_url:
            await asyncio.sleep(self._backoff.next_ms() / 1_000)
        while self._status is _Status.OPENING:
            try:
                await self._attach(await self._reach())
                break
            except (SegmentGone, TopicNotFound) as error:
                self._status = _Status.IDLE
                self._owner.segment_gone(self._lane, error)
                return
            except ScalableTopicError as error:
                if is_final(error):
                    self._status = _Status.IDLE
                    self._owner.segment_refused(self._lane, error)
                    return
            if not self._has_work():
                self._status = _Status.IDLE
                return
            await asyncio.sleep(self._backoff.next_ms() / 1_000)
        if self._status is _Status.READY:
            self._pump()

    async def _reach(self) -> Link:
        url, self._broker_url = self._broker_url, ""
        if url:
            return await self._owner.brokers.at(url)
        return await self._owner.brokers.serving(self._lane.segment.topic)

    async def _attach(self, link: Link) -> None:
        producer_id = link.next_id()
        link.producers[producer_id] = self
        self._epoch += 1
        self._attaching, self._early = link, []
        is_attached = False
        try:
            waits = self._owner.settings.access_mode is AccessMode.WAIT_FOR_EXCLUSIVE
            answer = await link.ask(
                self._producer_command(producer_id), None if waits else self._owner.timeout_ms
            )
            if answer.type != pulsar.BaseCommand.PRODUCER_SUCCESS:
                raise refusal_in(answer)
            if not link.is_open:
                raise ConnectionFailed("the connection ended")
            is_attached = self._status is _Status.OPENING
        finally:
            self._attaching = None
            if not is_attached:
                self._leave(link, producer_id)
        if is_attached:
            self._attached(link, producer_id, answer.producer_success)
            for command in self._early:
                self.received(link, command, b"")

    def _attached(
        self, link: Link, producer_id: int, success: pulsar.CommandProducerSuccess
    ) -> None:
        self._link = link
        self._producer_id = producer_id
        self._name = success.producer_name
        self._schema_version = success.schema_version
        if success.HasField("topic_epoch"):
            self._topic_epoch = success.topic_epoch
        self._next_sequence_id = max(self._next_sequence_id, success.last_sequence_id + 1)
        self._status = _Status.READY
        self._backoff.reset()
        for batch in self._lane.in_flight:
            self._write(batch.content)

    def _producer_command(self, producer_id: int) -> pulsar.BaseCommand:
        settings = self._owner.settings
        producer = pulsar.CommandProducer(
            topic=self._lane.segment.topic,
            producer_id=producer_id,
            request_id=0,
            epoch=self._epoch,
            user_provided_producer_name=bool(settings.name),
            producer_access_mode=pulsar.ProducerAccessMode.Name(settings.access_mode.value),
        )
        producer.ClearField("request_id")
        if self._name:
            producer.producer_name = self._name
        if self._topic_epoch is not None and settings.access_mode is not AccessMode.SHARED:
            producer.topic_epoch = self._topic_epoch
        if self._owner.schema is not None:
            producer.schema.CopyFrom(self._owner.schema)
        for key, value in settings.properties.items():
            producer.metadata.add(key=key, value=value)
        if self._lane.segment.is_legacy:
            # So that a server knows it from a client that knows classic topics only.
            producer.metadata.add(key="__pulsar.v5.managed", value="true")
        return pulsar.BaseCommand(type=pulsar.BaseCommand.PRODUCER, producer=producer)

    # Sending ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        link = self._link
        while link is not None and link.is_writable:
            batch = self._owner.outbox.take(self._lane)
            if batch is None:
                return
            settings = self._owner.settings
            try:
                sent = encode_batch(
                    batch,
                    producer_name=self._name,
                    next_sequence_id=self._next_sequence_id,
                    schema_version=self._schema_version,
                    compression=settings.compression.value,
                    chunk_bytes=settings.chunk_bytes_at(link.message_bytes_max),
                )
            except MessageTooLarge as error:
                self._owner.refused(self._lane, batch, error)
                continue
            self._next_sequence_id = max(self._next_sequence_id, sent.last_sequence_id + 1)
            batch.content = sent
            self._write(sent)

    def _write(self, sent: SentBatch) -> None:
        assert self._link is not None
        if self._link.is_open:
            command = sent.command(self._producer_id)
            sent.receipts_missing = len(sent.payloads)
            for payload in sent.payloads:
                self._link.send(frame_head(command, len(payload)) + payload)

    def _receipt(self, receipt: pulsar.CommandSendReceipt) -> None:
        batch = self._sent_as(receipt.sequence_id)
        if batch is None:
            return
        batch.content.receipts_missing -= 1
        if batch.content.receipts_missing > 0:
            # Of a message in chunks, each has a receipt; the last one says where it is.
            return
        message_id = receipt.message_id
        is_known = not receipt.HasField("message_id") or message_id.ledgerId == UNSTORED
        position = Position(0, 0) if is_known else position_of(message_id)
        self._owner.stored(self._lane, batch, position)
        if self._status is _Status.READY:
            self._pump()

    def _send_error(self, refusal: pulsar.CommandSendError) -> None:
        error = error_of(refusal.error, refusal.message)
        if isinstance(error, SegmentGone | TopicNotFound):
            self._gone(error)
            return
        batch = self._sent_as(refusal.sequence_id)
        if is_final(error) or refusal.error == pulsar.ChecksumError:
            if batch is not None:
                self._owner.refused(self._lane, batch, error)
            return
        self._lost(is_told=False)

    def _sent_as(self, sequence_id: int) -> Batch | None:
        """Return the first batch in flight with a sequence id: answers come in order."""
        for batch in self._lane.in_flight:
            if batch.content.first_sequence_id == sequence_id:
                return batch
        return None

    def _gone(self, error: ScalableTopicError) -> None:
        self._detach()
        self._status = _Status.IDLE
        self._owner.segment_gone(self._lane, error)

    def _lost(self, *, is_told: bool) -> None:
        if self._status is not _Status.READY:
            return
        if is_told and self._link is not None:
            self._link.producers.pop(self._producer_id, None)
            self._link = None
        self._detach()
        if self._has_work() or self._owner.settings.access_mode is not AccessMode.SHARED:
            self._begin(is_retry=True)
        else:
            self._status = _Status.IDLE

    def _detach(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._leave(link, self._producer_id)

    def _leave(self, link: Link, producer_id: int) -> None:
        if link.producers.pop(producer_id, None) is None:
            return
        if link.is_open:
            link.send_command(
                pulsar.BaseCommand(
                    type=pulsar.BaseCommand.CLOSE_PRODUCER,
                    close_producer=pulsar.CommandCloseProducer(
                        producer_id=producer_id, request_id=link.next_request_id()
                    ),
                )
            )
