"""The layout of a backup is restored as it was, and its segments are replaced."""

from dataclasses import replace

import pytest
from hypothesis import given

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.scalable import (
    BUCKETS_PER_SEGMENT_MAX,
    SCALABLE_SUBSCRIPTIONS_MAX,
    SEGMENTS_PER_TOPIC_MAX,
)
from nextgen.kernel.routing.names import SEGMENT_ID_MAX
from nextgen.kernel.scalable.buckets import equal_buckets
from nextgen.kernel.scalable.ranges import are_tiling
from nextgen.kernel.scalable.segments import SegmentEnd
from shards.domain.scalable.commands import (
    AbandonLayoutChange,
    CreateSubscription,
    DeleteSubscription,
    MarkChildrenReady,
    MarkDrained,
    MarkSubscriptionReady,
    PruneSegments,
    SealSegment,
    SeekSubscription,
)
from shards.domain.scalable.decider import decide
from shards.domain.scalable.restore import restore_scalable
from shards.domain.scalable.state import evolve
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionPhase, SubscriptionType
from tests.support.shards.scalable import (
    SPLIT,
    accepted,
    after,
    changed,
    finish,
    histories,
    new_topic,
    plan,
    refused,
    registered,
)

LEAST = 1 << 32
QUEUE = SubscriptionType.QUEUE


def decided(wanted, least=LEAST):
    return restore_scalable(None, wanted, wanted.topic_id, least, 9_000)


def restored(wanted, least=LEAST):
    decision = decided(wanted, least)
    assert isinstance(decision, Accepted), decision
    topic = None
    for event in decision.events:
        topic = evolve(topic, event)
    return topic


def without_live_state(subscriptions):
    return {
        name: replace(each, consumers={}, assigned=(), drained=frozenset())
        for name, each in subscriptions.items()
    }


# At random ---------------------------------------------------------------------------------------


@given(histories())
def test_a_layout_comes_back_equal_and_no_number_is_used_again(history):
    """Restored, and restored once more, wherever a history has come to."""
    topic = None
    for command in history:
        decision = decide(topic, command)
        for event in decision.events if isinstance(decision, Accepted) else ():
            topic = evolve(topic, event)
    if topic is not None:
        _check_restored(topic)
        _check_restored(finish(restored(topic)), 2 * LEAST)


def _check_restored(wanted, least=LEAST):
    topic = restored(wanted, least)

    assert (topic.topic_id, topic.name) == (wanted.topic_id, wanted.name)
    assert (topic.segments, topic.removals) == (wanted.segments, wanted.removals)
    assert topic.subscriptions == without_live_state(wanted.subscriptions)
    assert topic.epoch >= least > wanted.epoch
    operation = topic.operation
    is_classic = any(each.legacy_topic_name for each in wanted.active)
    assert operation.kind is (ChangeKind.MIGRATE if is_classic else ChangeKind.RESTORE)
    assert operation.operation_id == wanted.last_operation_id + 1
    assert set(operation.parents) == wanted.segments.keys()
    assert all(least <= each.segment_id < topic.next_segment_id for each in operation.children)
    _check_replaced(topic, finish(topic))


def _check_replaced(topic, done):
    assert done.operation is None
    assert done.epoch == topic.epoch + 1
    assert [each.hash_range for each in done.active] == [each.hash_range for each in topic.active]
    assert are_tiling(each.hash_range for each in done.active)
    if any(each.legacy_topic_name for each in topic.active):
        assert {each.parents for each in done.active} == {tuple(topic.segments)}
        return
    for each in done.active:
        (parent,) = each.parents
        assert done.segments[parent].children == (each.segment_id,)
        assert (each.bucket_starts, each.merge_depth) == (
            topic.segments[parent].bucket_starts,
            topic.segments[parent].merge_depth,
        )


# What becomes of a topic -------------------------------------------------------------------------


def test_subscriptions_keep_their_phase_and_lose_consumers_and_marks():
    topic = registered(changed(new_topic(), SPLIT, 0), "a", "b")
    topic = after(topic, MarkSubscriptionReady("s", (1, 2)), MarkDrained("s", 0))
    topic = after(topic, CreateSubscription("q", QUEUE, 1_500), DeleteSubscription("q"))
    topic = after(topic, CreateSubscription("c", SubscriptionType.CHECKPOINT, 1_500))
    topic = after(topic, CreateSubscription("new", QUEUE, 1_500))
    topic = after(topic, CreateSubscription("z", QUEUE, 1_500), SeekSubscription("z", 77))
    assert topic.subscriptions["s"].drained

    found = restored(topic).subscriptions

    assert {name: each.phase for name, each in found.items()} == {
        "c": SubscriptionPhase.LIVE,
        "new": SubscriptionPhase.CREATING,
        "q": SubscriptionPhase.DELETING,
        "s": SubscriptionPhase.LIVE,
        "z": SubscriptionPhase.SEEKING,
    }
    assert found == without_live_state(topic.subscriptions)


def test_an_operation_is_left_out_and_the_ids_of_its_children_are_not_used_again():
    topic = after(new_topic(), plan(SPLIT, 0), MarkChildrenReady(1, ()))

    found = restored(topic, least=0)

    assert list(found.segments) == [0]
    assert found.removals == ()
    (child,) = found.operation.children
    assert (child.segment_id, found.operation.operation_id) == (3, 2)


def test_sealed_segments_end_once_more_and_keep_their_relatives():
    """There may be no messages any more: what ended at 4:17 may be empty now."""
    topic = restored(changed(new_topic(), SPLIT, 0))
    before = topic.segments[0]
    operation = topic.operation
    topic = after(topic, MarkChildrenReady(operation.operation_id, ()))

    for each in operation.parents:
        command = SealSegment(operation.operation_id, each, SegmentEnd(-1, -1), 9_500)
        topic = after(topic, command)
        assert accepted(topic, command) == []

    assert topic.segments[0] == replace(before, end=SegmentEnd(-1, -1))
    assert topic.segments[1].is_sealed
    assert topic.segments[1].sealed_at_epoch == topic.epoch == LEAST + 1


def test_the_operation_of_a_restore_is_not_taken_back_and_keeps_its_parents():
    topic = restored(changed(new_topic(), SPLIT, 0))
    operation = topic.operation

    refusal = refused(topic, AbandonLayoutChange(operation.operation_id, "asked"))
    assert refusal.message.endswith("follows a restore: it can only go on")
    assert refused(topic, PruneSegments((0,))).code is RejectionCode.NOT_ALLOWED
    assert refused(topic, plan(SPLIT, 1)).code is RejectionCode.NOT_ALLOWED
    assert accepted(finish(topic), PruneSegments((0,)))


def test_a_layout_that_is_there_is_left_as_it_is():
    topic = restored(new_topic())

    assert restore_scalable(topic, new_topic(), "topic-1", LEAST, 9_000) == Accepted(())


@pytest.mark.parametrize("topic_id", [None, "topic-2"])
def test_a_layout_needs_its_topic(topic_id):
    decision = restore_scalable(None, new_topic(), topic_id, LEAST, 9_000)

    assert isinstance(decision, Rejected)
    assert decision.code is RejectionCode.NOT_FOUND


# Limits and bad input ----------------------------------------------------------------------------


def test_segments_per_topic_max_are_restored_and_one_more_is_refused():
    """At the limit there is no room for others: sealed segments end again, the rest goes on."""
    half = SEGMENTS_PER_TOPIC_MAX // 2
    topic = new_topic(half + 1)
    for segment_id in range(half - 2):
        buckets = 1 + (segment_id % 2)
        topic = changed(topic, ChangeKind.REBUCKET, segment_id, buckets=3 + buckets)
    assert len(topic.segments) == SEGMENTS_PER_TOPIC_MAX - 1
    operation = restored(topic).operation
    assert len(operation.children) == 1
    assert len(operation.parents) == half - 2 + 1

    full = changed(topic, ChangeKind.REBUCKET, half - 1, buckets=3)
    operation = restored(full).operation
    assert operation.children == ()
    assert operation.parents == tuple([*range(half - 2), half - 1])
    assert finish(restored(full)).active == full.active

    added = replace(full.segments[0], segment_id=full.next_segment_id)
    more = replace(
        full,
        segments={**full.segments, added.segment_id: added},
        next_segment_id=full.next_segment_id + 1,
    )
    assert "segments" in decided(more).message


def test_a_full_topic_without_sealed_segments_is_restored_as_it_is():
    assert restored(new_topic(SEGMENTS_PER_TOPIC_MAX)).operation is None


def _with_segment(**fields):
    topic = new_topic()
    return replace(topic, segments={0: replace(topic.segments[0], **fields)})


def _with_subscriptions(count):
    topic = after(new_topic(), CreateSubscription("s", QUEUE, 1))
    one = topic.subscriptions["s"]
    named = {f"s{number}": replace(one, name=f"s{number}") for number in range(count)}
    return replace(topic, subscriptions=named)


def test_scalable_subscriptions_max_and_buckets_per_segment_max_are_restored_and_no_more():
    assert restored(_with_subscriptions(SCALABLE_SUBSCRIPTIONS_MAX))
    assert "subscriptions" in decided(_with_subscriptions(SCALABLE_SUBSCRIPTIONS_MAX + 1)).message
    most = equal_buckets(BUCKETS_PER_SEGMENT_MAX)
    assert restored(_with_segment(bucket_starts=most))
    assert "segment" in decided(_with_segment(bucket_starts=(*most, 0xFFFF))).message


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (replace(new_topic(), segments={}), "has 0 segments"),
        (_with_segment(hash_end=0x10000), "impossible segment"),
        (_with_segment(hash_end=0xFFFE), "do not tile"),
        (_with_segment(is_sealed=True), "do not tile"),
        (_with_segment(segment_id=1), "impossible segment"),
        (_with_segment(parents=(7,)), "unknown relatives"),
        (replace(new_topic(), next_segment_id=SEGMENT_ID_MAX), "used all segment ids"),
        (
            replace(
                _with_subscriptions(1),
                subscriptions={"": replace(_with_subscriptions(1).subscriptions["s0"], name="")},
            ),
            "a subscription name has 0 bytes",
        ),
    ],
)
def test_a_layout_that_nobody_could_serve_is_refused(wanted, why):
    decision = decided(wanted)

    assert isinstance(decision, Rejected)
    assert why in decision.message
