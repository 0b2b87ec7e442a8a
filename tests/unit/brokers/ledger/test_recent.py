from __future__ import annotations

from brokers.adapters.ledger.reading.recent import RecentCache, RecentEntries
from brokers.domain.position import Position
from brokers.ports.ledger import Entry

OVERHEAD = 400


def entries(*numbers: int, size: int = 100) -> list[Entry]:
    return [Entry(Position(1, n), b"x" * size, 1, 0, "p", n) for n in numbers]


def numbers(found: list[Entry] | None) -> list[int] | None:
    return None if found is None else [entry.sequence_id for entry in found]


def read(recent: RecentEntries, ordinal: int) -> list[int] | None:
    return numbers(recent.read(ordinal, entries_max=100, bytes_max=10_000))


def test_what_was_added_is_read_from_any_place() -> None:
    recent = RecentEntries(RecentCache(10_000), 10)
    recent.add(entries(10, 11))
    recent.add(entries(12))

    assert [read(recent, ordinal) for ordinal in (9, 10, 11, 12, 13)] == [
        None,
        [10, 11, 12],
        [11, 12],
        [12],
        [],
    ]
    assert numbers(recent.read(10, entries_max=2, bytes_max=10_000)) == [10, 11]
    assert numbers(recent.read(10, entries_max=9, bytes_max=199)) == [10]
    assert numbers(recent.read(10, entries_max=9, bytes_max=200)) == [10, 11]


def test_the_oldest_rounds_of_all_units_are_forgotten_first() -> None:
    cache = RecentCache(5 * (100 + OVERHEAD))
    first, second = RecentEntries(cache, 0), RecentEntries(cache, 0)
    first.add(entries(0, 1))
    second.add(entries(0))
    first.add(entries(2, 3))
    assert (read(first, 0), read(second, 0)) == ([0, 1, 2, 3], [0])

    second.add(entries(1))

    assert (read(first, 1), read(first, 2), read(second, 0)) == (None, [2, 3], [0, 1])
    assert cache.byte_count == 4 * (100 + OVERHEAD)


def test_a_round_larger_than_the_bound_is_not_kept() -> None:
    cache = RecentCache(1_000)
    recent = RecentEntries(cache, 0)

    recent.add(entries(0, 1, 2))
    assert (read(recent, 0), read(recent, 3), cache.byte_count) == (None, [], 0)
    recent.add(entries(3))
    assert (read(recent, 2), read(recent, 3)) == (None, [3])


def test_a_unit_that_is_closed_gives_its_room_back() -> None:
    cache = RecentCache(5 * (100 + OVERHEAD))
    closed, kept = RecentEntries(cache, 0), RecentEntries(cache, 0)
    closed.add(entries(0, 1))
    kept.add(entries(0))
    closed.add(entries(2))

    closed.clear()

    assert cache.byte_count == 100 + OVERHEAD
    assert read(closed, 0) is None
    kept.add(entries(1, 2, 3, 4))
    assert read(kept, 0) == [0, 1, 2, 3, 4]


def test_long_use_keeps_what_is_bounded_and_nothing_else() -> None:
    cache = RecentCache(50 * (100 + OVERHEAD))
    recent = RecentEntries(cache, 0)
    for number in range(2_000):
        recent.add(entries(number))

    assert read(recent, 1_949) is None
    assert read(recent, 1_950) == list(range(1_950, 2_000))
    assert len(recent._entries) <= 101
