"""Events of a scalable topic. Segments in them are as they are afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.scalable.auto_scale import ActionKind, GroupSizes, Reason, ScaleClocks
from nextgen.kernel.scalable.segment_load import SegmentLoad
from nextgen.kernel.scalable.segments import Segment, SegmentEnd
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionType


@dataclass(frozen=True, slots=True)
class ConsumerSegments:
    """The segments of one consumer, in the order of their ranges; ``shared`` are those of them that
    others have as well."""

    consumer_name: str
    segments: tuple[int, ...]
    shared: tuple[int, ...] = ()


Assigned = tuple[ConsumerSegments, ...]
"""Of all consumers of a subscription, by name."""


@dataclass(frozen=True, slots=True)
class ScalableTopicCreated:
    name: str
    topic_id: str
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class ScalableTopicDeleted:
    """``segments`` are the descriptors of all whose messages may be there, by id."""

    name: str
    topic_id: str
    segments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScalableTopicRestored:
    """The layout of a backup. ``epoch`` and ``next_segment_id`` are above all that the backed up
    cluster can have used."""

    name: str
    topic_id: str
    epoch: int
    next_segment_id: int
    last_operation_id: int
    segments: tuple[Segment, ...]
    removals: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class LayoutChangePlanned:
    """The ids of ``children`` are used from here on, whatever becomes of the operation."""

    name: str
    topic_id: str
    operation_id: int
    kind: ChangeKind
    parents: tuple[int, ...]
    children: tuple[Segment, ...]
    asked_by: str
    planned_at_ms: int


@dataclass(frozen=True, slots=True)
class SegmentChildrenReady:
    name: str
    topic_id: str
    operation_id: int


@dataclass(frozen=True, slots=True)
class SegmentSealed:
    name: str
    topic_id: str
    operation_id: int
    segment_id: int
    end: SegmentEnd
    stored_bytes: int = 0
    """Of all its messages."""


@dataclass(frozen=True, slots=True)
class LayoutChanged:
    """``operation_id`` is that of the operation that ends with it, 0 for none."""

    name: str
    topic_id: str
    epoch: int
    kind: ChangeKind
    operation_id: int
    changed: tuple[Segment, ...]
    removed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LayoutChangeAbandoned:
    name: str
    topic_id: str
    operation_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentPrunePostponed:
    """The segment stays in the layout until ``until_ms`` at least."""

    name: str
    topic_id: str
    segment_id: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class SegmentStorageRemoved:
    name: str
    topic_id: str
    segment_id: int


@dataclass(frozen=True, slots=True)
class SegmentLoadsRecorded:
    """The loads that moved by enough. It is no event of the layout: see ``loads``."""

    name: str
    topic_id: str
    loads: tuple[SegmentLoad, ...]


@dataclass(frozen=True, slots=True)
class AutoScaleDecided:
    """Why an operation was begun by itself: everything that was decided by. ``policy`` is JSON."""

    name: str
    topic_id: str
    operation_id: int
    kind: ActionKind
    segments: tuple[int, ...]
    buckets: int
    reason: Reason
    evaluated_at_ms: int
    groups: GroupSizes
    policy: str
    policies_version: int
    loads: tuple[SegmentLoad, ...]
    clocks: ScaleClocks


@dataclass(frozen=True, slots=True)
class ScalableSubscriptionCreated:
    name: str
    topic_id: str
    subscription: str
    type: SubscriptionType
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class ScalableSubscriptionSought:
    """``skips_all``: to the end of the topic, instead of to a publish time."""

    name: str
    topic_id: str
    subscription: str
    seek_to_ms: int
    skips_all: bool = False


@dataclass(frozen=True, slots=True)
class ScalableSubscriptionReady:
    name: str
    topic_id: str
    subscription: str


@dataclass(frozen=True, slots=True)
class ScalableSubscriptionDeletionStarted:
    name: str
    topic_id: str
    subscription: str


@dataclass(frozen=True, slots=True)
class ScalableSubscriptionDeleted:
    name: str
    topic_id: str
    subscription: str


@dataclass(frozen=True, slots=True)
class SegmentDrained:
    name: str
    topic_id: str
    subscription: str
    segment_id: int


@dataclass(frozen=True, slots=True)
class ScalableConsumerRegistered:
    name: str
    topic_id: str
    subscription: str
    consumer_name: str
    takes_buckets: bool


@dataclass(frozen=True, slots=True)
class ScalableConsumerLeft:
    name: str
    topic_id: str
    subscription: str
    consumer_name: str
    reason: str


@dataclass(frozen=True, slots=True)
class SegmentsAssigned:
    """The whole of a subscription's assignments."""

    name: str
    topic_id: str
    subscription: str
    assigned: Assigned


LayoutEvent = (
    ScalableTopicCreated
    | ScalableTopicRestored
    | ScalableTopicDeleted
    | LayoutChangePlanned
    | SegmentChildrenReady
    | SegmentSealed
    | LayoutChanged
    | LayoutChangeAbandoned
    | SegmentPrunePostponed
    | SegmentStorageRemoved
    | AutoScaleDecided
)
SubscriptionEvent = (
    ScalableSubscriptionCreated
    | ScalableSubscriptionSought
    | ScalableSubscriptionReady
    | ScalableSubscriptionDeletionStarted
    | ScalableSubscriptionDeleted
    | SegmentDrained
    | ScalableConsumerRegistered
    | ScalableConsumerLeft
    | SegmentsAssigned
)
ScalableTopicEvent = LayoutEvent | SubscriptionEvent
