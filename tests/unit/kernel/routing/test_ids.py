import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.ids import ID_DIGITS, ID_ENTROPY_BYTES, is_id, mint_id, slot_of_id

slots = st.integers(0, SLOT_COUNT - 1)
entropies = st.binary(min_size=ID_ENTROPY_BYTES, max_size=ID_ENTROPY_BYTES)
ENTROPY = bytes(range(ID_ENTROPY_BYTES))


def test_an_id_is_its_slot_and_its_random_bits_in_hex() -> None:
    assert mint_id(0x2AB, ENTROPY) == "02ab00010203040506070809"


@given(slots, entropies)
def test_an_id_says_which_slot_it_was_born_in(slot: int, entropy: bytes) -> None:
    internal_id = mint_id(slot, entropy)

    assert len(internal_id) == ID_DIGITS
    assert int(internal_id[:4], 16) == slot
    assert slot_of_id(internal_id) == slot


@given(slots, entropies, entropies)
def test_ids_differ_when_their_random_bits_do(slot: int, one: bytes, other: bytes) -> None:
    assert (mint_id(slot, one) == mint_id(slot, other)) == (one == other)


@pytest.mark.parametrize("slot", [-1, SLOT_COUNT])
def test_no_id_is_born_in_a_slot_out_of_range(slot: int) -> None:
    with pytest.raises(AssertionError, match="out of range"):
        mint_id(slot, ENTROPY)


@pytest.mark.parametrize("size", [0, ID_ENTROPY_BYTES - 1, ID_ENTROPY_BYTES + 1])
def test_an_id_needs_exactly_its_random_bits(size: int) -> None:
    with pytest.raises(AssertionError, match="80 random bits"):
        mint_id(1, b"\x00" * size)


@given(slots, entropies)
def test_what_is_minted_is_recognised_as_an_id(slot: int, entropy: bytes) -> None:
    assert is_id(mint_id(slot, entropy))


@pytest.mark.parametrize(
    "text", ["", "0" * 23, "0" * 25, "0" * 23 + "A", "0" * 23 + "g", "0" * 24 + "\n"]
)
def test_anything_else_is_no_id(text: str) -> None:
    assert not is_id(text)
