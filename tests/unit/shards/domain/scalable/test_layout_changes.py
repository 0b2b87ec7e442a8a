"""Decisions on the segments of a scalable topic."""

from dataclasses import replace

import pytest
from hypothesis import given

from nextgen.kernel.events.decider import Accepted, RejectionCode
from nextgen.kernel.limits.scalable import BUCKETS_PER_SEGMENT_MAX, SEGMENTS_PER_TOPIC_MAX
from nextgen.kernel.scalable.buckets import equal_buckets
from nextgen.kernel.scalable.ranges import are_tiling
from nextgen.kernel.scalable.segments import Segment, SegmentEnd
from shards.domain.scalable.commands import (
    AbandonLayoutChange,
    CreateSubscription,
    DeleteSubscription,
    MarkChildrenReady,
    MarkDrained,
    MarkSubscriptionReady,
    PostponePrune,
    PruneSegments,
    RemoveSegmentStorage,
    SealSegment,
    SeekSubscription,
)
from shards.domain.scalable.decider import decide
from shards.domain.scalable.events import (
    LayoutChangeAbandoned,
    LayoutChanged,
    LayoutChangePlanned,
    SegmentChildrenReady,
    SegmentSealed,
    SegmentStorageRemoved,
)
from shards.domain.scalable.state import LayoutOperation, evolve
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionType
from tests.support.shards.scalable import (
    END,
    MERGE,
    NAME,
    REBUCKET,
    SPLIT,
    accepted,
    after,
    changed,
    create,
    finish,
    histories,
    migrate,
    new_topic,
    plan,
    refused,
)

QUEUE, STREAM = SubscriptionType.QUEUE, SubscriptionType.STREAM
CHECKPOINT = SubscriptionType.CHECKPOINT
PRUNE, MIGRATE = ChangeKind.PRUNE, ChangeKind.MIGRATE


def ranges_of(topic):
    return [each.descriptor.text for each in topic.active]


# Splits, merges, other buckets -------------------------------------------------------------------


def test_a_split_is_planned_with_the_ids_and_halves_of_its_children():
    topic = new_topic()

    (planned,) = accepted(topic, plan(SPLIT, 0))

    lower = Segment(1, 0, 0x7FFF, 1, 2_000, (0,), bucket_starts=equal_buckets(2))
    upper = Segment(2, 0x8000, 0xFFFF, 1, 2_000, (0,), bucket_starts=equal_buckets(2))
    assert planned == LayoutChangePlanned(
        NAME, "topic-1", 1, SPLIT, (0,), (lower, upper), "operator", 2_000
    )
    topic = after(topic, plan(SPLIT, 0))
    assert (topic.epoch, topic.next_segment_id, list(topic.segments)) == (0, 3, [0])
    assert topic.has_work


def test_a_split_commits_with_the_end_of_its_parent():
    topic = after(new_topic(), plan(SPLIT, 0), MarkChildrenReady(1, ()))

    sealed, committed = accepted(topic, SealSegment(1, 0, END, 3_000))

    assert sealed == SegmentSealed(NAME, "topic-1", 1, 0, END)
    assert isinstance(committed, LayoutChanged)
    assert (committed.epoch, committed.kind, committed.operation_id) == (1, SPLIT, 1)
    parent, lower, upper = committed.changed
    assert (parent.is_sealed, parent.sealed_at_epoch, parent.sealed_at_ms) == (True, 1, 3_000)
    assert (parent.end, parent.children) == (END, (1, 2))
    assert (lower.created_at_epoch, lower.created_at_ms, lower.parents) == (1, 3_000, (0,))
    topic = evolve(evolve(topic, sealed), committed)
    assert ranges_of(topic) == ["0000-7fff-1", "8000-ffff-2"]
    assert upper == topic.segments[2]
    assert not topic.has_work


def test_a_merge_commits_with_the_end_of_its_second_parent():
    topic = after(new_topic(2), plan(MERGE, 1, 0), MarkChildrenReady(1, ()))

    (first,) = accepted(topic, SealSegment(1, 0, END, 3_000))
    topic = evolve(topic, first)
    events = accepted(topic, SealSegment(1, 1, SegmentEnd(-1, -1), 3_500))

    assert isinstance(events[1], LayoutChanged)
    for event in events:
        topic = evolve(topic, event)
    child = topic.segments[2]
    assert (child.descriptor.text, child.parents) == ("0000-ffff-2", (1, 0))
    assert (child.bucket_count, child.merge_depth) == (4, 1)
    assert [topic.segments[each].end for each in (0, 1)] == [END, SegmentEnd(-1, -1)]


def test_other_buckets_make_a_child_of_the_same_range():
    topic = changed(new_topic(), REBUCKET, 0, buckets=7)

    child = topic.segments[1]
    assert (child.descriptor.text, child.bucket_count) == ("0000-ffff-1", 7)
    assert (child.parents, child.merge_depth) == ((0,), 0)


def test_the_merge_depth_counts_the_merges_on_the_longest_way_and_survives_pruning():
    topic = changed(new_topic(4), MERGE, 0, 1)  # 4
    topic = changed(topic, MERGE, 2, 3)  # 5
    topic = changed(topic, MERGE, 4, 5)  # 6
    topic = after(topic, PruneSegments((0, 1, 2, 3, 4, 5)))
    topic = changed(topic, SPLIT, 6)

    assert list(topic.segments) == [6, 7, 8]
    assert [each.merge_depth for each in topic.segments.values()] == [2, 2, 2]


def test_epochs_of_an_operation_are_those_of_its_commit():
    """A prune may come between its plan and its end."""
    topic = changed(new_topic(), SPLIT, 0)
    topic = after(topic, plan(SPLIT, 1), PruneSegments((0,)))

    topic = finish(topic)

    assert topic.epoch == 3
    assert topic.segments[3].created_at_epoch == topic.segments[1].sealed_at_epoch == 3


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (plan(SPLIT, 3), RejectionCode.NOT_FOUND, "has no segment 3"),
        (plan(SPLIT, -1), RejectionCode.NOT_FOUND, "has no segment -1"),
        (plan(SPLIT, 0), RejectionCode.NOT_ALLOWED, "segment 0 .* is sealed"),
        (plan(SPLIT, 1, 2), RejectionCode.NOT_ALLOWED, "no split of 2 segments"),
        (plan(SPLIT), RejectionCode.NOT_ALLOWED, "no split of 0 segments"),
        (plan(PRUNE, 0), RejectionCode.NOT_ALLOWED, "no prune of 1 segments"),
        (plan(MERGE, 1), RejectionCode.NOT_ALLOWED, "no merge of 1 segments"),
        (plan(MERGE, 1, 1), RejectionCode.NOT_ALLOWED, "segment 1 .* is not adjacent to segment 1"),
        (plan(REBUCKET, 1, buckets=2), RejectionCode.NOT_ALLOWED, "has 2 entry buckets already"),
    ],
)
def test_what_cannot_be_changed_is_refused(command, code, message):
    topic = changed(new_topic(), SPLIT, 0)

    refusal = refused(topic, command)

    assert refusal.code is code
    assert __import__("re").search(message, refusal.message)


def test_segments_that_are_not_neighbours_are_not_merged():
    refusal = refused(new_topic(3), plan(MERGE, 0, 2))

    assert refusal.code is RejectionCode.NOT_ALLOWED
    assert "is not adjacent to segment 2" in refusal.message


def test_a_range_of_one_value_is_not_split():
    topic = new_topic()
    one = replace(topic.segments[0], hash_end=0)

    refusal = refused(replace(topic, segments={0: one}), plan(SPLIT, 0))

    assert refusal.code is RejectionCode.NOT_ALLOWED
    assert "cannot be split" in refusal.message


@pytest.mark.parametrize(
    ("buckets", "is_allowed"),
    [(0, False), (1, True), (BUCKETS_PER_SEGMENT_MAX, True), (BUCKETS_PER_SEGMENT_MAX + 1, False)],
)
def test_buckets_per_segment_max_is_the_most_that_a_segment_gets(buckets, is_allowed):
    decision = decide(new_topic(), plan(REBUCKET, 0, buckets=buckets))

    assert isinstance(decision, Accepted) is is_allowed
    if not is_allowed:
        assert decision.code is RejectionCode.LIMIT_EXCEEDED


def test_segments_per_topic_max_counts_sealed_ones_and_children():
    topic = new_topic(SEGMENTS_PER_TOPIC_MAX - 1)

    assert refused(topic, plan(SPLIT, 0)).code is RejectionCode.LIMIT_EXCEEDED
    full = changed(topic, MERGE, 0, 1)
    assert len(full.segments) == SEGMENTS_PER_TOPIC_MAX
    assert refused(full, plan(MERGE, 2, 3)).code is RejectionCode.LIMIT_EXCEEDED


# One operation at a time -------------------------------------------------------------------------


def test_another_operation_waits_until_the_first_has_ended():
    topic = after(new_topic(2), plan(SPLIT, 0))

    refusal = refused(topic, plan(SPLIT, 1))

    assert refusal.code is RejectionCode.NOT_ALLOWED
    assert refusal.message == f"operation 1 of {NAME} is under way: split of 0"
    assert accepted(finish(topic), plan(SPLIT, 1))


def test_the_same_operation_again_joins_the_first():
    topic = after(new_topic(2), plan(MERGE, 0, 1))
    assert accepted(topic, plan(MERGE, 0, 1, time_ms=9_000)) == []
    assert refused(topic, plan(MERGE, 1, 0)).code is RejectionCode.NOT_ALLOWED

    topic = after(new_topic(), plan(REBUCKET, 0, buckets=3))
    assert accepted(topic, plan(REBUCKET, 0, buckets=3)) == []
    assert refused(topic, plan(REBUCKET, 0, buckets=2)).code is RejectionCode.NOT_ALLOWED


def test_no_parent_is_sealed_before_the_children_are_ready():
    topic = after(new_topic(), plan(SPLIT, 0))

    assert refused(topic, SealSegment(1, 0, END, 3_000)).code is RejectionCode.NOT_ALLOWED


def test_children_are_ready_with_every_subscription_that_has_cursors():
    """A subscription that is created while they are made is on them as well."""
    topic = after(
        new_topic(),
        CreateSubscription("queue", QUEUE, 1_000),
        CreateSubscription("checkpoint", SubscriptionType.CHECKPOINT, 1_000),
        CreateSubscription("leaving", STREAM, 1_000),
        DeleteSubscription("leaving"),
        plan(SPLIT, 0),
        CreateSubscription("late", STREAM, 1_500),
    )

    refusal = refused(topic, MarkChildrenReady(1, ("queue",)))

    assert refusal.code is RejectionCode.VERSION_MISMATCH
    assert "lack 1 subscriptions, such as 'late'" in refusal.message
    (ready,) = accepted(topic, MarkChildrenReady(1, ("queue", "late", "of another time")))
    assert ready == SegmentChildrenReady(NAME, "topic-1", 1)
    topic = evolve(topic, ready)
    assert accepted(topic, MarkChildrenReady(1, ())) == []


def test_an_operation_is_taken_back_until_its_children_are_ready():
    topic = after(new_topic(2), plan(MERGE, 0, 1))

    (abandoned,) = accepted(topic, AbandonLayoutChange(1, "no broker"))

    assert abandoned == LayoutChangeAbandoned(NAME, "topic-1", 1, "no broker")
    back = evolve(topic, abandoned)
    assert (back.operation, back.epoch, ranges_of(back)) == (None, 0, ranges_of(new_topic(2)))
    assert [each.segment_id for each in back.removals] == [2]
    assert back.has_work
    assert accepted(back, AbandonLayoutChange(1, "again")) == []
    (planned,) = accepted(back, plan(MERGE, 0, 1))
    assert (planned.operation_id, planned.children[0].segment_id) == (2, 3)

    topic = after(topic, MarkChildrenReady(1, ()))
    for ready in (topic, after(topic, SealSegment(1, 0, END, 3_000))):
        refusal = refused(ready, AbandonLayoutChange(1, "no broker"))
        assert refusal.code is RejectionCode.NOT_ALLOWED
        assert refusal.message.startswith("the children of operation 1 of ")
        assert refusal.message.endswith(" are ready: it can only go on")


def test_steps_of_an_operation_that_is_not_under_way_are_refused():
    topic = after(new_topic(2), plan(SPLIT, 0), MarkChildrenReady(1, ()))

    for late in (MarkChildrenReady(2, ()), SealSegment(2, 0, END, 1), AbandonLayoutChange(2, "")):
        assert refused(topic, late).code is RejectionCode.NOT_FOUND
    assert refused(topic, SealSegment(1, 1, END, 1)).code is RejectionCode.NOT_FOUND
    assert accepted(finish(topic), SealSegment(1, 0, END, 9_000)) == []


# Pruning -----------------------------------------------------------------------------------------


def test_pruned_segments_leave_the_layout_and_their_relatives():
    topic = changed(changed(new_topic(), SPLIT, 0), SPLIT, 1)  # 0 → 1 2, 1 → 3 4

    (pruned,) = accepted(topic, PruneSegments((0,)))

    assert (pruned.kind, pruned.operation_id, pruned.epoch) == (PRUNE, 0, 3)
    assert pruned.removed == (0,)
    topic = evolve(topic, pruned)
    assert list(topic.segments) == [1, 2, 3, 4]
    assert topic.segments[1].parents == topic.segments[2].parents == ()
    assert topic.segments[3].parents == topic.segments[4].parents == (1,)
    assert [each.segment_id for each in topic.removals] == [0]
    assert accepted(topic, PruneSegments((0,))) == []
    assert accepted(topic, RemoveSegmentStorage(7)) == []
    (removed,) = accepted(topic, RemoveSegmentStorage(0))
    assert removed == SegmentStorageRemoved(NAME, "topic-1", 0)
    assert not evolve(topic, removed).has_work


def test_an_active_segment_and_one_that_never_was_are_not_pruned():
    topic = changed(new_topic(), SPLIT, 0)

    assert refused(topic, PruneSegments((0, 1))).code is RejectionCode.NOT_ALLOWED
    assert refused(topic, PruneSegments((3,))).code is RejectionCode.NOT_FOUND


def test_a_segment_with_a_parent_in_the_layout_is_pruned_with_it_or_not_at_all():
    """A stream's segments wait for all before them: see ``distribution``."""
    topic = changed(changed(new_topic(), SPLIT, 0), SPLIT, 1)  # 0 → 1 2, 1 → 3 4

    refusal = refused(topic, PruneSegments((1,)))

    assert refusal.code is RejectionCode.NOT_ALLOWED
    assert refusal.message.endswith(
        "segment 1 of topic://acme/orders/paid has a parent that stays in the layout"
    )
    assert list(after(topic, PruneSegments((1, 0))).segments) == [2, 3, 4]


@pytest.mark.parametrize(("type_", "holds"), [(STREAM, True), (QUEUE, True), (CHECKPOINT, False)])
def test_a_segment_is_pruned_when_every_subscription_with_cursors_has_drained_it(type_, holds):
    topic = after(new_topic(), CreateSubscription("s", type_, 1_000))
    topic = after(topic, MarkSubscriptionReady("s", (0,)))
    topic = changed(topic, SPLIT, 0)

    assert topic.prune_at_ms == (0 if holds else 1)
    if holds:
        refusal = refused(topic, PruneSegments((0,)))
        assert refusal.code is RejectionCode.NOT_ALLOWED
        assert refusal.message.endswith(" is not drained for every subscription")
    drained = after(topic, MarkDrained("s", 0)) if holds else topic
    assert drained.prune_at_ms == 1
    assert list(after(drained, PruneSegments((0,))).segments) == [1, 2]


def test_a_seek_and_a_new_subscription_hold_what_could_be_pruned():
    topic = after(new_topic(), CreateSubscription("s", STREAM, 1_000))
    topic = after(topic, MarkSubscriptionReady("s", (0,)))
    topic = after(changed(topic, SPLIT, 0), MarkDrained("s", 0))

    for command in (SeekSubscription("s", 0), CreateSubscription("t", QUEUE, 9)):
        assert refused(after(topic, command), PruneSegments((0,))).code is RejectionCode.NOT_ALLOWED
    deleted = after(topic, CreateSubscription("t", QUEUE, 9), DeleteSubscription("t"))
    assert list(after(deleted, PruneSegments((0,))).segments) == [1, 2]


def test_a_postponed_segment_is_due_at_its_time_and_the_first_of_several_counts():
    topic = changed(changed(new_topic(2), SPLIT, 0), SPLIT, 1)

    topic = after(topic, PostponePrune(0, 700), PostponePrune(1, 600))

    assert topic.prune_at_ms == 600
    assert accepted(topic, PostponePrune(0, 700)) == []
    assert after(topic, PostponePrune(1, 800)).prune_at_ms == 700
    assert after(topic, PruneSegments((1,))).postponed == {0: 700}
    assert refused(topic, PostponePrune(2, 9)).code is RejectionCode.NOT_ALLOWED
    assert accepted(topic, PostponePrune(99, 9)) == []


def test_a_sealed_parent_of_an_operation_is_not_examined():
    """A restore replaces the sealed segments of a backup, too."""
    topic = changed(new_topic(2), SPLIT, 0)
    restore = LayoutOperation(9, ChangeKind.RESTORE, (0, 1, 2, 3), (), "restore", 1)

    assert [each.segment_id for each in topic.prunable] == [0]
    assert replace(topic, operation=restore).prunable == []


def test_nothing_else_is_pruned_while_messages_are_being_removed():
    topic = changed(changed(new_topic(2), SPLIT, 0), SPLIT, 1)
    topic = after(topic, PruneSegments((0,)))

    assert (topic.prunable, topic.prune_at_ms) == ([], 0)
    topic = after(topic, RemoveSegmentStorage(0))
    assert [each.segment_id for each in topic.prunable] == [1]


# At random ---------------------------------------------------------------------------------------


@given(histories())
def test_active_ranges_tile_ids_never_repeat_and_epochs_rise_by_one(history):
    topic = None
    used = set()
    for command in history:
        decision = decide(topic, command)
        if not isinstance(decision, Accepted):
            continue
        for event in decision.events:
            before, topic = topic, evolve(topic, event)
            if topic is None:
                used = set()
                continue
            assert are_tiling(
                each.hash_range for each in topic.segments.values() if not each.is_sealed
            )
            assert list(topic.segments) == sorted(topic.segments)
            new = _ids(topic) - (_ids(before) if before is not None else set())
            assert not new & used
            used |= new
            assert topic.next_segment_id > max(used)
            is_change = isinstance(event, LayoutChanged)
            assert topic.epoch == (before.epoch + is_change if before is not None else 0)
            _check_relatives(topic)
            if is_change and before is not None:
                _check_pruned(before, event)


def _check_pruned(before, event):
    """What goes was drained by all, and nothing that stays in the layout came before it."""
    for segment_id in event.removed:
        segment = before.segments[segment_id]
        assert segment.is_sealed
        assert set(segment.parents) <= set(event.removed)
        for subscription in before.subscriptions.values():
            assert not subscription.has_cursors or segment_id in subscription.drained


def _ids(topic):
    planned = topic.operation.children if topic.operation is not None else ()
    gone = [each.segment_id for each in (*planned, *topic.removals)]
    return {*topic.segments, *gone}


def _check_relatives(topic):
    for segment in topic.segments.values():
        assert all(segment.segment_id in topic.segments[one].children for one in segment.parents)
        assert all(segment.segment_id in topic.segments[one].parents for one in segment.children)


# Migrations --------------------------------------------------------------------------------------


def test_a_classic_topic_ends_only_with_every_subscription_in_its_children():
    topic = after(None, *migrate(), MarkChildrenReady(1, ()), SealSegment(1, 0, END, 3_000))
    seal = SealSegment(1, 1, END, 3_000)

    late = after(topic, CreateSubscription("late", STREAM, 3_000))
    assert refused(late, seal).code is RejectionCode.VERSION_MISMATCH

    late = after(late, MarkSubscriptionReady("late", (0, 1, 2, 3)))
    assert after(late, seal).epoch == 1


def test_only_a_topic_of_classic_units_is_migrated():
    topic = finish(after(None, *migrate()))

    for migrated in (topic, new_topic(), after(None, create(), plan(SPLIT, 0))):
        assert refused(migrated, plan(MIGRATE)).code is RejectionCode.NOT_ALLOWED
    begun = after(None, *migrate())
    assert accepted(begun, plan(MIGRATE)) == []
    assert refused(begun, plan(SPLIT, 0)).code is RejectionCode.NOT_ALLOWED
    taken_back = after(begun, AbandonLayoutChange(1, "no broker"))
    assert refused(taken_back, plan(SPLIT, 0)).code is RejectionCode.NOT_ALLOWED
    assert after(taken_back, plan(MIGRATE)).next_segment_id == 6


def test_several_segments_get_other_buckets_in_one_operation():
    topic = after(new_topic(3), plan(REBUCKET, 0, 2, buckets=8))
    assert [each.parents for each in topic.operation.children] == [(0,), (2,)]

    topic = finish(topic)

    assert [(each.segment_id, each.bucket_count) for each in topic.active] == [
        (3, 8),
        (1, 1),
        (4, 8),
    ]
    assert topic.segments[0].children == (3,)
    assert topic.segments[2].children == (4,)
    assert are_tiling(each.hash_range for each in topic.active)


@pytest.mark.parametrize("segments", [(), (0, 0)])
def test_no_segment_and_the_same_twice_get_no_buckets(segments):
    assert refused(new_topic(2), plan(REBUCKET, *segments, buckets=8)).code is (
        RejectionCode.NOT_ALLOWED
    )
