"""The bytes of a journal: what is written is read back, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.replication.journal.format import (
    ALIGNMENT_BYTES,
    FORMAT_VERSION,
    HEADER_BYTES,
    MARK_BYTES,
    RECORD_HEADER_BYTES,
    DurableMark,
    Identity,
    Kind,
    RecordHeader,
    SegmentHeader,
    address_of,
    decode_mark,
    decode_record_header,
    decode_segment_header,
    encode_mark,
    encode_record,
    encode_segment_header,
    offset_of,
    payload_at,
    record_bytes,
    segment_format_version,
    sequence_of,
)

IDENTITY = Identity.of("cluster", "node-1", 7)
HEADER = SegmentHeader(IDENTITY, 3, 100, 4, 1_001, 5, "node-2", 90)
MARK = DurableMark(address_of(3, 700), 120, 5)
ADDRESS = address_of(3, 512)

numbers = st.integers(min_value=0, max_value=2**63 - 1)


@given(
    kind=st.sampled_from(Kind),
    payload=st.binary(max_size=300),
    events=st.integers(min_value=0, max_value=2**32 - 1),
    index=numbers,
    term=numbers,
    position=numbers,
    synced_to=numbers,
)
def test_a_record_is_read_back_as_it_was_written(
    kind: Kind, payload: bytes, events: int, index: int, term: int, position: int, synced_to: int
) -> None:
    data = encode_record(
        ADDRESS,
        kind,
        payload=payload,
        events=events,
        index=index,
        term=term,
        first_position=position,
        synced_to=synced_to,
    )

    header = decode_record_header(b"before__" + data, 8, ADDRESS)

    assert header is not None
    assert header == RecordHeader(
        len(payload), header.payload_checksum, events, kind, index, term, position, synced_to
    )
    assert payload_at(b"before__" + data, 8, header) == payload
    assert len(data) == record_bytes(len(payload))
    assert len(data) % ALIGNMENT_BYTES == 0


def test_a_record_is_not_believed_at_another_address() -> None:
    data = encode_record(ADDRESS, Kind.ENTRY, payload=b"payload", index=1)

    assert decode_record_header(data, 0, ADDRESS + 8) is None


@given(at=st.integers(0, record_bytes(20) - 5), bit=st.integers(0, 7))
def test_one_wrong_bit_in_a_record_is_noticed(at: int, bit: int) -> None:
    payload = b"twenty bytes in here"
    data = bytearray(encode_record(ADDRESS, Kind.ENTRY, payload=payload, index=1))
    data[at] ^= 1 << bit

    header = decode_record_header(bytes(data), 0, ADDRESS)

    assert header is None or payload_at(bytes(data), 0, header) is None


@pytest.mark.parametrize("length", [0, 3, RECORD_HEADER_BYTES - 1])
def test_a_short_record_header_is_none(length: int) -> None:
    data = encode_record(ADDRESS, Kind.ENTRY, payload=b"payload")[:length]

    assert decode_record_header(data, 0, ADDRESS) is None


def test_a_short_payload_is_none() -> None:
    data = encode_record(ADDRESS, Kind.ENTRY, payload=b"payload")
    header = decode_record_header(data, 0, ADDRESS)

    assert header is not None
    assert payload_at(data[: RECORD_HEADER_BYTES + 6], 0, header) is None


@given(sequence=st.integers(1, 2**31), offset=st.integers(0, 2**32 - 1))
def test_an_address_is_a_segment_and_an_offset(sequence: int, offset: int) -> None:
    address = address_of(sequence, offset)

    assert (sequence_of(address), offset_of(address)) == (sequence, offset)


def test_a_segment_header_is_read_back_as_it_was_written() -> None:
    data = encode_segment_header(HEADER)

    assert len(data) == HEADER_BYTES
    assert segment_format_version(data) == 1
    assert decode_segment_header(data + b"records") == HEADER


@pytest.mark.parametrize("configuration", [b"", b"configuration"])
def test_a_segment_header_of_version_2_brings_its_configuration(configuration: bytes) -> None:
    header = replace(HEADER, configuration=configuration)

    data = encode_segment_header(header)

    assert len(data) == header.bytes_long > HEADER_BYTES
    assert segment_format_version(data) == FORMAT_VERSION
    assert decode_segment_header(data + b"records") == header
    assert decode_segment_header(data[:HEADER_BYTES] + bytes(100)) is None


def test_the_longest_node_id_fits_into_a_segment_header() -> None:
    header = replace(HEADER, voted_for="n" * 255)

    assert decode_segment_header(encode_segment_header(header)) == header
    with pytest.raises(AssertionError):
        encode_segment_header(replace(HEADER, voted_for="n" * 256))


@given(at=st.integers(0, HEADER_BYTES - 1), bit=st.integers(0, 7))
def test_one_wrong_bit_in_a_segment_header_is_noticed(at: int, bit: int) -> None:
    data = bytearray(encode_segment_header(HEADER))
    data[at] ^= 1 << bit

    assert decode_segment_header(bytes(data)) is None


def test_what_is_no_segment_has_no_version_and_no_header() -> None:
    for data in (b"", bytes(HEADER_BYTES), b"PNGJRNL\x00", b"x" * HEADER_BYTES):
        assert segment_format_version(data) is None
        assert decode_segment_header(data) is None


def test_a_mark_is_read_back_by_its_journal_only() -> None:
    data = encode_mark(MARK, IDENTITY)

    assert len(data) == MARK_BYTES
    assert decode_mark(data, IDENTITY) == MARK
    assert decode_mark(data, Identity.of("cluster", "node-2", 7)) is None
    assert decode_mark(data[:-1], IDENTITY) is None
    assert decode_mark(bytes(MARK_BYTES), IDENTITY) is None


@given(at=st.integers(0, MARK_BYTES - 1), bit=st.integers(0, 7))
def test_one_wrong_bit_in_a_mark_is_noticed(at: int, bit: int) -> None:
    data = bytearray(encode_mark(MARK, IDENTITY))
    data[at] ^= 1 << bit

    assert decode_mark(bytes(data), IDENTITY) is None
