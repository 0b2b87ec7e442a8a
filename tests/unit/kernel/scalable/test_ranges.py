"""Ranges of 16-bit hashes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.scalable.ranges import (
    HASH_MAX,
    HASHES,
    WHOLE_RANGE,
    HashRange,
    are_tiling,
    initial_ranges,
)

ranges = st.tuples(st.integers(0, HASH_MAX), st.integers(0, HASH_MAX)).map(
    lambda ends: HashRange(min(ends), max(ends))
)


@pytest.mark.parametrize(
    ("whole", "lower", "upper"),
    [
        ((0, 0xFFFF), (0, 0x7FFF), (0x8000, 0xFFFF)),
        ((0, 2), (0, 1), (2, 2)),
        ((7, 8), (7, 7), (8, 8)),
    ],
)
def test_the_lower_half_of_an_odd_range_is_the_larger_one(whole, lower, upper):
    assert HashRange(*whole).split() == (HashRange(*lower), HashRange(*upper))


@given(ranges.filter(lambda each: each.size > 1))
def test_halves_make_the_range_again(whole):
    lower, upper = whole.split()

    assert lower.is_adjacent(upper)
    assert upper.is_adjacent(lower)
    assert lower.union(upper) == upper.union(lower) == whole


def test_the_space_of_hashes_is_no_circle():
    assert not HashRange(0, 7).is_adjacent(HashRange(0xFFF0, HASH_MAX))
    assert not HashRange(0, 7).is_adjacent(HashRange(9, 10))
    assert not HashRange(0, 7).is_adjacent(HashRange(7, 10))


def test_the_last_range_of_a_new_topic_has_the_remainder():
    assert initial_ranges(1) == (WHOLE_RANGE,)
    assert initial_ranges(3) == (
        HashRange(0, 21844),
        HashRange(21845, 43689),
        HashRange(43690, HASH_MAX),
    )


@given(st.integers(1, 3_000) | st.just(HASHES))
def test_ranges_of_a_new_topic_tile(count):
    made = initial_ranges(count)

    assert len(made) == count
    assert are_tiling(reversed(made))


@pytest.mark.parametrize(
    "broken",
    [
        [],
        [HashRange(0, HASH_MAX - 1)],
        [HashRange(1, HASH_MAX)],
        [HashRange(0, 7), HashRange(7, HASH_MAX)],
        [HashRange(0, 7), HashRange(9, HASH_MAX)],
        [WHOLE_RANGE, WHOLE_RANGE],
        [HashRange(0, HASH_MAX), HashRange(HASHES, HASHES - 1)],
    ],
)
def test_gaps_and_overlaps_do_not_tile(broken):
    assert not are_tiling(broken)
