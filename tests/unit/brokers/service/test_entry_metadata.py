from __future__ import annotations

import base64
from typing import Any

from brokers.domain.position import Position
from brokers.domain.subscriptions.entry_buckets import bucket_hash
from brokers.ports.ledger import Entry
from brokers.service.entry_metadata import (
    bucket_hash_of,
    chunk_owner_key_of,
    deliver_at_ms_of,
    is_last_chunk,
    metadata_of,
    stamp_problem,
    sticky_key_of,
)
from nextgen.kernel.limits.pulsar import CHUNK_UUID_CHARACTERS_MAX
from nextgen.pulsar.payload import message_payload
from protos.pulsar.PulsarApi_pb2 import MessageMetadata


def metadata(**fields: Any) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=7, publish_time=1, **fields)


def entry(payload: bytes) -> Entry:
    return Entry(Position(1, 0), payload, 1, 1, "p", 7)


def test_metadata_is_read_from_the_payload() -> None:
    stored = metadata(deliver_at_time=5)

    assert metadata_of(entry(message_payload(stored, b"body"))) == stored
    assert deliver_at_ms_of(stored) == 5


def test_what_cannot_be_read_has_no_metadata() -> None:
    damaged = bytearray(message_payload(metadata(), b"body"))
    damaged[-1] ^= 1

    assert metadata_of(entry(bytes(damaged))) is None
    assert metadata_of(entry(b"")) is None
    assert deliver_at_ms_of(None) == 0
    assert chunk_owner_key_of(None) == ""
    assert sticky_key_of(None) == b""


def test_the_ordering_key_goes_before_the_partition_key() -> None:
    assert sticky_key_of(metadata(ordering_key=b"o", partition_key="p")) == b"o"
    assert sticky_key_of(metadata(partition_key="schlüssel")) == "schlüssel".encode()


def test_a_key_of_bytes_is_decoded() -> None:
    encoded = base64.b64encode(b"\x00\xff").decode()

    assert sticky_key_of(metadata(partition_key=encoded, partition_key_b64_encoded=True)) == (
        b"\x00\xff"
    )
    assert sticky_key_of(metadata(partition_key="?", partition_key_b64_encoded=True)) == b"?"


def test_without_a_key_every_message_is_its_own() -> None:
    assert sticky_key_of(metadata()) == b"p-7"


def test_chunks_of_a_message_have_its_uuid_in_common() -> None:
    chunk = metadata(uuid="u", num_chunks_from_msg=3, chunk_id=1)

    assert chunk_owner_key_of(chunk) == "u"
    assert not is_last_chunk(chunk)
    assert is_last_chunk(metadata(uuid="u", num_chunks_from_msg=3, chunk_id=2))
    assert chunk_owner_key_of(metadata(uuid="u", num_chunks_from_msg=1)) == ""


def test_a_chunked_message_whose_id_is_too_long_to_be_remembered_is_none() -> None:
    longest = "u" * CHUNK_UUID_CHARACTERS_MAX

    assert chunk_owner_key_of(metadata(num_chunks_from_msg=2, uuid=longest)) == longest
    assert chunk_owner_key_of(metadata(num_chunks_from_msg=2, uuid=longest + "u")) == ""


def test_a_bucket_hash_is_the_lowest_of_the_stamp() -> None:
    assert bucket_hash_of(metadata(entry_hash_min=7, entry_hash_max=9, partition_key="a")) == 7
    assert bucket_hash_of(metadata(entry_hash_min=0, entry_hash_max=0, partition_key="a")) == 0


def test_without_a_stamp_the_bucket_hash_is_that_of_the_partition_key() -> None:
    assert bucket_hash_of(metadata(partition_key="order-42")) == 0xA18E
    assert bucket_hash_of(metadata(partition_key="order-42", ordering_key=b"o")) == 0xA18E
    assert bucket_hash_of(metadata(ordering_key=b"order-42")) == 0xA18E
    assert bucket_hash_of(metadata()) == bucket_hash(b"p-7")
    assert bucket_hash_of(None) == 0


def test_a_stamp_that_an_earlier_release_stored_unchecked_is_not_used() -> None:
    stored = metadata(entry_hash_min=0x10000, entry_hash_max=0x10000, partition_key="order-42")

    assert bucket_hash_of(stored) == 0xA18E


def test_a_stamp_is_a_range_of_hashes_or_is_left_out() -> None:
    assert stamp_problem(metadata()) is None
    assert stamp_problem(metadata(entry_hash_min=0, entry_hash_max=0xFFFF)) is None
    assert stamp_problem(metadata(entry_hash_min=5, entry_hash_max=5)) is None
    assert stamp_problem(metadata(entry_hash_min=6, entry_hash_max=5))
    assert stamp_problem(metadata(entry_hash_min=5, entry_hash_max=0x10000))
    assert stamp_problem(metadata(entry_hash_min=5))
    assert stamp_problem(metadata(entry_hash_max=5))
