"""The fast path against the general codec: the same meaning, or no opinion."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nextgen.pulsar.frames import FrameReader, MalformedFrame, parse_command
from nextgen.pulsar.lookups import lookup_answer_beginnings, partitions_answer_beginnings
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    KeyValue,
)
from tests.support.pulsar.fast_path import FastQuestion, read_fast
from tests.support.pulsar.frames import TOPIC, FrameMutator, lookup_command, partitions_command

request_ids = st.one_of(
    st.integers(0, 2**63 - 1),
    st.sampled_from([n for bits in range(7, 64, 7) for n in (2**bits - 1, 2**bits)]).filter(
        lambda n: n < 2**63
    ),
)
topics = st.one_of(st.text(max_size=25), st.just("x" * 100))
LISTENERS = ({}, {"advertised_listener_name": ""})
AUTHORITATIVE = ({}, {"authoritative": False})


@given(topics, request_ids, st.sampled_from(LISTENERS), st.sampled_from(AUTHORITATIVE))
def test_a_lookup_as_stock_clients_send_it_is_read(
    topic: str, request_id: int, listener: dict[str, str], authoritative: dict[str, bool]
) -> None:
    made = lookup_command(topic, request_id, **listener, **authoritative)

    assert read_fast(made.SerializeToString()) == FastQuestion(True, topic, request_id)


@given(topics, request_ids, st.sampled_from([None, False, True]))
def test_a_partitions_request_as_stock_clients_send_it_is_read(
    topic: str, request_id: int, creates: bool | None
) -> None:
    fields = {} if creates is None else {"metadata_auto_creation_enabled": creates}
    made = partitions_command(topic, request_id, **fields)

    assert read_fast(made.SerializeToString()) == FastQuestion(False, topic, request_id)


@pytest.mark.parametrize(
    "made",
    [
        lookup_command(authoritative=True),
        lookup_command(advertised_listener_name="internal"),
        lookup_command(original_principal="somebody"),
        lookup_command(original_auth_data=""),
        lookup_command(properties=[KeyValue(key="k", value="v")]),
        lookup_command(request_id=2**63),
        lookup_command(request_id=2**64 - 1),
        partitions_command(original_auth_method="x"),
        partitions_command(request_id=2**64 - 1),
        BaseCommand(type=BaseCommand.PING),
    ],
)
def test_what_is_unusual_is_left_to_the_general_codec(made: BaseCommand) -> None:
    assert read_fast(made.SerializeToString()) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x08\x17\xba\x01",
        b"\x08\x17\xba\x01\x00",
        b"\x08\x17\xba\x01\x03\x0a\x01x",
        b"\x08\x17\xba\x01\x02\x10\x05",
        b"\x08\x17\xba\x01\x05\x0a\x01\xff\x10\x05",
        b"\x08\x17\xba\x01\x05\x0a\x01x\x10\x85",
        b"\x08\x17\xba\x01\x05\x0a\x09x\x10\x05",
        b"\x08\x17\xba\x01\x07\x0a\x01x\x10\x05\x10\x06",
        b"\x08\x17\xba\x01\x08\x0a\x01x\x10\x05\x0a\x01y",
        b"\x08\x17\xba\x01\x05\x0a\x01x\x10\x05\x08\x12",
        b"\x08\x17\xba\x01\x7f\x0a\x01x\x10" + b"\xff" * 100_000 + b"\x00",
        b"\x08\x17\xba\x01" + b"\xff" * 100_000,
    ],
)
def test_what_is_broken_or_there_twice_is_left_to_the_general_codec(data: bytes) -> None:
    assert read_fast(data) is None


def agrees_with_the_general_codec(data: bytes) -> bool:
    """Return whether the fast path had an opinion; it must be the general codec's."""
    found = read_fast(data)
    if found is None:
        return False
    command = parse_command(data)
    assert command.type == (
        BaseCommand.LOOKUP if found.is_lookup else BaseCommand.PARTITIONED_METADATA
    )
    inner = command.lookupTopic if found.is_lookup else command.partitionMetadata
    assert (inner.topic, inner.request_id) == (found.topic, found.request_id)
    harmless = {
        "topic",
        "request_id",
        "authoritative",
        "advertised_listener_name",
        "metadata_auto_creation_enabled",
    }
    assert {field.name for field, _ in inner.ListFields()} <= harmless
    if found.is_lookup:
        assert not inner.authoritative
        assert inner.advertised_listener_name == ""
    # Nothing is in it that one of the two codecs did not see.
    assert len(command.SerializeToString()) <= len(data)
    assert len(command.ListFields()) == 2
    return True


STOCK = lookup_command(TOPIC, 5, authoritative=False, advertised_listener_name="")


@given(
    st.sampled_from(
        [
            STOCK.SerializeToString(),
            lookup_command(TOPIC, 70_000).SerializeToString(),
            partitions_command(TOPIC, 300).SerializeToString(),
            partitions_command("x" * 130, 2**40).SerializeToString(),
        ]
    ),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=3),
    st.integers(-3, 3),
)
@example(STOCK.SerializeToString(), [(4, 0x80)], 0)
def test_what_is_accepted_is_never_misread_whatever_is_changed(
    data: bytes, changes: list[tuple[int, int]], resize: int
) -> None:
    broken = bytearray(data)
    for at, value in changes:
        broken[at % len(broken)] = value
    changed = bytes(broken)[: len(broken) + resize] + bytes(max(0, resize))
    agrees_with_the_general_codec(changed)


@given(st.binary(max_size=40))
def test_random_fields_are_never_misread(inner: bytes) -> None:
    for begin in (b"\x08\x17\xba\x01", b"\x08\x15\xaa\x01"):
        agrees_with_the_general_codec(begin + bytes((len(inner),)) + inner)


def test_every_changed_byte_of_a_lookup_is_read_right_or_not_at_all() -> None:
    accepted = 0
    for data in (STOCK.SerializeToString(), partitions_command("t", 300).SerializeToString()):
        for at in range(len(data)):
            for value in range(256):
                changed = data[:at] + bytes((value,)) + data[at + 1 :]
                accepted += agrees_with_the_general_codec(changed)
    assert accepted > 1_000


def test_mutated_frames_are_never_misread() -> None:
    mutator = FrameMutator(23)
    accepted = 0
    for _ in range(20_000):
        reader = FrameReader()
        try:
            frames = reader.feed(mutator.next_frame())
        except MalformedFrame:
            continue
        accepted += sum(agrees_with_the_general_codec(frame.command) for frame in frames)
    assert accepted > 300


# Answers --------------------------------------------------------------------------------------


def command_in(frame: bytes) -> BaseCommand:
    (raw,) = FrameReader().feed(frame)
    assert raw.payload == b""
    return parse_command(raw.command)


def encoded(request_id: int) -> bytes:
    """Return the request id as a client encodes it: the last field of its answer."""
    answer = CommandLookupTopicResponse(request_id=request_id)
    return answer.SerializePartialToString()[1:]


@given(st.text(st.characters(exclude_characters=";"), min_size=1, max_size=300), request_ids)
def test_an_answer_to_a_lookup_is_what_the_general_codec_would_write(
    url: str, request_id: int
) -> None:
    number = encoded(request_id)
    frame = lookup_answer_beginnings(url)[len(number)] + number

    assert command_in(frame) == BaseCommand(
        type=BaseCommand.LOOKUP_RESPONSE,
        lookupTopicResponse=CommandLookupTopicResponse(
            brokerServiceUrl=url,
            response=CommandLookupTopicResponse.Connect,
            request_id=request_id,
            authoritative=True,
        ),
    )


@given(st.integers(0, 2**32 - 1), request_ids)
def test_an_answer_with_partitions_is_what_the_general_codec_would_write(
    partitions: int, request_id: int
) -> None:
    number = encoded(request_id)

    frame = partitions_answer_beginnings(partitions)[len(number)] + number

    assert command_in(frame) == BaseCommand(
        type=BaseCommand.PARTITIONED_METADATA_RESPONSE,
        partitionMetadataResponse=CommandPartitionedTopicMetadataResponse(
            partitions=partitions,
            request_id=request_id,
            response=CommandPartitionedTopicMetadataResponse.Success,
        ),
    )
