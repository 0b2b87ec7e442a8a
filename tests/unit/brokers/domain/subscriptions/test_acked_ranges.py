"""Intervals compared with a plain set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.position import BEFORE_ALL, Position
from brokers.domain.subscriptions import acked_ranges
from brokers.domain.subscriptions.acked_ranges import AckedRanges

positions = st.builds(Position, st.integers(1, 3), st.integers(0, 12))
ranges = st.tuples(positions, st.integers(0, 5))


@pytest.fixture(autouse=True, scope="module", params=[1, 2, 1_024])
def block_positions_max(request: pytest.FixtureRequest) -> Iterator[int]:
    """Have every set of a few intervals in many blocks, then in one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acked_ranges, "_BLOCK_POSITIONS_MAX", request.param)
        yield request.param


def listed(acked: AckedRanges) -> list[Position]:
    return [
        Position(first.ledger_id, entry_id)
        for first, last in acked
        for entry_id in range(first.entry_id, last + 1)
    ]


def intervals(model: set[Position]) -> int:
    return sum(Position(ledger, entry - 1) not in model for ledger, entry in model)


def build(added: list[tuple[Position, int]]) -> tuple[AckedRanges, set[Position]]:
    acked, model = AckedRanges(), set()
    for first, more in added:
        fresh = {Position(first.ledger_id, first.entry_id + n) for n in range(more + 1)}
        assert acked.add_range(first, first.entry_id + more) == len(fresh - model)
        model |= fresh
    return acked, model


def agree(acked: AckedRanges, model: set[Position]) -> None:
    assert listed(acked) == sorted(model)
    assert acked.count == len(model)
    assert len(acked) == intervals(model), "neighbours are one interval"
    assert acked.last == max(model, default=BEFORE_ALL)


@given(st.lists(ranges))
def test_adding_is_what_a_set_does(added: list[tuple[Position, int]]) -> None:
    acked, model = build(added)

    agree(acked, model)


@given(st.lists(positions))
def test_adding_one_by_one_says_whether_it_was_new(added: list[Position]) -> None:
    acked, model = AckedRanges(), set[Position]()
    for position in added:
        assert acked.add(position) == (position not in model)
        model.add(position)
        assert position in acked

    agree(acked, model)


@given(st.lists(ranges), positions)
def test_questions_are_answered_as_a_set_would(
    added: list[tuple[Position, int]], asked: Position
) -> None:
    acked, model = build(added)
    ledger, entry = asked
    end = entry
    while Position(ledger, end + 1) in model:
        end += 1

    assert (asked in acked) == (asked in model)
    assert acked.end_of_run(asked) == Position(ledger, end)
    assert acked.is_neighbour(asked) == (
        Position(ledger, entry - 1) in model or Position(ledger, entry + 1) in model
    )


@given(st.lists(ranges), positions)
def test_removing_from_below_is_what_a_set_does(
    added: list[tuple[Position, int]], up_to: Position
) -> None:
    acked, model = build(added)

    acked.remove_up_to(up_to)

    agree(acked, {position for position in model if position > up_to})


@given(st.lists(ranges, min_size=1))
def test_the_first_interval_is_taken_whole(added: list[tuple[Position, int]]) -> None:
    acked, model = build(added)
    assert acked.first == min(model)

    last = acked.pop_first()

    agree(acked, {position for position in model if position > last})
    acked.clear()
    agree(acked, set())


@given(st.lists(st.one_of(ranges, positions), max_size=40))
def test_blocks_stay_bounded_and_none_is_empty_beside_others(
    block_positions_max: int, steps: list[tuple[Position, int] | Position]
) -> None:
    acked = AckedRanges()
    for step in steps:
        if isinstance(step, Position):
            acked.remove_up_to(step)
        else:
            first, more = step
            acked.add_range(first, first.entry_id + more)

        sizes = [len(block) for block in acked._blocks]
        assert max(sizes) <= block_positions_max
        assert min(sizes) > 0 or sizes == [0]
        assert len(acked._bounds) == len(sizes) - 1
