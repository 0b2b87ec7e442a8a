"""The record format of all files of a ledger except claims and fences.

A file is a sequence of records, of which the first is its header. Zeros behind the last record are
reserved space. All numbers are little-endian. A record is

    magic            3 bytes   8E 4E 47; zeros instead: nothing was written here
    checksum         4 bytes   crc32c of all that follows, begun with the file's salt
    version          1 byte    of this format: 1. The fields have the same places in every version
    kind             1 byte    see ``Kind``
    length           4 bytes   of the body
    since durable    4 bytes   distance back to the end of the bytes fsynced before this was written
    body

    HEADER   msgpack, see ``FileHeader``; its own checksum is begun with 0
    ENTRY    entry id 4, publish time in ms 8, sequence id 8 (signed), message count 4,
             length of the producer's name 2, the name, the payload unchanged
    STATE    length of the key 2, 1 if there is a value or else 0, the key, the value
    INDEX    offset 8, entries before it 4, publish time of the last of them 8 (signed), msgpack:
             producer names and sequence ids of the entries since the point before
    SEAL     msgpack, see ``seals``

*Since durable* distinguishes damage from a torn tail. A write begins only when the one before it is
fsynced. So a record that was written after an unreadable place was fsynced proves that the place
was once whole: it is damaged. Without such a record it may never have been written whole.

The salt is random and never leaves the file. So neither a payload nor the blocks of a removed file
can look like a record of this file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack
from crc32c import crc32c

from brokers.ports.ledger import LedgerDamaged
from nextgen.kernel.limits import pulsar as pulsar_limits

SALT_BITS = 32
MAGIC = b"\x8eNG"
VERSION = 1

_HEAD = struct.Struct("<3sIBBII")
HEAD_BYTES = _HEAD.size
_SUMMED = struct.Struct("<BBII")
_SUMMED_AT = HEAD_BYTES - _SUMMED.size
_ENTRY = struct.Struct("<IQqIH")
_STATE = struct.Struct("<HB")
_INDEX = struct.Struct("<QIq")
_BODY_BYTES_MAX = 2 * max(
    pulsar_limits.LEDGER_ENTRY_BYTES_MAX,
    pulsar_limits.LEDGER_STATE_VALUE_BYTES_MAX,
    pulsar_limits.PRODUCERS_REMEMBERED_MAX * pulsar_limits.PRODUCER_NAME_BYTES_MAX,
)


class Kind(IntEnum):
    """The kinds of a record's body."""

    HEADER = 1
    ENTRY = 2
    STATE = 3
    INDEX = 4
    SEAL = 5


class Record(NamedTuple):
    """One whole record; ``offset`` and ``end`` count from the beginning of its file."""

    kind: int
    offset: int
    end: int
    since_durable: int
    body: memoryview


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """The valid end of a segment, and its content. ``segment`` is its number in the epoch."""

    segment: int
    length: int
    entries: int
    first_time_ms: int
    last_time_ms: int

    def pack(self) -> list[int]:
        return [self.segment, self.length, self.entries, self.first_time_ms, self.last_time_ms]


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The first record of an entries, state or index file."""

    salt: int
    topic_id: str
    unit: str
    epoch: int
    number: int
    """Number of the segment in its epoch, or of the state file."""
    topic_name: str
    created_ms: int
    previous: SegmentEnd | None
    """End of the epoch's previous segment: bytes of it behind that do not exist."""
    producers: dict[str, int]
    """Highest sequence ids when the file began; the producer that was silent longest is first."""
    snapshot_bytes: int = 0
    """Of a state file: number of bytes behind the header with the facts that it began with."""


def encode(kind: Kind, body: bytes, *, salt: int = 0, since_durable: int = 0) -> bytes:
    """Return one record."""
    summed = _SUMMED.pack(VERSION, kind, len(body), since_durable)
    checksum = crc32c(body, crc32c(summed, salt))
    return _HEAD.pack(MAGIC, checksum, VERSION, kind, len(body), since_durable) + body


def encode_header(header: FileHeader) -> bytes:
    """Return the header's record."""
    previous = header.previous
    fields = {
        "salt": header.salt,
        "topic_id": header.topic_id,
        "unit": header.unit,
        "epoch": header.epoch,
        "number": header.number,
        "topic_name": header.topic_name,
        "created_ms": header.created_ms,
        "previous": None if previous is None else previous.pack(),
        "producers": list(header.producers.items()),
        "snapshot_bytes": header.snapshot_bytes,
    }
    return encode(Kind.HEADER, msgpack.packb(fields))


def decode_header(record: Record) -> FileHeader:
    """Decode the result of ``encode_header``."""
    fields: dict[str, Any] = msgpack.unpackb(record.body)
    previous = fields.pop("previous")
    return FileHeader(
        **{
            **fields,
            "previous": None if previous is None else SegmentEnd(*previous),
            "producers": dict(fields["producers"]),
        }
    )


def entry_record_bytes(payload: bytes, producer_name: bytes) -> int:
    """Return the length of an entry's record."""
    return HEAD_BYTES + _ENTRY.size + len(producer_name) + len(payload)


def encode_entry(
    *,
    entry_id: int,
    publish_time_ms: int,
    sequence_id: int,
    message_count: int,
    producer_name: bytes,
    payload: bytes,
    salt: int,
    since_durable: int,
) -> tuple[bytes, bytes]:
    """Return an entry's record in two parts, of which the second is ``payload`` itself."""
    length = _ENTRY.size + len(producer_name) + len(payload)
    summed = (
        _SUMMED.pack(VERSION, Kind.ENTRY, length, since_durable)
        + _ENTRY.pack(entry_id, publish_time_ms, sequence_id, message_count, len(producer_name))
        + producer_name
    )
    checksum = crc32c(payload, crc32c(summed, salt))
    return MAGIC + checksum.to_bytes(4, "little") + summed, payload


class EntryFields(NamedTuple):
    """An ENTRY's body."""

    entry_id: int
    publish_time_ms: int
    sequence_id: int
    message_count: int
    producer_name: str
    payload: memoryview


def decode_entry(body: memoryview) -> EntryFields:
    """Return the fields; the payload is not copied."""
    entry_id, time_ms, sequence_id, message_count, name_length = _ENTRY.unpack_from(body)
    payload_at = _ENTRY.size + name_length
    name = str(body[_ENTRY.size : payload_at], "utf-8")
    return EntryFields(entry_id, time_ms, sequence_id, message_count, name, body[payload_at:])


def decode_entry_ids(body: memoryview) -> tuple[int, int, int, bytes]:
    """Return entry id, publish time, sequence id and the producer's name in UTF-8 of an ENTRY."""
    entry_id, time_ms, sequence_id, _, name_length = _ENTRY.unpack_from(body)
    return entry_id, time_ms, sequence_id, bytes(body[_ENTRY.size : _ENTRY.size + name_length])


def encode_state(key: str, value: bytes | None, *, salt: int, since_durable: int) -> bytes:
    """Return the record of a fact, or of its removal."""
    name = key.encode()
    body = _STATE.pack(len(name), value is not None) + name + (value or b"")
    return encode(Kind.STATE, body, salt=salt, since_durable=since_durable)


def decode_state(body: memoryview) -> tuple[str, bytes | None]:
    """Return key and value; the value None removes the key."""
    key_length, is_there = _STATE.unpack_from(body)
    value_at = _STATE.size + key_length
    return str(body[_STATE.size : value_at], "utf-8"), bytes(body[value_at:]) if is_there else None


@dataclass(frozen=True, slots=True)
class IndexPoint:
    """The entry ``entry_id`` begins at ``offset``; ``time_ms`` is that of the entry before."""

    offset: int
    entry_id: int
    time_ms: int


def encode_index(point: IndexPoint, producers: dict[str, int], *, salt: int) -> bytes:
    """Return the record of a point, with the sequence ids since the point before."""
    body = _INDEX.pack(point.offset, point.entry_id, point.time_ms)
    return encode(Kind.INDEX, body + msgpack.packb(list(producers.items())), salt=salt)


def decode_index(body: memoryview) -> tuple[IndexPoint, dict[str, int]]:
    """Decode the result of ``encode_index``."""
    point = IndexPoint(*_INDEX.unpack_from(body))
    return point, dict(msgpack.unpackb(body[_INDEX.size :]))


def record_at(buffer: memoryview, offset: int, salt: int, base: int = 0) -> Record | None:
    """Return the whole record that begins at ``offset`` of the buffer, None if there is none.

    The buffer itself begins at ``base`` of the file.

    Raises:
        LedgerDamaged: The record is whole, but this release does not know its version.
    """
    body_at = offset + HEAD_BYTES
    if body_at > len(buffer):
        return None
    magic, checksum, version, kind, length, since_durable = _HEAD.unpack_from(buffer, offset)
    end = body_at + length
    if magic != MAGIC or end > len(buffer):
        return None
    if crc32c(buffer[offset + _SUMMED_AT : end], salt) != checksum:
        return None
    if version != VERSION:
        raise LedgerDamaged(f"a record has format {version}, this program knows {VERSION}")
    return Record(kind, base + offset, base + end, since_durable, buffer[body_at:end])


def record_bytes(head: memoryview) -> int | None:
    """Return the length of the record that begins with ``head``, None if none does."""
    if len(head) < HEAD_BYTES or head[: len(MAGIC)] != MAGIC:
        return None
    length: int = _HEAD.unpack_from(head)[4]
    return HEAD_BYTES + length if length <= _BODY_BYTES_MAX else None


def later_records(buffer: bytes, start: int, salt: int) -> Iterator[Record]:
    """Yield every whole record behind ``start``, also behind unreadable bytes."""
    view = memoryview(buffer)
    offset = buffer.find(MAGIC, start)
    while offset >= 0:
        record = record_at(view, offset, salt)
        if record is not None:
            yield record
        offset = buffer.find(MAGIC, offset + 1 if record is None else record.end)
