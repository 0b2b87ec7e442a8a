from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.replication.protocol.quorum import majority_of, next_commit_index, reached_by_majority


@pytest.mark.parametrize(("members", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(members: int, majority: int) -> None:
    assert majority_of(members) == majority


@given(st.lists(st.integers(0, 100), min_size=1, max_size=7))
def test_a_majority_has_reached_the_result_and_none_has_reached_more(values) -> None:
    reached = reached_by_majority(values)

    assert sum(value >= reached for value in values) >= majority_of(len(values))
    assert sum(value > reached for value in values) < majority_of(len(values))


def test_an_entry_of_this_term_takes_the_earlier_ones_with_it() -> None:
    terms = {1: 1, 2: 1, 3: 2}

    assert next_commit_index(3, commit_index=0, term=2, term_of=terms.__getitem__) == 3


def test_an_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    """Raft paper, figure 8: a later leader could still replace it."""
    terms = {1: 1, 2: 1}

    assert next_commit_index(2, commit_index=0, term=2, term_of=terms.__getitem__) == 0


def test_the_commit_index_never_falls() -> None:
    assert next_commit_index(1, commit_index=2, term=1, term_of=lambda _: 1) == 2
