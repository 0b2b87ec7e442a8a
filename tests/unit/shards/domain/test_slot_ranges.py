"""Arithmetic on ranges of slots is that on sets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shards.domain.slots.events import SlotRanges, overlap, united, within, without

SLOTS = st.frozensets(st.integers(0, 12))


def ranges_of(slots: frozenset[int]) -> SlotRanges:
    return united(tuple((slot, slot) for slot in slots), ())


def slots_of(ranges: SlotRanges) -> frozenset[int]:
    return frozenset(slot for first, last in ranges for slot in range(first, last + 1))


@given(SLOTS)
def test_ranges_are_ascending_and_do_not_touch(slots: frozenset[int]) -> None:
    ranges = ranges_of(slots)

    assert slots_of(ranges) == slots
    assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))


@given(SLOTS, SLOTS)
def test_arithmetic_on_ranges_is_that_on_sets(one: frozenset[int], other: frozenset[int]) -> None:
    first, second = ranges_of(one), ranges_of(other)

    assert united(first, second) == ranges_of(one | other)
    assert without(first, second) == ranges_of(one - other)
    assert within(first, second) == (one <= other)
    assert overlap(first, second) == bool(one & other)
