"""The stable 64-bit hash that everything routes by."""

from __future__ import annotations

import xxhash

from nextgen.kernel.limits.cluster import SLOT_COUNT

_SLOT_MASK = SLOT_COUNT - 1


def hash64(key: str) -> int:
    """Return the unsigned 64-bit xxh3 of ``key`` in UTF-8. The same on every machine, for ever."""
    return xxhash.xxh3_64_intdigest(key.encode())


def slot_of(key: str) -> int:
    """Return the slot of a routing key, 0 to ``SLOT_COUNT - 1``."""
    return xxhash.xxh3_64_intdigest(key.encode()) & _SLOT_MASK
