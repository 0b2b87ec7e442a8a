from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.key_hash import KEY_SLOTS
from brokers.domain.subscriptions.key_ranges import SplitRanges, StickyRanges
from nextgen.kernel.limits.pulsar import STICKY_RANGES_MAX
from tests.support.costs.processor_time import processor_time, slowness

SAMPLE = range(0, KEY_SLOTS, 37)


def owners(ranges: SplitRanges[str]) -> dict[int, str | None]:
    return {slot: ranges.owner(slot) for slot in SAMPLE}


def test_nobody_owns_anything_where_nobody_is() -> None:
    assert SplitRanges[str]().owner(7) is None
    assert StickyRanges[str]().owner(7) is None


def test_keys_are_shared_about_evenly() -> None:
    ranges: SplitRanges[str] = SplitRanges()
    for name in "abcd":
        ranges.add(name, name, ())
    shares = [list(owners(ranges).values()).count(name) / len(SAMPLE) for name in "abcd"]

    assert sum(shares) == pytest.approx(1)
    assert all(0.15 < share < 0.36 for share in shares)


def test_a_consumer_that_joins_or_leaves_moves_only_its_own_slots() -> None:
    ranges: SplitRanges[str] = SplitRanges()
    for name in "abc":
        ranges.add(name, name, ())
    without = owners(ranges)
    ranges.add("d", "d", ())
    with_it = owners(ranges)

    moved = {slot for slot in SAMPLE if without[slot] != with_it[slot]}
    assert {with_it[slot] for slot in moved} == {"d"}
    ranges.remove("d")
    assert owners(ranges) == without
    ranges.remove("a")
    for slot, owner in owners(ranges).items():
        assert owner in "bc"
        assert without[slot] in ("a", owner)


def test_members_of_one_name_share_as_others_do() -> None:
    ranges: SplitRanges[int] = SplitRanges()
    for member in (1, 2, 3):
        ranges.add(member, "same", ())
    found = [ranges.owner(slot) for slot in SAMPLE]
    assert all(found.count(member) > len(SAMPLE) / 5 for member in (1, 2, 3))

    ranges.remove(2)
    ranges.add(4, "same", ())

    assert [ranges.owner(slot) for slot in SAMPLE] == [4 if each == 2 else each for each in found]


def test_a_slot_at_a_point_belongs_to_the_point_and_the_ring_closes() -> None:
    ranges: SplitRanges[str] = SplitRanges(points_per_member=1)
    ranges.add("a", "a", ())
    ranges.add("b", "b", ())
    found = [ranges.owner(slot) for slot in range(KEY_SLOTS)]

    changes = [slot for slot in range(1, KEY_SLOTS) if found[slot] != found[slot - 1]]
    assert len(changes) == 2
    assert found[0] == found[-1]


def test_split_consumers_may_not_ask_for_ranges() -> None:
    with pytest.raises(Refusal):
        SplitRanges[str]().add("a", "a", ((0, 1),))


def test_sticky_slots_are_those_asked_for() -> None:
    ranges: StickyRanges[str] = StickyRanges()
    ranges.add("a", "a", ((10, 19), (30, 30)))
    ranges.add("b", "b", ((20, 29),))

    found = {slot: ranges.owner(slot) for slot in (9, 10, 19, 20, 29, 30, 31)}
    assert found == {9: None, 10: "a", 19: "a", 20: "b", 29: "b", 30: "a", 31: None}
    ranges.remove("a")
    assert [ranges.owner(slot) for slot in (10, 20, 30)] == [None, "b", None]


def test_sticky_ranges_are_so_many_at_most() -> None:
    ranges: StickyRanges[str] = StickyRanges()
    wanted = [(2 * n, 2 * n) for n in range(STICKY_RANGES_MAX + 1)]

    with pytest.raises(Refusal) as refused:
        ranges.add("a", "a", wanted)
    assert refused.value.code is ServerError.CONSUMER_ASSIGN
    ranges.add("a", "a", wanted[:-1])

    assert ranges.owner(2 * STICKY_RANGES_MAX - 2) == "a"


SOME_RANGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 8)).map(lambda it: (it[0], it[0] + it[1])),
    min_size=1,
    max_size=4,
)


@given(st.lists(SOME_RANGES, max_size=8))
def test_sticky_ranges_are_refused_where_they_touch_what_is_owned(asked: list[Any]) -> None:
    ranges: StickyRanges[int] = StickyRanges()
    owned: dict[int, int] = {}

    for member, wanted in enumerate(asked):
        slots = [slot for first, last in wanted for slot in range(first, last + 1)]
        is_free = len(slots) == len(set(slots)) and not owned.keys() & set(slots)
        try:
            ranges.add(member, "", wanted)
        except Refusal:
            assert not is_free
        else:
            assert is_free
            owned.update(dict.fromkeys(slots, member))

    assert all(ranges.owner(slot) == owned.get(slot) for slot in range(70))


def test_sticky_ranges_beside_as_many_as_there_are_slots_cost_one_search_each() -> None:
    """Each was compared with each: a second for a thousand beside sixty thousand."""
    ranges: StickyRanges[int] = StickyRanges()
    *others, last = range(0, KEY_SLOTS - STICKY_RANGES_MAX + 1, STICKY_RANGES_MAX)
    for first in others:
        ranges.add(first, "", [(first + n, first + n) for n in range(STICKY_RANGES_MAX)])

    with processor_time() as taken:
        ranges.add(last, "", [(last + n, last + n) for n in range(STICKY_RANGES_MAX)])

    assert taken.seconds < 0.2 * slowness()
