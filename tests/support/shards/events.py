"""A history with every event a shard can write, and the records that hold it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nextgen.client.wire.policies import pack_policies
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.governance.policies import Policies, Retention
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from nextgen.kernel.scalable.auto_scale import ActionKind, GroupSizes, Reason, ScaleClocks
from nextgen.kernel.scalable.segment_load import SegmentLoad
from nextgen.kernel.scalable.segments import Segment, SegmentEnd
from nextgen.replication.ports import Entry, Record
from shards.domain import (
    assignment,
    broker_session,
    namespace,
    parent_gate,
    shard,
    tenant,
    topic,
)
from shards.domain.broker_session import Endpoints
from shards.domain.life import Life
from shards.domain.parent_gate import ParentKind
from shards.domain.policies import NO_PACKED_POLICIES
from shards.domain.renames.names import (
    FormerName,
    OldName,
    TopicNameFreed,
    TopicNamePointed,
    TopicPointer,
    TopicRenamed,
)
from shards.domain.scalable import events as scalable
from shards.domain.scalable.vocabulary import ChangeKind, SubscriptionType
from shards.domain.shadows import source as shadow_source
from shards.domain.slots import events as slots
from shards.domain.states import StateKind
from shards.wire.event import DomainEvent, encode_decided

TIME_MS = 1_700_000_000_000
TOPIC = "persistent://acme/orders/paid"
GONE = "non-persistent://acme/orders/gone"
ENDPOINTS = Endpoints("pulsar://h:6650", "h:7000", "h:8080")
PROPERTIES = (("owner", "payments"), ("ünïcode", "✓"))
POLICIES = pack_policies(Policies(retention=Retention(-1, 1_000), message_ttl_ms=60_000))

SOURCE = "persistent://acme/orders/source"
GONE_SOURCE = "persistent://acme/orders/gone-source"
SHADOW = "persistent://acme/orders/shadow"

SCALABLE = "topic://acme/orders/scaled"
GONE_SCALABLE = "topic://acme/orders/gone"
RESTORED = "topic://acme/orders/restored"
_PARENT = Segment(0, 0, 0xFFFF, 0, TIME_MS, bucket_starts=(16384, 32768, 49152))
_SEALED = replace(
    _PARENT,
    children=(1, 2),
    is_sealed=True,
    sealed_at_epoch=1,
    sealed_at_ms=TIME_MS + 9,
    end=SegmentEnd(-4, 17),
)
_CHILDREN = (
    Segment(1, 0, 0x7FFF, 1, TIME_MS, (0,), bucket_starts=(32768,)),
    Segment(2, 0x8000, 0xFFFF, 1, TIME_MS, (0,), merge_depth=3, legacy_topic_name=TOPIC),
)
_REMOVED = Segment(3, 0, 0xFFFF, 1, TIME_MS, is_sealed=True, sealed_at_epoch=1)

_RATES = Rates(0.1, 20_000.5, 3e9, 0)
_LOADS = (SegmentLoad(1, Rates(), TIME_MS, TIME_MS - 9), SegmentLoad(2, _RATES, TIME_MS + 3))

SCALABLE_HISTORY: tuple[DomainEvent, ...] = (
    topic.TopicCreated("topic-3", SCALABLE, 0, "ns-1", TIME_MS),
    scalable.ScalableTopicCreated(SCALABLE, "topic-3", (_PARENT,)),
    scalable.ScalableSubscriptionCreated(
        SCALABLE, "topic-3", "s", SubscriptionType.STREAM, TIME_MS
    ),
    scalable.ScalableSubscriptionReady(SCALABLE, "topic-3", "s"),
    scalable.ScalableSubscriptionCreated(SCALABLE, "topic-3", "q", SubscriptionType.QUEUE, TIME_MS),
    scalable.ScalableConsumerRegistered(SCALABLE, "topic-3", "s", "c-1", True),
    scalable.ScalableConsumerRegistered(SCALABLE, "topic-3", "s", "c-2", False),
    scalable.SegmentsAssigned(
        SCALABLE,
        "topic-3",
        "s",
        (scalable.ConsumerSegments("c-1", (0,), (0,)), scalable.ConsumerSegments("c-2", ())),
    ),
    scalable.LayoutChangePlanned(
        SCALABLE, "topic-3", 1, ChangeKind.SPLIT, (0,), _CHILDREN, "operator", TIME_MS
    ),
    scalable.LayoutChangeAbandoned(SCALABLE, "topic-3", 1, "no broker"),
    scalable.SegmentStorageRemoved(SCALABLE, "topic-3", 2),
    scalable.LayoutChangePlanned(
        SCALABLE, "topic-3", 2, ChangeKind.SPLIT, (0,), _CHILDREN, "operator", TIME_MS
    ),
    scalable.SegmentChildrenReady(SCALABLE, "topic-3", 2),
    scalable.SegmentLoadsRecorded(SCALABLE, "topic-3", (SegmentLoad(0, _RATES, TIME_MS),)),
    scalable.SegmentSealed(SCALABLE, "topic-3", 2, 0, SegmentEnd(-4, 17), 4_321),
    scalable.LayoutChanged(SCALABLE, "topic-3", 1, ChangeKind.SPLIT, 2, (_SEALED, *_CHILDREN)),
    scalable.SegmentDrained(SCALABLE, "topic-3", "s", 0),
    scalable.SegmentPrunePostponed(SCALABLE, "topic-3", 0, TIME_MS + 60_000),
    scalable.LayoutChanged(
        SCALABLE,
        "topic-3",
        2,
        ChangeKind.PRUNE,
        0,
        tuple([replace(each, parents=()) for each in _CHILDREN]),
        (0,),
    ),
    scalable.ScalableConsumerLeft(SCALABLE, "topic-3", "s", "c-2", "expired"),
    scalable.ScalableSubscriptionSought(SCALABLE, "topic-3", "s", TIME_MS),
    scalable.ScalableSubscriptionReady(SCALABLE, "topic-3", "s"),
    scalable.ScalableSubscriptionSought(SCALABLE, "topic-3", "s", 0, skips_all=True),
    scalable.ScalableSubscriptionDeletionStarted(SCALABLE, "topic-3", "q"),
    scalable.ScalableSubscriptionDeleted(SCALABLE, "topic-3", "q"),
    scalable.LayoutChangePlanned(
        SCALABLE,
        "topic-3",
        3,
        ChangeKind.MERGE,
        (1, 2),
        (Segment(5, 0, 0xFFFF, 3, TIME_MS, (1, 2), merge_depth=4),),
        "auto_scale",
        TIME_MS,
    ),
    scalable.AutoScaleDecided(
        SCALABLE,
        "topic-3",
        3,
        ActionKind.MERGE,
        (1, 2),
        0,
        Reason.COLD,
        TIME_MS,
        GroupSizes(3, 2),
        '{"enabled":true}',
        4,
        _LOADS,
        ScaleClocks(TIME_MS, 0, TIME_MS - 1),
    ),
    scalable.SegmentLoadsRecorded(SCALABLE, "topic-3", _LOADS),
    scalable.SegmentChildrenReady(SCALABLE, "topic-3", 3),
    scalable.SegmentSealed(SCALABLE, "topic-3", 3, 2, SegmentEnd(-1, -1)),
    scalable.SegmentPrunePostponed(SCALABLE, "topic-3", 1, TIME_MS + 60_000),
    topic.TopicCreated("topic-4", GONE_SCALABLE, 0, "ns-1", TIME_MS),
    scalable.ScalableTopicCreated(GONE_SCALABLE, "topic-4", (_PARENT,)),
    topic.TopicDeleted(GONE_SCALABLE, "topic-4"),
    scalable.ScalableTopicDeleted(GONE_SCALABLE, "topic-4", ("0000-ffff-0",)),
    topic.TopicCreated("topic-7", RESTORED, 0, "ns-1", TIME_MS),
    scalable.ScalableTopicRestored(
        RESTORED, "topic-7", 1 << 32, 1 << 32, 4, (_SEALED, *_CHILDREN), (_REMOVED,)
    ),
    scalable.ScalableSubscriptionCreated(
        RESTORED, "topic-7", "s", SubscriptionType.STREAM, TIME_MS
    ),
    scalable.ScalableSubscriptionReady(RESTORED, "topic-7", "s"),
)
"""A scalable topic in the middle of a merge, one that is gone, and one of a backup."""

SHADOW_HISTORY: tuple[DomainEvent, ...] = (
    topic.TopicCreated("topic-8", SOURCE, 2, "ns-1", TIME_MS),
    shadow_source.ShadowSourceCreated(SOURCE, "topic-8"),
    shadow_source.ShadowShardRecorded(SOURCE, "topic-8", 3),
    shadow_source.ShadowShardRecorded(SOURCE, "topic-8", 1),
    parent_gate.ParentGateOpened(ParentKind.TOPIC, SOURCE, "topic-8", 0),
    topic.TopicCreated("topic-9", SHADOW, 2, "ns-1", TIME_MS, ((SHADOW_SOURCE_PROPERTY, SOURCE),)),
    shadow_source.ShadowSourceHeld(SOURCE, "topic-8", True, 0),
    shadow_source.ShadowSourceHeld(SOURCE, "topic-8", False, 4),
    topic.TopicCreated("topic-10", GONE_SOURCE, 0, "ns-1", TIME_MS),
    shadow_source.ShadowSourceCreated(GONE_SOURCE, "topic-10"),
    shadow_source.ShadowShardRecorded(GONE_SOURCE, "topic-10", 1),
    parent_gate.ParentGateClosed(ParentKind.TOPIC, GONE_SOURCE, "topic-10", 8),
    topic.TopicDeleted(GONE_SOURCE, "topic-10"),
    shadow_source.ShadowSourceRemoved(GONE_SOURCE, "topic-10"),
)
"""A source that is growing, with a shadow in its own shard, and one that is gone."""

CAME = "persistent://acme/orders/came"
RENAMED_AND_CAME = "persistent://acme/orders/renamed-and-came"
CAME_ROWS = (
    slots.SlotRow(
        StateKind.TENANT, "globex", tenant.Tenant("tenant-7", "globex", PROPERTIES, 3, Life.ACTIVE)
    ),
    slots.SlotRow(
        StateKind.NAMESPACE,
        "globex/lab",
        namespace.Namespace("ns-7", "globex/lab", "tenant-7", (), 2, Life.DELETING, POLICIES, 1),
    ),
    slots.SlotRow(
        StateKind.TOPIC,
        CAME,
        topic.Topic("topic-20", CAME, 2, 4, "ns-1", TIME_MS, PROPERTIES, POLICIES, 2),
    ),
    slots.SlotRow(
        StateKind.SHADOW_SOURCE,
        CAME,
        shadow_source.ShadowSource(CAME, "topic-20", (1, 3), False, 2),
    ),
    slots.SlotRow(
        StateKind.TOPIC,
        RENAMED_AND_CAME,
        topic.Topic(
            "topic-21",
            RENAMED_AND_CAME,
            0,
            2,
            "ns-1",
            TIME_MS,
            (),
            former_names=(OldName(f"{CAME}-old", TIME_MS + 9),),
        ),
    ),
    slots.SlotRow(
        StateKind.TOPIC_NAME, RENAMED_AND_CAME, TopicPointer(RENAMED_AND_CAME, "topic-21")
    ),
    slots.SlotRow(
        StateKind.FORMER_NAME,
        f"{CAME}-old",
        FormerName(f"{CAME}-old", "topic-21", RENAMED_AND_CAME, TIME_MS + 9),
    ),
    slots.SlotRow(
        StateKind.ASSIGNMENT,
        "topic-20/p0",
        assignment.Assignment("topic-20", "p0", f"{CAME}-partition-0", 5, "broker-1", "s-2"),
    ),
    slots.SlotRow(
        StateKind.BROKER_SESSION,
        "broker-7",
        broker_session.BrokerSession(
            "broker-7",
            "s-7",
            3,
            True,
            ENDPOINTS,
            100,
            "zone-a",
            60,
            "rack-1",
            TIME_MS,
            True,
            50,
            2,
            (TIME_MS - 5, TIME_MS),
            120,
        ),
    ),
    slots.SlotRow(StateKind.TOPIC, "persistent://acme/orders/never-was", None),
)
SLOT_HISTORY: tuple[DomainEvent, ...] = (
    slots.SlotsIncoming(1, ((8192, 8500),), 2, 70),
    slots.SlotRowsCopied(1, CAME_ROWS, "done", "", 75),
    shard.SlotsAdopted(
        ((0, 8500), (9000, 16383)),
        4,
        1,
        ((8192, 8500),),
        2,
        80,
        (slots.CountedUnits("s-2", 1),),
        (slots.CountedUnits("acme", 1),),
        2 << 32,
    ),
    slots.SlotsReleased(
        2,
        ((8192, 8300),),
        3,
        (slots.CountedUnits("s-2", 1),),
        (slots.CountedUnits("acme", 1),),
        2 << 32,
    ),
    slots.SlotsReclaimed(2),
    slots.SlotsReleased(3, ((8301, 8310),), 3, (), (), 2 << 32),
    slots.SlotRowsRemoved(3, (slots.SlotKey(StateKind.TENANT, "globex"),), False),
    slots.SlotsIncoming(4, ((8600, 8600),), 2, 90),
    slots.SlotsRefused(4, "stopped"),
)
"""Slots that came, left and came back, some that are gone but for a row, and some refused."""

RENAMED = "persistent://acme/orders/renamed"
RENAMED_AGAIN = "persistent://globex/lab/renamed-again"
BEFORE_RENAME = "persistent://acme/orders/before"
POINTED = "persistent://acme/orders/pointed"
NAME_HISTORY: tuple[DomainEvent, ...] = (
    TopicNamePointed(POINTED, "topic-30"),
    TopicNamePointed(POINTED, "topic-31"),
    TopicNamePointed(f"{POINTED}-nowhere", "topic-32"),
    TopicNameFreed(f"{POINTED}-nowhere", "topic-32"),
    topic.TopicCreated("topic-11", BEFORE_RENAME, 2, "ns-1", TIME_MS, PROPERTIES),
    assignment.TopicAssigned(
        "topic-11", "p1", f"{BEFORE_RENAME}-partition-1", 1, "broker-1", "s-2", "first_lookup"
    ),
    assignment.TopicUnassigned(
        "topic-11", "p1", f"{BEFORE_RENAME}-partition-1", 1, assignment.REASON_RENAMED
    ),
    TopicNamePointed(BEFORE_RENAME, "topic-11"),
    TopicRenamed(
        BEFORE_RENAME,
        "topic-11",
        RENAMED,
        "ns-1",
        (OldName(BEFORE_RENAME, TIME_MS + 60_000),),
        (),
        2,
        PROPERTIES,
        2,
        TIME_MS,
    ),
    topic.TopicPoliciesSet(RENAMED, "topic-11", POLICIES, 1),
    TopicRenamed(
        RENAMED,
        "topic-11",
        RENAMED_AGAIN,
        "ns-7",
        (OldName(RENAMED, TIME_MS + 120_000),),
        (BEFORE_RENAME,),
        2,
        PROPERTIES,
        4,
        TIME_MS,
        POLICIES,
        1,
    ),
    assignment.TopicAssigned(
        "topic-11", "p1", f"{RENAMED_AGAIN}-partition-1", 2, "broker-1", "s-2", "first_lookup"
    ),
    topic.TopicCreated("topic-12", f"{GONE}-renamed", 0, "ns-1", TIME_MS),
    TopicRenamed(
        f"{GONE}-renamed", "topic-12", GONE, "ns-1", (OldName(f"{GONE}-renamed", TIME_MS + 1),)
    ),
    topic.TopicDeleted(GONE, "topic-12", former_names=(f"{GONE}-renamed",)),
)
"""A topic that was renamed twice, one that is gone, and pointers to topics elsewhere."""

HISTORY: tuple[DomainEvent, ...] = (
    shard.SlotsAdopted(((0, 8191), (9000, 16383)), 1),
    tenant.TenantCreated("tenant-1", "acme", PROPERTIES),
    tenant.TenantPropertiesSet("acme", ()),
    tenant.TenantDeletionStarted("acme"),
    tenant.TenantDeletionAborted("acme"),
    tenant.TenantCreated("tenant-2", "gone"),
    tenant.TenantDeletionStarted("gone"),
    tenant.TenantDeleted("gone", "tenant-2"),
    parent_gate.ParentGateOpened(ParentKind.TENANT, "acme", "tenant-1", 0),
    namespace.NamespaceCreated("ns-1", "acme/orders", "tenant-1", PROPERTIES),
    namespace.NamespacePropertiesSet("acme/orders", (("a", "1"),)),
    namespace.NamespaceDeletionStarted("acme/orders"),
    namespace.NamespaceDeletionAborted("acme/orders"),
    namespace.NamespaceCreated("ns-2", "acme/gone", "tenant-1"),
    namespace.NamespaceDeletionStarted("acme/gone"),
    namespace.NamespaceDeleted("acme/gone", "ns-2"),
    parent_gate.ParentGateOpened(ParentKind.NAMESPACE, "acme/orders", "ns-1", 0),
    parent_gate.ParentGateClosed(ParentKind.NAMESPACE, "acme/orders", "ns-1", 7),
    parent_gate.ParentGateOpened(ParentKind.NAMESPACE, "acme/orders", "ns-1", 7),
    topic.TopicCreated("topic-1", TOPIC, 3, "ns-1", TIME_MS, PROPERTIES),
    topic.TopicPropertiesSet(TOPIC, ()),
    topic.TopicCreated("topic-2", GONE, 0, "ns-1", TIME_MS),
    broker_session.BrokerSessionEstablished("broker-1", "s-1", 1, ENDPOINTS, 100, "zone-a"),
    broker_session.CapacityGranted("broker-1", "s-1", 40),
    broker_session.BrokerDrainSet("broker-1", "s-1", True, 50, 1),
    broker_session.BrokerCapacitySet("broker-1", "s-1", 60, 2, 40),
    broker_session.BrokerLoadReported("broker-1", "s-1", b"\x08\x03"),
    assignment.TopicAssigned("topic-1", "p0", f"{TOPIC}-partition-0", 1, "broker-1", "s-1", "x"),
    assignment.TopicAssigned("topic-1", "p1", f"{TOPIC}-partition-1", 1, "broker-1", "s-1", "x"),
    assignment.TopicAssigned("topic-2", "", GONE, 1, "broker-1", "s-1", "first_lookup"),
    broker_session.BrokerSessionEnded("broker-1", "s-1", 1, "expired"),
    broker_session.BrokerSessionEstablished(
        "broker-1", "s-2", 2, ENDPOINTS, 50, "", "rack-7", TIME_MS + 60_000, TIME_MS
    ),
    assignment.TopicAssigned("topic-1", "p0", f"{TOPIC}-partition-0", 2, "broker-1", "s-2", "x"),
    assignment.TopicUnassigned("topic-1", "p1", f"{TOPIC}-partition-1", 1, "x"),
    assignment.TopicUnassigned("topic-2", "", GONE, 1, "topic_deleted"),
    topic.TopicDeleted(GONE, "topic-2"),
    tenant.TenantPoliciesSet("acme", "tenant-1", POLICIES, 1),
    namespace.NamespacePoliciesSet("acme/orders", "ns-1", POLICIES, 1),
    namespace.NamespacePoliciesSet("acme/orders", "ns-1", NO_PACKED_POLICIES, 2),
    topic.TopicPoliciesSet(TOPIC, "topic-1", POLICIES, 1),
    topic.TopicPartitionsGrown(TOPIC, "topic-1", 5),
    shard.RestoreMarked("backup-1", shard.RestorePhase.BEGUN, 1 << 32),
    *SCALABLE_HISTORY,
    *SHADOW_HISTORY,
    *SLOT_HISTORY,
    *NAME_HISTORY,
)


def record_of(
    events: Sequence[DomainEvent],
    command_id: bytes = b"",
    outcome: bytes = b"",
    *,
    outcomes_kept_from: int = 0,
) -> Record:
    payload = encode_decided(
        events,
        command_id=command_id,
        outcome=outcome,
        time_ms=TIME_MS,
        outcomes_kept_from=outcomes_kept_from,
    )
    return Record(payload, len(events))


def entries_of(
    groups: Iterable[Sequence[Record]], *, from_index: int = 1, from_position: int = 1
) -> list[Entry]:
    """Return one entry per group of records, numbered without gaps."""
    entries: list[Entry] = []
    for index, records in enumerate(groups, start=from_index):
        entries.append(Entry(index, 1, from_position, tuple(records)))
        from_position = entries[-1].next_position
    return entries
