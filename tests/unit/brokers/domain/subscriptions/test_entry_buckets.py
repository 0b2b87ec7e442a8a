"""Entry buckets: who owns which, and how few move."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.entry_buckets import EntryBuckets, bucket_hash
from brokers.domain.subscriptions.key_ranges import Range
from nextgen.kernel.limits.pulsar import STICKY_RANGES_MAX


def equal_buckets(count: int) -> tuple[Range, ...]:
    starts = [number * 65_536 // count for number in range(count + 1)]
    return tuple((start, end - 1) for start, end in pairwise(starts))


def owners(buckets: EntryBuckets[str]) -> list[str | None]:
    return [buckets.owner(bucket) for bucket in range(len(buckets.ranges))]


@pytest.mark.parametrize(
    ("key", "expected"),
    [("", 0), ("a", 0x69B2), ("key1", 0x0125), ("order-42", 0xA18E), ("ключ", 0x2042)],
)
def test_a_bucket_hash_is_the_low_half_of_the_hash(key: str, expected: int) -> None:
    assert bucket_hash(key.encode()) == expected


def test_a_hash_belongs_to_the_bucket_that_has_it() -> None:
    buckets = EntryBuckets[str](((0, 0), (1, 0x7FFF), (0x8000, 0xFFFF)))

    assert [buckets.bucket_of(hash_) for hash_ in (0, 1, 0x7FFF, 0x8000, 0xFFFF)] == [0, 1, 1, 2, 2]


def test_without_members_no_bucket_has_an_owner() -> None:
    assert owners(EntryBuckets[str](equal_buckets(4))) == [None] * 4


def test_a_join_takes_from_those_with_the_most_and_a_leave_gives_to_those_with_the_fewest() -> None:
    ranges = equal_buckets(4)
    buckets: EntryBuckets[str] = EntryBuckets(ranges)

    buckets.add("a", "a", ranges)
    assert owners(buckets) == ["a", "a", "a", "a"]
    buckets.add("b", "b", ranges)
    assert owners(buckets) == ["a", "a", "b", "b"]
    buckets.add("c", "c", ranges)
    assert owners(buckets) == ["a", "c", "b", "b"]
    buckets.remove("b")

    assert owners(buckets) == ["a", "c", "a", "c"]


def test_members_beyond_the_number_of_buckets_have_none_until_others_leave() -> None:
    ranges = equal_buckets(2)
    buckets: EntryBuckets[str] = EntryBuckets(ranges)
    for member in ("a", "b", "surplus"):
        buckets.add(member, member, ranges)
    assert set(owners(buckets)) == {"a", "b"}

    buckets.remove("a")

    assert set(owners(buckets)) == {"b", "surplus"}


@given(st.integers(1, 9), st.lists(st.integers(0, 6), max_size=40))
def test_every_join_and_leave_moves_the_fewest_buckets(count: int, toggled: list[int]) -> None:
    """A number joins if it is not a member, else it leaves."""
    ranges = equal_buckets(count)
    buckets: EntryBuckets[int] = EntryBuckets(ranges)
    members: set[int] = set()
    for member in toggled:
        before = [buckets.owner(bucket) for bucket in range(count)]
        if member in members:
            members.remove(member)
            buckets.remove(member)
            assert member not in [buckets.owner(bucket) for bucket in range(count)]
        else:
            members.add(member)
            buckets.add(member, "", ranges)
        after = [buckets.owner(bucket) for bucket in range(count)]
        moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]

        if not members:
            assert after == [None] * count
            continue
        assert set(after) <= members, "every bucket has one owner, which is a member"
        assert all(member in each for each in moved), "only to or from who joined or left"
        counts = [after.count(each) for each in members]
        assert max(counts) - min(counts) <= 1
        if member in members:
            assert len(moved) == (count if len(members) == 1 else count // len(members))


@pytest.mark.parametrize(
    "ranges",
    [
        pytest.param((), id="none"),
        pytest.param(((0, 0x7FFF),), id="ends early"),
        pytest.param(((1, 0xFFFF),), id="begins late"),
        pytest.param(((0, 9), (11, 0xFFFF)), id="gap"),
        pytest.param(((0, 10), (10, 0xFFFF)), id="overlap"),
        pytest.param(((0x8000, 0xFFFF), (0, 0x7FFF)), id="descending"),
        pytest.param(((0, 0x10000),), id="beyond the last hash"),
        pytest.param(((0, -1), (0, 0xFFFF)), id="empty bucket"),
    ],
)
def test_a_list_that_does_not_cover_each_hash_once_is_refused(ranges: tuple[Range, ...]) -> None:
    with pytest.raises(Refusal) as refused:
        EntryBuckets[str](ranges)

    assert refused.value.code is ServerError.CONSUMER_ASSIGN


def test_another_list_than_that_of_the_members_is_a_stale_layout() -> None:
    buckets: EntryBuckets[str] = EntryBuckets(equal_buckets(4))
    buckets.add("a", "a", equal_buckets(4))

    with pytest.raises(Refusal, match="stale layout") as refused:
        buckets.add("b", "b", equal_buckets(8))

    assert refused.value.code is ServerError.CONSUMER_ASSIGN
    assert "8 (0-8191, 8192-16383, 16384-24575, 24576-32767, …)" in refused.value.message
    assert owners(buckets) == ["a"] * 4


def test_sticky_ranges_max_entry_buckets_and_not_one_more() -> None:
    ranges = equal_buckets(STICKY_RANGES_MAX)
    buckets: EntryBuckets[str] = EntryBuckets(ranges)
    buckets.add("a", "a", ranges)

    assert owners(buckets) == ["a"] * STICKY_RANGES_MAX
    with pytest.raises(Refusal) as refused:
        EntryBuckets[str](equal_buckets(STICKY_RANGES_MAX + 1))
    assert refused.value.code is ServerError.CONSUMER_ASSIGN
