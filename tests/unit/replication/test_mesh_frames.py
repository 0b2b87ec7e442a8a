from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.limits import MESH_FRAME_BYTES_MAX
from nextgen.replication.mesh_frames import (
    FrameReader,
    Hello,
    RemoteProtocolError,
    decode_frame,
    encode_frame,
    encode_hello,
    parse_hello,
)
from nextgen.replication.ports import NodeId

values = st.one_of(st.integers(0, 2**63), st.binary(max_size=50), st.text(max_size=20))
messages = st.dictionaries(st.text(max_size=10), values, max_size=5)


@given(st.lists(st.tuples(st.integers(0, 1000), messages), max_size=5), st.data())
def test_frames_come_out_as_they_went_in_whatever_the_chunks(frames, data) -> None:
    stream = b"".join(encode_frame(channel, message) for channel, message in frames)
    reader = FrameReader()
    found = []

    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.receive_data(stream[:size])
        stream = stream[size:]

    assert [decode_frame(body) for body in found] == frames


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_a_protocol_error(data: bytes) -> None:
    try:
        for body in FrameReader().receive_data(data):
            parse_hello(*decode_frame(body))
        parse_hello(*decode_frame(data))
    except RemoteProtocolError:
        pass


def test_a_frame_of_the_largest_size_is_let_through_and_one_byte_more_is_not() -> None:
    reader = FrameReader(frame_bytes_max=10)

    assert reader.receive_data(struct.pack(">I", 10) + bytes(10)) == [bytes(10)]
    with pytest.raises(RemoteProtocolError, match="11 bytes"):
        reader.receive_data(struct.pack(">I", 11))


def test_the_limit_is_checked_before_the_bytes_arrive() -> None:
    with pytest.raises(RemoteProtocolError):
        FrameReader().receive_data(struct.pack(">I", MESH_FRAME_BYTES_MAX + 1))


def test_a_hello_survives_the_journey() -> None:
    hello = Hello(1, "cluster", NodeId("a"), NodeId("b"), "123")
    (body,) = FrameReader().receive_data(encode_hello(hello))

    assert parse_hello(*decode_frame(body)) == hello
