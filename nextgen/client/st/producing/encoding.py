"""Messages of one batch as the payload of a SEND."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Mapping, Sequence

from nextgen.client.st.domain.outbox import Batch, Waiting
from nextgen.client.st.domain.positions import MessageId
from nextgen.client.st.errors import MessageTooLarge
from nextgen.kernel.limits.scalable import ST_CHUNKS_PER_MESSAGE_MAX
from nextgen.pulsar.compression import compressed
from nextgen.pulsar.payload import message_payload
from protos.pulsar import PulsarApi_pb2 as pulsar

_SIZE = struct.Struct(">I")


class Outgoing:
    """The content of a waiting message."""

    __slots__ = (
        "deadline",
        "deliver_at_ms",
        "event_time_ms",
        "future",
        "key",
        "payload",
        "properties",
        "sequence_id",
    )

    def __init__(
        self,
        payload: bytes,
        key: str | None,
        properties: Mapping[str, str] | None,
        event_time_ms: int | None,
        deliver_at_ms: int | None,
        sequence_id: int | None,
        future: asyncio.Future[MessageId],
        deadline: float,
    ) -> None:
        self.payload = payload
        self.key = key
        self.properties = properties
        self.event_time_ms = event_time_ms
        self.deliver_at_ms = deliver_at_ms
        self.sequence_id = sequence_id
        self.future = future
        self.deadline = deadline
        """When its sending fails, by the loop's clock."""


class SentBatch:
    """A batch on its way: what is needed to send it again, and to know its receipt."""

    __slots__ = (
        "first_sequence_id",
        "last_sequence_id",
        "messages",
        "payloads",
        "receipts_missing",
    )

    def __init__(
        self,
        payloads: Sequence[bytes],
        first_sequence_id: int,
        last_sequence_id: int,
        messages: int,
    ) -> None:
        self.payloads = payloads
        """One, or the chunks of one message."""

        self.receipts_missing = len(payloads)
        self.first_sequence_id = first_sequence_id
        self.last_sequence_id = last_sequence_id
        self.messages = messages

    def command(self, producer_id: int) -> pulsar.BaseCommand:
        send = pulsar.CommandSend(
            producer_id=producer_id,
            sequence_id=self.first_sequence_id,
            num_messages=self.messages,
        )
        if len(self.payloads) > 1:
            send.is_chunk = True
        if self.last_sequence_id != self.first_sequence_id:
            send.highest_sequence_id = self.last_sequence_id
        return pulsar.BaseCommand(type=pulsar.BaseCommand.SEND, send=send)


def encode_batch(
    batch: Batch,
    *,
    producer_name: str,
    next_sequence_id: int,
    schema_version: bytes,
    compression: pulsar.CompressionType,
    chunk_bytes: int = 0,
) -> SentBatch:
    """Return a batch ready to be sent. ``chunk_bytes``: the most of one message in an entry, if
    there is a limit.

    Raises:
        MessageTooLarge: It needs too many chunks.

    Messages without a sequence id of the application get ``next_sequence_id`` and the following.
    """
    contents: list[Outgoing] = [each.content for each in batch.messages]
    first, last = _sequence_ids(contents, next_sequence_id)
    metadata = pulsar.MessageMetadata(
        producer_name=producer_name,
        sequence_id=first,
        publish_time=time.time_ns() // 1_000_000,
    )
    if batch.stamp is not None:
        metadata.entry_hash_min, metadata.entry_hash_max = batch.stamp
    if schema_version:
        metadata.schema_version = schema_version
    if len(contents) == 1:
        body = _single(metadata, contents[0])
    else:
        metadata.num_messages_in_batch = len(contents)
        metadata.highest_sequence_id = last
        body = _joined(contents)
    if compression != pulsar.NONE:
        metadata.compression = compression
        metadata.uncompressed_size = len(body)
        body = compressed(compression, body)
    if len(contents) == 1 and chunk_bytes and len(body) > chunk_bytes:
        return SentBatch(_chunks(metadata, body, chunk_bytes), first, last, 1)
    return SentBatch((message_payload(metadata, body),), first, last, len(contents))


def _chunks(metadata: pulsar.MessageMetadata, body: bytes, chunk_bytes: int) -> list[bytes]:
    count = -(-len(body) // chunk_bytes)
    if count > ST_CHUNKS_PER_MESSAGE_MAX:
        raise MessageTooLarge(
            f"a message needs {count} chunks, it may have {ST_CHUNKS_PER_MESSAGE_MAX}"
        )
    metadata.uuid = f"{metadata.producer_name}-{metadata.sequence_id}"
    metadata.num_chunks_from_msg = count
    metadata.total_chunk_msg_size = len(body)
    payloads = []
    for number in range(count):
        metadata.chunk_id = number
        start = number * chunk_bytes
        payloads.append(message_payload(metadata, body[start : start + chunk_bytes]))
    return payloads


def size_of(waiting: Sequence[Waiting]) -> int:
    """Return the bytes that messages count in the memory of the client."""
    return sum(each.size_bytes for each in waiting)


def _sequence_ids(contents: Sequence[Outgoing], next_sequence_id: int) -> tuple[int, int]:
    own = [each.sequence_id for each in contents if each.sequence_id is not None]
    if own:
        return min(own), max(own)
    return next_sequence_id, next_sequence_id + len(contents) - 1


def _single(metadata: pulsar.MessageMetadata, content: Outgoing) -> bytes:
    if content.key is not None:
        metadata.partition_key = content.key
    if content.properties:
        _put(metadata.properties, content.properties)
    if content.event_time_ms is not None:
        metadata.event_time = content.event_time_ms
    if content.deliver_at_ms is not None:
        metadata.deliver_at_time = content.deliver_at_ms
    return content.payload


def _joined(contents: Sequence[Outgoing]) -> bytes:
    parts: list[bytes] = []
    for each in contents:
        single = pulsar.SingleMessageMetadata(payload_size=len(each.payload))
        if each.key is not None:
            single.partition_key = each.key
        if each.properties:
            _put(single.properties, each.properties)
        if each.event_time_ms is not None:
            single.event_time = each.event_time_ms
        if each.sequence_id is not None:
            single.sequence_id = each.sequence_id
        head = single.SerializeToString()
        parts += (_SIZE.pack(len(head)), head, each.payload)
    return b"".join(parts)


def _put(target: object, properties: Mapping[str, str]) -> None:
    for key, value in properties.items():
        target.add(key=key, value=value)  # type: ignore[attr-defined]
