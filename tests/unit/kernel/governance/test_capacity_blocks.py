"""First blocks, and what a shard keeps when it gives back."""

from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.governance.capacity_blocks import first_block, units_to_keep


def test_first_blocks_of_all_shards_leave_half_of_a_broker():
    assert first_block(80, 4) == 10
    assert first_block(3, 4) == 1
    assert first_block(0, 0) == 1


def test_half_as_much_again_as_was_needed_is_kept():
    assert units_to_keep(units=100, needed=20, first=10) == 30
    assert units_to_keep(units=100, needed=21, first=10) == 32


def test_a_first_block_is_never_returned():
    assert units_to_keep(units=100, needed=0, first=10) == 10
    assert units_to_keep(units=8, needed=0, first=10) == 8


def test_less_than_a_quarter_is_not_worth_returning():
    assert units_to_keep(units=100, needed=50, first=10) == 75
    assert units_to_keep(units=100, needed=51, first=10) == 100


@given(units=st.integers(0, 10**6), needed=st.integers(0, 10**6), first=st.integers(1, 10**5))
def test_what_is_kept_covers_what_was_needed_and_is_no_more_than_there_is(units, needed, first):
    keep = units_to_keep(units=units, needed=needed, first=first)

    assert min(units, needed) <= keep <= units
    # Or it would be asked for again at once.
    assert keep == units or 5 * needed <= 4 * keep
