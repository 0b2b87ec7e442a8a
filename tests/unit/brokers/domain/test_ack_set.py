from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.ack_set import all_open, mask_of, words_of


def test_words_are_javas_lowest_first_and_signed() -> None:
    assert words_of(0) == ()
    assert words_of(0b101) == (5,)
    assert words_of(1 << 63) == (-(2**63),)
    assert words_of(1 << 64 | 1) == (1, 1)
    assert words_of(all_open(64)) == (-1,)
    assert words_of(all_open(65)) == (-1, 1)


def test_words_may_come_unsigned_and_with_empty_ones_behind() -> None:
    assert mask_of([2**64 - 1, 0, 0]) == mask_of([-1]) == all_open(64)
    assert mask_of([]) == 0


@given(st.integers(min_value=0, max_value=2**200))
def test_a_mask_survives_the_wire(mask: int) -> None:
    words = words_of(mask)

    assert mask_of(words) == mask
    assert all(-(2**63) <= word < 2**63 for word in words)
    assert not words or words[-1] != 0
