"""Layouts for tests of the scalable-topics client, and random histories of them."""

from __future__ import annotations

from dataclasses import replace

from nextgen.client.st.domain.layout import Layout, LayoutSegment, make_layout
from nextgen.kernel.scalable.ranges import HashRange, initial_ranges

CREATED_AT_MS = 1_700_000_000_000


def segment(
    segment_id: int,
    start: int,
    end: int,
    *,
    is_active: bool = True,
    parents: tuple[int, ...] = (),
    legacy: str = "",
    buckets: tuple[int, ...] = (),
    created_at_ms: int = CREATED_AT_MS,
) -> LayoutSegment:
    return LayoutSegment(
        segment_id=segment_id,
        hash_range=HashRange(start, end),
        is_active=is_active,
        topic=legacy or f"segment://public/default/t/{start:04x}-{end:04x}-{segment_id}",
        parents=parents,
        created_at_ms=created_at_ms,
        is_legacy=bool(legacy),
        bucket_starts=buckets,
    )


def new_layout(count: int, *, epoch: int = 0, buckets: tuple[int, ...] = ()) -> Layout:
    """A new topic's layout."""
    ranges = initial_ranges(count)
    return make_layout(
        epoch,
        [
            segment(index, each.start, each.end, buckets=buckets)
            for index, each in enumerate(ranges)
        ],
    )


def _sealed_and(layout: Layout, sealed: set[int], children: list[LayoutSegment]) -> Layout:
    kept = [
        replace(each, is_active=each.is_active and each.segment_id not in sealed)
        for each in layout.segments.values()
    ]
    return make_layout(layout.epoch + 1, [*kept, *children])


def split(layout: Layout, segment_id: int) -> Layout:
    parent = layout.segments[segment_id]
    next_id = max(layout.segments) + 1
    children = [
        segment(next_id + index, each.start, each.end, parents=(segment_id,))
        for index, each in enumerate(parent.hash_range.split())
    ]
    return _sealed_and(layout, {segment_id}, children)


def merge(layout: Layout, first_id: int, second_id: int) -> Layout:
    union = layout.segments[first_id].hash_range.union(layout.segments[second_id].hash_range)
    child = segment(max(layout.segments) + 1, union.start, union.end, parents=(first_id, second_id))
    return _sealed_and(layout, {first_id, second_id}, [child])


def rebucket(layout: Layout, segment_id: int, buckets: tuple[int, ...]) -> Layout:
    parent = layout.segments[segment_id]
    child = segment(
        max(layout.segments) + 1,
        parent.hash_range.start,
        parent.hash_range.end,
        parents=(segment_id,),
        buckets=buckets,
    )
    return _sealed_and(layout, {segment_id}, [child])
