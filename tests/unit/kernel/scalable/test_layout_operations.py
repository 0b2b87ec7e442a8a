"""What operations make of segments: ranges, buckets, depth, parents; and the clocks behind them."""

from __future__ import annotations

import pytest

from nextgen.kernel.scalable.auto_scale import Action, ActionKind, Reason, ScaleClocks
from nextgen.kernel.scalable.buckets import equal_buckets
from nextgen.kernel.scalable.layout_operations import (
    Child,
    children_of,
    children_of_merge,
    children_of_rebucket,
    children_of_split,
    clocks_after,
)
from nextgen.kernel.scalable.ranges import HashRange
from nextgen.kernel.scalable.segments import Segment

LOWER = Segment(3, 0, 0x7FFF, 1, 5, bucket_starts=equal_buckets(4), merge_depth=1)
UPPER = Segment(4, 0x8000, 0xFFFF, 1, 5, bucket_starts=equal_buckets(2), merge_depth=2)


def test_a_split_gives_halves_of_the_range_and_of_the_buckets() -> None:
    assert children_of_split(LOWER) == [
        Child(HashRange(0, 0x3FFF), equal_buckets(2), 1, (3,)),
        Child(HashRange(0x4000, 0x7FFF), equal_buckets(2), 1, (3,)),
    ]


def test_a_merge_adds_ranges_and_buckets_and_is_one_deeper_than_the_deeper_parent() -> None:
    (merged,) = children_of_merge(UPPER, LOWER)

    assert merged == Child(HashRange(0, 0xFFFF), equal_buckets(6), 3, (4, 3))


def test_a_rebucket_follows_each_segment_in_its_range() -> None:
    assert children_of_rebucket([LOWER, UPPER], 8) == [
        Child(LOWER.hash_range, equal_buckets(8), 1, (3,)),
        Child(UPPER.hash_range, equal_buckets(8), 2, (4,)),
    ]


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action(ActionKind.SPLIT, (3,), Reason.MSG_RATE_IN), children_of_split(LOWER)),
        (Action(ActionKind.MERGE, (3, 4), Reason.COLD), children_of_merge(LOWER, UPPER)),
        (
            Action(ActionKind.REBUCKET, (3, 4), Reason.AT_MAX_SEGMENTS, 16),
            children_of_rebucket([LOWER, UPPER], 16),
        ),
    ],
)
def test_an_action_makes_what_its_operation_makes(action: Action, expected: list[Child]) -> None:
    assert children_of(action, {3: LOWER, 4: UPPER}) == expected


def test_a_numbered_child_is_an_active_segment() -> None:
    child = Child(HashRange(0, 9), equal_buckets(2), 1, (3,))

    assert child.numbered(7, 4, 99) == Segment(
        7, 0, 9, 4, 99, parents=(3,), bucket_starts=equal_buckets(2), merge_depth=1
    )


def test_clocks_move_with_operations_of_their_kind_and_with_nothing_else() -> None:
    before = ScaleClocks(1, 2, 3)

    assert clocks_after(before, "split", 9) == ScaleClocks(9, 2, 3)
    assert clocks_after(before, "merge", 9) == ScaleClocks(1, 9, 3)
    assert clocks_after(before, "rebucket", 9) == ScaleClocks(1, 2, 9)
    assert clocks_after(before, "prune", 9) == before
    assert clocks_after(before, "migrate", 9) == before
