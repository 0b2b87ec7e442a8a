"""What an operation makes of the segments of a scalable topic, and when it was done last.

Shards plan operations by it, and rehearsals carry out what ``auto_scale.decide`` returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nextgen.kernel.scalable.auto_scale import Action, ActionKind, ScaleClocks
from nextgen.kernel.scalable.buckets import (
    BucketStarts,
    buckets_of_halves,
    buckets_of_merged,
    equal_buckets,
)
from nextgen.kernel.scalable.ranges import HashRange
from nextgen.kernel.scalable.segments import Segment


@dataclass(frozen=True, slots=True)
class Child:
    """A segment that an operation makes, before it has an id. ``parents`` are ids."""

    hash_range: HashRange
    bucket_starts: BucketStarts
    merge_depth: int
    parents: tuple[int, ...]

    def numbered(self, segment_id: int, epoch: int, created_at_ms: int) -> Segment:
        """Return it as an active segment of the layout of ``epoch``."""
        return Segment(
            segment_id=segment_id,
            hash_start=self.hash_range.start,
            hash_end=self.hash_range.end,
            created_at_epoch=epoch,
            created_at_ms=created_at_ms,
            parents=self.parents,
            bucket_starts=self.bucket_starts,
            merge_depth=self.merge_depth,
        )


def children_of_split(parent: Segment) -> list[Child]:
    """Return the halves of a segment, whose range has more than one hash."""
    buckets = buckets_of_halves(parent.bucket_starts)
    of = (parent.segment_id,)
    return [Child(half, buckets, parent.merge_depth, of) for half in parent.hash_range.split()]


def children_of_merge(first: Segment, second: Segment) -> list[Child]:
    """Return the one segment that follows two adjacent ones."""
    return [
        Child(
            first.hash_range.union(second.hash_range),
            buckets_of_merged(first.bucket_starts, second.bucket_starts),
            max(first.merge_depth, second.merge_depth) + 1,
            (first.segment_id, second.segment_id),
        )
    ]


def children_of_rebucket(parents: Sequence[Segment], buckets: int) -> list[Child]:
    """Return a successor of each segment, in its range."""
    starts = equal_buckets(buckets)
    return [
        Child(each.hash_range, starts, each.merge_depth, (each.segment_id,)) for each in parents
    ]


def children_of(action: Action, segments: Mapping[int, Segment]) -> list[Child]:
    """Return what ``action`` makes of the segments that it names."""
    parents = [segments[each] for each in action.segments]
    match action.kind:
        case ActionKind.SPLIT:
            return children_of_split(parents[0])
        case ActionKind.MERGE:
            return children_of_merge(parents[0], parents[1])
        case ActionKind.REBUCKET:
            return children_of_rebucket(parents, action.buckets)


def clocks_after(clocks: ScaleClocks, kind: str, committed_at_ms: int) -> ScaleClocks:
    """Return ``clocks`` behind an operation; those of other kinds of changes move none."""
    match kind:
        case ActionKind.SPLIT:
            return replace(clocks, split_at_ms=committed_at_ms)
        case ActionKind.MERGE:
            return replace(clocks, merge_at_ms=committed_at_ms)
        case ActionKind.REBUCKET:
            return replace(clocks, rebucket_at_ms=committed_at_ms)
    return clocks
