"""Events between their stored form (protobuf) and the domain.

Stored events stay readable for ever: a mapping here may grow, never change. An event's time and
place are stored with its record, not with the event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from nextgen.client.wire.fields import REPEATED, FieldMap
from nextgen.kernel.governance.policies import PolicyLevel
from protos.nextgen.v1 import events_pb2 as pb
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
from shards.domain.placement.choice import BalanceSeen, CandidateSeen, PlacementDecision
from shards.domain.policies import NO_PACKED_POLICIES
from shards.domain.properties import Properties
from shards.domain.renames import names as topic_names
from shards.domain.scalable.events import ScalableTopicEvent, SegmentLoadsRecorded
from shards.domain.shadows import source as shadow_source
from shards.wire.scalable import SCALABLE_EVENTS
from shards.wire.session_event import SESSION_EVENTS
from shards.wire.slot_event import OLD_NAMES, SLOT_EVENTS

SCHEMA_VERSION_MAX = 1
"""The latest schema that this program reads. A stored 0 means 1."""

TOPIC_DELETED_TRACE = pb.Event(topic_deleted=pb.TopicDeleted()).SerializeToString()[:-1]
"""Bytes that every record with a ``TopicDeleted`` has, and few others: by them a scan of the log
finds the records to be decoded."""

DomainEvent = (
    tenant.TenantEvent
    | namespace.NamespaceEvent
    | topic.TopicEvent
    | topic_names.NameEvent
    | parent_gate.ParentGateEvent
    | assignment.AssignmentEvent
    | broker_session.BrokerSessionEvent
    | shard.ShardEvent
    | shadow_source.ShadowSourceEvent
    | ScalableTopicEvent
    | SegmentLoadsRecorded
)


PoliciesSet = tenant.TenantPoliciesSet | namespace.NamespacePoliciesSet | topic.TopicPoliciesSet


class UnknownEvent(Exception):
    """The log holds an event that this program does not know. The replica must stop: going on
    would make its view differ from the others'."""


def encode_decided(
    events: Sequence[DomainEvent],
    *,
    command_id: bytes,
    outcome: bytes,
    time_ms: int,
    outcomes_kept_from: int = 0,
) -> bytes:
    """Return the payload of the record that holds ``events``."""
    decided = pb.DecidedCommand(
        command_id=command_id,
        outcome=outcome,
        time_ms=time_ms,
        outcomes_kept_from=outcomes_kept_from,
    )
    stored = decided.events
    for event in events:
        if type(event) is topic.TopicCreated:
            # By far the most frequent event: writing it in place halves the cost of a copy.
            _write_topic_created(stored.add().topic_created, event)
        else:
            stored.append(_ENCODERS[type(event)](event))
    return decided.SerializeToString()


def decode_events(decided: pb.DecidedCommand) -> list[DomainEvent]:
    """Return the events of one record of the log, in their order.

    Raises:
        UnknownEvent: It holds an event of another program, or of a later one.
    """
    time_ms = decided.time_ms
    return [_decode(stored, time_ms) for stored in decided.events]


def decode_event(stored: pb.Event) -> DomainEvent:
    """Return one event as it was read from a log: with the time of its record.

    Raises:
        UnknownEvent: It is of another program, or of a later one.
    """
    return _decode(stored, stored.time_ms)


def stored_name(event: DomainEvent) -> str:
    """Return what ``event`` is called in a log: its field of ``Event``."""
    name: str | None = _ENCODERS[type(event)](event).WhichOneof("payload")
    assert name is not None, f"{event} is stored without a payload"
    return name


def to_properties(stored: Any) -> Properties:
    """Return a protobuf map as the aggregates keep it."""
    return tuple(sorted(stored.items())) if stored else ()


def _decode(stored: pb.Event, time_ms: int) -> DomainEvent:
    name = stored.WhichOneof("payload")
    decoder = _DECODERS.get(name) if name is not None else None
    if decoder is None:
        raise UnknownEvent(f"the log holds an event this program does not know: {name}")
    if stored.schema_version > SCHEMA_VERSION_MAX:
        raise UnknownEvent(
            f"the log holds a {name} of schema version {stored.schema_version}, "
            f"this program knows up to {SCHEMA_VERSION_MAX}"
        )
    payload = getattr(stored, name)
    # The time of a topic's creation is stored with the record alone.
    return decoder(payload, time_ms) if decoder is _decode_topic_created else decoder(payload)


# Policies: one message for three kinds of object, another for policies that were cleared ---------


def _encode_policies(level: PolicyLevel, object_id: str) -> Callable[[PoliciesSet], pb.Event]:
    id_of = attrgetter(object_id)

    def encode(event: PoliciesSet) -> pb.Event:
        stored = pb.Event()
        is_cleared = not event.policies
        change = stored.policy_cleared if is_cleared else stored.policy_set
        change.scope = level.value
        change.name = event.name
        change.version = event.policies_version
        change.object_id = id_of(event)
        if not is_cleared:
            stored.policy_set.policy = event.policies
        return stored

    return encode


def _decode_policies(stored: pb.PolicySet | pb.PolicyCleared, packed: bytes) -> PoliciesSet:
    try:
        made = _POLICIES_SET[stored.scope]
    except KeyError:
        raise UnknownEvent(f"the log holds policies of a {stored.scope!a}") from None
    return made(stored.name, stored.object_id, packed, stored.version)


_POLICIES_SET: dict[str, Callable[[str, str, bytes, int], PoliciesSet]] = {
    PolicyLevel.TENANT.value: tenant.TenantPoliciesSet,
    PolicyLevel.NAMESPACE.value: namespace.NamespacePoliciesSet,
    PolicyLevel.TOPIC.value: topic.TopicPoliciesSet,
}


# Topics: by far the most frequent event, whose time is that of its record ------------------------


def _write_topic_created(stored: pb.TopicCreated, event: topic.TopicCreated) -> None:
    stored.topic_id = event.topic_id
    stored.name = event.name
    stored.namespace_id = event.namespace_id
    if event.partitions:
        stored.partitions = event.partitions
    if event.properties:
        stored.properties.update(dict(event.properties))


def _encode_topic_created(event: topic.TopicCreated) -> pb.Event:
    stored = pb.Event()
    _write_topic_created(stored.topic_created, event)
    return stored


def _decode_topic_created(stored: pb.TopicCreated, time_ms: int) -> topic.TopicCreated:
    return topic.TopicCreated(
        stored.topic_id,
        stored.name,
        stored.partitions,
        stored.namespace_id,
        time_ms,
        to_properties(stored.properties),
    )


# All others: field by field ------------------------------------------------------------------


_PROPERTIES = {"properties": (dict, to_properties)}

_SEEN = FieldMap(CandidateSeen, pb.CandidateSeen)
_BALANCE = FieldMap(BalanceSeen, pb.BalanceSeen)
_DECISION = FieldMap(
    PlacementDecision,
    pb.PlacementDecision,
    converted={"compared": _SEEN.each, "balance": _BALANCE.one},
    optional={"balance": None},
)

_GATE: dict[str, Any] = {
    "renamed": {"kind": "parent_kind", "name": "parent_name"},
    "converted": {"kind": (attrgetter("value"), ParentKind)},
}


_EVENTS: dict[str, FieldMap[Any, Any]] = {
    "tenant_created": FieldMap(tenant.TenantCreated, pb.TenantCreated, converted=_PROPERTIES),
    "tenant_properties_set": FieldMap(
        tenant.TenantPropertiesSet, pb.TenantPropertiesSet, converted=_PROPERTIES
    ),
    "tenant_deletion_started": FieldMap(tenant.TenantDeletionStarted, pb.TenantDeletionStarted),
    "tenant_deletion_aborted": FieldMap(tenant.TenantDeletionAborted, pb.TenantDeletionAborted),
    "tenant_deleted": FieldMap(tenant.TenantDeleted, pb.TenantDeleted),
    "namespace_created": FieldMap(
        namespace.NamespaceCreated, pb.NamespaceCreated, converted=_PROPERTIES
    ),
    "namespace_properties_set": FieldMap(
        namespace.NamespacePropertiesSet, pb.NamespacePropertiesSet, converted=_PROPERTIES
    ),
    "namespace_deletion_started": FieldMap(
        namespace.NamespaceDeletionStarted, pb.NamespaceDeletionStarted
    ),
    "namespace_deletion_aborted": FieldMap(
        namespace.NamespaceDeletionAborted, pb.NamespaceDeletionAborted
    ),
    "namespace_deleted": FieldMap(namespace.NamespaceDeleted, pb.NamespaceDeleted),
    "topic_properties_set": FieldMap(
        topic.TopicPropertiesSet, pb.TopicPropertiesSet, converted=_PROPERTIES
    ),
    "topic_partitions_grown": FieldMap(topic.TopicPartitionsGrown, pb.TopicPartitionsGrown),
    "topic_deleted": FieldMap(
        topic.TopicDeleted, pb.TopicDeleted, converted={"former_names": REPEATED}
    ),
    "topic_name_pointed": FieldMap(topic_names.TopicNamePointed, pb.TopicNamePointed),
    "topic_name_freed": FieldMap(topic_names.TopicNameFreed, pb.TopicNameFreed),
    "topic_renamed": FieldMap(
        topic_names.TopicRenamed,
        pb.TopicRenamed,
        converted={"former_names": OLD_NAMES.each, "dropped_names": REPEATED, **_PROPERTIES},
    ),
    "topic_assigned": FieldMap(
        assignment.TopicAssigned,
        pb.TopicAssigned,
        converted={"decision": _DECISION.one},
        optional={"decision": None},
    ),
    "topic_unassigned": FieldMap(assignment.TopicUnassigned, pb.TopicUnassigned),
    "restore_marked": FieldMap(
        shard.RestoreMarked,
        pb.RestoreMarked,
        converted={"phase": (attrgetter("value"), shard.RestorePhase)},
    ),
    "parent_gate_opened": FieldMap(parent_gate.ParentGateOpened, pb.ParentGateOpened, **_GATE),
    "parent_gate_closed": FieldMap(parent_gate.ParentGateClosed, pb.ParentGateClosed, **_GATE),
    "shadow_source_created": FieldMap(shadow_source.ShadowSourceCreated, pb.ShadowSourceCreated),
    "shadow_shard_recorded": FieldMap(shadow_source.ShadowShardRecorded, pb.ShadowShardRecorded),
    "shadow_source_held": FieldMap(shadow_source.ShadowSourceHeld, pb.ShadowSourceHeld),
    "shadow_source_removed": FieldMap(shadow_source.ShadowSourceRemoved, pb.ShadowSourceRemoved),
    **SESSION_EVENTS,
    **SCALABLE_EVENTS,
    **SLOT_EVENTS,
}

_ENCODERS: dict[type, Callable[[Any], pb.Event]] = {
    tenant.TenantPoliciesSet: _encode_policies(PolicyLevel.TENANT, "tenant_id"),
    namespace.NamespacePoliciesSet: _encode_policies(PolicyLevel.NAMESPACE, "namespace_id"),
    topic.TopicPoliciesSet: _encode_policies(PolicyLevel.TOPIC, "topic_id"),
    topic.TopicCreated: _encode_topic_created,
    **{each.value: each.inside(pb.Event, name) for name, each in _EVENTS.items()},
}

_DECODERS: dict[str, Callable[..., DomainEvent]] = {
    "topic_created": _decode_topic_created,
    "policy_set": lambda stored: _decode_policies(stored, stored.policy),
    "policy_cleared": lambda stored: _decode_policies(stored, NO_PACKED_POLICIES),
    **{name: each.from_stored for name, each in _EVENTS.items()},
}
"""Decoders by the name of the payload."""
