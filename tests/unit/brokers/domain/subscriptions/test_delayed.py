import pytest

from brokers.domain.position import Position
from brokers.domain.subscriptions.delayed import DelayedEntries
from nextgen.kernel.limits.pulsar import DELAYED_DUE_PER_TURN_MAX, DELAYED_ENTRIES_MAX


def test_entries_come_out_in_order_of_time() -> None:
    delayed = DelayedEntries()
    assert delayed.next_at_ms is None
    for entry, at_ms in enumerate((50, 20, 40, 20)):
        delayed.add(Position(1, entry), at_ms)

    assert delayed.next_at_ms == 20
    assert delayed.pop_due(19) == []
    assert delayed.pop_due(40) == [Position(1, 1), Position(1, 3), Position(1, 2)]
    assert (len(delayed), delayed.next_at_ms) == (1, 50)
    delayed.clear()
    assert delayed.pop_due(10**9) == []


def test_there_is_room_for_so_many() -> None:
    delayed = DelayedEntries()
    for entry in range(DELAYED_ENTRIES_MAX - 1):
        delayed.add(Position(1, entry), entry)
    assert not delayed.is_full
    delayed.add(Position(2, 0), 0)

    assert delayed.is_full
    with pytest.raises(AssertionError):
        delayed.add(Position(2, 1), 0)


def test_delayed_due_per_turn_max_become_ready_at_once_and_one_more_in_the_next_turn() -> None:
    delayed = DelayedEntries()
    for entry_id in range(DELAYED_DUE_PER_TURN_MAX + 1):
        delayed.add(Position(1, entry_id), 10)

    first = delayed.pop_due(10)
    due_at_ms = delayed.next_at_ms
    second = delayed.pop_due(10)

    assert first == [Position(1, entry_id) for entry_id in range(DELAYED_DUE_PER_TURN_MAX)]
    assert due_at_ms == 10
    assert second == [Position(1, DELAYED_DUE_PER_TURN_MAX)]
    assert delayed.next_at_ms is None
