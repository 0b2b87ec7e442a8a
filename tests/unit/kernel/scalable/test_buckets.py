"""Entry buckets of segments."""

import pytest

from nextgen.kernel.limits.scalable import BUCKET_BUDGET, BUCKETS_PER_SEGMENT_MAX
from nextgen.kernel.scalable.buckets import (
    bucket_count,
    buckets_of_halves,
    buckets_of_merged,
    buckets_of_new_topic,
    equal_buckets,
)


@pytest.mark.parametrize(
    ("count", "starts"),
    [(1, ()), (2, (32768,)), (3, (21845, 43690)), (4, (16384, 32768, 49152))],
)
def test_buckets_have_equal_width(count, starts):
    assert equal_buckets(count) == starts
    assert bucket_count(starts) == count


@pytest.mark.parametrize(("segments", "buckets"), [(1, 4), (2, 2), (3, 1), (4, 1), (9, 1)])
def test_segments_of_a_new_topic_share_the_bucket_budget(segments, buckets):
    assert bucket_count(buckets_of_new_topic(segments)) == buckets
    assert buckets == max(1, BUCKET_BUDGET // segments)


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 1), (3, 1), (4, 2), (7, 3)])
def test_each_half_of_a_segment_gets_half_of_its_buckets(before, after):
    assert buckets_of_halves(equal_buckets(before)) == equal_buckets(after)


def test_a_merged_segment_gets_the_buckets_of_both_up_to_buckets_per_segment_max():
    most = BUCKETS_PER_SEGMENT_MAX
    assert buckets_of_merged(equal_buckets(1), equal_buckets(3)) == equal_buckets(4)
    assert bucket_count(buckets_of_merged(equal_buckets(most - 1), ())) == most
    assert bucket_count(buckets_of_merged(equal_buckets(most), ())) == most
