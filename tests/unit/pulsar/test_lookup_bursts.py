"""Whole reads answered at once, and never otherwise than the general codec would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.pulsar.frames import FrameReader, encode_command, parse_command
from nextgen.pulsar.lookups import (
    answer_burst,
    lookup_answer_beginnings,
    partitions_answer_beginnings,
)
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand

URL = "pulsar://broker-1:6650"


class Known:
    """Knows topics by their names: ``at-…`` is served, ``p7-…`` has seven partitions."""

    def lookup(self, topic, now):
        assert now == 5.0
        return lookup_answer_beginnings(URL) if topic.startswith("at-") else None

    def partitions(self, topic, now):
        assert now == 5.0
        return partitions_answer_beginnings(7) if topic.startswith("p7-") else None


def lookup(topic: str, request_id: int = 1, **more) -> bytes:
    asked = pulsar.CommandLookupTopic(topic=topic, request_id=request_id, **more)
    return encode_command(BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=asked))


def partitions(topic: str, request_id: int = 1, **more) -> bytes:
    asked = pulsar.CommandPartitionedTopicMetadata(topic=topic, request_id=request_id, **more)
    return encode_command(
        BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)
    )


def ping() -> bytes:
    return encode_command(BaseCommand(type=BaseCommand.PING, ping=pulsar.CommandPing()))


def answered(data: bytes, at: int = 0) -> tuple[list[BaseCommand], int, int]:
    pieces: list[bytes] = []
    behind, lookups = answer_burst(data, at, Known(), 5.0, pieces)
    commands = [parse_command(frame.command) for frame in FrameReader().feed(b"".join(pieces))]
    assert len(pieces) == 2 * len(commands)
    return commands, behind, lookups


def connect_answer(request_id: int) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.LOOKUP_RESPONSE,
        lookupTopicResponse=pulsar.CommandLookupTopicResponse(
            brokerServiceUrl=URL,
            response=pulsar.CommandLookupTopicResponse.Connect,
            request_id=request_id,
            authoritative=True,
        ),
    )


def partitions_answer(request_id: int) -> BaseCommand:
    return BaseCommand(
        type=BaseCommand.PARTITIONED_METADATA_RESPONSE,
        partitionMetadataResponse=pulsar.CommandPartitionedTopicMetadataResponse(
            partitions=7,
            request_id=request_id,
            response=pulsar.CommandPartitionedTopicMetadataResponse.Success,
        ),
    )


def test_a_read_of_both_kinds_is_answered_in_order():
    data = lookup("at-a", 1) + partitions("p7-b", 2) + lookup("at-c", 3)

    commands, behind, lookups = answered(data)

    assert commands == [connect_answer(1), partitions_answer(2), connect_answer(3)]
    assert (behind, lookups) == (len(data), 2)


@pytest.mark.parametrize(
    "request_id", [0, 1, 127, 128, 16_383, 16_384, 2**21, 2**32, 2**56, 2**63 - 1]
)
def test_a_request_id_of_any_length_comes_back(request_id):
    data = lookup("at-a", request_id) + partitions("p7-a", request_id)

    assert answered(data)[0] == [connect_answer(request_id), partitions_answer(request_id)]


def test_a_request_id_of_ten_bytes_is_left_to_the_general_codec():
    assert answered(lookup("at-a", 2**63)) == ([], 0, 0)


@pytest.mark.parametrize(
    "more",
    [{"authoritative": False}, {"authoritative": False, "advertised_listener_name": ""}],
)
def test_what_stock_clients_add_is_understood(more):
    assert answered(lookup("at-a", 300, **more))[0] == [connect_answer(300)]


@pytest.mark.parametrize("create", [True, False])
def test_whether_a_topic_may_be_created_does_not_matter_if_it_is_there(create):
    data = partitions("p7-a", 9, metadata_auto_creation_enabled=create)

    assert answered(data)[0] == [partitions_answer(9)]


@pytest.mark.parametrize(
    "unusual",
    [
        lookup("unknown"),
        partitions("unknown"),
        lookup("at-a", authoritative=True),
        lookup("at-a", advertised_listener_name="internal"),
        lookup("at-a", original_principal="somebody"),
        partitions("p7-a", original_principal="somebody"),
        lookup("at-" + "a" * 125),
        ping(),
        b"\x00\x00\x00\x00",
        b"\xff" * 40,
    ],
)
def test_the_first_that_is_not_for_here_ends_the_burst(unusual):
    known = lookup("at-a", 1)

    commands, behind, _ = answered(known + unusual + lookup("at-b", 2))

    assert commands == [connect_answer(1)]
    assert behind == len(known)


@pytest.mark.parametrize("size", range(len(lookup("at-b"))))
def test_what_is_not_complete_is_left_for_later(size):
    known = lookup("at-a", 1)

    commands, behind, _ = answered(known + lookup("at-b")[:size])

    assert commands == [connect_answer(1)]
    assert behind == len(known)


def test_the_burst_goes_on_where_it_is_told():
    skipped = ping()
    data = lookup("at-a", 1) + skipped + lookup("at-b", 2)
    _, behind, _ = answered(data)

    commands, end, _ = answered(data, behind + len(skipped))

    assert commands == [connect_answer(2)]
    assert end == len(data)


def test_the_longest_names_of_the_fast_path_are_answered():
    # Longer ones need two bytes for a length: the general codec's.
    name = "at-" + "a" * 105
    assert answered(lookup(name, 1))[0] == [connect_answer(1)]


@given(st.binary(max_size=200))
def test_no_bytes_at_all_make_it_fail_or_answer_more_than_there_is(noise):
    pieces: list[bytes] = []

    behind, lookups = answer_burst(noise, 0, Known(), 5.0, pieces)

    assert 0 <= behind <= len(noise)
    assert lookups <= len(pieces) // 2


@given(
    st.binary(max_size=30),
    st.integers(0, 60),
    st.integers(0, 255),
)
def test_a_changed_byte_never_makes_an_answer_that_the_general_codec_would_not(tail, at, byte):
    """Mutated frames: whatever is answered here is what the general codec finds in the frame."""
    frame = bytearray(lookup("at-abc", 70_000, authoritative=False) + tail)
    frame[at % len(frame)] = byte
    data = bytes(frame)

    commands, behind, _ = answered(data)

    reader = FrameReader()
    expected = []
    for raw in reader.feed(data[:behind]) if behind else []:
        command = parse_command(raw.command)
        if command.type == BaseCommand.LOOKUP:
            assert command.lookupTopic.topic.startswith("at-")
            assert not command.lookupTopic.authoritative
            expected.append(connect_answer(command.lookupTopic.request_id))
        else:
            expected.append(partitions_answer(command.partitionMetadata.request_id))
    assert commands == expected


@pytest.mark.parametrize(("bytes_max", "is_taken"), [(20, True), (19, False)])
def test_a_beginning_is_taken_back_only_if_it_is_short(bytes_max, is_taken):
    reader = FrameReader()
    frame = lookup("at-a")
    assert len(frame) > 20
    assert reader.feed(frame[:20]) == []

    taken = reader.take_pending(bytes_max)

    assert taken == (frame[:20] if is_taken else b"")
    assert reader.pending_bytes == (0 if is_taken else 20)
    (whole,) = reader.feed(taken + frame[20:])
    assert parse_command(whole.command).lookupTopic.topic == "at-a"


def test_nothing_is_taken_back_from_a_reader_that_waits_for_nothing():
    assert FrameReader().take_pending(100) == b""
