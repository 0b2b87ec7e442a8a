import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.subscriptions.ack_set import all_open, mask_of, word_count, words_of
from tests.support.costs.processor_time import processor_time


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


@given(st.lists(st.integers(min_value=-(2**63), max_value=2**64 - 1), max_size=50))
def test_a_mask_is_the_sum_of_its_words_by_their_places(words: list[int]) -> None:
    expected = 0
    for index, word in enumerate(words):
        expected |= (word & 2**64 - 1) << 64 * index

    assert mask_of(words) == expected


@given(st.integers(min_value=0, max_value=2**200))
def test_the_word_count_is_that_of_the_words(mask: int) -> None:
    assert word_count(mask) == len(words_of(mask))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_mask_of_a_frame_full_of_words_costs_as_many_times_a_small_one(sign: int) -> None:
    """Shifting word by word took 37 s for 240,000: its cost grew with the square."""
    words = [sign * (2**63 - 1)] * 240_000

    with processor_time() as taken:
        mask = mask_of(words)

    assert words_of(mask) == tuple(words)
    assert taken.seconds < 1
