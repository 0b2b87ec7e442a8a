"""A cursor on a topic of three ledgers, the middle one empty."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.position import BEFORE_ALL, Position
from brokers.domain.subscriptions.cursor import Cursor, before
from nextgen.kernel.limits.pulsar import CURSOR_HOLES_MAX

STORED = [Position(1, entry) for entry in range(4)] + [Position(3, entry) for entry in range(4)]


def entries_between(after: Position, up_to: Position) -> int:
    return sum(after < position <= up_to for position in STORED)


def cursor(holes_max: int = CURSOR_HOLES_MAX) -> Cursor:
    return Cursor(BEFORE_ALL, entries_between, holes_max=holes_max)


def test_mark_delete_moves_over_what_is_acknowledged_in_any_order() -> None:
    moved = cursor()

    assert moved.ack(Position(1, 1))
    assert moved.mark_delete == BEFORE_ALL
    assert moved.ack(Position(1, 0))
    assert moved.mark_delete == Position(1, 1)
    assert not moved.ack(Position(1, 1))
    moved.ack(Position(1, 3))
    moved.ack(Position(3, 0))
    assert moved.mark_delete == Position(1, 1)
    moved.ack(Position(1, 2))

    assert moved.mark_delete == Position(3, 0), "an empty ledger is no gap"
    assert moved.is_plain


@given(st.permutations(STORED))
def test_whatever_the_order_in_the_end_all_is_acknowledged(order: list[Position]) -> None:
    moved = cursor()
    for number, position in enumerate(order):
        assert moved.ack(position)
        acked = set(order[: number + 1])
        assert [moved.is_acked(each) for each in STORED] == [each in acked for each in STORED]
        assert moved.highest == max(acked)

    assert moved.mark_delete == STORED[-1]
    assert moved.is_plain


def test_a_batch_is_acknowledged_when_its_last_message_is() -> None:
    moved = cursor()
    batch = Position(1, 0)

    assert not moved.ack_part(batch, (0b101,), 3)
    assert not moved.ack_part(batch, (0b111110,), 3)
    assert moved.partial == {batch: 0b100}
    assert not moved.is_plain
    assert moved.ack_part(batch, (0b011,), 3)

    assert moved.mark_delete == batch
    assert moved.is_plain
    assert not moved.ack_part(batch, (0b111,), 3), "what is acknowledged stays so"
    assert moved.is_plain


def test_bits_beyond_the_batch_do_not_keep_it_open() -> None:
    moved = cursor()

    assert moved.ack_part(Position(1, 0), (0b11000,), 3)
    assert not moved.ack_part(Position(1, 1), (0b11000,), 0), "its size is not known"


def test_a_whole_acknowledgement_ends_a_partial_one() -> None:
    moved = cursor()
    moved.ack_part(Position(1, 1), (1,), 2)

    moved.ack(Position(1, 1))
    moved.ack(Position(1, 0))

    assert moved.is_plain
    assert moved.mark_delete == Position(1, 1)


def test_a_cumulative_acknowledgement_swallows_what_lies_below() -> None:
    moved = cursor()
    moved.ack_part(Position(1, 1), (1,), 2)
    moved.ack_part(Position(3, 1), (1,), 2)
    moved.ack(Position(1, 3))
    moved.ack(Position(3, 0))

    assert moved.ack_up_to(Position(1, 2))
    assert moved.mark_delete == Position(3, 0)
    assert moved.partial == {Position(3, 1): 1}
    assert not moved.ack_up_to(Position(1, 3))


def test_a_reset_forgets_what_lies_behind_it() -> None:
    moved = cursor()
    moved.ack(Position(1, 3))
    moved.ack_part(Position(3, 1), (1,), 2)

    moved.reset(before(Position(1, 2)))

    assert moved.is_plain
    assert moved.mark_delete == Position(1, 1)
    assert not moved.is_acked(Position(1, 3))


def test_holes_have_a_limit() -> None:
    moved = cursor(holes_max=2)
    moved.ack(Position(1, 1))
    assert moved.has_room_for(Position(1, 3))
    moved.ack_part(Position(3, 1), (1,), 2)
    assert moved.holes == 2

    assert not moved.has_room_for(Position(3, 3))
    assert moved.has_room_for(Position(1, 0)), "what is next closes a hole"
    assert moved.has_room_for(Position(1, 2)), "a neighbour makes none"
    assert moved.has_room_for(Position(3, 1)), "nor does more of the same batch"


def test_a_run_of_acknowledged_entries_is_passed_over_at_once() -> None:
    moved = cursor()
    assert moved.end_of_run(Position(1, 0)) == Position(1, 0)
    moved.ack(Position(1, 1))
    moved.ack(Position(1, 2))

    assert moved.end_of_run(Position(1, 0)) == Position(1, 2)
    assert moved.end_of_run(BEFORE_ALL) == BEFORE_ALL


def test_an_open_batch_takes_as_much_room_as_it_has_words() -> None:
    moved = cursor(holes_max=4)
    moved.ack_part(Position(1, 1), [-1, -1, 1], 0)
    assert moved.has_room_for(Position(3, 2))

    moved.ack_part(Position(1, 3), [1], 0)
    assert not moved.has_room_for(Position(3, 2))

    moved.ack_part(Position(1, 1), [1], 0)
    assert moved.has_room_for(Position(3, 2)), "less of the batch is open"
    moved.ack_part(Position(3, 0), [0] * 9 + [1], 0)
    assert not moved.has_room_for(Position(3, 2))
    moved.ack(Position(3, 0))
    assert moved.has_room_for(Position(3, 2))
    moved.ack_part(Position(1, 2), [0] * 9 + [1], 0)
    assert not moved.has_room_for(Position(3, 2))
    moved.ack_up_to(Position(1, 2))
    assert moved.has_room_for(Position(3, 2))
    moved.ack_part(Position(1, 3), [0] * 9 + [1], 0)
    moved.reset(BEFORE_ALL)
    assert moved.has_room_for(Position(3, 2))


def test_a_batch_with_an_endless_declared_count_takes_no_memory() -> None:
    moved = cursor()
    tracemalloc.start()

    moved.ack_part(Position(1, 1), [3], 2**31 - 1)

    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert moved.partial == {Position(1, 1): 3}
    assert peak_bytes < 100_000
