from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.limits.pulsar import PULSAR_FRAME_BYTES_MAX
from nextgen.pulsar.frames import (
    FrameReader,
    MalformedFrame,
    RawFrame,
    encode_command,
    encode_frame,
    frame_head,
    parse_command,
    request_id_in,
    request_id_of,
)
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.support.costs.processor_time import processor_time
from tests.support.pulsar.frames import (
    FrameMutator,
    command,
    every_command,
    frame_of,
    lookup_command,
)

STREAM_OF_EVERYTHING = [frame_of(made, random.Random(3)) for made in every_command()]


def parts_of(frame: bytes) -> RawFrame:
    """Cut a whole frame by the book."""
    total, size = struct.unpack_from(">II", frame)
    assert total == len(frame) - 4
    return RawFrame(frame[8 : 8 + size], frame[8 + size :])


@given(st.lists(st.sampled_from(STREAM_OF_EVERYTHING), max_size=8), st.data())
def test_frames_come_out_as_they_went_in_whatever_the_chunks(frames, data) -> None:
    stream = b"".join(frames)
    reader = FrameReader()
    found = []

    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]

    assert found == [parts_of(frame) for frame in frames]
    assert reader.pending_bytes == 0


def test_a_stream_may_be_cut_in_two_anywhere() -> None:
    frames = STREAM_OF_EVERYTHING[:12]
    stream = b"".join(frames)

    for at in range(len(stream) + 1):
        reader = FrameReader()
        found = reader.feed(stream[:at]) + reader.feed(stream[at:])
        assert found == [parts_of(frame) for frame in frames]


def test_bytes_that_come_one_by_one_make_the_same_frames() -> None:
    reader = FrameReader()
    found = []
    for byte in b"".join(STREAM_OF_EVERYTHING):
        found += reader.feed(bytes((byte,)))

    assert found == [parts_of(frame) for frame in STREAM_OF_EVERYTHING]


def test_every_command_survives_the_way_there() -> None:
    for made in every_command():
        assert parse_command(parts_of(encode_command(made)).command) == made


def test_a_payload_is_what_is_behind_the_command() -> None:
    made = command(BaseCommand.SEND, random.Random(1))
    frame = encode_frame(made, b"payload")

    assert parts_of(frame) == (made.SerializeToString(), b"payload")
    assert frame_head(made, 7) + b"payload" == frame


def test_pending_bytes_are_those_of_the_incomplete_frame() -> None:
    reader = FrameReader()
    frame = encode_command(lookup_command())

    reader.feed(frame + frame[:5])

    assert reader.pending_bytes == 5


# Sizes that cannot be -------------------------------------------------------------------------


def test_the_largest_frame_is_let_through_and_one_byte_more_is_not() -> None:
    body = lookup_command().SerializeToString()
    payload = bytes(PULSAR_FRAME_BYTES_MAX - 8 - len(body))
    largest = encode_frame(lookup_command(), payload)
    assert len(largest) == PULSAR_FRAME_BYTES_MAX

    assert FrameReader().feed(largest) == [(body, payload)]
    with pytest.raises(MalformedFrame, match=f"{PULSAR_FRAME_BYTES_MAX + 1} bytes"):
        FrameReader().feed(encode_frame(lookup_command(), payload + b"x"))


@pytest.mark.parametrize(
    "sizes",
    [
        struct.pack(">I", PULSAR_FRAME_BYTES_MAX - 3),
        struct.pack(">I", 2**32 - 1),
        struct.pack(">I", 3),
        struct.pack(">I", 0),
        struct.pack(">II", 10, 7),
        struct.pack(">II", 10, 2**32 - 1),
    ],
)
def test_a_bad_size_is_noticed_as_soon_as_it_is_there(sizes: bytes) -> None:
    reader = FrameReader()
    for byte in sizes[:-1]:
        assert reader.feed(bytes((byte,))) == []

    with pytest.raises(MalformedFrame):
        reader.feed(sizes[-1:])


def test_frames_before_a_bad_one_are_not_lost() -> None:
    reader = FrameReader()
    good = encode_command(lookup_command())

    assert reader.feed(good + good + struct.pack(">I", 1)) == [parts_of(good)] * 2

    assert isinstance(reader.error, MalformedFrame)
    with pytest.raises(MalformedFrame):
        reader.feed(good)


def test_a_frame_in_very_small_pieces_takes_time_in_proportion() -> None:
    def seconds(size: int) -> float:
        frame = encode_frame(lookup_command(), bytes(size))
        reader = FrameReader()
        found = []
        with processor_time() as taken:
            for at in range(0, len(frame), 16):
                found += reader.feed(frame[at : at + 16])
        assert len(found) == 1
        return taken.seconds

    small = min(seconds(200_000) for _ in range(3))
    assert min(seconds(1_600_000) for _ in range(3)) < 40 * small, "not in proportion"


# Commands that cannot be ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no type"),
        (b"\xff", "no protobuf"),
        (b"\x08\x29", "no type"),
        (b"\x08\x17", "without its lookupTopic"),
        (b"\x08\x17\xba\x01\x00", "lacks topic"),
        (b"\x08\x17\xba\x01\x02\x10\x05", "lacks topic"),
        (b"\x08\x17\xba\x01\x05\x0a\x01\xff\x10\x05", "not UTF-8"),
        (b"\x08\x12\xba\x01\x05\x0a\x01\xff", "no protobuf"),
    ],
)
def test_what_is_no_command_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedFrame, match=reason):
        parse_command(data)


def test_text_that_is_none_is_found_however_deep() -> None:
    made = command(BaseCommand.SUBSCRIBE, random.Random(1))
    made.subscribe.schema.properties[0].key = "needle"
    data = made.SerializeToString()

    assert parse_command(data) == made
    with pytest.raises(MalformedFrame, match="UTF-8"):
        parse_command(data.replace(b"needle", b"need\xfee"))


def test_fields_that_are_not_known_here_are_ignored() -> None:
    data = lookup_command().SerializeToString() + b"\xba\x3e\x02\x08\x01"

    assert parse_command(data).lookupTopic == lookup_command().lookupTopic


def test_a_ping_needs_nothing_but_its_type() -> None:
    assert parse_command(b"\x08\x12").type == BaseCommand.PING
    assert parse_command(b"\x08\x13").type == BaseCommand.PONG


def test_the_request_id_of_a_broken_request_is_found_if_it_is_there() -> None:
    assert request_id_in(b"\x08\x17\xba\x01\x02\x10\x05") == 5
    assert request_id_in(b"\x08\x17\xba\x01\x03\x0a\x01x") is None
    assert request_id_in(b"\x08\x12") is None
    assert request_id_in(b"\xff") is None
    assert request_id_of(lookup_command(request_id=77)) == 77


def test_whatever_the_bytes_nothing_but_a_malformed_frame_is_raised() -> None:
    mutator = FrameMutator(11)
    parsed = refused = 0
    for _ in range(5_000):
        reader = FrameReader()
        try:
            for frame in reader.feed(mutator.next_frame()):
                parse_command(frame.command)
                parsed += 1
        except MalformedFrame:
            refused += 1
    assert parsed > 500
    assert refused > 500
