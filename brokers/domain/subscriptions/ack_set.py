"""Ack sets: a bit for each message of a batch, set while the message is not acknowledged.

On the wire it is an array of Java's ``BitSet.toLongArray``: signed 64-bit words, lowest first. Here
it is one integer, because Python's integers have any length.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_WORD_BITS = 64
_WORD_BYTES = 8
_WORD_MASK = 2**_WORD_BITS - 1


def mask_of(words: Sequence[int]) -> int:
    """Return the bits of ``words``, which may be signed or unsigned, in linear time."""
    try:
        packed = struct.pack(f"<{len(words)}q", *words)
    except struct.error:
        packed = struct.pack(f"<{len(words)}Q", *(word & _WORD_MASK for word in words))
    return int.from_bytes(packed, "little")


def words_of(mask: int) -> tuple[int, ...]:
    """Return the bits as signed words without empty ones at the end."""
    count = word_count(mask)
    return struct.unpack(f"<{count}q", mask.to_bytes(count * _WORD_BYTES, "little"))


def word_count(mask: int) -> int:
    """Return how many words ``words_of`` would return."""
    return (mask.bit_length() + _WORD_BITS - 1) // _WORD_BITS


def all_open(message_count: int) -> int:
    """Return the mask of a batch without an acknowledged message."""
    return (1 << message_count) - 1
