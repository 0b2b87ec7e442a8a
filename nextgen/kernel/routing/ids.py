"""Internal ids. An id carries the slot it was born in, so a renamed object never moves.

An id is 24 lower-case hexadecimal digits: 4 for the slot, 20 (80 random bits) that make it
unique within the slot. The random bits enter from outside: see ``mint_id``.
"""

from __future__ import annotations

import re

from nextgen.kernel.limits.cluster import SLOT_COUNT

ID_DIGITS = 24
_SLOT_DIGITS = 4
_ID = re.compile(f"[0-9a-f]{{{ID_DIGITS}}}")
ID_ENTROPY_BYTES = 10


def mint_id(slot: int, entropy: bytes) -> str:
    """Return the id made of ``slot`` and ``ID_ENTROPY_BYTES`` random bytes."""
    assert 0 <= slot < SLOT_COUNT, f"slot {slot} is out of range"
    assert len(entropy) == ID_ENTROPY_BYTES, "an id needs exactly 80 random bits"
    return f"{slot:04x}{entropy.hex()}"


def is_id(text: str) -> bool:
    """Return whether ``text`` has the form of an internal id."""
    return _ID.fullmatch(text) is not None


def slot_of_id(internal_id: str) -> int:
    """Return the slot that an id was made in."""
    assert is_id(internal_id), f"{internal_id!a} is no internal id"
    return int(internal_id[:_SLOT_DIGITS], 16)
