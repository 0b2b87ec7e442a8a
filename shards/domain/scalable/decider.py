"""Decides the commands of a scalable topic.

Whatever changes the segments or the consumers of a subscription decides who consumes what from then
on, in the same record.
"""

from __future__ import annotations

from collections.abc import Iterable

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode, fold
from nextgen.kernel.limits.scalable import MIGRATED_PARTITIONS_MAX, SEGMENTS_PER_TOPIC_MAX
from nextgen.kernel.scalable.buckets import buckets_of_new_topic
from nextgen.kernel.scalable.ranges import initial_ranges
from nextgen.kernel.scalable.segments import Segment
from shards.domain.scalable import groups, layout_changes
from shards.domain.scalable.commands import (
    AbandonLayoutChange,
    CreateScalableTopic,
    DeleteScalableTopic,
    GroupCommand,
    MarkChildrenReady,
    PlanLayoutChange,
    PostponePrune,
    PruneSegments,
    RemoveSegmentStorage,
    ScalableTopicCommand,
    SealSegment,
    SegmentCommand,
)
from shards.domain.scalable.distribution import Layout
from shards.domain.scalable.events import (
    LayoutChanged,
    LayoutEvent,
    ScalableConsumerLeft,
    ScalableConsumerRegistered,
    ScalableSubscriptionSought,
    ScalableTopicCreated,
    ScalableTopicDeleted,
    ScalableTopicEvent,
    SegmentDrained,
    SegmentsAssigned,
    SubscriptionEvent,
)
from shards.domain.scalable.state import ScalableTopic, ScalableTopicState, evolve

_OF_SUBSCRIPTIONS = (
    ScalableSubscriptionSought,
    SegmentDrained,
    ScalableConsumerRegistered,
    ScalableConsumerLeft,
)
"""Events after which the consumers of their subscription may have other segments."""


def decide(
    topic: ScalableTopicState, command: ScalableTopicCommand
) -> Accepted[ScalableTopicEvent] | Rejected:
    """Decide what ``command`` means for ``topic``."""
    match command:
        case CreateScalableTopic():
            return _decide_create(topic, command)
        case DeleteScalableTopic():
            if topic is None or topic.topic_id != command.topic_id:
                return Accepted(())
            segments = tuple([each.descriptor.text for each in topic.stored])
            return Accepted((ScalableTopicDeleted(topic.name, topic.topic_id, segments),))
    if topic is None:
        return Rejected(RejectionCode.NOT_FOUND, "there is no such scalable topic")
    decided = _decide_existing(topic, command)
    if isinstance(decided, Rejected):
        return decided
    events: tuple[ScalableTopicEvent, ...] = decided.events
    if not events:
        return Accepted(())
    before: ScalableTopicState = topic
    after = fold(evolve, before, events)
    assert after is not None, "only a deletion ends a topic"
    return Accepted((*events, *_reassigned(after, events)))


def _decide_existing(
    topic: ScalableTopic, command: SegmentCommand | GroupCommand
) -> Accepted[LayoutEvent] | Accepted[SubscriptionEvent] | Rejected:
    match command:
        case (
            PlanLayoutChange()
            | MarkChildrenReady()
            | SealSegment()
            | AbandonLayoutChange()
            | PruneSegments()
            | PostponePrune()
            | RemoveSegmentStorage()
        ):
            return layout_changes.decide(topic, command)
        case _:
            return groups.decide(topic, command)


def check_segments(count: int) -> Rejected | None:
    """Return why no scalable topic begins with ``count`` segments; None if one may."""
    if 1 <= count <= SEGMENTS_PER_TOPIC_MAX:
        return None
    return Rejected(
        RejectionCode.LIMIT_EXCEEDED,
        f"a scalable topic begins with 1 to {SEGMENTS_PER_TOPIC_MAX} segments, not {count}",
    )


def check_migrated(name: str, units: int) -> Rejected | None:
    """Return why a classic topic of so many ``units`` does not become scalable; None if it may."""
    if units <= MIGRATED_PARTITIONS_MAX:
        return None
    return Rejected(
        RejectionCode.LIMIT_EXCEEDED,
        f"a classic topic of {units} partitions does not become {name}: at most "
        f"{MIGRATED_PARTITIONS_MAX} are allowed",
    )


def _decide_create(
    topic: ScalableTopicState, command: CreateScalableTopic
) -> Accepted[ScalableTopicEvent] | Rejected:
    if topic is not None:
        if topic.topic_id == command.topic_id:
            return Accepted(())
        return Rejected(RejectionCode.ALREADY_EXISTS, f"topic {command.name} already exists")
    count = len(command.legacy) or command.segments
    refusal = check_migrated(command.name, count) if command.legacy else check_segments(count)
    if refusal is not None:
        return refusal
    buckets = () if command.legacy else buckets_of_new_topic(count)
    names = command.legacy or ("",) * count
    segments = [
        Segment(
            segment_id=number,
            hash_start=within.start,
            hash_end=within.end,
            created_at_epoch=0,
            # Of a classic unit clients knew no time, and must not take it for a new one.
            created_at_ms=0 if name else command.time_ms,
            bucket_starts=buckets,
            legacy_topic_name=name,
        )
        for number, (within, name) in enumerate(zip(initial_ranges(count), names, strict=True))
    ]
    return Accepted((ScalableTopicCreated(command.name, command.topic_id, tuple(segments)),))


def _reassigned(
    topic: ScalableTopic, events: Iterable[ScalableTopicEvent]
) -> Iterable[SegmentsAssigned]:
    """Yield the assignments that differ after ``events``, which led to ``topic``."""
    names: set[str] = set()
    for event in events:
        if isinstance(event, LayoutChanged):
            names.update(topic.subscriptions)
        elif isinstance(event, _OF_SUBSCRIPTIONS):
            names.add(event.subscription)
    groups = [topic.subscriptions[name] for name in sorted(names & topic.subscriptions.keys())]
    groups = [each for each in groups if each.consumers or each.assigned]
    if not groups:
        return
    layout = Layout(topic.segments.values())
    for group in groups:
        assigned = layout.reassign(group)
        if assigned != group.assigned:
            yield SegmentsAssigned(topic.name, topic.topic_id, group.name, assigned)
