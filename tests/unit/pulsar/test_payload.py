from __future__ import annotations

import random
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from nextgen.pulsar import payload as payloads
from nextgen.pulsar.frames import MalformedFrame
from nextgen.pulsar.payload import (
    ChecksumMismatch,
    broker_entry_metadata,
    iterate_batch,
    message_payload,
    open_payload,
    strip_broker_entry_metadata,
    with_broker_entry_metadata,
)
from protos.pulsar.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata
from tests.support.pulsar_frames import batch_body, metadata


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
def test_what_a_broker_adds_can_be_read_and_taken_off(has_checksum: bool) -> None:
    sent = message_payload(metadata(), b"body")
    sent = sent if has_checksum else without_checksum(sent)
    stored = with_broker_entry_metadata(sent, broker_timestamp_ms=1_234, index=9)

    entry = broker_entry_metadata(stored)
    opened = open_payload(stored)

    assert stored[:2] == b"\x0e\x02"
    assert entry is not None
    assert (entry.broker_timestamp, entry.index) == (1_234, 9)
    assert strip_broker_entry_metadata(stored) == sent
    assert opened.metadata == metadata()
    assert stored[opened.metadata_end :] == b"body"
    assert opened.has_checksum is has_checksum


def test_where_a_broker_added_nothing_nothing_is_taken_off() -> None:
    sent = message_payload(metadata(), b"body")

    assert strip_broker_entry_metadata(sent) is sent
    assert broker_entry_metadata(sent) is None


@pytest.mark.parametrize("data", [b"\x0e\x02", b"\x0e\x02\x00\x00\x00\x05abc"])
def test_broker_metadata_that_is_not_there_is_malformed(data: bytes) -> None:
    for use in (strip_broker_entry_metadata, broker_entry_metadata, open_payload):
        with pytest.raises(MalformedFrame):
            use(data)


def test_broker_metadata_that_is_none_is_malformed() -> None:
    with pytest.raises(MalformedFrame):
        broker_entry_metadata(b"\x0e\x02\x00\x00\x00\x01\xff")


# Batches --------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=40), max_size=10))
def test_a_batch_comes_apart_as_it_was_put_together(messages: list[bytes]) -> None:
    found = iterate_batch(metadata(num_messages_in_batch=len(messages)), batch_body(messages))

    assert [message for _, message in found] == messages
    assert [single.sequence_id for single, _ in found] == list(range(len(messages)))


def test_a_batch_cut_anywhere_is_malformed() -> None:
    body = batch_body([b"one", b"two"])
    for size in range(len(body)):
        with pytest.raises(MalformedFrame):
            iterate_batch(metadata(num_messages_in_batch=2), body[:size])


def test_bytes_behind_a_batch_are_malformed() -> None:
    with pytest.raises(MalformedFrame, match="1 bytes behind"):
        iterate_batch(metadata(num_messages_in_batch=1), batch_body([b"one"]) + b"x")


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1])
def test_a_message_cannot_be_longer_than_its_batch(size: int) -> None:
    head = SingleMessageMetadata(payload_size=size).SerializeToString()
    body = struct.pack(">I", len(head)) + head + b"body"
    with pytest.raises(MalformedFrame):
        iterate_batch(metadata(num_messages_in_batch=1), body)


def test_a_batch_of_as_many_messages_as_may_be_is_let_through_and_one_more_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payloads, "PULSAR_BATCH_MESSAGES_MAX", 2)

    assert len(iterate_batch(metadata(num_messages_in_batch=2), batch_body([b""] * 2))) == 2
    with pytest.raises(MalformedFrame, match="a batch of 3"):
        iterate_batch(metadata(num_messages_in_batch=3), batch_body([b""] * 3))
    with pytest.raises(MalformedFrame, match="a batch of -1"):
        iterate_batch(metadata(num_messages_in_batch=-1), b"")


def test_whatever_the_bytes_nothing_else_is_raised() -> None:
    rng = random.Random(5)
    made = with_broker_entry_metadata(
        message_payload(metadata(), batch_body([b"one", b"two"])), broker_timestamp_ms=1, index=1
    )
    for _ in range(3_000):
        broken = bytearray(rng.choice((made, without_checksum(strip_broker_entry_metadata(made)))))
        for _ in range(rng.randint(0, 3)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        data = bytes(broken[: rng.randint(0, len(broken))])
        try:
            opened = open_payload(data)
            iterate_batch(opened.metadata, data[opened.metadata_end :])
        except (MalformedFrame, ChecksumMismatch):
            continue
