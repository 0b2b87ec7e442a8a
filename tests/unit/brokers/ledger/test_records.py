from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.adapters.ledger.format import records
from brokers.adapters.ledger.format.records import (
    HEAD_BYTES,
    FileHeader,
    IndexPoint,
    Kind,
    SegmentEnd,
    decode_entry,
    decode_header,
    decode_index,
    decode_state,
    encode,
    encode_entry,
    encode_header,
    encode_index,
    encode_state,
    entry_record_bytes,
    later_records,
    record_at,
    record_bytes,
)
from brokers.ports.ledger import LedgerDamaged

SALT = 77
HEADER = FileHeader(
    salt=2**32 - 1,
    topic_id="0a1b",
    unit="p3",
    epoch=7,
    number=2,
    topic_name="persistent://public/default/orders",
    created_ms=1_700_000_000_000,
    previous=SegmentEnd(1, 2_000, 3, 4, 5),
    producers={"b": 2, "a": 2**63 - 1},
    snapshot_bytes=9,
)


def whole(buffer: bytes, salt: int = SALT) -> records.Record:
    record = record_at(memoryview(buffer), 0, salt)
    assert record is not None
    return record


def entry_record(payload: bytes = b"payload", since_durable: int = 0) -> bytes:
    return b"".join(
        encode_entry(
            entry_id=1,
            publish_time_ms=2,
            sequence_id=-1,
            message_count=2**32 - 1,
            producer_name=b"name",
            payload=payload,
            salt=SALT,
            since_durable=since_durable,
        )
    )


@given(
    entry_id=st.integers(0, 2**32 - 1),
    publish_time_ms=st.integers(0, 2**63),
    sequence_id=st.integers(-1, 2**63 - 1),
    message_count=st.integers(0, 2**32 - 1),
    producer_name=st.text(max_size=50),
    payload=st.binary(max_size=300),
    salt=st.integers(0, 2**32 - 1),
    since_durable=st.integers(0, 2**32 - 1),
)
def test_an_entry_is_read_as_it_was_written(
    entry_id: int,
    publish_time_ms: int,
    sequence_id: int,
    message_count: int,
    producer_name: str,
    payload: bytes,
    salt: int,
    since_durable: int,
) -> None:
    head, body = encode_entry(
        entry_id=entry_id,
        publish_time_ms=publish_time_ms,
        sequence_id=sequence_id,
        message_count=message_count,
        producer_name=producer_name.encode(),
        payload=payload,
        salt=salt,
        since_durable=since_durable,
    )

    record = whole(head + body, salt)
    fields = decode_entry(record.body)

    assert body is payload
    assert (record.kind, record.offset, record.since_durable) == (Kind.ENTRY, 0, since_durable)
    assert record.end == len(head + body) == entry_record_bytes(payload, producer_name.encode())
    assert fields[:-1] == (entry_id, publish_time_ms, sequence_id, message_count, producer_name)
    assert fields.payload == payload


@pytest.mark.parametrize("previous", [None, HEADER.previous])
def test_a_header_is_read_as_it_was_written(previous: SegmentEnd | None) -> None:
    header = FileHeader(
        **{name: getattr(HEADER, name) for name in FileHeader.__slots__} | {"previous": previous}
    )

    decoded = decode_header(whole(encode_header(header), salt=0))

    assert decoded == header
    assert list(decoded.producers) == ["b", "a"], "those silent longest come first"


@pytest.mark.parametrize("value", [None, b"", b"value"])
def test_a_fact_is_read_as_it_was_written(value: bytes | None) -> None:
    record = whole(encode_state("cursor/\u00e4", value, salt=SALT, since_durable=3))

    assert (record.kind, record.since_durable) == (Kind.STATE, 3)
    assert decode_state(record.body) == ("cursor/\u00e4", value)


def test_a_point_is_read_as_it_was_written() -> None:
    point = IndexPoint(offset=2**40, entry_id=7, time_ms=-1)

    record = whole(encode_index(point, {"a": 1}, salt=SALT))

    assert decode_index(record.body) == (point, {"a": 1})


@given(place=st.integers(0, len(entry_record()) - 1), flip=st.integers(1, 255))
def test_a_record_with_any_byte_changed_is_none(place: int, flip: int) -> None:
    changed = bytearray(entry_record())
    changed[place] ^= flip

    assert record_at(memoryview(bytes(changed)), 0, SALT) is None


@given(length=st.integers(0, len(entry_record()) - 1))
def test_a_record_that_is_cut_is_none(length: int) -> None:
    assert record_at(memoryview(entry_record()[:length]), 0, SALT) is None


def test_a_record_of_another_file_is_none() -> None:
    assert record_at(memoryview(entry_record()), 0, SALT + 1) is None


def test_reserved_space_holds_no_record() -> None:
    assert record_at(memoryview(bytes(100)), 0, 0) is None
    assert record_bytes(memoryview(bytes(100))) is None


def test_a_version_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(records, "VERSION", 2)
        record = encode(Kind.STATE, b"body", salt=SALT)

    with pytest.raises(LedgerDamaged, match="format 2, this program knows 1"):
        record_at(memoryview(record), 0, SALT)


def test_a_length_that_no_record_has_is_not_believed() -> None:
    head = bytearray(entry_record()[:HEAD_BYTES])
    assert record_bytes(memoryview(bytes(head))) == len(entry_record())
    head[9:13] = b"\xff\xff\xff\xff"

    assert record_bytes(memoryview(bytes(head))) is None
    assert record_bytes(memoryview(bytes(head[:5]))) is None


def test_records_are_found_behind_junk_and_only_this_files() -> None:
    buffer = b"junk\x8eNG" + entry_record(b"a" * 9) + entry_record()[:30] + entry_record(b"b")
    of_another_file = encode(Kind.STATE, b"x", salt=SALT + 1)

    found = list(later_records(of_another_file + buffer, 0, SALT))

    assert [bytes(decode_entry(record.body).payload) for record in found] == [b"a" * 9, b"b"]


def test_a_record_inside_a_payload_is_no_record_of_the_file() -> None:
    inner = b"".join(
        encode_entry(
            entry_id=0,
            publish_time_ms=0,
            sequence_id=0,
            message_count=0,
            producer_name=b"",
            payload=b"",
            salt=0,
            since_durable=0,
        )
    )

    assert list(later_records(inner, 0, SALT)) == []
