from __future__ import annotations

import random
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from nextgen.pulsar.frames import MalformedFrame
from nextgen.pulsar.payload import (
    ChecksumMismatch,
    message_payload,
    open_payload,
)
from protos.pulsar.PulsarApi_pb2 import MessageMetadata
from tests.support.pulsar.frames import batch_body, metadata, with_broker_entry_metadata


def without_checksum(payload: bytes) -> bytes:
    return payload[6:]


def test_the_checksum_is_crc32c_and_covers_metadata_size_metadata_and_body() -> None:
    assert crc32c(b"123456789") == 0xE3069283

    made = message_payload(metadata(), b"body")
    head = metadata().SerializeToString()
    covered = struct.pack(">I", len(head)) + head + b"body"

    assert made == b"\x0e\x01" + struct.pack(">I", crc32c(covered)) + covered


@given(st.binary(max_size=300))
def test_a_payload_opens_as_it_was_made(body: bytes) -> None:
    made = message_payload(metadata(partition_key="k"), body)
    opened = open_payload(made)

    assert opened.metadata == metadata(partition_key="k")
    assert made[opened.metadata_end :] == body
    assert opened.has_checksum


def test_a_payload_without_checksum_is_taken_as_it_is() -> None:
    made = without_checksum(message_payload(metadata(), b"body"))
    opened = open_payload(made)

    assert opened.metadata == metadata()
    assert made[opened.metadata_end :] == b"body"
    assert not opened.has_checksum


def test_any_flipped_bit_behind_the_checksum_is_noticed() -> None:
    made = message_payload(metadata(), b"body")
    for at in range(6, len(made)):
        for bit in range(8):
            broken = bytearray(made)
            broken[at] ^= 1 << bit
            with pytest.raises(ChecksumMismatch, match="CRC32C"):
                open_payload(bytes(broken))


def test_a_wrong_checksum_is_noticed() -> None:
    made = bytearray(message_payload(metadata(), b"body"))
    made[2] ^= 1

    with pytest.raises(ChecksumMismatch):
        open_payload(bytes(made))


def test_a_payload_cut_anywhere_before_its_body_is_malformed_or_does_not_sum_up() -> None:
    made = message_payload(metadata(), b"")
    for size in range(len(made)):
        with pytest.raises((MalformedFrame, ChecksumMismatch)):
            open_payload(made[:size])
        with pytest.raises(MalformedFrame):
            open_payload(without_checksum(made)[: max(0, size - 6)])


def test_metadata_without_what_is_required_is_malformed() -> None:
    head = MessageMetadata(producer_name="p").SerializePartialToString()
    with pytest.raises(MalformedFrame, match="sequence_id"):
        open_payload(struct.pack(">I", len(head)) + head)


@pytest.mark.parametrize("field", ["producer_name", "partition_key"])
def test_the_texts_that_servers_read_are_text(field: str) -> None:
    head = metadata(**{field: "needle"}).SerializeToString().replace(b"needle", b"n\xff\xfedle")
    with pytest.raises(MalformedFrame, match="UTF-8"):
        open_payload(struct.pack(">I", len(head)) + head)


def test_texts_that_are_the_clients_own_pass_whatever_they_are() -> None:
    head = metadata(uuid="needle").SerializeToString().replace(b"needle", b"n\xff\xfedle")

    assert open_payload(struct.pack(">I", len(head)) + head).metadata.sequence_id == 7


# What a broker adds ---------------------------------------------------------------------------


@pytest.mark.parametrize("has_checksum", [True, False])
def test_metadata_of_a_broker_in_front_of_a_payload_is_skipped(has_checksum: bool) -> None:
    sent = message_payload(metadata(), b"body")
    sent = sent if has_checksum else without_checksum(sent)
    stored = with_broker_entry_metadata(sent, broker_timestamp_ms=1_234, index=9)

    opened = open_payload(stored)

    assert stored[:2] == b"\x0e\x02"
    assert opened.metadata == metadata()
    assert stored[opened.metadata_end :] == b"body"
    assert opened.has_checksum is has_checksum


@pytest.mark.parametrize("data", [b"\x0e\x02", b"\x0e\x02\x00\x00\x00\x05abc"])
def test_broker_metadata_that_is_not_there_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedFrame):
        open_payload(data)


def test_whatever_the_bytes_nothing_else_is_raised() -> None:
    rng = random.Random(5)
    sent = message_payload(metadata(), batch_body([b"one", b"two"]))
    made = with_broker_entry_metadata(sent, broker_timestamp_ms=1, index=1)
    for _ in range(3_000):
        broken = bytearray(rng.choice((made, without_checksum(sent))))
        for _ in range(rng.randint(0, 3)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        data = bytes(broken[: rng.randint(0, len(broken))])
        try:
            open_payload(data)
        except (MalformedFrame, ChecksumMismatch):
            continue
