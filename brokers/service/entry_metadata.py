"""The fields of a producer's metadata that dispatch needs.

They are not checked again: the broker verified the payload at its SEND. An entry whose metadata
still cannot be read is sent like any other, and the client reports the fault.
"""

from __future__ import annotations

import base64
import binascii

from brokers.domain.subscriptions.entry_buckets import BUCKET_HASH_MAX, bucket_hash
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
    return _partition_key_of(metadata)


def bucket_hash_of(metadata: MessageMetadata | None) -> int:
    """Return the hash by which entry bucket dispatch chooses the consumer of an entry.

    It is the lowest hash of the producer's stamp. An entry without one is hashed by its partition
    key, as its producer would have done: the ordering key does not choose segments or buckets
    unless there is no partition key.
    """
    if metadata is None:
        return 0
    if metadata.HasField("entry_hash_min") and metadata.entry_hash_min <= BUCKET_HASH_MAX:
        return metadata.entry_hash_min
    if metadata.HasField("ordering_key") and not metadata.HasField("partition_key"):
        return bucket_hash(metadata.ordering_key)
    return bucket_hash(_partition_key_of(metadata))


def stamp_problem(metadata: MessageMetadata) -> str | None:
    """Return what is wrong with the hash stamp of a published entry, None if nothing is.

    The stamp is optional. It covers the hashes of all messages of the entry.
    """
    has_lowest = metadata.HasField("entry_hash_min")
    if has_lowest is not metadata.HasField("entry_hash_max"):
        return "entry_hash_min and entry_hash_max go together"
    if not has_lowest:
        return None
    lowest, highest = metadata.entry_hash_min, metadata.entry_hash_max
    if not lowest <= highest <= BUCKET_HASH_MAX:
        return f"entry hashes {lowest}-{highest} are no range within 0-{BUCKET_HASH_MAX}"
    return None


def _partition_key_of(metadata: MessageMetadata) -> bytes:
    """Return the partition key; without one, the producer and sequence id."""
    if not metadata.HasField("partition_key"):
        return f"{metadata.producer_name}-{metadata.sequence_id}".encode()
    key = metadata.partition_key
    if metadata.partition_key_b64_encoded:
        try:
            return base64.b64decode(key, validate=True)
        except (binascii.Error, ValueError):
            return key.encode()
    return key.encode()
