"""The last of N units goes N ÷ rate seconds after the first could have, if the node keeps up.

Evacuations of all its shards have a bound in flight, and one batch while its loop is late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nextgen.kernel.limits.placement import (
    EVACUATION_LATE_MS,
    LOST_UNITS_IN_FLIGHT_MAX,
    MOVED_UNITS_IN_FLIGHT_MAX,
)
from nextgen.tasks.background import join
from shards.moves.evacuation_pace import (
    PACE_INTERVAL_SECONDS,
    UNITS_WHILE_LATE_MAX,
    EvacuationTurns,
    NodeEvacuations,
    Pace,
    share_of_rate,
)
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

LATE_S = EVACUATION_LATE_MS / 1_000 + 0.001


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


# Turns in a node ---------------------------------------------------------------------------------


def in_turns(scenario: Callable[[EvacuationTurns], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        await scenario(NodeEvacuations().lost)

    run_virtual(main)


async def asked(turns: EvacuationTurns, units: int) -> asyncio.Task[int]:
    """Ask for units, and return when all that can go at this moment have gone."""
    task = join(turns.take(units))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


@run_by(in_turns)
async def test_lost_units_in_flight_max_go_at_a_time_and_no_more(
    turns: EvacuationTurns,
) -> None:
    whole = await asked(turns, LOST_UNITS_IN_FLIGHT_MAX)
    one_more = await asked(turns, 1)

    assert whole.result() == LOST_UNITS_IN_FLIGHT_MAX
    assert not one_more.done()
    turns.give_back(1)
    assert await one_more == 1
    assert turns.units_in_flight == LOST_UNITS_IN_FLIGHT_MAX


async def test_moved_units_in_flight_max_go_beside_them_and_no_more() -> None:
    node = NodeEvacuations()
    await asked(node.lost, LOST_UNITS_IN_FLIGHT_MAX)

    whole = await asked(node.moves, MOVED_UNITS_IN_FLIGHT_MAX)
    one_more = await asked(node.moves, 1)

    assert whole.result() == MOVED_UNITS_IN_FLIGHT_MAX
    assert not one_more.done()
    node.moves.give_back(MOVED_UNITS_IN_FLIGHT_MAX)
    assert await one_more == 1


@run_by(in_turns)
async def test_more_units_than_may_go_at_a_time_go_in_parts(turns: EvacuationTurns) -> None:
    too_many = await asked(turns, LOST_UNITS_IN_FLIGHT_MAX + 1)

    assert too_many.result() == LOST_UNITS_IN_FLIGHT_MAX


@run_by(in_turns)
async def test_a_large_batch_is_not_overtaken_by_small_ones(turns: EvacuationTurns) -> None:
    await asked(turns, 10)
    large = await asked(turns, LOST_UNITS_IN_FLIGHT_MAX)
    small = await asked(turns, 1)
    assert not large.done()
    assert not small.done()

    turns.give_back(10)

    assert await large == LOST_UNITS_IN_FLIGHT_MAX
    turns.give_back(LOST_UNITS_IN_FLIGHT_MAX)
    assert await small == 1


@run_by(in_turns)
async def test_one_batch_is_in_flight_while_the_loop_is_late(turns: EvacuationTurns) -> None:
    turns.note_late(LATE_S)
    first = await asked(turns, LOST_UNITS_IN_FLIGHT_MAX)
    second = await asked(turns, 1)
    assert first.result() == UNITS_WHILE_LATE_MAX
    assert not second.done()

    turns.give_back(first.result())
    third = await asked(turns, 1)
    assert await second == 1
    assert not third.done()
    turns.note_late(EVACUATION_LATE_MS / 1_000)

    assert await third == 1, "the loop is on time again"


@pytest.mark.parametrize("is_granted", [False, True])
@run_by(in_turns)
async def test_who_gives_up_holds_up_nobody(turns: EvacuationTurns, *, is_granted: bool) -> None:
    await asked(turns, LOST_UNITS_IN_FLIGHT_MAX)
    impatient = await asked(turns, 2)
    patient = await asked(turns, 1)

    if is_granted:
        turns.give_back(2)
    impatient.cancel()
    if not is_granted:
        turns.give_back(1)

    assert await patient == 1
    assert impatient.cancelled() or await asyncio.wait((impatient,))
    assert turns.units_in_flight == LOST_UNITS_IN_FLIGHT_MAX - is_granted


@run_by(in_turns)
async def test_units_that_nobody_took_are_not_given_back(turns: EvacuationTurns) -> None:
    with pytest.raises(AssertionError, match="nobody took"):
        turns.give_back(1)


async def test_a_turn_that_was_just_cancelled_takes_nothing_from_the_next_one() -> None:
    turns = EvacuationTurns(10)
    assert await turns.take(10) == 10
    cancelled, waiting = (asyncio.ensure_future(turns.take(5)) for _ in range(2))
    await asyncio.sleep(0)

    cancelled.cancel()
    turns.give_back(10)

    assert await waiting == 5
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert turns.units_in_flight == 5
