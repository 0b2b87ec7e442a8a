"""What SEND and MESSAGE carry behind their command: checksum, metadata, body; and batches.

    0x0e02, size, BrokerEntryMetadata      optional; from a broker to clients that asked for it
    0x0e01, CRC32C of all that follows     optional; every current client sends it
    metadata size, MessageMetadata
    body                                   one message, or a batch

Bodies are the clients' business: they may be compressed or encrypted, and pass untouched.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c
from google.protobuf.message import DecodeError

from nextgen.kernel.limits.inbound import COMMAND_COUNTED_BYTES_MIN
from nextgen.kernel.limits.pulsar import PULSAR_BATCH_MESSAGES_MAX
from nextgen.pulsar.field_count import check_metadata_fields
from nextgen.pulsar.frames import MalformedFrame, missing_fields
from protos.pulsar.PulsarApi_pb2 import (
    BrokerEntryMetadata,
    MessageMetadata,
    SingleMessageMetadata,
)

MAGIC_CHECKSUM = b"\x0e\x01"
MAGIC_BROKER_ENTRY = b"\x0e\x02"

_MAGIC_BYTES = 2
_SIZE = struct.Struct(">I")
_CHECKSUM_END = _MAGIC_BYTES + _SIZE.size
_new = tuple.__new__


class ChecksumMismatch(ValueError):
    """The payload is not what its sender computed the checksum of."""


class OpenedPayload(NamedTuple):
    """A payload whose checksum, if it has one, holds. The body starts at ``metadata_end``."""

    metadata: MessageMetadata
    metadata_end: int
    has_checksum: bool


def open_payload(data: bytes) -> OpenedPayload:
    """Check ``data`` and read its metadata. The body is not looked at beyond the checksum.

    ``producer_name`` and ``partition_key`` are text, because servers use them. Any other text in
    the metadata is the clients' own: where it is not UTF-8, protobuf hands out ``bytes``.

    Raises:
        ChecksumMismatch: There is a checksum, and it is not that of ``data``.
        MalformedFrame: There is no metadata in ``data``.
    """
    start = _behind_broker_entry(data)
    has_checksum = data.startswith(MAGIC_CHECKSUM, start)
    if has_checksum:
        start += _CHECKSUM_END
        if len(data) >= start:
            _verify(data, start)
    size_end = start + _SIZE.size
    if size_end > len(data):
        raise MalformedFrame("a payload ends before its metadata")
    (size,) = _SIZE.unpack_from(data, start)
    metadata_end = size_end + size
    if metadata_end > len(data):
        raise MalformedFrame(f"a payload announces {size} bytes of metadata and ends before")
    metadata = _metadata(data[size_end:metadata_end])
    # Without the class's own constructor: this runs for each message that is published.
    return _new(OpenedPayload, (metadata, metadata_end, has_checksum))


def message_payload(metadata: MessageMetadata, body: bytes) -> bytes:
    """Return a payload with checksum."""
    head = metadata.SerializeToString()
    covered = _SIZE.pack(len(head)) + head + body
    return MAGIC_CHECKSUM + _SIZE.pack(crc32c(covered)) + covered


def with_broker_entry_metadata(data: bytes, *, broker_timestamp_ms: int, index: int) -> bytes:
    """Return the payload ``data`` with what a broker knows of the entry in front of it.

    ``index`` is the number of the entry's last message in its topic, from 0.
    """
    entry = BrokerEntryMetadata(broker_timestamp=broker_timestamp_ms, index=index)
    head = entry.SerializeToString()
    return MAGIC_BROKER_ENTRY + _SIZE.pack(len(head)) + head + data


def broker_entry_metadata(data: bytes) -> BrokerEntryMetadata | None:
    """Return what a broker put in front of the payload ``data``, or None.

    Raises:
        MalformedFrame: It announces such a thing and has none.
    """
    start = _behind_broker_entry(data)
    if not start:
        return None
    try:
        return BrokerEntryMetadata.FromString(data[_CHECKSUM_END:start])
    except DecodeError as error:
        raise MalformedFrame("a payload's broker metadata is no protobuf message") from error


def strip_broker_entry_metadata(data: bytes) -> bytes:
    """Return the payload ``data`` as its producer sent it.

    Raises:
        MalformedFrame: It announces metadata of a broker and has none.
    """
    start = _behind_broker_entry(data)
    return data[start:] if start else data


def iterate_batch(
    metadata: MessageMetadata, body: bytes
) -> list[tuple[SingleMessageMetadata, bytes]]:
    """Return the messages of a batch in order. ``body`` is neither compressed nor encrypted.

    Raises:
        MalformedFrame: It is no such batch: too short, too long, or not of messages.
    """
    count = metadata.num_messages_in_batch
    if not 0 <= count <= PULSAR_BATCH_MESSAGES_MAX:
        raise MalformedFrame(f"a batch of {count} messages")
    messages: list[tuple[SingleMessageMetadata, bytes]] = []
    start = 0
    for _ in range(count):
        if start + _SIZE.size > len(body):
            raise MalformedFrame(f"a batch of {count} messages ends behind {len(messages)}")
        (size,) = _SIZE.unpack_from(body, start)
        single_end = start + _SIZE.size + size
        single = _single(body[start + _SIZE.size : single_end])
        message_end = single_end + single.payload_size
        if single.payload_size < 0 or message_end > len(body):
            raise MalformedFrame(f"message {len(messages)} of a batch is longer than the batch")
        messages.append((single, body[single_end:message_end]))
        start = message_end
    if start != len(body):
        raise MalformedFrame(f"{len(body) - start} bytes behind the last message of a batch")
    return messages


def _behind_broker_entry(data: bytes) -> int:
    """Return where the producer's payload starts."""
    if data[:_MAGIC_BYTES] != MAGIC_BROKER_ENTRY:
        return 0
    if len(data) < _CHECKSUM_END:
        raise MalformedFrame("a payload ends before its broker metadata")
    (size,) = _SIZE.unpack_from(data, _MAGIC_BYTES)
    end: int = _CHECKSUM_END + size
    if end > len(data):
        raise MalformedFrame(f"a payload announces {size} bytes of broker metadata")
    return end


def _verify(data: bytes, start: int) -> None:
    """Compare what is behind ``start`` with the checksum that ends there."""
    (checksum,) = _SIZE.unpack_from(data, start - _SIZE.size)
    # A view, so that a body of megabytes is not copied to be summed.
    found = crc32c(memoryview(data)[start:])
    if found != checksum:
        raise ChecksumMismatch(f"CRC32C is {found:08x}, the sender's was {checksum:08x}")


def _metadata(data: bytes) -> MessageMetadata:
    if len(data) > COMMAND_COUNTED_BYTES_MIN:
        check_metadata_fields(data)
    try:
        metadata = MessageMetadata.FromString(data)
    except DecodeError as error:
        raise MalformedFrame(f"a message's metadata is no protobuf message: {error}") from error
    # Asked one by one, which takes half the time of IsInitialized and leaves the clients' own
    # properties to the clients.
    has = metadata.HasField
    if not (has("producer_name") and has("sequence_id") and has("publish_time")):
        raise MalformedFrame(f"a message's metadata lacks {missing_fields(metadata)}")
    if type(metadata.producer_name) is not str or type(metadata.partition_key) is not str:
        raise MalformedFrame("a message's producer or key is not UTF-8")
    return metadata


def _single(data: bytes) -> SingleMessageMetadata:
    try:
        single = SingleMessageMetadata.FromString(data)
    except DecodeError as error:
        raise MalformedFrame("metadata in a batch is no protobuf message") from error
    if not single.IsInitialized():
        raise MalformedFrame("metadata in a batch lacks the message's size")
    return single
