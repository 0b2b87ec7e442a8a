"""The messages in the payload of a MESSAGE."""

from __future__ import annotations

import struct
from typing import NamedTuple

from google.protobuf.message import DecodeError

from nextgen.client.st.errors import NotSupported
from nextgen.kernel.limits.pulsar import PULSAR_BATCH_MESSAGES_MAX
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


def unpack(payload: bytes) -> Unpacked:
    """Return the messages of an entry.

    Raises:
        Damaged: The entry cannot be read, by anybody.
        NotSupported: It is encrypted, or a part of a larger message.
    """
    try:
        metadata, start, _ = open_payload(payload)
    except ChecksumMismatch as error:
        raise Damaged(pulsar.CommandAck.ChecksumMismatch, str(error)) from error
    except MalformedFrame as error:
        raise Damaged(pulsar.CommandAck.BatchDeSerializeError, str(error)) from error
    if metadata.encryption_keys:
        raise NotSupported("a message is encrypted, and this client cannot decrypt")
    if metadata.num_chunks_from_msg > 1:
        raise NotSupported("a message was sent in chunks, and this client cannot join them")
    body = payload[start:]
    if metadata.compression != pulsar.NONE:
        try:
            body = decompressed(metadata.compression, body, metadata.uncompressed_size)
        except NotDecompressed as error:
            raise Damaged(pulsar.CommandAck.DecompressionError, str(error)) from error
    if not metadata.HasField("num_messages_in_batch"):
        return Unpacked(metadata, [body], [])
    return _batch(metadata, body)


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
