"""The messages in the payload of a MESSAGE."""

from __future__ import annotations

import struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

from nextgen.client.st.errors import NotSupported
from nextgen.kernel.limits.pulsar import PULSAR_BATCH_MESSAGES_MAX, PULSAR_MESSAGE_BYTES_MAX
from nextgen.kernel.limits.scalable import ST_CHUNKED_MESSAGE_BYTES_MAX, ST_CHUNKS_PER_MESSAGE_MAX
from nextgen.pulsar.compression import NotDecompressed, decompressed
from nextgen.pulsar.frames import MalformedFrame
from nextgen.pulsar.payload import ChecksumMismatch, open_payload
from protos.pulsar import PulsarApi_pb2 as pulsar

_SIZE = struct.Struct(">I")


class Damaged(Exception):
    """An entry that is not what its producer sent. ``reason`` is a ``ValidationError``."""

    def __init__(self, reason: pulsar.CommandAck.ValidationError, why: str) -> None:
        super().__init__(why)
        self.reason = reason


class Unpacked(NamedTuple):
    """An entry. Without ``singles`` it is one message."""

    metadata: pulsar.MessageMetadata
    bodies: list[bytes]
    singles: list[pulsar.SingleMessageMetadata]

    @property
    def is_batch(self) -> bool:
        return bool(self.singles)

    @property
    def is_chunk(self) -> bool:
        """Whether the body is a part of one, as it is stored."""
        return self.metadata.num_chunks_from_msg > 1


def unpack(payload: bytes) -> Unpacked:
    """Return the messages of an entry.

    Raises:
        Damaged: The entry cannot be read, by anybody.
        NotSupported: It is encrypted, or a part of a message that is too large.
    """
    try:
        metadata, start, _ = open_payload(payload)
    except ChecksumMismatch as error:
        raise Damaged(pulsar.CommandAck.ChecksumMismatch, str(error)) from error
    except MalformedFrame as error:
        raise Damaged(pulsar.CommandAck.BatchDeSerializeError, str(error)) from error
    if metadata.encryption_keys:
        raise NotSupported("a message is encrypted, and this client cannot decrypt")
    body = payload[start:]
    if metadata.num_chunks_from_msg > 1:
        return _chunk(metadata, body)
    if metadata.compression != pulsar.NONE:
        body = _decompressed(metadata, body, PULSAR_MESSAGE_BYTES_MAX)
    if not metadata.HasField("num_messages_in_batch"):
        return Unpacked(metadata, [body], [])
    return _batch(metadata, body)


def unpack_whole(metadata: pulsar.MessageMetadata, body: bytes) -> Unpacked:
    """Return the message whose chunks are joined in ``body``; ``metadata`` is that of the last one.

    Raises:
        Damaged: It cannot be read, by anybody.
    """
    body = _decompressed(metadata, body, ST_CHUNKED_MESSAGE_BYTES_MAX)
    return Unpacked(metadata, [body], [])


def _decompressed(metadata: pulsar.MessageMetadata, body: bytes, at_most: int) -> bytes:
    try:
        return decompressed(metadata.compression, body, metadata.uncompressed_size, at_most=at_most)
    except NotDecompressed as error:
        raise Damaged(pulsar.CommandAck.DecompressionError, str(error)) from error


def _chunk(metadata: pulsar.MessageMetadata, body: bytes) -> Unpacked:
    count = metadata.num_chunks_from_msg
    if count > ST_CHUNKS_PER_MESSAGE_MAX:
        raise NotSupported(
            f"a message has {count} chunks, this client joins {ST_CHUNKS_PER_MESSAGE_MAX}"
        )
    size_bytes = max(metadata.total_chunk_msg_size, metadata.uncompressed_size)
    if size_bytes > ST_CHUNKED_MESSAGE_BYTES_MAX:
        raise NotSupported(
            f"a message in chunks has {size_bytes} bytes, this client joins "
            f"{ST_CHUNKED_MESSAGE_BYTES_MAX}"
        )
    if not metadata.uuid or not 0 <= metadata.chunk_id < count:
        raise Damaged(pulsar.CommandAck.BatchDeSerializeError, "a chunk without place")
    return Unpacked(metadata, [body], [])


def _batch(metadata: pulsar.MessageMetadata, body: bytes) -> Unpacked:
    bodies: list[bytes] = []
    singles: list[pulsar.SingleMessageMetadata] = []
    count, at, end = metadata.num_messages_in_batch, 0, len(body)
    if not 1 <= count <= PULSAR_BATCH_MESSAGES_MAX:
        raise Damaged(pulsar.CommandAck.BatchDeSerializeError, f"a batch of {count} messages")
    try:
        for _ in range(count):
            (size,) = _SIZE.unpack_from(body, at)
            start = at + _SIZE.size + size
            single = pulsar.SingleMessageMetadata.FromString(body[at + _SIZE.size : start])
            at = start + single.payload_size
            if not single.HasField("payload_size") or not start <= at <= end:
                raise ValueError("a message of a batch is longer than the batch")
            singles.append(single)
            bodies.append(body[start:at])
    except (struct.error, DecodeError, ValueError) as error:
        raise Damaged(pulsar.CommandAck.BatchDeSerializeError, f"a broken batch: {error}") from (
            error
        )
    return Unpacked(metadata, bodies, singles)
