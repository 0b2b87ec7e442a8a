from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.levels import EVENT_LEVEL_MAX, EVENT_LEVEL_UNREPORTED
from nextgen.kernel.limits.cluster import ENTRIES_PER_MESSAGE_MAX, MESH_FRAME_BYTES_MAX
from nextgen.kernel.limits.raft import (
    MESH_FRAME_PART_ITEMS_MAX,
    MESH_FRAME_PARTS_MAX,
    MESH_FRAME_UNCOUNTED_BYTES,
)
from nextgen.replication.mesh.frames import (
    HELLO_CHANNEL,
    HELLO_MAGIC,
    FrameReader,
    Hello,
    RemoteProtocolError,
    decode_frame,
    encode_frame,
    encode_hello,
    parse_hello,
)
from nextgen.replication.ports import NodeId
from tests.support.costs.processor_time import processor_time, slowness

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


def hello_saying(**more: object) -> dict[str, object]:
    """Return a hello as a release without levels makes it, and what else is said in it."""
    fields = ("cluster_id", "node_id", "target_id", "incarnation")
    return {"magic": HELLO_MAGIC, "protocol_version": 1, **dict.fromkeys(fields, "x"), **more}


def test_a_hello_carries_the_level_of_events() -> None:
    hello = Hello(1, "cluster", NodeId("a"), NodeId("b"), "123", 7)
    (body,) = FrameReader().receive_data(encode_hello(hello))

    assert parse_hello(*decode_frame(body)).event_level == 7


def test_a_hello_without_a_level_is_of_a_release_that_knows_the_first_events() -> None:
    assert parse_hello(HELLO_CHANNEL, hello_saying()).event_level == EVENT_LEVEL_UNREPORTED


@pytest.mark.parametrize("shares", [True, False])
def test_a_hello_says_whether_its_sender_reads_shared_heartbeats(shares: bool) -> None:
    hello = Hello(1, "cluster", NodeId("a"), NodeId("b"), "123", shares_heartbeats=shares)
    (body,) = FrameReader().receive_data(encode_hello(hello))

    assert parse_hello(*decode_frame(body)) == hello
    assert not parse_hello(HELLO_CHANNEL, hello_saying()).shares_heartbeats


@pytest.mark.parametrize("value", [1, None, "yes", [True]], ids=repr)
def test_a_hello_that_says_neither_is_refused(value: object) -> None:
    with pytest.raises(RemoteProtocolError, match="shares_heartbeats"):
        parse_hello(HELLO_CHANNEL, hello_saying(shares_heartbeats=value))


def test_what_a_later_release_says_more_in_its_hello_is_passed_over() -> None:
    assert parse_hello(HELLO_CHANNEL, hello_saying(later=[1])) == parse_hello(
        HELLO_CHANNEL, hello_saying()
    )


@pytest.mark.parametrize("level", [EVENT_LEVEL_UNREPORTED, EVENT_LEVEL_MAX])
def test_every_level_that_can_be_is_taken(level: int) -> None:
    assert parse_hello(HELLO_CHANNEL, hello_saying(event_level=level)).event_level == level


@pytest.mark.parametrize("level", [0, -1, EVENT_LEVEL_MAX + 1, True, 2.0, "2", None, [2], b"2"])
def test_a_level_that_cannot_be_is_no_hello(level: object) -> None:
    with pytest.raises(RemoteProtocolError, match="level of events"):
        parse_hello(HELLO_CHANNEL, hello_saying(event_level=level))


# What a frame may hold ---------------------------------------------------------------------------

PAYLOAD = bytes(MESH_FRAME_UNCOUNTED_BYTES)
"""Makes a frame large enough to be counted."""


def with_parts(count: int) -> bytes:
    """Return a large frame of ``count`` arrays and maps."""
    entries = [[]] * (count - 4)
    return encode_frame(1, {"entries": entries, "map": {}, "data": PAYLOAD})[4:]


def test_mesh_frame_parts_max_are_unpacked_and_one_more_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No list is as long: the length of a list is a bound of its own.
    monkeypatch.setattr("nextgen.replication.mesh.frames.MESH_FRAME_PARTS_MAX", 100)
    assert MESH_FRAME_PARTS_MAX > 100

    decode_frame(with_parts(100))
    with pytest.raises(RemoteProtocolError, match="more than 100 parts"):
        decode_frame(with_parts(101))


def test_mesh_frame_part_items_max_are_unpacked_and_one_more_in_a_second_list_refused() -> None:
    longest = [0] * MESH_FRAME_PART_ITEMS_MAX
    entries = [[1, 1, 1, 1, b"payload"]] * ENTRIES_PER_MESSAGE_MAX

    decode_frame(encode_frame(1, {"entries": entries, "digest": longest, "data": PAYLOAD})[4:])
    longer = encode_frame(1, {"entries": entries, "digest": [*longest, 0], "data": PAYLOAD})
    with pytest.raises(RemoteProtocolError, match="two long lists"):
        decode_frame(longer[4:])


def test_more_entries_than_one_message_has_are_not_unpacked() -> None:
    with pytest.raises(RemoteProtocolError, match="max_array_len"):
        decode_frame(encode_frame(1, {"entries": [[]] * (ENTRIES_PER_MESSAGE_MAX + 1)})[4:])


@pytest.mark.parametrize("part", [b"\x80", b"\x90", b"\xc0"])
def test_a_frame_of_eight_megabytes_of_nothing_is_refused_before_it_is_unpacked(
    part: bytes,
) -> None:
    """Lists of lists of empty things: each is short, and unpacked it takes half a gigabyte."""
    inner = b"\xdc\x10\x00" + part * 4_096
    body = b"\x92\x01\x81\xa1e\xdc\x07\x00" + inner * 1_792
    assert len(body) < MESH_FRAME_BYTES_MAX
    tracemalloc.start()
    try:
        with processor_time() as taken, pytest.raises(RemoteProtocolError):
            decode_frame(body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert taken.seconds < 0.1 * slowness()
    assert peak_bytes < 4 * 1024 * 1024
