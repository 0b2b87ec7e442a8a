"""Decisions on the subscriptions of a scalable topic and on their consumers."""

import pytest

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.limits.pulsar import SUBSCRIPTION_NAME_BYTES_MAX
from nextgen.kernel.limits.scalable import (
    SCALABLE_CONSUMER_NAME_BYTES_MAX,
    SCALABLE_CONSUMERS_MAX,
    SCALABLE_SUBSCRIPTIONS_MAX,
)
from shards.domain.scalable.commands import (
    CreateSubscription,
    DeleteSubscription,
    FinishSubscriptionDeletion,
    MarkChildrenReady,
    MarkDrained,
    MarkSubscriptionReady,
    PruneSegments,
    RegisterConsumer,
    RemoveConsumer,
    SeekSubscription,
)
from shards.domain.scalable.decider import decide
from shards.domain.scalable.events import (
    ConsumerSegments,
    ScalableConsumerLeft,
    ScalableConsumerRegistered,
    ScalableSubscriptionCreated,
    ScalableSubscriptionReady,
    SegmentDrained,
    SegmentsAssigned,
)
from shards.domain.scalable.groups import segments_with_cursors
from shards.domain.scalable.vocabulary import SubscriptionPhase, SubscriptionType
from tests.support.shards.scalable import (
    CHECKPOINT,
    NAME,
    SPLIT,
    STREAM,
    accepted,
    after,
    changed,
    new_topic,
    plan,
    refused,
    registered,
    shares,
)

QUEUE = SubscriptionType.QUEUE
CREATED = CreateSubscription("s", STREAM, 1_000)
READY = MarkSubscriptionReady("s", tuple(range(9)), 0)


def live(topic):
    return after(topic, CREATED, READY)


def code_of(topic, command):
    return refused(topic, command).code


# Subscriptions -----------------------------------------------------------------------------------


def test_a_subscription_is_live_once_every_active_segment_has_its_cursor():
    topic = changed(new_topic(), SPLIT, 0)

    assert accepted(topic, CREATED) == [
        ScalableSubscriptionCreated(NAME, "topic-1", "s", STREAM, 1_000)
    ]
    topic = after(topic, CREATED)
    assert topic.subscriptions["s"].phase is SubscriptionPhase.CREATING
    assert topic.has_work
    refusal = refused(topic, MarkSubscriptionReady("s", (1,), 0))
    assert refusal.code is RejectionCode.VERSION_MISMATCH
    assert "1 segments lack its cursor" in refusal.message
    assert accepted(topic, MarkSubscriptionReady("s", (1, 2), 0)) == [
        ScalableSubscriptionReady(NAME, "topic-1", "s")
    ]
    topic = after(topic, READY)
    assert not topic.has_work
    assert accepted(topic, READY) == accepted(topic, CREATED) == []


def test_a_checkpoint_subscription_has_no_cursors():
    topic = after(new_topic(), CreateSubscription("s", CHECKPOINT, 1_000))

    assert topic.subscriptions["s"].phase is SubscriptionPhase.LIVE
    assert not topic.has_work
    assert code_of(topic, SeekSubscription("s", 9)) is RejectionCode.NOT_ALLOWED


def test_a_subscription_that_is_there_keeps_its_type():
    topic = live(new_topic())

    refused = decide(topic, CreateSubscription("s", QUEUE, 2_000))

    assert isinstance(refused, Rejected)
    assert refused.code is RejectionCode.NOT_ALLOWED
    assert "already as a stream, not a queue" in refused.message
    assert accepted(topic, CreateSubscription("s", STREAM, 2_000)) == []


def test_children_of_an_operation_get_the_cursor_from_the_operation_until_they_are_ready():
    topic = after(new_topic(), plan(SPLIT, 0), CREATED)
    assert segments_with_cursors(topic, topic.subscriptions["s"]) == {0}
    topic = after(topic, MarkChildrenReady(1, ("s",)))
    assert segments_with_cursors(topic, topic.subscriptions["s"]) == {0, 1, 2}


def test_a_seek_sets_every_cursor_and_forgets_what_was_drained():
    topic = changed(live(new_topic()), SPLIT, 0)
    topic = after(topic, MarkDrained("s", 0), SeekSubscription("s", 9))

    subscription = topic.subscriptions["s"]
    assert (subscription.phase, subscription.drained) == (SubscriptionPhase.SEEKING, frozenset())
    assert segments_with_cursors(topic, subscription) == {0, 1, 2}
    assert accepted(topic, SeekSubscription("s", 9)) == []
    assert accepted(topic, MarkDrained("s", 0)) == [], "it may be of before the seek"
    again = after(topic, SeekSubscription("s", 0, skips_all=True))
    for late in ((0, 1, 2), 9), ((0, 1, 2), 0):
        refusal = refused(again, MarkSubscriptionReady("s", *late))
        assert refusal.code is RejectionCode.VERSION_MISMATCH
    topic = after(again, MarkSubscriptionReady("s", (0, 1, 2), skips_all=True))
    assert topic.subscriptions["s"].phase is SubscriptionPhase.LIVE


def test_a_seek_to_the_end_of_a_sealed_segment_leaves_it_drained():
    topic = after(
        changed(registered(live(new_topic()), "a"), SPLIT, 0), SeekSubscription("s", 0, True)
    )
    assert shares(topic) == {"a": (0,)}

    topic = after(topic, MarkSubscriptionReady("s", (0, 1, 2), skips_all=True, drained=(0, 1, 7)))

    assert topic.subscriptions["s"].drained == {0}, "the others are active, or none"
    assert shares(topic) == {"a": (1, 2)}


def test_a_deleted_subscription_stays_until_its_cursors_are_gone():
    topic = registered(live(new_topic()), "a")
    assert code_of(topic, FinishSubscriptionDeletion("s")) is RejectionCode.NOT_ALLOWED

    topic = after(topic, DeleteSubscription("s"))

    assert topic.subscriptions["s"].phase is SubscriptionPhase.DELETING
    assert (topic.has_work, topic.has_consumers) == (True, False)
    assert shares(topic) == {}
    assert accepted(topic, DeleteSubscription("s")) == []
    for command in (
        CREATED,
        SeekSubscription("s", 9),
        READY,
        RegisterConsumer("s", "a", STREAM, takes_buckets=True, time_ms=1),
    ):
        refusal = refused(topic, command)
        assert refusal.code is RejectionCode.NOT_ALLOWED
        assert "is being deleted" in refusal.message
    topic = after(topic, FinishSubscriptionDeletion("s"))
    assert (topic.subscriptions, topic.has_work) == ({}, False)


def test_to_end_what_is_not_there_is_done_and_to_change_it_is_refused():
    topic = new_topic()

    for command in (
        FinishSubscriptionDeletion("s"),
        MarkDrained("s", 0),
        RemoveConsumer("s", "a", "left"),
    ):
        assert accepted(topic, command) == []
    for command in (DeleteSubscription("s"), SeekSubscription("s", 9), READY):
        assert code_of(topic, command) is RejectionCode.NOT_FOUND


def test_scalable_subscriptions_max_is_the_most_of_a_topic():
    topic = new_topic()
    for number in range(SCALABLE_SUBSCRIPTIONS_MAX):
        topic = after(topic, CreateSubscription(f"s{number:04}", QUEUE, 1_000))

    assert len(topic.subscriptions) == SCALABLE_SUBSCRIPTIONS_MAX
    assert code_of(topic, CREATED) is RejectionCode.LIMIT_EXCEEDED
    assert accepted(topic, CreateSubscription("s0007", QUEUE, 1_000)) == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ü" * (SUBSCRIPTION_NAME_BYTES_MAX // 2), None),
        ("ü" * (SUBSCRIPTION_NAME_BYTES_MAX // 2) + "x", RejectionCode.LIMIT_EXCEEDED),
        ("", RejectionCode.LIMIT_EXCEEDED),
        ("\ud800", RejectionCode.INVALID_NAME),
    ],
)
def test_names_of_subscriptions_have_bounds(name, code):
    decision = decide(new_topic(), CreateSubscription(name, QUEUE, 1_000))

    assert isinstance(decision, Accepted) if code is None else decision.code is code


# Drain marks -------------------------------------------------------------------------------------


def test_a_sealed_segment_is_drained_once():
    topic = changed(live(new_topic()), SPLIT, 0)

    assert accepted(topic, MarkDrained("s", 0)) == [SegmentDrained(NAME, "topic-1", "s", 0)]
    assert accepted(after(topic, MarkDrained("s", 0)), MarkDrained("s", 0)) == []
    assert accepted(topic, MarkDrained("s", 9)) == [], "it was pruned"
    assert code_of(topic, MarkDrained("s", 1)) is RejectionCode.NOT_ALLOWED


def test_a_segment_may_be_drained_before_the_subscription_has_all_of_its_cursors():
    topic = after(changed(new_topic(), SPLIT, 0), CreateSubscription("s", STREAM, 1_000))

    assert accepted(topic, MarkDrained("s", 0)) == [SegmentDrained(NAME, "topic-1", "s", 0)]


def test_a_report_that_may_be_of_before_a_seek_marks_nothing():
    topic = after(changed(live(new_topic()), SPLIT, 0), SeekSubscription("s", 9))

    assert accepted(topic, MarkDrained("s", 0)) == []


def test_a_pruned_segment_leaves_the_drain_marks():
    topic = after(changed(live(new_topic()), SPLIT, 0), MarkDrained("s", 0), PruneSegments((0,)))

    assert topic.subscriptions["s"].drained == frozenset()


# Consumers ---------------------------------------------------------------------------------------


def test_the_first_consumer_makes_its_subscription():
    register = RegisterConsumer("s", "a", STREAM, takes_buckets=True, time_ms=1_000)

    events = accepted(new_topic(2), register)

    assert events == [
        ScalableSubscriptionCreated(NAME, "topic-1", "s", STREAM, 1_000),
        ScalableConsumerRegistered(NAME, "topic-1", "s", "a", True),
        SegmentsAssigned(NAME, "topic-1", "s", (ConsumerSegments("a", (0, 1)),)),
    ]
    topic = after(new_topic(2), register)
    assert topic.has_consumers
    assert accepted(topic, register) == []


def test_a_consumer_of_another_type_is_refused():
    topic = live(new_topic())

    for type_ in (CHECKPOINT, QUEUE):
        register = RegisterConsumer("s", "a", type_, takes_buckets=True, time_ms=1_000)
        assert code_of(topic, register) is RejectionCode.NOT_ALLOWED


def test_a_consumer_leaves_and_its_segments_go_to_the_others():
    topic = registered(live(new_topic(2)), "a", "b")
    assert shares(topic) == {"a": (0,), "b": (1,)}

    events = accepted(topic, RemoveConsumer("s", "a", "left"))

    assert events == [
        ScalableConsumerLeft(NAME, "topic-1", "s", "a", "left"),
        SegmentsAssigned(NAME, "topic-1", "s", (ConsumerSegments("b", (0, 1)),)),
    ]
    topic = after(topic, RemoveConsumer("s", "a", "left"))
    assert accepted(topic, RemoveConsumer("s", "a", "expired")) == []
    topic = after(topic, RemoveConsumer("s", "b", "expired"))
    assert (topic.has_consumers, shares(topic)) == (False, {})


def test_a_consumer_that_cannot_share_ends_the_sharing():
    topic = registered(live(new_topic()), "a", "b")
    assert shares(topic) == {"a": (0,), "b": (0,)}

    topic = registered(topic, "b", takes_buckets=False)

    assert shares(topic) == {"a": (0,), "b": ()}


def test_scalable_consumers_max_counts_those_of_all_subscriptions():
    topic = new_topic()
    half = SCALABLE_CONSUMERS_MAX // 2
    for number in range(SCALABLE_CONSUMERS_MAX):
        name = "s" if number < half else "t"
        register = RegisterConsumer(name, f"c{number}", STREAM, takes_buckets=False, time_ms=1)
        topic = after(topic, register)

    more = RegisterConsumer("t", "one more", STREAM, takes_buckets=False, time_ms=1)
    assert code_of(topic, more) is RejectionCode.LIMIT_EXCEEDED
    known = RegisterConsumer("t", f"c{half}", STREAM, takes_buckets=True, time_ms=1)
    assert accepted(topic, known)


@pytest.mark.parametrize(
    ("size", "is_allowed"),
    [
        (0, False),
        (1, True),
        (SCALABLE_CONSUMER_NAME_BYTES_MAX, True),
        (SCALABLE_CONSUMER_NAME_BYTES_MAX + 1, False),
    ],
)
def test_scalable_consumer_name_bytes_max_bounds_a_name(size, is_allowed):
    register = RegisterConsumer("s", "x" * size, STREAM, takes_buckets=True, time_ms=1)

    assert isinstance(decide(new_topic(), register), Accepted) is is_allowed


def test_a_split_assigns_anew_and_keeps_children_back_until_the_parent_is_drained():
    topic = registered(live(new_topic(2)), "a", "b")

    topic = changed(topic, SPLIT, 0)

    assert shares(topic) == {"a": (0,), "b": (1,)}
    topic = after(topic, MarkDrained("s", 0))
    assert shares(topic) == {"a": (2, 3), "b": (1,)}
