"""Entry buckets of a segment: intervals of the lower 16 bits of a key's hash (PIP-486).

A segment's buckets are given by the starts of all but the first, ascending. No starts: one bucket.
"""

from __future__ import annotations

from nextgen.kernel.limits.scalable import BUCKET_BUDGET, BUCKETS_PER_SEGMENT_MAX
from nextgen.kernel.scalable.ranges import HASHES

BucketStarts = tuple[int, ...]


def equal_buckets(count: int) -> BucketStarts:
    """Return the starts of ``count`` buckets of equal width."""
    assert 1 <= count <= BUCKETS_PER_SEGMENT_MAX, f"a segment has no {count} buckets"
    return tuple([number * HASHES // count for number in range(1, count)])


def bucket_count(starts: BucketStarts) -> int:
    return len(starts) + 1


def buckets_of_new_topic(segments: int) -> BucketStarts:
    """Return the buckets of each segment of a new topic that has ``segments``."""
    return equal_buckets(max(1, BUCKET_BUDGET // segments))


def buckets_of_halves(starts: BucketStarts) -> BucketStarts:
    """Return the buckets of each half of a segment."""
    return equal_buckets(max(1, bucket_count(starts) // 2))


def buckets_of_merged(first: BucketStarts, second: BucketStarts) -> BucketStarts:
    """Return the buckets of the segment that two are merged into."""
    count = bucket_count(first) + bucket_count(second)
    return equal_buckets(min(count, BUCKETS_PER_SEGMENT_MAX))
