"""The hash of a message's key, and the three numbers that are taken from it.

One unmasked Murmur3 of the key's UTF-8, seed 0. Its high half chooses the segment, its low half the
entry bucket (PIP-486), and its low 31 bits the partition of a classic topic.
"""

from __future__ import annotations

import mmh3

_INT31_MAX = 0x7FFF_FFFF


def key_hash(key: str) -> int:
    """Return the unsigned 32-bit hash of ``key``."""
    return mmh3.hash(key.encode(), 0, signed=False)


def segment_hash(hash32: int) -> int:
    return hash32 >> 16


def bucket_hash(hash32: int) -> int:
    return hash32 & 0xFFFF


def classic_partition(hash32: int, partitions: int) -> int:
    """Return the partition that a stock client of classic topics chooses."""
    return (hash32 & _INT31_MAX) % partitions
