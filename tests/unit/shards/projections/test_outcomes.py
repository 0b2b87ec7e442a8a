"""Outcomes in the view: what an order keeps, how many are kept, and what may be forgotten."""

from __future__ import annotations

import pytest

from nextgen.kernel.limits.write import OUTCOME_WINDOW_POSITIONS
from shards.domain.topic import TopicCreated
from shards.projections import outcomes as outcomes_module
from shards.projections.outcomes import read_forgotten_position
from shards.projections.reading import read_outcomes
from shards.projections.rows import query_of
from tests.support.shards.events import TIME_MS, entries_of, record_of
from tests.support.shards.world import MemoryView


def id_of(number):
    return number.to_bytes(16, "big")


def created(number):
    return TopicCreated(f"t-{number}", f"persistent://a/b/t-{number}", 0, "ns", TIME_MS)


@pytest.fixture
def view():
    opened = MemoryView()
    yield opened
    opened.close()


def known(view, numbers):
    """Return which of the commands ``numbers`` have an outcome that is kept."""
    found = read_outcomes(query_of(view.reader), [id_of(number) for number in numbers])
    return sorted(int.from_bytes(each, "big") for each in found)


def forgotten(view):
    return read_forgotten_position(query_of(view.reader), view.applied().position)


def apply(view, numbers, *, kept_from=0, from_position=None):
    """Fold one record for each of ``numbers``: it creates a topic and has an outcome."""
    applied = view.applied()
    groups = [
        [record_of([created(number)], id_of(number), b"done", outcomes_kept_from=kept_from)]
        for number in numbers
    ]
    at = applied.position + 1 if from_position is None else from_position
    view.apply(entries_of(groups, from_index=applied.index + 1, from_position=at))


def test_outcomes_below_the_ordered_position_are_forgotten_and_no_others(view):
    apply(view, [1, 2, 3])

    apply(view, [4], kept_from=3)

    assert known(view, range(1, 5)) == [3, 4]
    assert forgotten(view) == 2


def test_an_order_keeps_outcomes_beyond_the_window_of_positions(view):
    apply(view, [1], kept_from=1)

    apply(view, [2], from_position=2 + 2 * OUTCOME_WINDOW_POSITIONS)

    assert known(view, [1, 2]) == [1, 2]
    assert forgotten(view) == 0


def test_an_earlier_order_that_comes_later_forgets_and_restores_nothing(view):
    apply(view, [1, 2, 3], kept_from=1)
    apply(view, [4], kept_from=3)

    apply(view, [5], kept_from=2)

    assert known(view, range(1, 6)) == [3, 4, 5]
    assert forgotten(view) == 2


def test_the_first_order_restores_nothing_that_the_window_has_forgotten(view):
    apply(view, [1])
    last = 2 + OUTCOME_WINDOW_POSITIONS
    apply(view, [2], from_position=last)

    apply(view, [3], kept_from=1)

    assert known(view, [1, 2, 3]) == [2, 3]
    assert forgotten(view) == last - OUTCOME_WINDOW_POSITIONS


@pytest.mark.parametrize(("count", "kept"), [(6, [1, 2, 3, 4, 5, 6]), (7, [2, 3, 4, 5, 6, 7])])
def test_outcomes_max_are_kept_and_one_more_drops_the_oldest_which_is_known_to_be_gone(
    view, monkeypatch, count, kept
):
    monkeypatch.setattr(outcomes_module, "OUTCOMES_MAX", 6)

    apply(view, range(1, count + 1), kept_from=1)

    assert known(view, range(1, count + 1)) == kept
    # At the limit it is not known whether an older one was there: what may be is refused.
    assert forgotten(view) >= count - len(kept)
    assert forgotten(view) <= kept[0]


def test_a_shard_with_few_outcomes_refuses_nothing_that_was_issued_behind_the_last_order(view):
    """Position 9 is the oldest outcome that is kept, and none between 4 and 9 ever was."""
    apply(view, [1, 2, 3])
    apply(view, [9], from_position=9, kept_from=4)

    assert forgotten(view) == 3


def test_orders_that_leave_nothing_say_what_was_forgotten(view):
    apply(view, [1, 2])

    view.apply(
        entries_of(
            [[record_of([created(3)], b"", b"", outcomes_kept_from=3)]],
            from_index=3,
            from_position=3,
        )
    )

    assert known(view, [1, 2]) == []
    assert forgotten(view) == 2


def test_the_first_order_restores_nothing_that_was_too_many_before_it(view, monkeypatch):
    """All in one batch: what was forgotten one by one elsewhere must be forgotten here, too."""
    monkeypatch.setattr(outcomes_module, "OUTCOMES_WITHOUT_ORDERS_MAX", 4)
    orders = [0, 0, 0, 0, 0, 0, 1, 0]
    records = [
        record_of([created(number)], id_of(number), b"done", outcomes_kept_from=order)
        for number, order in enumerate(orders, start=1)
    ]

    view.apply(entries_of([records]))

    assert known(view, range(1, 9)) == [3, 4, 5, 6, 7, 8]
