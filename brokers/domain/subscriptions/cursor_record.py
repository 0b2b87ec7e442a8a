"""The stored form of a cursor: msgpack that begins with a version. It must be readable for ever.

    [1, kind, [ledger, entry], ranges, partial, properties]

``ranges`` is [ledger, numbers] per ledger. Each interval has two numbers: its distance from the end
of the interval before (from 0 for the first), and its number of further entries. So most numbers
take a byte. ``partial`` is [ledger, entry, bits as little-endian bytes] per batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from brokers.domain.position import Position
from brokers.domain.subscriptions.cursor import Cursor, EntriesBetween
from brokers.domain.subscriptions.kind import SubscriptionKind
from nextgen.kernel.limits.pulsar import ACK_SET_WORDS_MAX

_VERSION = 1
_ACK_SET_BYTES_MAX = 8 * ACK_SET_WORDS_MAX


class UnknownCursorVersion(Exception):
    """The record was written by a later release."""


@dataclass(frozen=True, slots=True)
class CursorRecord:
    """The stored content of a cursor."""

    kind: SubscriptionKind
    cursor: Cursor
    properties: Mapping[str, str]


def encode_cursor(cursor: Cursor, kind: SubscriptionKind, properties: Mapping[str, str]) -> bytes:
    """Return the record of a cursor."""
    ranges: list[tuple[int, list[int]]] = []
    ledger_id, end = -1, 0
    for first, last in cursor.ranges:
        if first.ledger_id != ledger_id:
            ledger_id, end = first.ledger_id, 0
            ranges.append((ledger_id, []))
        ranges[-1][1].extend((first.entry_id - end, last - first.entry_id))
        end = last
    partial = [
        (*position, mask.to_bytes((mask.bit_length() + 7) // 8, "little"))
        for position, mask in cursor.partial.items()
    ]
    mark_delete = tuple(cursor.mark_delete)
    packed: bytes = msgpack.packb(
        (_VERSION, int(kind), mark_delete, ranges, partial, dict(properties))
    )
    return packed


def decode_cursor(stored: bytes, entries_between: EntriesBetween) -> CursorRecord:
    """Decode the result of ``encode_cursor``.

    Raises:
        UnknownCursorVersion: A later release wrote it. Opening the topic with wrong
            acknowledgements would be worse than not opening it.
    """
    fields: list[Any] = msgpack.unpackb(stored)
    if fields[0] != _VERSION:
        raise UnknownCursorVersion(f"cursor record has version {fields[0]}, known is {_VERSION}")
    _, kind, mark_delete, ranges, partial, properties = fields
    cursor = Cursor(Position(*mark_delete), entries_between)
    for ledger_id, numbers in ranges:
        end = 0
        for index in range(0, len(numbers), 2):
            first = Position(ledger_id, end + numbers[index])
            end = first.entry_id + numbers[index + 1]
            cursor.ranges.add_range(first, end)
    for ledger_id, entry_id, bits in partial:
        if len(bits) > _ACK_SET_BYTES_MAX:
            # Earlier releases stored any ack set of a SEEK. Send the entry as a whole.
            continue
        cursor.put_part(Position(ledger_id, entry_id), int.from_bytes(bits, "little"))
    return CursorRecord(SubscriptionKind(kind), cursor, properties)
