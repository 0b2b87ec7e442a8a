"""A scalable topic as an aggregate: its life, and the promises that every aggregate keeps."""

from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.scalable import MIGRATED_PARTITIONS_MAX, SEGMENTS_PER_TOPIC_MAX
from nextgen.kernel.scalable.buckets import equal_buckets
from nextgen.kernel.scalable.segments import Segment
from shards.domain.scalable.commands import DeleteScalableTopic, PruneSegments
from shards.domain.scalable.decider import decide
from shards.domain.scalable.events import ScalableTopicCreated, ScalableTopicDeleted
from shards.domain.scalable.state import INITIAL, ScalableTopic, evolve
from shards.domain.states import StateKind
from tests.support.shards.aggregate_properties import AggregateUnderTest, check_all_promises
from tests.support.shards.scalable import (
    COMMANDS,
    NAME,
    SPLIT,
    accepted,
    after,
    changed,
    create,
    histories,
    migrate,
    new_topic,
    plan,
    refused,
)

LOWER = Segment(0, 0, 0x7FFF, 0, 1_000, bucket_starts=equal_buckets(2))
UPPER = Segment(1, 0x8000, 0xFFFF, 0, 1_000, bucket_starts=equal_buckets(2))
SCALABLE = AggregateUnderTest(decide, evolve, StateKind.SCALABLE_TOPIC, lambda topic: topic.name)


def test_a_new_topic_has_the_segments_that_were_asked_for():
    (created,) = accepted(INITIAL, create(2))

    assert created == ScalableTopicCreated(NAME, "topic-1", (LOWER, UPPER))
    assert evolve(INITIAL, created) == ScalableTopic("topic-1", NAME, 0, 2, 1, {0: LOWER, 1: UPPER})


def test_a_classic_topic_becomes_scalable_with_migrated_partitions_max_partitions_at_most():
    topic = after(INITIAL, *migrate(MIGRATED_PARTITIONS_MAX))

    assert topic.operation is not None
    assert len(topic.operation.children) == MIGRATED_PARTITIONS_MAX
    made, _ = migrate(MIGRATED_PARTITIONS_MAX + 1)
    assert refused(INITIAL, made).code is RejectionCode.LIMIT_EXCEEDED


def test_creating_it_again_is_a_retry_with_the_same_id_only():
    assert accepted(new_topic(), create(2)) == []
    assert refused(new_topic(), create(1, "topic-2")).code is RejectionCode.ALREADY_EXISTS


def test_a_new_topic_has_segments_per_topic_max_segments_at_most():
    assert len(new_topic(SEGMENTS_PER_TOPIC_MAX).segments) == SEGMENTS_PER_TOPIC_MAX
    for count in (0, -1, SEGMENTS_PER_TOPIC_MAX + 1, 10_000):
        assert refused(INITIAL, create(count)).code is RejectionCode.LIMIT_EXCEEDED


def test_a_topic_is_deleted_by_its_id():
    assert accepted(new_topic(), DeleteScalableTopic(NAME, "topic-1")) == [
        ScalableTopicDeleted(NAME, "topic-1", ("0000-ffff-0",))
    ]
    assert accepted(new_topic(), DeleteScalableTopic(NAME, "topic-2")) == []
    assert accepted(INITIAL, DeleteScalableTopic(NAME, "topic-1")) == []


def test_a_deletion_names_all_segments_that_may_have_messages():
    """The layout's, those of the operation under way, and those that are being removed."""
    topic = changed(changed(new_topic(), SPLIT, 0), SPLIT, 2)
    topic = after(topic, PruneSegments((0,)), plan(SPLIT, 1))

    (deleted,) = accepted(topic, DeleteScalableTopic(NAME, "topic-1"))

    numbers = [segment.rpartition("-")[2] for segment in deleted.segments]
    assert numbers == ["0", "1", "2", "3", "4", "5", "6"]
    assert deleted.segments[:2] == ("0000-ffff-0", "0000-7fff-1")


def test_nothing_is_changed_on_a_topic_that_is_not_there():
    assert refused(INITIAL, plan(SPLIT, 0)).code is RejectionCode.NOT_FOUND


@given(history=histories(), command=COMMANDS, cut=st.integers(0, 100))
def test_retry_replay_snapshot_and_total_hold(history, command, cut):
    check_all_promises(SCALABLE, history, command, cut)
