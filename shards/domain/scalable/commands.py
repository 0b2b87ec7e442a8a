"""Commands about a scalable topic. ``time_ms`` is the leader's clock."""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.scalable.segments import SegmentEnd
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionType


@dataclass(frozen=True, slots=True)
class CreateScalableTopic:
    """``topic_id`` is the id of its topic in the inventory, which is created with it.

    ``legacy`` are the names of a classic topic's units, which become its first segments; none for a
    topic that begins empty, with ``segments`` of its own.
    """

    name: str
    topic_id: str
    segments: int
    time_ms: int
    legacy: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteScalableTopic:
    """``topic_id`` is that of the topic which is deleted with it."""

    name: str
    topic_id: str


# Segments ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanLayoutChange:
    """Begin to replace segments by others: split one, merge two, give one other buckets, or replace
    all units of a classic topic.

    ``buckets`` is for ``REBUCKET`` alone; ``MIGRATE`` names no segments.
    """

    kind: ChangeKind
    segments: tuple[int, ...]
    time_ms: int
    buckets: int = 0
    asked_by: str = "operator"


@dataclass(frozen=True, slots=True)
class MarkChildrenReady:
    """The children of an operation are served, and have the cursors of ``subscriptions``."""

    operation_id: int
    subscriptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SealSegment:
    """A parent has ended durably: nothing is published to it any more, in no later epoch either.

    The last parent's ends the operation.
    """

    operation_id: int
    segment_id: int
    end: SegmentEnd
    time_ms: int
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class AbandonLayoutChange:
    """Take an operation back. Refused once its children are ready: a parent may have ended."""

    operation_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class PruneSegments:
    """Take sealed segments out of the layout, the oldest first; their messages go.

    Refused while a subscription has not drained one of them, or while one has a parent that stays
    in the layout: the segments behind it would no longer wait for that parent.
    """

    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PostponePrune:
    """Keep the messages of a segment that could be pruned until ``until_ms`` at least."""

    segment_id: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class RemoveSegmentStorage:
    """The messages of a segment that left the layout are gone."""

    segment_id: int


# Subscriptions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateSubscription:
    subscription: str
    type: SubscriptionType
    time_ms: int


@dataclass(frozen=True, slots=True)
class SeekSubscription:
    """Set every cursor to the first message published at or after a time, or to the end."""

    subscription: str
    seek_to_ms: int
    skips_all: bool = False


@dataclass(frozen=True, slots=True)
class MarkSubscriptionReady:
    """Every segment has the subscription's cursor, where it was to be.

    ``segments`` are those that were looked after: refused if the layout has others by now.
    ``seek_to_ms`` and ``skips_all`` are those of the seek which was carried out, ``drained`` the
    sealed segments whose end it set the cursor to.
    """

    subscription: str
    segments: tuple[int, ...]
    seek_to_ms: int = 0
    skips_all: bool = False
    drained: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteSubscription:
    subscription: str


@dataclass(frozen=True, slots=True)
class FinishSubscriptionDeletion:
    """No segment has the subscription's cursor any more."""

    subscription: str


@dataclass(frozen=True, slots=True)
class MarkDrained:
    """The subscription has acknowledged everything in a sealed segment."""

    subscription: str
    segment_id: int


# Consumers -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterConsumer:
    """Make a consumer a member of a subscription, which is created if it is not there.

    ``takes_buckets``: the consumer can share a segment with others by entry buckets.
    """

    subscription: str
    consumer: str
    type: SubscriptionType
    takes_buckets: bool
    time_ms: int


@dataclass(frozen=True, slots=True)
class RemoveConsumer:
    """End a membership. ``reason`` is ``left`` or ``expired``."""

    subscription: str
    consumer: str
    reason: str


SegmentCommand = (
    PlanLayoutChange
    | MarkChildrenReady
    | SealSegment
    | AbandonLayoutChange
    | PruneSegments
    | PostponePrune
    | RemoveSegmentStorage
)
GroupCommand = (
    CreateSubscription
    | SeekSubscription
    | MarkSubscriptionReady
    | DeleteSubscription
    | FinishSubscriptionDeletion
    | MarkDrained
    | RegisterConsumer
    | RemoveConsumer
)
ScalableTopicCommand = CreateScalableTopic | DeleteScalableTopic | SegmentCommand | GroupCommand
