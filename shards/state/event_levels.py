"""The level of each event of a shard, and the refusal of an event that a member may not know.

See ``nextgen.kernel.events.levels``. An event type keeps its level for ever. A new type gets the
level of the program that introduces it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.levels import not_known_everywhere
from shards.domain import (
    assignment,
    broker_session,
    namespace,
    parent_gate,
    shard,
    tenant,
    topic,
)
from shards.domain.parent_gate import ParentKind
from shards.domain.renames import names as topic_names
from shards.domain.scalable import events as scalable
from shards.domain.scalable.vocabulary import ChangeKind
from shards.domain.shadows import source as shadow_source
from shards.domain.slots import events as slots
from shards.wire.event import DomainEvent, stored_name

EVENT_LEVELS: Final[dict[type[DomainEvent], int]] = {
    tenant.TenantCreated: 1,
    tenant.TenantPropertiesSet: 1,
    tenant.TenantPoliciesSet: 2,
    tenant.TenantDeletionStarted: 1,
    tenant.TenantDeletionAborted: 1,
    tenant.TenantDeleted: 1,
    namespace.NamespaceCreated: 1,
    namespace.NamespacePropertiesSet: 1,
    namespace.NamespacePoliciesSet: 2,
    namespace.NamespaceDeletionStarted: 1,
    namespace.NamespaceDeletionAborted: 1,
    namespace.NamespaceDeleted: 1,
    topic.TopicCreated: 1,
    topic.TopicPropertiesSet: 1,
    topic.TopicPoliciesSet: 2,
    topic.TopicPartitionsGrown: 5,
    topic.TopicDeleted: 1,
    topic_names.TopicNamePointed: 11,
    topic_names.TopicNameFreed: 11,
    topic_names.TopicRenamed: 11,
    assignment.TopicAssigned: 1,
    assignment.TopicUnassigned: 1,
    broker_session.BrokerSessionEstablished: 1,
    broker_session.BrokerDrainSet: 2,
    broker_session.BrokerCapacitySet: 10,
    broker_session.BrokerLoadReported: 2,
    broker_session.BrokerSessionEnded: 1,
    broker_session.CapacityGranted: 1,
    shard.SlotsAdopted: 1,
    shard.RestoreMarked: 6,
    slots.SlotsIncoming: 11,
    slots.SlotRowsCopied: 11,
    slots.SlotsReleased: 11,
    slots.SlotsRefused: 11,
    slots.SlotsReclaimed: 11,
    slots.SlotRowsRemoved: 11,
    parent_gate.ParentGateOpened: 1,
    parent_gate.ParentGateClosed: 1,
    shadow_source.ShadowSourceCreated: 9,
    shadow_source.ShadowShardRecorded: 9,
    shadow_source.ShadowSourceHeld: 9,
    shadow_source.ShadowSourceRemoved: 9,
    scalable.ScalableTopicCreated: 7,
    scalable.ScalableTopicDeleted: 7,
    scalable.LayoutChangePlanned: 7,
    scalable.SegmentChildrenReady: 7,
    scalable.SegmentSealed: 7,
    scalable.LayoutChanged: 7,
    scalable.LayoutChangeAbandoned: 7,
    scalable.SegmentStorageRemoved: 7,
    scalable.ScalableSubscriptionCreated: 7,
    scalable.ScalableSubscriptionSought: 7,
    scalable.ScalableSubscriptionReady: 7,
    scalable.ScalableSubscriptionDeletionStarted: 7,
    scalable.ScalableSubscriptionDeleted: 7,
    scalable.SegmentDrained: 7,
    scalable.ScalableConsumerRegistered: 7,
    scalable.ScalableConsumerLeft: 7,
    scalable.SegmentsAssigned: 7,
    scalable.SegmentPrunePostponed: 8,
    scalable.ScalableTopicRestored: 8,
    scalable.SegmentLoadsRecorded: 9,
    scalable.AutoScaleDecided: 9,
}

_LATER_CHANGES: Final = {ChangeKind.RESTORE: 8, ChangeKind.MIGRATE: 8}
"""Kinds of layout changes that are later than the events which carry them."""

_LATER_GATES: Final = {ParentKind.TOPIC: 9}
"""Kinds of parents that are later than the events of their gates."""

_MOVE_LEVEL: Final = 11
"""Of a ``SlotsAdopted`` that ends a move: earlier releases would lose what goes along."""

_BROKER_KIND_LEVEL: Final = 11
"""Of the session of a broker that is not embedded: earlier releases would place any topic there."""

_WITH_KINDS: Final = frozenset(
    {
        shard.SlotsAdopted,
        scalable.LayoutChangePlanned,
        scalable.LayoutChanged,
        parent_gate.ParentGateOpened,
        parent_gate.ParentGateClosed,
        broker_session.BrokerSessionEstablished,
    }
)


def level_of(events: Collection[DomainEvent]) -> int:
    """Return the level that a replica must know to fold ``events``, 0 for none."""
    types = set(map(type, events))
    if types.isdisjoint(_WITH_KINDS):
        return max(map(EVENT_LEVELS.__getitem__, types), default=0)
    return max(map(_level, events))


def _level(event: DomainEvent) -> int:
    level = EVENT_LEVELS[type(event)]
    if isinstance(event, scalable.LayoutChangePlanned | scalable.LayoutChanged):
        return _LATER_CHANGES.get(event.kind, level)
    if isinstance(event, parent_gate.ParentGateOpened | parent_gate.ParentGateClosed):
        return _LATER_GATES.get(event.kind, level)
    if isinstance(event, shard.SlotsAdopted) and event.move_id:
        return _MOVE_LEVEL
    if isinstance(event, broker_session.BrokerSessionEstablished) and event.kind:
        return _BROKER_KIND_LEVEL
    return level


def not_known(
    shard_id: int, events: Iterable[DomainEvent], level: int, members: Sequence[str]
) -> Refused:
    """Return the refusal of ``events``: ``members`` may not know those above ``level``."""
    late = next(event for event in events if _level(event) > level)
    return not_known_everywhere(f"shard {shard_id}", members, f"{stored_name(late)} events")
