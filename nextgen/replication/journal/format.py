"""The bytes of a journal. Format versions 1 and 2; golden files: tests/replay/logs/journal-v1, -v2.

    segment  = header (512 bytes), then records, then zeros up to the preallocated size
    header   = everything that was known when the segment began, so that older ones can go
    record   = 56 byte record header, payload, zeros up to a multiple of 8

Version 2 is written from the first change of the group's members on: a CONFIGURATION record follows
the header of such a segment, and is synced together with it. Programs that know version 1 only
would ignore configurations, and refuse such a file.

All integers are little endian. An *address* is ``segment sequence << 32 | offset``: it only grows.
A record's checksum covers its own address, so misplaced bytes are no sound record. Each record
carries ``synced_to``, the address up to which the journal was known to be durable when the record
was made: it proves that damage before it is damage, not a write that never finished.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from nextgen.kernel.routing.hashing import hash64

FORMAT_VERSION = 2
"""The newest version that is read; written where version 1 does not suffice."""

SEGMENT_MAGIC = b"PNGJRNL\x00"
RECORD_MAGIC = b"\xa7REC"
MARK_MAGIC = b"PNGMARK\x00"

HEADER_BYTES = 512
MARK_BYTES = 512
RECORD_HEADER_BYTES = 56
ALIGNMENT_BYTES = 8

_OFFSET_BITS = 32
_RECORD_SEAL = struct.Struct("<4sI")
_RECORD_FIELDS = struct.Struct("<IIIB3xQQQQ")
_ADDRESS = struct.Struct("<Q")
_HEADER = struct.Struct("<8sIIQQQQQQQQB")
_MARK = struct.Struct("<8sQQQ")
_CHECKSUM = struct.Struct("<I")
_NODE_ID_BYTES_MAX = 255


class Kind(IntEnum):
    """The kind of a record. Stored: never renumber."""

    ENTRY = 1
    HARD_STATE = 2  # term; payload = voted for, empty for no vote.
    # Entries from ``index`` on are void; term and position are those before it. Of TRUNCATE
    # and RESET the payload is the configuration that holds afterwards, empty for none.
    TRUNCATE = 3
    RESET = 4  # The log is empty and begins behind ``index``, ``term``.
    UNVERIFIED = 5  # No votes until a leader has covered ``index``; 0 ends that.
    CONFIGURATION = 6  # payload = what held behind ``index``, empty for what the group began with.


@dataclass(frozen=True, slots=True)
class Identity:
    """The cluster, node and group of a journal. Ids are kept as hashes: they are compared, never
    shown."""

    cluster_hash: int
    node_hash: int
    group_id: int

    @classmethod
    def of(cls, cluster_id: str, node_id: str, group_id: int) -> Identity:
        return cls(hash64(cluster_id), hash64(node_id), group_id)


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The state of the log at the moment the segment began."""

    identity: Identity
    sequence: int
    base_index: int  # The last entry before this segment, 0 for none.
    base_term: int
    next_position: int  # Of the next event.
    hard_term: int
    voted_for: str  # Empty: no vote.
    unverified_index: int
    configuration: bytes | None = None  # The one that holds, empty for none; None in version 1.

    @property
    def bytes_long(self) -> int:
        """Where the first record begins that is not part of the header."""
        if self.configuration is None:
            return HEADER_BYTES
        return HEADER_BYTES + record_bytes(len(self.configuration))


class RecordHeader(NamedTuple):
    """A record without its payload. The meaning of the numbers depends on ``kind``.

    A tuple in the order of the bytes: a restart reads one for every entry.
    """

    length: int  # Bytes of payload.
    payload_checksum: int
    events: int
    kind: int  # A ``Kind``.
    entry_index: int
    term: int
    first_position: int
    synced_to: int


@dataclass(frozen=True, slots=True)
class DurableMark:
    """How far the journal was durable; stored beside it and not synced itself.

    It survives a killed process, and a power cut once the system has written it back. A mark that
    exists is true.
    """

    address: int
    last_index: int
    hard_term: int

    def lowered_to(self, index: int) -> DurableMark:
        """Return this with a last index of at most ``index``."""
        return DurableMark(self.address, min(self.last_index, index), self.hard_term)


def address_of(sequence: int, offset: int) -> int:
    return sequence << _OFFSET_BITS | offset


def sequence_of(address: int) -> int:
    return address >> _OFFSET_BITS


def offset_of(address: int) -> int:
    return address & ((1 << _OFFSET_BITS) - 1)


def record_bytes(payload_length: int) -> int:
    """Return the size in a segment of a record with ``payload_length`` bytes of payload."""
    used = RECORD_HEADER_BYTES + payload_length
    return used + -used % ALIGNMENT_BYTES


def encode_record(
    address: int,
    kind: Kind,
    *,
    payload: bytes = b"",
    events: int = 0,
    index: int = 0,
    term: int = 0,
    first_position: int = 0,
    synced_to: int = 0,
) -> bytes:
    """Return the record as it must stand at ``address``, padding included."""
    fields = _RECORD_FIELDS.pack(
        len(payload), crc32c(payload), events, kind, index, term, first_position, synced_to
    )
    checksum = crc32c(fields, crc32c(_ADDRESS.pack(address)))
    padding = bytes(-(RECORD_HEADER_BYTES + len(payload)) % ALIGNMENT_BYTES)
    return b"".join((_RECORD_SEAL.pack(RECORD_MAGIC, checksum), fields, payload, padding))


def decode_record_header(data: bytes, offset: int, address: int) -> RecordHeader | None:
    """Return the record header at ``offset`` of ``data``, None if there is no sound one."""
    if len(data) - offset < RECORD_HEADER_BYTES or not data.startswith(RECORD_MAGIC, offset):
        return None
    _, checksum = _RECORD_SEAL.unpack_from(data, offset)
    fields = data[offset + _RECORD_SEAL.size : offset + RECORD_HEADER_BYTES]
    if crc32c(fields, crc32c(_ADDRESS.pack(address))) != checksum:
        return None
    return RecordHeader._make(_RECORD_FIELDS.unpack(fields))


def payload_at(data: bytes, offset: int, header: RecordHeader) -> bytes | None:
    """Return the payload of the record at ``offset``, None if it is short or damaged."""
    begin = offset + RECORD_HEADER_BYTES
    payload = data[begin : begin + header.length]
    if len(payload) < header.length or crc32c(payload) != header.payload_checksum:
        return None
    return payload


def encode_segment_header(header: SegmentHeader) -> bytes:
    """Return the beginning of a segment: ``header.bytes_long`` bytes."""
    voted_for = header.voted_for.encode()
    assert len(voted_for) <= _NODE_ID_BYTES_MAX, "a node id is at most 255 bytes"
    identity = header.identity
    fields = _HEADER.pack(
        SEGMENT_MAGIC,
        1 if header.configuration is None else 2,
        identity.group_id,
        identity.cluster_hash,
        identity.node_hash,
        header.sequence,
        header.base_index,
        header.base_term,
        header.next_position,
        header.hard_term,
        header.unverified_index,
        len(voted_for),
    )
    sealed = _sealed(fields + voted_for, HEADER_BYTES)
    if header.configuration is None:
        return sealed
    return sealed + encode_record(
        address_of(header.sequence, HEADER_BYTES),
        Kind.CONFIGURATION,
        payload=header.configuration,
        index=header.base_index,
    )


def segment_format_version(data: bytes) -> int | None:
    """Return the format version in a segment's header, None if it is no segment."""
    if len(data) < _HEADER.size or not data.startswith(SEGMENT_MAGIC):
        return None
    return int(_HEADER.unpack_from(data)[1])


def decode_segment_header(data: bytes) -> SegmentHeader | None:
    """Return the header at the start of ``data``, None if it is damaged or not one."""
    if not _is_sealed(data, HEADER_BYTES) or not data.startswith(SEGMENT_MAGIC):
        return None
    (
        _,
        version,
        group,
        cluster,
        node,
        sequence,
        index,
        term,
        position,
        hard_term,
        unverified,
        voted,
    ) = _HEADER.unpack_from(data)
    configuration = _configuration_behind(data, sequence) if version > 1 else None
    if version > 1 and configuration is None:
        return None
    return SegmentHeader(
        identity=Identity(cluster, node, group),
        sequence=sequence,
        base_index=index,
        base_term=term,
        next_position=position,
        hard_term=hard_term,
        voted_for=data[_HEADER.size : _HEADER.size + voted].decode(),
        unverified_index=unverified,
        configuration=configuration,
    )


def _configuration_behind(data: bytes, sequence: int) -> bytes | None:
    """Return the payload of the record that is part of a header, None if it is not sound."""
    record = decode_record_header(data, HEADER_BYTES, address_of(sequence, HEADER_BYTES))
    if record is None or record.kind != Kind.CONFIGURATION:
        return None
    return payload_at(data, HEADER_BYTES, record)


def encode_mark(mark: DurableMark, identity: Identity) -> bytes:
    fields = _MARK.pack(MARK_MAGIC, mark.address, mark.last_index, mark.hard_term)
    return _sealed(fields, MARK_BYTES, _seed(identity))


def decode_mark(data: bytes, identity: Identity) -> DurableMark | None:
    """Return the mark, None if it is torn, damaged or another journal's."""
    if not _is_sealed(data, MARK_BYTES, _seed(identity)) or not data.startswith(MARK_MAGIC):
        return None
    _, address, last_index, hard_term = _MARK.unpack_from(data)
    return DurableMark(address, last_index, hard_term)


def _seed(identity: Identity) -> int:
    return (identity.cluster_hash ^ identity.node_hash ^ identity.group_id) & 0xFFFFFFFF


def _sealed(fields: bytes, size: int, seed: int = 0) -> bytes:
    body = fields.ljust(size - _CHECKSUM.size, b"\0")
    return body + _CHECKSUM.pack(crc32c(body, seed))


def _is_sealed(data: bytes, size: int, seed: int = 0) -> bool:
    if len(data) < size:
        return False
    body = data[: size - _CHECKSUM.size]
    (checksum,) = _CHECKSUM.unpack_from(data, size - _CHECKSUM.size)
    return bool(crc32c(body, seed) == checksum)
