"""When messages come again."""

from __future__ import annotations

import pytest

from nextgen.client.st.domain.positions import Position
from nextgen.client.st.domain.redelivery import Redeliveries, RedeliveryBackoff, Unfinished


def test_entries_are_due_in_the_order_of_their_times_and_each_once() -> None:
    waiting = Redeliveries()
    waiting.add("a", (1, 1), 5.0)
    waiting.add("b", (1, 0), 1.0)
    waiting.add("a", (1, 1), 0.5)
    waiting.add("a", (1, 2), 3.0)

    assert waiting.next_due == 1.0
    assert waiting.take_due(3.0) == {"b": [(1, 0)], "a": [(1, 2)]}
    assert waiting.next_due == 5.0
    assert waiting.take_due(9.0) == {"a": [(1, 1)]}
    assert waiting.next_due is None
    waiting.add("a", (1, 1), 10.0)
    assert waiting.take_due(10.0) == {"a": [(1, 1)]}


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [
        (RedeliveryBackoff(100, 1_000), [100, 200, 400, 800, 1_000, 1_000]),
        (RedeliveryBackoff(100, 1_000, multiplier=1), [100] * 6),
        (RedeliveryBackoff(100, 50, multiplier=1), [50] * 6),
        (RedeliveryBackoff(10, 35, multiplier=1.5), [10, 15, 22.5, 33.75, 35, 35]),
    ],
)
def test_pauses_grow_with_the_redeliveries(backoff: RedeliveryBackoff, pauses: list[float]) -> None:
    assert [backoff.pause_ms(count) for count in range(6)] == pauses
    assert backoff.pause_ms(2**31) == pauses[-1]


def test_messages_that_are_not_acknowledged_in_time_are_overdue() -> None:
    taken = Unfinished(2.0)
    first, second, third = (Position(1, number) for number in range(3))
    taken.took("a", first, 0, 1.0)
    taken.took("a", second, 3, 1.5)
    taken.took("b", third, 0, 1.5)
    taken.finished("b", third)
    assert (taken.next_due, len(taken)) == (3.0, 2)

    assert taken.take_overdue(2.9) == []
    assert taken.take_overdue(3.5) == [("a", first, 0), ("a", second, 3)]
    assert taken.next_due is None


def test_a_message_that_is_taken_again_has_its_time_anew() -> None:
    taken = Unfinished(2.0)
    place = Position(1, 1)
    taken.took("a", place, 0, 1.0)
    taken.took("b", place, 0, 1.0)
    taken.took("a", place, 1, 2.0)

    assert taken.take_overdue(3.0) == [("b", place, 0)]
    taken.forget("a")
    assert taken.take_overdue(9.0) == []
