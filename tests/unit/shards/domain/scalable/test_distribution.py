"""Who consumes which segments."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.scalable.buckets import equal_buckets
from nextgen.kernel.scalable.ranges import initial_ranges
from nextgen.kernel.scalable.segments import Segment
from shards.domain.scalable.commands import CreateSubscription, MarkDrained, PruneSegments
from shards.domain.scalable.distribution import distribute, eligible
from shards.domain.scalable.events import ConsumerSegments
from shards.domain.scalable.state import Subscription
from shards.domain.scalable.vocabulary import SubscriptionPhase, SubscriptionType
from tests.support.shards.scalable import (
    MERGE,
    SPLIT,
    after,
    changed,
    new_topic,
)

STREAM, CHECKPOINT = SubscriptionType.STREAM, SubscriptionType.CHECKPOINT


def segments(count, buckets=1):
    return [
        Segment(number, each.start, each.end, 0, 0, bucket_starts=equal_buckets(buckets))
        for number, each in enumerate(initial_ranges(count) if count else ())
    ]


def names(count, first=0, *, shares=True):
    return {f"c{number:02}": shares for number in range(first, first + count)}


def shares(assigned):
    return {each.consumer_name: each.segments for each in assigned}


def owners(assigned):
    return [(one, each.consumer_name) for each in assigned for one in each.segments]


def moved(before, now):
    """Count the segments that had an owner and have another one now."""
    had, has = dict(owners(before)), dict(owners(now))
    return sum(one in has and has[one] != name for one, name in had.items())


@pytest.mark.parametrize(
    ("count", "consumers", "expected"),
    [
        (0, 2, {"c00": (), "c01": ()}),
        (1, 0, {}),
        (3, 1, {"c00": (0, 1, 2)}),
        (3, 2, {"c00": (0, 2), "c01": (1,)}),
        (3, 3, {"c00": (0,), "c01": (1,), "c02": (2,)}),
        (2, 3, {"c00": (0,), "c01": (1,), "c02": ()}),
    ],
)
def test_segments_are_dealt_out_in_turn(count, consumers, expected):
    assert shares(distribute(segments(count), names(consumers), ())) == expected


def test_more_consumers_than_segments_share_them_by_buckets():
    assert distribute(segments(2, buckets=2), names(5), ()) == (
        ConsumerSegments("c00", (0,), (0,)),
        ConsumerSegments("c01", (0,), (0,)),
        ConsumerSegments("c02", (1,), (1,)),
        ConsumerSegments("c03", (1,), (1,)),
        ConsumerSegments("c04", ()),
    )


def test_a_segment_with_one_owner_is_not_shared():
    assigned = distribute(segments(2, buckets=2), names(3), ())

    assert [each.shared for each in assigned] == [(0,), (0,), ()]


def test_nobody_shares_while_one_consumer_cannot():
    consumers = names(2) | names(1, first=2, shares=False)

    assert shares(distribute(segments(1, buckets=4), consumers, ())) == {
        "c00": (0,),
        "c01": (),
        "c02": (),
    }


def test_a_join_moves_only_what_the_new_consumer_gets():
    before = distribute(segments(12), names(3), ())

    now = distribute(segments(12), names(4), before)

    assert moved(before, now) == 3
    assert Counter(map(len, shares(now).values())) == {3: 4}


def test_a_leave_moves_only_what_the_consumer_had():
    before = distribute(segments(12), names(4), ())

    now = distribute(segments(12), names(3, first=1), before)

    assert moved(before, now) == 3


@given(
    st.integers(0, 9), st.integers(1, 3), st.integers(0, 12), st.integers(0, 12), st.integers(0, 4)
)
def test_a_distribution_is_complete_even_and_stays(count, buckets, earlier, consumers, first):
    given_segments = segments(count, buckets)
    before = distribute(given_segments, names(earlier), ())
    present = names(consumers, first)

    assigned = distribute(given_segments, present, before)

    assert distribute(given_segments, present, assigned) == assigned
    assert [each.consumer_name for each in assigned] == list(present)
    held = Counter(one for one, _ in owners(assigned))
    if consumers:
        assert set(held) == set(range(count))
    sizes = [len(each.segments) for each in assigned]
    if 0 < consumers <= count:
        assert set(held.values()) <= {1}
        assert max(sizes) - min(sizes) <= 1
    elif consumers:
        assert max(held.values(), default=0) <= buckets
        assert max(sizes) <= 1
        assert sum(sizes) == min(consumers, count * buckets)
    for each in assigned:
        assert each.shared == tuple(one for one in each.segments if held[one] > 1)


def subscription(type_=STREAM, *drained):
    return Subscription("s", type_, SubscriptionPhase.LIVE, 1, drained=frozenset(drained))


def ids(topic, of):
    return [each.segment_id for each in eligible(topic.by_range, of)]


def test_children_of_a_stream_follow_their_drained_parents():
    topic = changed(changed(new_topic(), SPLIT, 0), MERGE, 1, 2)  # 0 → 1 2 → 3

    assert ids(topic, subscription()) == [1, 0, 2]
    assert ids(topic, subscription(STREAM, 0)) == [1, 2]
    assert ids(topic, subscription(STREAM, 0, 1)) == [2]
    assert ids(topic, subscription(STREAM, 0, 1, 2)) == [3]
    assert ids(topic, subscription(CHECKPOINT)) == [1, 0, 3, 2]


def test_a_pruned_parent_keeps_nobody_back():
    topic = after(changed(new_topic(), SPLIT, 0), PruneSegments((0,)))

    assert ids(topic, subscription()) == [1, 2]


def test_marks_of_one_subscription_do_not_count_for_another():
    topic = after(
        new_topic(), CreateSubscription("s", STREAM, 1), CreateSubscription("t", STREAM, 1)
    )
    topic = changed(topic, SPLIT, 0)
    assert MarkDrained("s", 0)
    assert ids(topic, topic.subscriptions["t"]) == [0]
