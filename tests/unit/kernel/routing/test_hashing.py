from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.hashing import hash64, slot_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0x2D06800538D394C2),  # Published for the empty input by xxHash itself.
        ("public/default/orders", 0x5B38E7D86EA7FA3D),
        ("caf\u00e9", 0x4C83DBD5F29D367F),
    ],
)
def test_the_hash_never_changes(key: str, expected: int) -> None:
    """Every key already stored is where this function says: a change would lose it."""
    assert hash64(key) == expected


@given(st.text())
def test_a_slot_is_the_low_bits_of_the_hash(key: str) -> None:
    assert slot_of(key) == hash64(key) % SLOT_COUNT
    assert 0 <= hash64(key) < 2**64


def test_similar_keys_spread_over_the_slots() -> None:
    slots = Counter(slot_of(f"public/default/orders-{number}") for number in range(SLOT_COUNT))

    assert len(slots) > 0.6 * SLOT_COUNT
    assert max(slots.values()) < 12
