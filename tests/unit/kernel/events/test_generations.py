"""The numbers of a generation begin above all that an earlier one can have reached."""

from __future__ import annotations

import pytest

from nextgen.kernel.events.generations import (
    GENERATIONS_MAX,
    begins_generation,
    first_term_of_next_generation,
    generation_of,
    last_epoch_of_generation,
    least_epoch,
    term_number,
)


def test_a_term_of_the_next_generation_is_above_every_term_of_this_one() -> None:
    last = 2**32 - 1

    assert first_term_of_next_generation(0) == first_term_of_next_generation(last) == 2**32
    assert first_term_of_next_generation(2**32 + 7) == 2 * 2**32


def test_no_epoch_below_the_generation_of_the_term_is_handed_out() -> None:
    assert least_epoch(0) == least_epoch(2**32 - 1) == 1
    assert least_epoch(2**32) == least_epoch(2**32 + 12) == 2**32
    assert least_epoch(2 * 2**32 + 1) == 2 * 2**32


def test_an_epoch_begins_a_generation_if_it_is_the_first_of_a_later_one() -> None:
    assert begins_generation(2**32, behind=0)
    assert begins_generation(2**33, behind=2**32 + 5)
    assert not begins_generation(2**32 + 1, behind=3)
    assert not begins_generation(2**32, behind=2**32)
    assert not begins_generation(0, behind=0)


@pytest.mark.parametrize(
    ("epoch", "generation", "last"),
    [(0, 0, 2**32 - 1), (2**32 - 1, 0, 2**32 - 1), (2**32, 1, 2**33 - 1)],
)
def test_an_epoch_belongs_to_one_generation_which_has_a_last_epoch(
    epoch: int, generation: int, last: int
) -> None:
    assert generation_of(epoch) == generation
    assert last_epoch_of_generation(epoch) == last


def test_numbers_of_terms_grow_over_generations_and_stay_small() -> None:
    last = (GENERATIONS_MAX - 1) * 2**32 + 2**20
    terms = [1, 2, 2**20 - 1, 2**32, 2**32 + 1, 2**33, last]

    numbers = [term_number(term) for term in terms]

    assert numbers == sorted(set(numbers))
    assert numbers[:3] == terms[:3], "as it was before there were generations"
    assert numbers[-1] < 2**31
