"""The better of two random choices."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from shards.domain.placement import Candidate, choose


def broker(name: str, used: int, leased: int) -> Candidate:
    return Candidate(name, f"session of {name}", used, leased)


candidates = st.lists(
    st.builds(
        Candidate,
        st.text(max_size=3),
        st.text(max_size=3),
        st.integers(0, 20),
        st.integers(0, 20),
    ),
    max_size=8,
)
draws = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))


def test_nobody_is_chosen_from_nobody() -> None:
    assert choose([], (1, 2)) is None


def test_of_two_the_emptier_by_fraction_wins_whoever_is_drawn_first() -> None:
    brokers = [broker("half", 50, 100), broker("third", 4, 12)]

    assert choose(brokers, (0, 0)) == 1
    assert choose(brokers, (1, 0)) == 1


def test_of_equals_the_first_drawn_wins() -> None:
    brokers = [broker("a", 5, 10), broker("b", 5, 10)]

    assert choose(brokers, (0, 7)) == 0
    assert choose(brokers, (1, 7)) == 1


def test_a_full_broker_is_passed_over() -> None:
    brokers = [broker("full", 10, 10), broker("nearly", 9, 10), broker("none", 0, 0)]

    assert {choose(brokers, (first, second)) for first in range(5) for second in range(5)} == {1}


def test_when_all_are_full_nobody_is_chosen() -> None:
    assert choose([broker("a", 3, 3), broker("b", 4, 3), broker("c", 0, 0)], (5, 6)) is None


@given(candidates, draws)
def test_the_chosen_one_has_room_and_somebody_is_chosen_while_anybody_has(
    brokers: list[Candidate], draw: tuple[int, int]
) -> None:
    place = choose(brokers, draw)

    if place is None:
        assert not any(each.has_room for each in brokers)
    else:
        assert brokers[place].has_room


def test_many_choices_fill_brokers_evenly() -> None:
    chance = random.Random(7)
    used = [0, 0, 0, 0]
    for _ in range(400):
        brokers = [broker(str(place), count, 1_000) for place, count in enumerate(used)]
        place = choose(brokers, (chance.getrandbits(32), chance.getrandbits(32)))
        assert place is not None
        used[place] += 1

    assert max(used) - min(used) <= 6
