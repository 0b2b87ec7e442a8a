from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from nextgen.kernel.limits.inbound import COMMAND_COUNTED_BYTES_MIN, COMMAND_FIELDS_MAX
from nextgen.kernel.limits.pulsar import MESSAGE_IDS_BYTES_MAX, REDELIVER_IDS_MAX
from nextgen.pulsar import field_count
from nextgen.pulsar.field_count import (
    TooManyFields,
    check_command_fields,
    check_metadata_fields,
)
from nextgen.pulsar.frames import FIELD_OF_TYPE, MalformedFrame, parse_command
from nextgen.pulsar.payload import open_payload
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandProducer, MessageMetadata
from tests.support.pulsar.frames import FrameMutator, every_command, metadata

LONG_TEXT = "x" * COMMAND_COUNTED_BYTES_MIN
"""Makes a command long enough to be counted."""

PRODUCER_FIELDS = 6
"""Type, the producer and its four fields, of ``producer_with`` without any metadata."""


def producer_with(entries: int, *, topic: str = LONG_TEXT) -> bytes:
    """Return a PRODUCER with so many entries of metadata, each of one field and two inside."""
    inner = CommandProducer(topic=topic, producer_id=1, request_id=2, producer_name="p")
    entry = inner.metadata.add(key="a", value="b")
    one = BaseCommand(type=BaseCommand.PRODUCER, producer=CommandProducer(metadata=[entry]))
    del inner.metadata[:]
    return _with_producer(inner, one.producer.SerializePartialToString() * entries)


def _with_producer(inner: CommandProducer, behind: bytes) -> bytes:
    body = inner.SerializeToString() + behind
    number = BaseCommand.DESCRIPTOR.fields_by_name["producer"].number
    return b"\x08\x05" + bytes([number << 3 | 2]) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def list_of_ids(kind: BaseCommand.Type, count: int) -> bytes:
    command = BaseCommand(type=kind)
    inner = getattr(command, FIELD_OF_TYPE[kind])
    inner.consumer_id = 1
    one_id = {"ledgerId": 1, "entryId": 2}
    if kind == BaseCommand.ACK:
        inner.ack_type = 0
        inner.message_id.add(**one_id)
    else:
        inner.message_ids.add(**one_id)
    single = type(inner)()
    for field, value in inner.ListFields():
        if field.is_repeated:
            getattr(single, field.name).extend(value)
            inner.ClearField(field.name)
    body = inner.SerializePartialToString() + single.SerializePartialToString() * count
    number = BaseCommand.DESCRIPTOR.fields_by_name[FIELD_OF_TYPE[kind]].number
    return b"\x08" + _varint(kind) + _varint(number << 3 | 2) + _varint(len(body)) + body


def fields_in(message: Any) -> int:
    """Count what ``message`` was parsed into: set fields, each item of a repeated one."""
    count = 0
    for field, value in message.ListFields():
        items = value if field.is_repeated else (value,)
        count += len(items)
        if field.message_type is not None:
            count += sum(fields_in(item) for item in items)
    return count


def test_command_fields_max_is_accepted_and_one_more_refused() -> None:
    entries, rest = divmod(COMMAND_FIELDS_MAX - PRODUCER_FIELDS, 3)
    at_limit = producer_with(entries) + b"\x08\x05" * rest
    assert fields_in(parse_command(at_limit)) + rest == COMMAND_FIELDS_MAX

    check_command_fields(at_limit)
    with pytest.raises(TooManyFields, match=f"more than {COMMAND_FIELDS_MAX} fields"):
        check_command_fields(at_limit + b"\x08\x05")


def test_command_counted_bytes_min_is_too_short_for_more_fields_than_are_accepted() -> None:
    """What is not counted could not be refused: two bytes are the shortest field."""
    head = len(producer_with(0, topic="t"))
    fields_at_most = COMMAND_COUNTED_BYTES_MIN // 2
    shortest = producer_with(0, topic="t") + b"\x08\x05" * ((COMMAND_COUNTED_BYTES_MIN - head) // 2)

    assert fields_at_most == COMMAND_FIELDS_MAX
    assert len(shortest) <= COMMAND_COUNTED_BYTES_MIN
    check_command_fields(shortest)
    with pytest.raises(TooManyFields):
        check_command_fields(b"\x08\x05" * (COMMAND_FIELDS_MAX + 1))


def test_redeliver_ids_max_and_one_are_let_through_so_that_one_too_many_is_answered() -> None:
    for kind in (BaseCommand.ACK, BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES):
        check_command_fields(list_of_ids(kind, REDELIVER_IDS_MAX + 1))
        with pytest.raises(TooManyFields):
            check_command_fields(list_of_ids(kind, REDELIVER_IDS_MAX + 2))


def test_message_ids_bytes_max_are_accepted_and_one_more_refused() -> None:
    def ack(ids_bytes: int) -> bytes:
        """One message id of so many bytes, padded with words of an ack set."""
        head = b"\x08\x01\x10\x01"
        words = ids_bytes - len(head)
        one_id = head + b"\x28\x01" * (words // 2 - 1) + b"\x28" + b"\x81" * (words % 2) + b"\x01"
        assert len(one_id) == ids_bytes
        inner = b"\x08\x01\x10\x00\x1a" + _varint(len(one_id)) + one_id
        number = BaseCommand.DESCRIPTOR.fields_by_name["ack"].number
        return (
            b"\x08"
            + _varint(BaseCommand.ACK)
            + _varint(number << 3 | 2)
            + _varint(len(inner))
            + inner
        )

    assert len(parse_command(ack(1_024)).ack.message_id[0].ack_set) == 510
    check_command_fields(ack(MESSAGE_IDS_BYTES_MAX))
    with pytest.raises(TooManyFields, match=f"more than {MESSAGE_IDS_BYTES_MAX} bytes"):
        check_command_fields(ack(MESSAGE_IDS_BYTES_MAX + 1))


def test_the_type_that_a_command_claims_to_have_does_not_change_the_count() -> None:
    disguised = b"\x08" + bytes([BaseCommand.ACK]) + producer_with(COMMAND_FIELDS_MAX)

    with pytest.raises(TooManyFields):
        check_command_fields(disguised)


def test_message_metadata_is_counted_before_it_is_parsed() -> None:
    head = metadata().SerializeToString()
    entry = MessageMetadata()
    entry.properties.add(key="a", value="b")
    per_entry = entry.SerializePartialToString()
    at_limit = head + per_entry * ((COMMAND_FIELDS_MAX - 3) // 3)
    beyond = head + per_entry * (COMMAND_FIELDS_MAX // 3)

    check_metadata_fields(at_limit)
    assert open_payload(struct.pack(">I", len(at_limit)) + at_limit).metadata.sequence_id == 7
    with pytest.raises(TooManyFields):
        open_payload(struct.pack(">I", len(beyond)) + beyond)


def test_packed_numbers_count_one_by_one() -> None:
    numbers = b"\x00" * (COMMAND_FIELDS_MAX + 1)
    packed = b"\xfa\x01" + _varint(len(numbers)) + numbers  # compacted_batch_indexes, 31

    assert len(MessageMetadata.FromString(packed).compacted_batch_indexes) == len(numbers)
    with pytest.raises(TooManyFields):
        check_metadata_fields(packed + b"\x0a" + _varint(len(numbers)) + numbers)


@pytest.mark.parametrize(
    "ending",
    [
        b"\x0a",
        b"\x0a\x05x",
        b"\x0a\xff\xff\xff\xff\xff\x01",
        b"\xff\xff\xff\xff\xff\x01",
        b"\x10" + b"\xff" * 20 + b"\x01",
        b"\x2a\x02\x0a\x05",
        b"\x11\x00",
        b"\x15\x00",
        b"\x13\x08\x05\x14",
    ],
    ids=[
        "no size",
        "cut text",
        "long size",
        "long tag",
        "long number",
        "inner end",
        "64",
        "32",
        "group",
    ],
)
def test_what_cannot_be_counted_is_refused(ending: bytes) -> None:
    with pytest.raises(TooManyFields):
        check_command_fields(producer_with(0) + ending)


def test_every_command_with_a_long_text_is_counted_and_accepted() -> None:
    for made in every_command():
        data = (
            made.SerializeToString()
            + b"\xfa\xff\x03"
            + _varint(len(LONG_TEXT))
            + bytes(len(LONG_TEXT))
        )
        check_command_fields(data)
        assert parse_command(data).type == made.type


def test_what_passes_the_count_is_never_parsed_into_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutated commands against a limit so low that many are near it."""
    fields_max = 12
    monkeypatch.setattr(field_count, "COMMAND_FIELDS_MAX", fields_max)
    mutator, rng = FrameMutator(58, intact_share=0.5), random.Random(58)
    counts = {"passed": 0, "refused": 0}

    for _ in range(20_000):
        data = mutator.next_frame()[8:] * rng.choice((1, 1, 2))
        try:
            check_command_fields(data)
        except TooManyFields:
            counts["refused"] += 1
            continue
        try:
            parsed = parse_command(data)
        except MalformedFrame:
            continue
        counts["passed"] += 1
        ids = (*parsed.ack.message_id, *parsed.redeliverUnacknowledgedMessages.message_ids)
        of_ids = len(ids) + sum(map(fields_in, ids))
        assert fields_in(parsed) - of_ids <= fields_max, parsed

    assert min(counts.values()) > 1_000, counts
