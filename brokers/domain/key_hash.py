"""Which of 65,536 slots a key belongs to, exactly as Pulsar's brokers compute it.

MurmurHash3 (x86, 32 bits, seed 0) with the sign bit dropped, modulo the number of slots. Slot 0 is
never used: Pulsar keeps it for "no hash".
"""

from __future__ import annotations

import struct
from functools import lru_cache

from nextgen.kernel.pulsar_limits import (
    KEY_CACHED_BYTES_MAX,
    KEY_HASHED_BYTES_MAX,
    KEY_HASHES_CACHED_MAX,
)

KEY_SLOTS = 2**16
_UINT32 = 0xFFFFFFFF
_INT32_MAX = 0x7FFFFFFF
_C1 = 0xCC9E2D51
_C2 = 0x1B873593


def murmur3_32(data: bytes) -> int:
    """Return Pulsar's Murmur3_32Hash of ``data``: 31 bits."""
    hashed = 0
    tail_start = len(data) & ~3
    for (block,) in struct.iter_unpack("<I", data[:tail_start]):
        hashed ^= _scramble(block)
        hashed = (hashed << 13 | hashed >> 19) & _UINT32
        hashed = (hashed * 5 + 0xE6546B64) & _UINT32
    hashed ^= _scramble(int.from_bytes(data[tail_start:], "little"))
    hashed ^= len(data)
    hashed ^= hashed >> 16
    hashed = hashed * 0x85EBCA6B & _UINT32
    hashed ^= hashed >> 13
    hashed = hashed * 0xC2B2AE35 & _UINT32
    hashed ^= hashed >> 16
    return hashed & _INT32_MAX


def key_slot(key: bytes) -> int:
    """Return the slot of a key, 1 to 65,535. Of a very long one only the beginning counts."""
    if len(key) <= KEY_CACHED_BYTES_MAX:
        return _cached_slot(key)
    return _slot(key[:KEY_HASHED_BYTES_MAX])


def _slot(key: bytes) -> int:
    return murmur3_32(key) % KEY_SLOTS or 1


_cached_slot = lru_cache(maxsize=KEY_HASHES_CACHED_MAX)(_slot)


def _scramble(block: int) -> int:
    block = block * _C1 & _UINT32
    block = (block << 15 | block >> 17) & _UINT32
    return block * _C2 & _UINT32
