"""LOOKUP and PARTITIONED_METADATA, discovery's most frequent commands, without protobuf objects.

A protobuf message costs a microsecond or two to read, and as much to write, in Python. These two
commands are nearly always the same few bytes around a topic and a request id, so they are read
and answered by hand, a whole read at a time. ``answer_burst`` stops at anything unusual and leaves
it to the general codec. The tests compare both codecs with each other.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence, Set
from functools import lru_cache
from typing import Protocol

from nextgen.pulsar.service_urls import split_urls
from protos.pulsar.PulsarApi_pb2 import CommandLookupTopicResponse

_SIZES = struct.Struct(">II")
_SIZE_BYTES = 4

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
"""Bytes of type, tag and inner size: those of a command that its inner size does not count."""

_TOPIC = 0x0A
_REQUEST_ID = 0x10

_LOOKUP_TAILS = frozenset({b"", b"\x18\x00", b"\x18\x00\x3a\x00", b"\x3a\x00"})
"""What may follow the request id of a LOOKUP: not authoritative, no listener's name."""

_PARTITIONS_TAILS = frozenset({b"", b"\x30\x00", b"\x30\x01"})
"""What may follow the request id of a PARTITIONED_METADATA: with or without creation."""

_NUMBER_BYTES_MAX = 9
"""Bytes of a varint. A tenth has rules of its own, and no client's request ids reach it."""

_NUMBER_SIZES = range(_NUMBER_BYTES_MAX + 1)
"""Possible bytes of a request id; 0 does not occur and makes the size an index of a tuple."""

_KEPT = 4_096
"""Entries of each cache of answers' beginnings."""

_LOW_NUMBERS = tuple(bytes((number,)) for number in range(128))


@lru_cache(maxsize=_KEPT)
def lookup_answer_beginnings(broker_url: str) -> tuple[bytes, ...]:
    """Return the part of an answer's frame before the request id, by the id's number of bytes.

    The answer is Connect to ``broker_url`` (see ``service_urls``), authoritative; the request id
    comes last.

    ``beginnings[len(number)] + number`` is the frame, where ``number`` is the request id as the
    client encoded it. There is one for each length that ``answer_burst`` uses.
    """
    urls = split_urls(broker_url)
    response = CommandLookupTopicResponse(
        brokerServiceUrl=urls.plain or None,
        brokerServiceUrlTls=urls.tls or None,
        response=CommandLookupTopicResponse.Connect,
        authoritative=True,
    )
    prefix = response.SerializePartialToString() + b"\x20"
    return tuple(_lookup_answer_head(len(prefix) + size) + prefix for size in _NUMBER_SIZES)


@lru_cache(maxsize=_KEPT)
def partitions_answer_beginnings(partitions: int) -> tuple[bytes, ...]:
    """As ``lookup_answer_beginnings``, for answers with a number of partitions."""
    prefix = _partitions_answer_prefix(partitions)
    return tuple(_partitions_answer_head(len(prefix) + size) + prefix for size in _NUMBER_SIZES)


class KnownAnswers(Protocol):
    """The cached answers. Each method returns the beginnings of an answer, or None."""

    def lookup(self, topic: str, now: float) -> Sequence[bytes] | None: ...

    def partitions(self, topic: str, now: float) -> Sequence[bytes] | None: ...


def answer_burst(
    data: bytes,
    at: int,
    known: KnownAnswers,
    now: float,
    answers: list[bytes],
    lookable: Set[bytes] | None = None,
) -> tuple[int, int]:
    """Answer the commands in ``data`` from ``at`` on, up to the first that must be left.

    ``answers`` gets two pieces for each, which make whole frames when joined. Returns where the
    first unanswered command begins, and how many of the answered ones are LOOKUPs. A command is
    left if it has other fields, or the usual ones in unusual encoding, is incomplete, is not
    ``known``, or is about a topic that is not ``lookable``: neither it nor its namespace, by the
    name up to the last slash (see ``Access``). None: all are.
    """
    # Written out flat, without calls: this runs once for each lookup a client makes. A request id
    # is never decoded: the bytes that encode it are the end of the answer.
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
            topic = data[topic_at : number_at - 1]
            if (
                lookable is not None
                and topic[: topic.rfind(b"/")] not in lookable
                and topic not in lookable
            ):
                break
            beginnings = find(topic.decode(), now)
            if not beginnings:
                break
            answers += (beginnings[number_bytes], data[number_at:number_end])
            lookups += head == _LOOKUP_HEAD
            at = behind
    except (struct.error, KeyError, IndexError, UnicodeDecodeError):
        # Incomplete, of another kind, or malformed: left to the general codec.
        pass
    return at, lookups


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
