"""Who consumes which segments."""

import random
from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.scalable.buckets import equal_buckets
from nextgen.kernel.scalable.ranges import initial_ranges
from nextgen.kernel.scalable.segments import Segment
from shards.domain.scalable.commands import CreateSubscription, MarkDrained, PruneSegments
from shards.domain.scalable.decider import decide
from shards.domain.scalable.distribution import Layout, distribute
from shards.domain.scalable.events import ConsumerSegments
from shards.domain.scalable.state import Subscription, evolve
from shards.domain.scalable.vocabulary import SubscriptionPhase, SubscriptionType
from tests.support.shards.scalable import (
    MERGE,
    SPLIT,
    after,
    changed,
    histories,
    new_topic,
    registered,
)
from tests.support.shards.scalable import shares as topic_shares

STREAM, CHECKPOINT = SubscriptionType.STREAM, SubscriptionType.CHECKPOINT


def segments(count, buckets=1):
    return [
        Segment(number, each.start, each.end, 0, 0, bucket_starts=equal_buckets(buckets))
        for number, each in enumerate(initial_ranges(count) if count else ())
    ]


def names(count, first=0):
    return [f"c{number:02}" for number in range(first, first + count)]


def dealt(given_segments, consumers, before=(), *, may_share=True):
    return distribute(given_segments, consumers, before, may_share=may_share)


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
    assert shares(dealt(segments(count), names(consumers))) == expected


def test_more_consumers_than_segments_share_them_by_buckets():
    assert dealt(segments(2, buckets=2), names(5)) == (
        ConsumerSegments("c00", (0,), (0,)),
        ConsumerSegments("c01", (0,), (0,)),
        ConsumerSegments("c02", (1,), (1,)),
        ConsumerSegments("c03", (1,), (1,)),
        ConsumerSegments("c04", ()),
    )


def test_a_segment_with_one_owner_is_not_shared():
    assigned = dealt(segments(2, buckets=2), names(3))

    assert [each.shared for each in assigned] == [(0,), (0,), ()]


@pytest.mark.parametrize(
    ("type_", "third_takes_buckets", "expected"),
    [
        (STREAM, True, {"a": (0,), "b": (0,), "c": (0,)}),
        (STREAM, False, {"a": (0,), "b": (), "c": ()}),
        (CHECKPOINT, True, {"a": (0,), "b": (), "c": ()}),
    ],
)
def test_only_streams_of_consumers_that_all_take_buckets_share(
    type_, third_takes_buckets, expected
):
    """Readers of a checkpoint group would each get every message of a shared segment."""
    consumers = {"a": True, "b": True, "c": third_takes_buckets}
    group = Subscription("s", type_, SubscriptionPhase.LIVE, 1, consumers=consumers)

    assert shares(Layout(segments(1, buckets=4)).reassign(group)) == expected


def test_a_join_moves_only_what_the_new_consumer_gets():
    before = dealt(segments(12), names(3))

    now = dealt(segments(12), names(4), before)

    assert moved(before, now) == 3
    assert Counter(map(len, shares(now).values())) == {3: 4}


def test_a_leave_moves_only_what_the_consumer_had():
    before = dealt(segments(12), names(4))

    now = dealt(segments(12), names(3, first=1), before)

    assert moved(before, now) == 3


def test_a_leave_from_a_shared_segment_moves_nobody_between_segments():
    before = (
        ConsumerSegments("a", (0,), (0,)),
        ConsumerSegments("b", (0,), (0,)),
        ConsumerSegments("c", (1,), (1,)),
        ConsumerSegments("d", (1,), (1,)),
        ConsumerSegments("e", (2,)),
    )

    now = dealt(segments(3, buckets=2), ["b", "c", "d", "e"], before)

    assert shares(now) == {"b": (0,), "c": (1,), "d": (1,), "e": (2,)}


def test_children_stay_with_the_consumer_of_their_parent():
    topic = changed(registered(new_topic(2), "a", "b"), SPLIT, 1)  # 1 → 2 3

    topic = after(topic, MarkDrained("s", 1))

    assert topic_shares(topic) == {"a": (0,), "b": (2, 3)}


def test_children_go_elsewhere_where_their_parents_consumer_has_enough():
    topic = changed(changed(registered(new_topic(2), "a", "b"), SPLIT, 1), SPLIT, 2)

    topic = after(topic, MarkDrained("s", 1), MarkDrained("s", 2))  # 1 → 2 3, 2 → 4 5

    assert topic_shares(topic) == {"a": (0, 5), "b": (4, 3)}


def test_what_a_consumer_keeps_counts_before_what_another_inherits():
    before = (ConsumerSegments("a", (9,)), ConsumerSegments("b", (0, 1, 2)))
    kept = segments(3)
    children = [Segment(10 + number, 0, 0, 0, 0, parents=(9,)) for number in range(4)]

    now = dealt([*kept, *children], ["a", "b", "c"], before)

    assert shares(now) == {"a": (10, 11), "b": (0, 1, 2), "c": (12, 13)}


@given(
    st.integers(0, 9), st.integers(1, 3), st.integers(0, 12), st.integers(0, 12), st.integers(0, 4)
)
def test_a_distribution_is_complete_even_and_stays(count, buckets, earlier, consumers, first):
    given_segments = segments(count, buckets)
    before = dealt(given_segments, names(earlier))
    present = names(consumers, first)

    assigned = dealt(given_segments, present, before)

    assert dealt(given_segments, present, assigned) == assigned
    assert [each.consumer_name for each in assigned] == present
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
    return [each.segment_id for each in Layout(topic.segments.values()).eligible(of)]


def test_children_of_a_stream_follow_their_drained_parents():
    topic = changed(changed(new_topic(), SPLIT, 0), MERGE, 1, 2)  # 0 → 1 2 → 3

    assert ids(topic, subscription()) == [0]
    assert ids(topic, subscription(STREAM, 0)) == [1, 2]
    assert ids(topic, subscription(STREAM, 0, 1)) == [2]
    assert ids(topic, subscription(STREAM, 0, 1, 2)) == [3]
    assert ids(topic, subscription(CHECKPOINT)) == [1, 0, 3, 2]


def test_an_empty_segment_between_holds_its_children_back_with_it():
    """1. 0 is split into 1 and 2, and 1 into 3 and 4 before anything is published to it.
    2. 1 has nothing to acknowledge, so it is drained at once.
    3. 3 and 4 wait for 0 all the same: they have later messages of its keys.
    """
    topic = changed(changed(new_topic(), SPLIT, 0), SPLIT, 1)

    assert ids(topic, subscription(STREAM, 1)) == [0]
    assert ids(topic, subscription(STREAM, 0, 1)) == [3, 4, 2]


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


# Any history ---------------------------------------------------------------------------------


def pairs(assigned):
    return {(each.consumer_name, one) for each in assigned for one in each.segments}


def sizes_of(given_segments, consumers, may_share):
    """Return the sizes, ascending, that an even distribution has: of consumers, or of segments."""
    if len(consumers) <= len(given_segments):
        bins = [len(given_segments)] * len(consumers)
        left = len(given_segments)
    else:
        bins = [each.bucket_count if may_share else 1 for each in given_segments]
        left = min(len(consumers), sum(bins))
    sizes = [0] * len(bins)
    while left and bins:
        least = min(size for size, most in zip(sizes, bins, strict=True) if size < most)
        at = next(place for place, size in enumerate(sizes) if size == least and size < bins[place])
        sizes[at] += 1
        left -= 1
    return sorted(sizes)


def even_distributions(given_segments, consumers, may_share):
    """Yield the pairs of each distribution that is as even as it can be."""
    ids_ = [each.segment_id for each in given_segments]
    expected = sizes_of(given_segments, consumers, may_share)
    if len(consumers) <= len(ids_):
        for chosen in product(consumers, repeat=len(ids_)):
            counts = Counter(dict.fromkeys(consumers, 0)) + Counter(chosen)
            if sorted(counts[each] for each in consumers) == expected:
                yield set(zip(chosen, ids_, strict=True))
        return
    most = {each.segment_id: each.bucket_count if may_share else 1 for each in given_segments}
    for placed in combinations(consumers, sum(expected)):
        for chosen in product(ids_, repeat=len(placed)):
            counts = Counter(chosen)
            if sorted(counts[each] for each in ids_) == expected and all(
                counts[each] <= most[each] for each in ids_
            ):
                yield set(zip(placed, chosen, strict=True))


@given(st.integers(0, 2**32))
def test_no_other_even_distribution_moves_fewer(seed):
    """Compare with all distributions there are, over a history of groups and layouts."""
    draw = random.Random(seed)
    before = ()
    for _ in range(5):
        pool = [
            Segment(number, 0, 0, 0, 0, bucket_starts=equal_buckets(draw.randint(1, 3)))
            for number in draw.sample(range(5), draw.randint(0, 4))
        ]
        consumers = sorted(draw.sample("abcde", draw.randint(1, 5)))
        may_share = draw.random() < 0.7

        assigned = dealt(pool, consumers, before, may_share=may_share)

        every = list(even_distributions(pool, consumers, may_share))
        assert pairs(assigned) in every
        kept = len(pairs(assigned) & pairs(before))
        assert kept == max(len(each & pairs(before)) for each in every)
        before = assigned


@given(history=histories())
def test_after_any_history_every_segment_that_may_be_read_has_its_owners(history):
    topic = None
    for command in history:
        decision = decide(topic, command)
        for event in getattr(decision, "events", ()):
            topic = evolve(topic, event)
        for each in topic.subscriptions.values() if topic else ():
            check_group(topic, each)


def check_group(topic, group):
    assert [each.consumer_name for each in group.assigned] == list(group.consumers)
    held = Counter(one for each in group.assigned for one in each.segments)
    given_ids = set()
    for segment in topic.segments.values():
        ancestors = drained_behind = set(segment.parents)
        while ancestors:
            ancestors = {
                parent for one in ancestors for parent in topic.segments[one].parents
            } - drained_behind
            drained_behind = drained_behind | ancestors
        in_order = group.type is not STREAM or drained_behind <= group.drained
        if in_order and segment.segment_id not in group.drained:
            given_ids.add(segment.segment_id)
    if group.consumers:
        assert given_ids <= set(held), "a segment that may be read has nobody"
    shared = {one for each in group.assigned for one in each.shared}
    assert shared == {one for one, count in held.items() if count > 1}
    assert not shared or (group.type is STREAM and all(group.consumers.values()))
    assert set(held) <= given_ids, "a drained segment or one that is to wait has an owner"
    assert all(count <= topic.segments[one].bucket_count for one, count in held.items())
