"""LOOKUP and PARTITIONED_METADATA without protobuf objects: what discovery answers most.

A protobuf message costs a microsecond or two to read, and as much to write, in Python. These two
commands are nearly always the same few bytes around a topic and a request id, so they are read
and answered by hand. Whatever is unusual is left to the general codec: ``parse_fast`` returns
None for it and never guesses. The tests hold both codecs against each other.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from protos.pulsar.PulsarApi_pb2 import CommandLookupTopicResponse

_SIZES = struct.Struct(">II")
_SIZE_BYTES = 4
_new = tuple.__new__

_LOOKUP = b"\x08\x17\xba\x01"
"""type = LOOKUP, then the tag of field 23."""

_PARTITIONED_METADATA = b"\x08\x15\xaa\x01"
"""type = PARTITIONED_METADATA, then the tag of field 21."""

_LOOKUP_RESPONSE = b"\x08\x18\xc2\x01"
"""type = LOOKUP_RESPONSE, then the tag of field 24."""

_PARTITIONED_METADATA_RESPONSE = b"\x08\x16\xb2\x01"
"""type = PARTITIONED_METADATA_RESPONSE, then the tag of field 22."""

_LOOKUP_HEAD = int.from_bytes(_LOOKUP, "big")
_PARTITIONED_METADATA_HEAD = int.from_bytes(_PARTITIONED_METADATA, "big")
_FRAME_HEAD = struct.Struct(">IIIBBB")
"""Both sizes, type and tag, the inner size and the topic's tag and length, each below 128."""

_FRAME_HEAD_BYTES = _FRAME_HEAD.size
_FRAME_INNER_AT = 5
"""Type, tag and inner size: what of a command is not in its inner size."""

_HEAD_BYTES = len(_LOOKUP)
_TOPIC_AT = 7
_TOPIC = 0x0A
_REQUEST_ID = 0x10

_LOOKUP_TAILS = frozenset({b"", b"\x18\x00", b"\x18\x00\x3a\x00", b"\x3a\x00"})
"""What may follow the request id of a LOOKUP: not authoritative, no listener's name."""

_PARTITIONS_TAILS = frozenset({b"", b"\x30\x00", b"\x30\x01"})
"""What may follow the request id of a PARTITIONED_METADATA: with or without creation."""

_LOOKUP_FIELDS = frozenset({b"\x18\x00", b"\x3a\x00"})
_PARTITIONS_FIELDS = frozenset({b"\x30\x00", b"\x30\x01"})

_REQUEST_ID_BITS_MAX = 63
"""Nine bytes of a varint. The tenth has rules of its own, and no client has counted that far."""

_NUMBER_BYTES_MAX = 9
_NUMBER_SIZES = range(_NUMBER_BYTES_MAX + 1)
"""Bytes that a request id takes; none takes 0, which makes a size a place in a tuple."""

_KEPT = 4_096
"""Beginnings of answers that are made once: one for each length, and for each partition count."""

_LOW_NUMBERS = tuple(bytes((number,)) for number in range(128))


class FastLookup(NamedTuple):
    """A LOOKUP, or else a PARTITIONED_METADATA, of ``topic`` as the client spelled it."""

    is_lookup: bool
    topic: str
    request_id: int


def parse_fast(command: bytes) -> FastLookup | None:
    """Return what ``command`` asks, or None when the general codec has to look at it.

    Not None means: this is what ``parse_command`` would find; a LOOKUP is not authoritative and
    names no listener, nobody speaks for somebody else, and nothing else is in it. Whether a
    PARTITIONED_METADATA may create the topic is not told: ask the general codec about topics
    that do not exist.
    """
    # Written out flat, without calls: this runs once for each lookup a client makes.
    try:
        head = command[:_HEAD_BYTES]
        is_lookup = head == _LOOKUP
        if not is_lookup and head != _PARTITIONED_METADATA:
            return None
        size = command[4]
        topic_end = _TOPIC_AT + command[6]
        if (
            size >= 0x80
            or size + 5 != len(command)
            or command[5] != _TOPIC
            or command[6] >= 0x80
            or command[topic_end] != _REQUEST_ID
        ):
            return _parse_any_order(command, is_lookup)
        request_id = command[topic_end + 1]
        at = topic_end + 2
        shift = 7
        while request_id >> shift:
            if shift == _REQUEST_ID_BITS_MAX:
                return None
            # The flag of the byte before is taken off by adding one less than what follows.
            request_id += (command[at] - 1) << shift
            at += 1
            shift += 7
        if command[at:] not in (_LOOKUP_TAILS if is_lookup else _PARTITIONS_TAILS):
            return _parse_any_order(command, is_lookup)
        return _new(FastLookup, (is_lookup, command[_TOPIC_AT:topic_end].decode(), request_id))
    except (IndexError, UnicodeDecodeError):
        return None


def lookup_answer_prefix(broker_url: str, broker_url_tls: str = "") -> bytes:
    """Return what all answers that send a client to one broker have in common.

    They say Connect, authoritatively. A URL that is empty is left out.
    """
    response = CommandLookupTopicResponse(
        response=CommandLookupTopicResponse.Connect, authoritative=True
    )
    if broker_url:
        response.brokerServiceUrl = broker_url
    if broker_url_tls:
        response.brokerServiceUrlTls = broker_url_tls
    # The request id comes last, so that an answer is three pieces, two of them ready.
    return response.SerializePartialToString() + b"\x20"


def lookup_answer_frame(prefix: bytes, request_id: int) -> bytes:
    """Return the LOOKUP_RESPONSE that ``lookup_answer_prefix`` began, as a frame."""
    number = _LOW_NUMBERS[request_id] if request_id < 0x80 else _varint(request_id)
    return _lookup_answer_head(len(prefix) + len(number)) + prefix + number


def partitions_answer_frame(partitions: int, request_id: int) -> bytes:
    """Return the PARTITIONED_METADATA_RESPONSE that says Success, as a frame.

    ``partitions`` is 0 for a topic that is not partitioned.
    """
    prefix = _partitions_answer_prefix(partitions)
    number = _LOW_NUMBERS[request_id] if request_id < 0x80 else _varint(request_id)
    return _partitions_answer_head(len(prefix) + len(number)) + prefix + number


def lookup_answer_beginnings(broker_url: str) -> tuple[bytes, ...]:
    """Return, by the number of bytes that a request id takes, all of an answer's frame before it.

    ``beginnings[len(number)] + number`` is the frame, ``number`` being the request id as the
    client encoded it. There are as many as ``answer_burst`` may ask for.
    """
    prefix = lookup_answer_prefix(broker_url)
    return tuple(_lookup_answer_head(len(prefix) + size) + prefix for size in _NUMBER_SIZES)


@lru_cache(maxsize=_KEPT)
def partitions_answer_beginnings(partitions: int) -> tuple[bytes, ...]:
    """As ``lookup_answer_beginnings``, of answers that say how many partitions there are."""
    prefix = _partitions_answer_prefix(partitions)
    return tuple(_partitions_answer_head(len(prefix) + size) + prefix for size in _NUMBER_SIZES)


class KnownAnswers(Protocol):
    """What can be answered at once. Each returns the beginnings of its answers, or None."""

    def lookup(self, topic: str, now: float) -> Sequence[bytes] | None: ...

    def partitions(self, topic: str, now: float) -> Sequence[bytes] | None: ...


def answer_burst(
    data: bytes, at: int, known: KnownAnswers, now: float, answers: list[bytes]
) -> tuple[int, int]:
    """Answer the commands that ``data`` has from ``at`` on, up to the first that is not for here.

    ``answers`` gets two pieces for each, which make whole frames when joined. Returns where the
    first one not answered begins, and how many of those answered are LOOKUPs. Not for here is
    whatever ``parse_fast`` leaves to others, spells the usual fields in an unusual way, is not
    complete, or is not ``known``.
    """
    # Written out flat, like parse_fast. A request id is never decoded: the bytes that encode it
    # are the end of the answer.
    kinds = {
        _LOOKUP_HEAD: (_LOOKUP_TAILS, known.lookup),
        _PARTITIONED_METADATA_HEAD: (_PARTITIONS_TAILS, known.partitions),
    }
    lookups = 0
    end = len(data)
    try:
        while at < end:
            total, size, head, inner, tag, length = _FRAME_HEAD.unpack_from(data, at)
            tails, find = kinds[head]
            behind = at + _SIZE_BYTES + total
            topic_at = at + _FRAME_HEAD_BYTES
            number_at = topic_at + length + 1
            if (
                behind > end
                or total != size + _SIZE_BYTES
                or inner + _FRAME_INNER_AT != size
                or tag != _TOPIC
                or number_at >= behind
                or data[number_at - 1] != _REQUEST_ID
            ):
                break
            number_end = number_at + 1
            while data[number_end - 1] >= 0x80:
                number_end += 1
            number_bytes = number_end - number_at
            if number_bytes > _NUMBER_BYTES_MAX or data[number_end:behind] not in tails:
                break
            beginnings = find(data[topic_at : number_at - 1].decode(), now)
            if not beginnings:
                break
            answers += (beginnings[number_bytes], data[number_at:number_end])
            lookups += head == _LOOKUP_HEAD
            at = behind
    except (struct.error, KeyError, IndexError, UnicodeDecodeError):
        # Not complete, of another kind, or not what it looked like: the general codec will say.
        pass
    return at, lookups


def _parse_any_order(command: bytes, is_lookup: bool) -> FastLookup | None:
    """Read the fields whatever their order and size.

    Topic and request id once; the others mean nothing here, however often they come.
    """
    size, at = _read_varint(command, _HEAD_BYTES)
    end = at + size
    if end != len(command):
        return None
    topic: str | None = None
    request_id: int | None = None
    harmless = _LOOKUP_FIELDS if is_lookup else _PARTITIONS_FIELDS
    while at < end:
        tag = command[at]
        if tag == _TOPIC and topic is None:
            size, at = _read_varint(command, at + 1)
            if size > end - at:
                return None
            topic = command[at : at + size].decode()
            at += size
        elif tag == _REQUEST_ID and request_id is None:
            request_id, at = _read_varint(command, at + 1)
        elif command[at : at + 2] in harmless:
            at += 2
        else:
            return None
    if topic is None or request_id is None:
        return None
    return FastLookup(is_lookup, topic, request_id)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of at most nine bytes and where it ends; ``IndexError`` for any other."""
    number = 0
    for shift in range(0, _REQUEST_ID_BITS_MAX, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise IndexError("a number of more than nine bytes")


def _varint(number: int) -> bytes:
    if number < 1 << 14:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 1 << 21:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _length(size: int) -> bytes:
    return _LOW_NUMBERS[size] if size < 0x80 else _varint(size)


@lru_cache(maxsize=_KEPT)
def _lookup_answer_head(inner_bytes: int) -> bytes:
    return _frame_head(_LOOKUP_RESPONSE + _length(inner_bytes), inner_bytes)


@lru_cache(maxsize=_KEPT)
def _partitions_answer_head(inner_bytes: int) -> bytes:
    return _frame_head(_PARTITIONED_METADATA_RESPONSE + _length(inner_bytes), inner_bytes)


@lru_cache(maxsize=_KEPT)
def _partitions_answer_prefix(partitions: int) -> bytes:
    return b"\x08" + _length(partitions) + b"\x18\x00\x10"


def _frame_head(begin: bytes, inner_bytes: int) -> bytes:
    command_bytes = len(begin) + inner_bytes
    return _SIZES.pack(_SIZE_BYTES + command_bytes, command_bytes) + begin
