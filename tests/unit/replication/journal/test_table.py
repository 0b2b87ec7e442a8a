"""The journal's memory: where entries are, and the newest payloads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.replication.journal.table import EntryTable, PayloadCache
from nextgen.replication.ports import PositionCompacted


def table_of(*events: int, base_index: int = 0, next_position: int = 1) -> EntryTable:
    """Entries with these numbers of events; entry ``i`` lies at address ``100 * i``."""
    table = EntryTable(base_index, 1 if base_index else 0, next_position)
    for count in events:
        index = table.last_index + 1
        table.append(index // 3 + 1, table.next_position, count, 100 * index, 10 + index)
    return table


def test_a_table_knows_each_entry() -> None:
    table = table_of(2, 0, 3, base_index=10, next_position=101)

    assert (table.first_index, table.last_index, table.last_term) == (11, 13, 5)
    assert [table.first_position_of(index) for index in (11, 12, 13)] == [101, 103, 103]
    assert [table.events_of(index) for index in (11, 12, 13)] == [2, 0, 3]
    assert [table.address_of(index) for index in (11, 12, 13)] == [1_100, 1_200, 1_300]
    assert [table.length_of(index) for index in (11, 12, 13)] == [21, 22, 23]
    assert [table.term_of(index) for index in (10, 11, 12, 13)] == [1, 4, 5, 5]
    assert table.next_position == 106


@pytest.mark.parametrize("index", [9, 10, 14])
def test_an_entry_that_is_not_there_is_a_bug(index: int) -> None:
    table = table_of(2, 0, 3, base_index=10, next_position=101)

    for ask in (table.first_position_of, table.address_of, table.length_of, table.events_of):
        with pytest.raises(AssertionError):
            ask(index)
    with pytest.raises(AssertionError):
        table.truncate_from(index)
    if index != 10:
        with pytest.raises(AssertionError):
            table.term_of(index)


def test_a_position_that_does_not_follow_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        table_of(2).append(9, 2, 1, 0, 0)


def test_an_empty_table_ends_at_its_base() -> None:
    table = EntryTable(10, 4, 101)

    assert (table.first_index, table.last_index, table.last_term) == (11, 10, 4)
    assert table.base_position == 100
    assert table.index_of_position(101) == 11


@given(
    events=st.lists(st.integers(0, 3), max_size=30),
    keep=st.integers(0, 30),
    cut=st.integers(0, 30),
)
def test_a_truncated_and_cut_table_is_the_part_between(
    events: list[int], keep: int, cut: int
) -> None:
    keep = min(keep, len(events))
    table, whole = table_of(*events), table_of(*events)

    if keep < len(events):
        table.truncate_from(keep + 1)
    table.cut_before_address(100 * cut)

    base = min(max(cut - 1, 0), keep)
    assert (table.base_index, table.last_index) == (base, keep)
    assert table.base_position == sum(events[:base])
    assert table.next_position == sum(events[:keep]) + 1
    assert table.term_of(base) == whole.term_of(base)
    for index in range(base + 1, keep + 1):
        assert table.first_position_of(index) == whole.first_position_of(index)
        assert table.events_of(index) == events[index - 1]


@given(events=st.lists(st.integers(0, 3), max_size=30), base=st.integers(0, 5))
def test_every_event_is_found_in_its_entry(events: list[int], base: int) -> None:
    table = table_of(*events, base_index=base, next_position=base * 7 + 1)
    owner = [index for index, count in enumerate(events, start=base + 1) for _ in range(count)]

    first = base * 7 + 1
    found = [table.index_of_position(first + at) for at in range(len(owner))]

    assert found == owner
    assert table.index_of_position(first + len(owner)) == table.last_index + 1
    with pytest.raises(PositionCompacted) as compacted:
        table.index_of_position(first - 1)
    assert (compacted.value.asked, compacted.value.oldest) == (first - 1, first)


def test_a_cache_keeps_the_newest_payloads_up_to_its_limit() -> None:
    cache = PayloadCache(30)
    for index in range(1, 6):
        cache.add(index, b"0123456789")
        cache.evict(index)

    assert [index for index in range(1, 6) if cache.get(index)] == [3, 4, 5]


def test_a_cache_keeps_what_is_not_on_disk_whatever_its_limit() -> None:
    cache = PayloadCache(0)
    for index in range(1, 6):
        cache.add(index, b"0123456789")
        cache.evict(2)

    assert [index for index in range(1, 6) if cache.get(index)] == [3, 4, 5]


def test_truncated_payloads_leave_the_cache() -> None:
    cache = PayloadCache(30)
    for index in range(1, 4):
        cache.add(index, b"0123456789")

    cache.truncate_from(2)
    cache.add(2, b"other")
    cache.evict(2)

    assert [cache.get(index) for index in (1, 2, 3)] == [b"0123456789", b"other", None]
    cache.clear()
    assert cache.get(1) is None
    cache.add(9, b"0123456789" * 4)
    cache.evict(9)
    assert cache.get(9) is None
