"""The payload behind SEND and MESSAGE: checksum, metadata, body.

    0x0e02, size, BrokerEntryMetadata      optional; from a broker to clients that request it
    0x0e01, CRC32C of all that follows     optional; every current client sends it
    metadata size, MessageMetadata
    body                                   one message, or a batch

Bodies may be compressed or encrypted by the clients; servers pass them on unchanged.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c
from google.protobuf.message import DecodeError

from nextgen.kernel.limits.inbound import COMMAND_COUNTED_BYTES_MIN
from nextgen.pulsar.field_count import check_metadata_fields
from nextgen.pulsar.frames import MalformedFrame, missing_fields
from protos.pulsar.PulsarApi_pb2 import MessageMetadata

MAGIC_CHECKSUM = b"\x0e\x01"
MAGIC_BROKER_ENTRY = b"\x0e\x02"

_MAGIC_BYTES = 2
_SIZE = struct.Struct(">I")
_CHECKSUM_END = _MAGIC_BYTES + _SIZE.size
_new = tuple.__new__


class ChecksumMismatch(ValueError):
    """The payload does not match its sender's checksum."""


class OpenedPayload(NamedTuple):
    """A payload whose checksum, if it has one, is correct. The body starts at ``metadata_end``."""

    metadata: MessageMetadata
    metadata_end: int
    has_checksum: bool


def open_payload(data: bytes) -> OpenedPayload:
    """Check ``data`` and parse its metadata. The body is not read except for the checksum.

    ``producer_name`` and ``partition_key`` are UTF-8, because servers use them. Servers do not use
    any other string in the metadata: one that is not UTF-8 is ``bytes``.

    Raises:
        ChecksumMismatch: There is a checksum, and it is not that of ``data``.
        MalformedFrame: ``data`` has no valid metadata.
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
    # Bypasses the class's own constructor: this runs for each published message.
    return _new(OpenedPayload, (metadata, metadata_end, has_checksum))


def message_payload(metadata: MessageMetadata, body: bytes) -> bytes:
    """Return a payload with checksum."""
    head = metadata.SerializeToString()
    covered = _SIZE.pack(len(head)) + head + body
    return MAGIC_CHECKSUM + _SIZE.pack(crc32c(covered)) + covered


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
    """Compare the bytes behind ``start`` with the checksum that ends there."""
    (checksum,) = _SIZE.unpack_from(data, start - _SIZE.size)
    # A view, so that a body of megabytes is not copied for the checksum.
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
    # Checked one by one: half the time of IsInitialized, and properties, which servers do not use,
    # are not checked.
    has = metadata.HasField
    if not (has("producer_name") and has("sequence_id") and has("publish_time")):
        raise MalformedFrame(f"a message's metadata lacks {missing_fields(metadata)}")
    if type(metadata.producer_name) is not str or type(metadata.partition_key) is not str:
        raise MalformedFrame("a message's producer or key is not UTF-8")
    return metadata
