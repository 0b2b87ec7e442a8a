"""The hash slot (of 65,536) of a message key, exactly as Pulsar's brokers compute it.

MurmurHash3 (x86, 32 bits, seed 0) with the sign bit dropped, modulo the number of slots. Slot 0 is
never used: Pulsar reserves it for "no hash".
"""

from __future__ import annotations

import mmh3

KEY_SLOTS = 2**16
_INT32_MAX = 0x7FFFFFFF
_SEED = 0


def murmur3_32(data: bytes) -> int:
    """Return Pulsar's Murmur3_32Hash of ``data``: 31 bits."""
    return mmh3.hash(data, _SEED, signed=False) & _INT32_MAX


def key_slot(key: bytes) -> int:
    """Return the slot of a key, 1 to 65,535."""
    return murmur3_32(key) % KEY_SLOTS or 1
