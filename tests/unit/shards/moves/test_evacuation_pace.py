"""The last of N units goes N ÷ rate seconds after the first could have."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shards.moves.evacuation_pace import PACE_INTERVAL_SECONDS, Pace, share_of_rate


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def seconds_for(units: int, rate: float) -> float:
    """Let ``units`` go at a pace and return how long it took by the clock."""
    clock = Clock()
    pace = Pace(clock)
    while units:
        clock.now += pace.wait_seconds(rate)
        units -= pace.take(rate, units)
    return clock.now - 100.0


@pytest.mark.parametrize(("units", "rate"), [(10_000, 500), (100, 100), (30, 1), (7, 0.25)])
def test_the_last_unit_goes_when_it_was_foretold(units: int, rate: float) -> None:
    assert seconds_for(units, rate) == pytest.approx(units / rate, rel=0.02, abs=0.25)


@given(st.integers(50, 5_000), st.floats(1, 2_000))
@example(117, 1.5)
def test_the_last_of_any_number_is_within_a_fifth_of_the_foretold_time(
    units: int, rate: float
) -> None:
    foretold = units / rate

    taken = seconds_for(units, rate)

    assert taken >= foretold * 0.8
    assert taken <= foretold * 1.2 + 2 * PACE_INTERVAL_SECONDS


def test_time_without_anything_to_do_is_not_made_up_for() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now += 3_600

    assert pace.take(100, 1_000_000) == 71, "an interval and half a second's worth, and one"
    assert pace.take(100, 1_000_000) == 0


def test_what_was_not_used_may_go_later() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now += 0.2
    taken = pace.take(100, 100)

    pace.give_back(taken)

    assert pace.take(100, 100) == taken == 20


@given(st.lists(st.floats(0.2, 0.7), min_size=1, max_size=60), st.floats(1, 1_000))
def test_never_does_more_go_than_was_earned(pauses: list[float], rate: float) -> None:
    clock = Clock()
    pace = Pace(clock)
    gone = 0

    for pause in pauses:
        clock.now += pause
        gone += pace.take(rate, 1_000_000)
        assert gone <= rate * (clock.now - 100.0) + 1e-6


def test_a_shard_goes_at_its_part_of_the_rate() -> None:
    assert share_of_rate(100, 25, 100, 4) == 25
    assert share_of_rate(100, 40, 100, 4) == 40
    assert share_of_rate(100, 0, 0, 4) == 25, "nobody said how many there are in all"


def test_a_report_that_is_old_cannot_make_a_shard_much_faster_or_slower_than_the_others() -> None:
    assert share_of_rate(100, 90, 100, 4) == 50
    assert share_of_rate(100, 1, 100, 4) == 12.5
    assert share_of_rate(100, 10, 5, 1) == 100, "never more than the whole"
