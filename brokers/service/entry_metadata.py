"""The fields of a producer's metadata that dispatch needs.

They are not checked again: the broker verified the payload at its SEND. An entry whose metadata
still cannot be read is sent like any other, and the client reports the fault.
"""

from __future__ import annotations

import base64
import binascii

from brokers.ports.ledger import Entry
from nextgen.kernel.limits.pulsar import CHUNK_UUID_CHARACTERS_MAX
from nextgen.pulsar.frames import MalformedFrame
from nextgen.pulsar.payload import ChecksumMismatch, open_payload
from protos.pulsar.PulsarApi_pb2 import MessageMetadata


def metadata_of(entry: Entry) -> MessageMetadata | None:
    """Return the metadata of an entry, None if it cannot be read."""
    try:
        return open_payload(entry.payload).metadata
    except (MalformedFrame, ChecksumMismatch):
        return None


def deliver_at_ms_of(metadata: MessageMetadata | None) -> int:
    """Return the wall-clock time before which an entry is not to be sent, 0 for none."""
    return metadata.deliver_at_time if metadata is not None else 0


def chunk_owner_key_of(metadata: MessageMetadata | None) -> str:
    """Return the common id of a message's chunks, empty if it is not chunked."""
    if metadata is None or metadata.num_chunks_from_msg <= 1:
        return ""
    return metadata.uuid if len(metadata.uuid) <= CHUNK_UUID_CHARACTERS_MAX else ""


def is_last_chunk(metadata: MessageMetadata) -> bool:
    """Return whether no further chunk of the message follows."""
    return metadata.chunk_id >= metadata.num_chunks_from_msg - 1


def sticky_key_of(metadata: MessageMetadata | None) -> bytes:
    """Return the key by which Key_Shared chooses the consumer of an entry, as Pulsar 4 does.

    It is the ordering key, else the partition key. Without either it is the producer and sequence
    id: so messages without a key are spread, but the chunks of one message stay together.
    """
    if metadata is None:
        return b""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key"):
        key = metadata.partition_key
        if metadata.partition_key_b64_encoded:
            try:
                return base64.b64decode(key, validate=True)
            except (binascii.Error, ValueError):
                return key.encode()
        return key.encode()
    return f"{metadata.producer_name}-{metadata.sequence_id}".encode()
