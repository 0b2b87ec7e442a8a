"""Moves of slots between two shards in which somebody is gone after any step.

The whole table: ``python -m tests.support.slots.crashes``. See ``oracle`` for what is checked.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.slots.crashes import (
    PAGE,
    VICTIMS,
    Crash,
    crash_row,
    run_move,
    table_of,
)

STEPS = 36
"""Of a move without any trouble."""

IN_EACH_RUN = {
    "both leaders": 4,
    "A's leader, whose proposals survive": 8,
    "B's leader, which goes on": 8,
    "answer, lost": 8,
    "operator stops it, B's leader": 4,
    "operator stops it, message, delayed": 11,
    "cluster manager, recovered without the move": 4,
}
"""Who is gone, and at each which step."""


def test_a_move_brings_its_slots_to_the_other_shard() -> None:
    crash = run_move(Crash(-1))

    assert (crash.ended, crash.faults) == ("done", [])
    assert len(crash.steps) == STEPS
    assert crash.steps.count("B commits slot_rows_copied") > 2
    assert crash.steps.index("A commits slots_released") < crash.steps.index(
        "B commits slot_rows_copied+slots_adopted"
    )


@pytest.mark.parametrize("victim", IN_EACH_RUN)
@pytest.mark.timeout(300)
def test_a_move_ends_once_whoever_is_gone_after_some_steps(victim: str) -> None:
    row = crash_row(victim, every=IN_EACH_RUN[victim])

    assert row.faults == []
    assert row.runs >= STEPS // 8
    assert bool(row.ends["taken_back"]) is ("operator" in victim or "recovered" in victim)


@pytest.mark.slow
@pytest.mark.parametrize("victim", VICTIMS[1:])
@pytest.mark.timeout(900)
def test_a_move_ends_once_whoever_is_gone_after_any_step(victim: str) -> None:
    row = crash_row(victim)

    assert row.faults == []
    assert row.runs >= STEPS - 1
    assert table_of([row]).splitlines()[-1] in PAGE.read_text(), "make the table again"


STRIKES = st.lists(
    st.tuples(st.integers(0, 2 * STEPS), st.sampled_from(VICTIMS[1:])), min_size=1, max_size=4
)


@given(strikes=STRIKES, seed=st.integers(0, 1_000))
@settings(max_examples=12, deadline=None)
@pytest.mark.timeout(300)
def test_a_move_ends_once_whatever_happens_on_the_way(
    strikes: list[tuple[int, str]], seed: int
) -> None:
    _judge(strikes, seed)


@given(strikes=STRIKES, seed=st.integers(0, 1_000))
@settings(max_examples=400, deadline=None)
@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_move_ends_once_whatever_happens_on_the_way_at_night(
    strikes: list[tuple[int, str]], seed: int
) -> None:
    _judge(strikes, seed)


def _judge(strikes: list[tuple[int, str]], seed: int) -> None:
    (at, victim), *more = strikes

    crash = run_move(Crash(at, victim, seed, tuple(more)))

    assert crash.faults == []
