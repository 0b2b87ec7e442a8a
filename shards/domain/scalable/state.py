"""The state of a scalable topic, and how its events change it.

    operation   planned ─▶ children ready ─▶ parents sealed, one by one ─▶ layout changed
                   ╰─▶ abandoned

Events carry the segments as they are afterwards, so ``evolve`` knows no rule of the layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from nextgen.kernel.scalable.auto_scale import GroupSizes, group_sizes
from nextgen.kernel.scalable.segments import Segment, SegmentEnd
from shards.domain.scalable.events import (
    Assigned,
    AutoScaleDecided,
    LayoutChangeAbandoned,
    LayoutChanged,
    LayoutChangePlanned,
    ScalableConsumerLeft,
    ScalableConsumerRegistered,
    ScalableSubscriptionCreated,
    ScalableSubscriptionDeleted,
    ScalableSubscriptionDeletionStarted,
    ScalableSubscriptionReady,
    ScalableSubscriptionSought,
    ScalableTopicCreated,
    ScalableTopicDeleted,
    ScalableTopicEvent,
    ScalableTopicRestored,
    SegmentChildrenReady,
    SegmentDrained,
    SegmentPrunePostponed,
    SegmentsAssigned,
    SegmentSealed,
    SegmentStorageRemoved,
    SubscriptionEvent,
)
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionPhase, SubscriptionType


@dataclass(frozen=True, slots=True)
class LayoutOperation:
    """An operation that is under way."""

    operation_id: int
    kind: ChangeKind
    parents: tuple[int, ...]
    children: tuple[Segment, ...]
    asked_by: str
    planned_at_ms: int
    are_children_ready: bool = False
    sealed: Mapping[int, SegmentEnd] = field(default_factory=dict)
    """The parents that have ended, in the order in which they did."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """``consumers`` are by name: whether each can share a segment. ``assigned`` has all of them."""

    name: str
    type: SubscriptionType
    phase: SubscriptionPhase
    created_at_ms: int
    consumers: Mapping[str, bool] = field(default_factory=dict)
    drained: frozenset[int] = frozenset()
    assigned: Assigned = ()
    seek_to_ms: int = 0
    skips_all: bool = False

    @property
    def has_cursors(self) -> bool:
        """Whether segments are to have a cursor of it."""
        return (
            self.type is not SubscriptionType.CHECKPOINT
            and self.phase is not SubscriptionPhase.DELETING
        )


@dataclass(frozen=True, slots=True)
class ScalableTopic:
    """State of a scalable topic that exists. ``segments`` are ascending by id, subscriptions by
    name."""

    topic_id: str
    name: str
    epoch: int
    next_segment_id: int
    version: int
    segments: Mapping[int, Segment]
    operation: LayoutOperation | None = None
    last_operation_id: int = 0
    removals: tuple[Segment, ...] = ()
    """Segments that are no longer in the layout, and whose messages are to go."""

    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    postponed: Mapping[int, int] = field(default_factory=dict)
    """Until when the pruning of a segment is put off, by the segment's id, ascending."""
    sealed_bytes: Mapping[int, int] = field(default_factory=dict)
    """Of all messages that a sealed segment had, by the segment's id, ascending."""

    @property
    def active(self) -> list[Segment]:
        """The segments that take messages, by range."""
        active = [each for each in self.segments.values() if not each.is_sealed]
        return sorted(active, key=_range_order)

    @property
    def by_range(self) -> list[Segment]:
        """All segments by range, then by id."""
        return sorted(self.segments.values(), key=_range_order)

    @property
    def stored(self) -> list[Segment]:
        """All segments of its own that may have messages, by id: those of the layout, those that
        an operation makes, and those that are being removed."""
        planned = () if self.operation is None else self.operation.children
        found = [*self.segments.values(), *planned, *self.removals]
        own = [each for each in found if not each.legacy_topic_name]
        return sorted(own, key=lambda each: each.segment_id)

    @property
    def has_work(self) -> bool:
        """Whether something was begun that is not finished."""
        return bool(
            self.operation is not None
            or self.removals
            or any(each.phase is not SubscriptionPhase.LIVE for each in self.subscriptions.values())
        )

    @property
    def has_consumers(self) -> bool:
        return any(each.consumers for each in self.subscriptions.values())

    @property
    def group_sizes(self) -> GroupSizes:
        """The sizes of the largest groups of registered consumers."""
        return group_sizes(
            [
                (each.type is SubscriptionType.STREAM, each.consumers)
                for each in self.subscriptions.values()
            ]
        )

    @property
    def drained(self) -> frozenset[int]:
        """The sealed segments that every subscription with cursors has drained."""
        sealed = frozenset([each.segment_id for each in self.segments.values() if each.is_sealed])
        groups = [each.drained for each in self.subscriptions.values() if each.has_cursors]
        return sealed.intersection(*groups)

    @property
    def prunable(self) -> list[Segment]:
        """The segments that may be pruned once their retention is over, by id.

        These are the sealed ones that every subscription with cursors has drained, that have no
        parents in the layout, and that are not parents of the operation under way. There are none
        while earlier ones are being removed.
        """
        if self.removals:
            return []
        free = self.drained.difference(() if self.operation is None else self.operation.parents)
        return [
            each for each in self.segments.values() if not each.parents and each.segment_id in free
        ]

    @property
    def prune_at_ms(self) -> int:
        """When the next of the ``prunable`` segments is to be examined; 0 if there is none."""
        times = [max(1, self.postponed.get(each.segment_id, 0)) for each in self.prunable]
        return min(times, default=0)


ScalableTopicState = ScalableTopic | None
INITIAL: ScalableTopicState = None


def _range_order(segment: Segment) -> tuple[int, int, int]:
    return segment.hash_start, segment.hash_end, segment.segment_id


def evolve(topic: ScalableTopicState, event: ScalableTopicEvent) -> ScalableTopicState:
    """Return ``topic`` as it is after ``event``."""
    match event:
        case ScalableTopicCreated() | ScalableTopicRestored():
            return _born(event)
        case ScalableTopicDeleted():
            return None
    assert topic is not None, f"{type(event).__name__} of {event.name}, never created"
    topic = replace(topic, version=topic.version + 1)
    match event:
        case LayoutChangePlanned():
            return _planned(topic, event)
        case SegmentChildrenReady():
            operation = _operation(topic, event.operation_id)
            return replace(topic, operation=replace(operation, are_children_ready=True))
        case SegmentSealed():
            return _sealed(topic, event)
        case LayoutChanged():
            return _changed(topic, event)
        case LayoutChangeAbandoned():
            operation = _operation(topic, event.operation_id)
            removals = (*topic.removals, *operation.children)
            return replace(topic, operation=None, removals=removals)
        case SegmentPrunePostponed() | SegmentStorageRemoved():
            return _pruned(topic, event)
        case AutoScaleDecided():
            return topic  # It says why, nothing more.
        case _:
            return replace(topic, subscriptions=_subscriptions(topic.subscriptions, event))


def _born(event: ScalableTopicCreated | ScalableTopicRestored) -> ScalableTopic:
    segments = {each.segment_id: each for each in event.segments}
    if isinstance(event, ScalableTopicCreated):
        return ScalableTopic(event.topic_id, event.name, 0, len(segments), 1, segments)
    return ScalableTopic(
        event.topic_id,
        event.name,
        event.epoch,
        event.next_segment_id,
        1,
        segments,
        last_operation_id=event.last_operation_id,
        removals=event.removals,
    )


def _operation(topic: ScalableTopic, operation_id: int) -> LayoutOperation:
    operation = topic.operation
    assert operation is not None, f"{topic.name} has no operation"
    assert operation.operation_id == operation_id, f"{topic.name} has no operation {operation_id}"
    return operation


def _planned(topic: ScalableTopic, event: LayoutChangePlanned) -> ScalableTopic:
    operation = LayoutOperation(
        event.operation_id,
        event.kind,
        event.parents,
        event.children,
        event.asked_by,
        event.planned_at_ms,
    )
    next_id = max([topic.next_segment_id, *[each.segment_id + 1 for each in event.children]])
    return replace(
        topic,
        operation=operation,
        last_operation_id=event.operation_id,
        next_segment_id=next_id,
    )


def _sealed(topic: ScalableTopic, event: SegmentSealed) -> ScalableTopic:
    operation = _operation(topic, event.operation_id)
    sealed = {**operation.sealed, event.segment_id: event.end}
    sealed_bytes = topic.sealed_bytes
    if event.stored_bytes:
        sealed_bytes = {**sealed_bytes, event.segment_id: event.stored_bytes}
    return replace(
        topic,
        operation=replace(operation, sealed=sealed),
        sealed_bytes=dict(sorted(sealed_bytes.items())),
    )


def _changed(topic: ScalableTopic, event: LayoutChanged) -> ScalableTopic:
    segments = {**topic.segments, **{each.segment_id: each for each in event.changed}}
    removals = topic.removals
    subscriptions = topic.subscriptions
    postponed, sealed_bytes = topic.postponed, topic.sealed_bytes
    if event.removed:
        removals = (*removals, *[segments.pop(each) for each in event.removed])
        subscriptions = {
            name: replace(each, drained=each.drained.difference(event.removed))
            for name, each in subscriptions.items()
        }
        postponed = _without(postponed, event.removed)
        sealed_bytes = _without(sealed_bytes, event.removed)
    is_end = event.operation_id != 0
    return replace(
        topic,
        epoch=event.epoch,
        segments=segments,
        operation=None if is_end else topic.operation,
        removals=removals,
        subscriptions=subscriptions,
        postponed=postponed,
        sealed_bytes=sealed_bytes,
    )


def _pruned(
    topic: ScalableTopic, event: SegmentPrunePostponed | SegmentStorageRemoved
) -> ScalableTopic:
    if isinstance(event, SegmentPrunePostponed):
        postponed = {**topic.postponed, event.segment_id: event.until_ms}
        return replace(topic, postponed=dict(sorted(postponed.items())))
    left = [each for each in topic.removals if each.segment_id != event.segment_id]
    return replace(topic, removals=tuple(left))


def _without(numbers: Mapping[int, int], gone: Iterable[int]) -> Mapping[int, int]:
    return {key: number for key, number in numbers.items() if key not in gone}


def _subscriptions(
    subscriptions: Mapping[str, Subscription], event: SubscriptionEvent
) -> Mapping[str, Subscription]:
    name = event.subscription
    match event:
        case ScalableSubscriptionCreated():
            # Cursors are all that has to be created with it.
            is_live = event.type is SubscriptionType.CHECKPOINT
            phase = SubscriptionPhase.LIVE if is_live else SubscriptionPhase.CREATING
            created = Subscription(name, event.type, phase, event.created_at_ms)
            return dict(sorted([*subscriptions.items(), (name, created)]))
        case ScalableSubscriptionDeleted():
            return {key: each for key, each in subscriptions.items() if key != name}
    return {**subscriptions, name: _subscription(subscriptions[name], event)}


def _subscription(
    before: Subscription,
    event: ScalableSubscriptionSought
    | ScalableSubscriptionReady
    | ScalableSubscriptionDeletionStarted
    | SegmentDrained
    | ScalableConsumerRegistered
    | ScalableConsumerLeft
    | SegmentsAssigned,
) -> Subscription:
    match event:
        case ScalableSubscriptionSought():
            return replace(
                before,
                phase=SubscriptionPhase.SEEKING,
                drained=frozenset(),
                seek_to_ms=event.seek_to_ms,
                skips_all=event.skips_all,
            )
        case ScalableSubscriptionReady():
            return replace(before, phase=SubscriptionPhase.LIVE, seek_to_ms=0, skips_all=False)
        case ScalableSubscriptionDeletionStarted():
            return replace(before, phase=SubscriptionPhase.DELETING, consumers={}, assigned=())
        case SegmentDrained():
            return replace(before, drained=before.drained | {event.segment_id})
        case ScalableConsumerRegistered():
            consumers = {**before.consumers, event.consumer_name: event.takes_buckets}
            return replace(before, consumers=dict(sorted(consumers.items())))
        case ScalableConsumerLeft():
            consumers = {**before.consumers}
            consumers.pop(event.consumer_name, None)
            return replace(before, consumers=consumers)
        case SegmentsAssigned():
            return replace(before, assigned=event.assigned)
        case _:
            assert_never(event)
