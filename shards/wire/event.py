"""Events between their stored form (protobuf) and the domain.

What is in the log stays readable for ever: a mapping here may grow, never change. Two numbers of
an event are not stored with it but with its record: its time, and its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nextgen.kernel.governance.policies import PolicyLevel
from protos.nextgen.v1 import events_pb2 as pb
from shards.domain import assignment, broker_session, namespace, parent_gate, shard, tenant, topic
from shards.domain.parent_gate import ParentKind
from shards.domain.placement.choice import CandidateSeen, PlacementDecision
from shards.domain.policies import NOTHING_SAID
from shards.domain.properties import Properties
from shards.wire import session_event as wire_session_event

SCHEMA_VERSION_MAX = 1
"""The latest schema that this program reads. A stored 0 means 1."""

DomainEvent = (
    tenant.TenantEvent
    | namespace.NamespaceEvent
    | topic.TopicEvent
    | parent_gate.ParentGateEvent
    | assignment.AssignmentEvent
    | broker_session.BrokerSessionEvent
    | shard.ShardEvent
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
            # By far the most frequent: in place it costs half of what a copy does.
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
    return decoder(getattr(stored, name), time_ms)


# Domain -> stored ----------------------------------------------------------------------------


def _encode_tenant_created(event: tenant.TenantCreated) -> pb.Event:
    return pb.Event(
        tenant_created=pb.TenantCreated(
            tenant_id=event.tenant_id, name=event.name, properties=dict(event.properties)
        )
    )


def _encode_namespace_created(event: namespace.NamespaceCreated) -> pb.Event:
    return pb.Event(
        namespace_created=pb.NamespaceCreated(
            namespace_id=event.namespace_id,
            name=event.name,
            tenant_id=event.tenant_id,
            properties=dict(event.properties),
        )
    )


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


def _encode_policies(level: PolicyLevel, object_id: str, event: PoliciesSet) -> pb.Event:
    if not event.policies:
        return pb.Event(
            policy_cleared=pb.PolicyCleared(
                scope=level.value,
                name=event.name,
                version=event.policies_version,
                object_id=object_id,
            )
        )
    return pb.Event(
        policy_set=pb.PolicySet(
            scope=level.value,
            name=event.name,
            policy=event.policies,
            version=event.policies_version,
            object_id=object_id,
        )
    )


def _encode_assigned(event: assignment.TopicAssigned) -> pb.Event:
    return pb.Event(
        topic_assigned=pb.TopicAssigned(
            topic_id=event.topic_id,
            unit=event.unit,
            name=event.name,
            epoch=event.epoch,
            broker_id=event.broker_id,
            session_id=event.session_id,
            reason=event.reason,
            decision=None if event.decision is None else _encode_decision(event.decision),
            used_epoch=event.used_epoch,
        )
    )


def _encode_decision(decision: PlacementDecision) -> pb.PlacementDecision:
    return pb.PlacementDecision(
        rule=decision.rule,
        candidates=decision.candidates,
        excluded=decision.excluded,
        compared=[
            pb.CandidateSeen(
                broker_id=seen.broker_id,
                units_used=seen.units_used,
                units_leased=seen.units_leased,
                load_permille=seen.load_permille,
            )
            for seen in decision.compared
        ],
        asked_by=decision.asked_by,
    )


def _encode_unassigned(event: assignment.TopicUnassigned) -> pb.Event:
    return pb.Event(
        topic_unassigned=pb.TopicUnassigned(
            topic_id=event.topic_id,
            unit=event.unit,
            name=event.name,
            epoch=event.epoch,
            reason=event.reason,
        )
    )


def _encode_adopted(event: shard.SlotsAdopted) -> pb.Event:
    return pb.Event(
        slots_adopted=pb.SlotsAdopted(
            ranges=[pb.SlotRange(first=first, last=last) for first, last in event.ranges],
            shard_map_version=event.shard_map_version,
        )
    )


def _encode_gate_opened(event: parent_gate.ParentGateOpened) -> pb.Event:
    return pb.Event(
        parent_gate_opened=pb.ParentGateOpened(
            parent_kind=event.kind.value,
            parent_name=event.name,
            parent_id=event.parent_id,
            attempt=event.attempt,
        )
    )


def _encode_gate_closed(event: parent_gate.ParentGateClosed) -> pb.Event:
    return pb.Event(
        parent_gate_closed=pb.ParentGateClosed(
            parent_kind=event.kind.value,
            parent_name=event.name,
            parent_id=event.parent_id,
            attempt=event.attempt,
        )
    )


_ENCODERS: dict[type, Callable[[Any], pb.Event]] = {
    tenant.TenantCreated: _encode_tenant_created,
    tenant.TenantPropertiesSet: lambda event: pb.Event(
        tenant_properties_set=pb.TenantPropertiesSet(
            name=event.name, properties=dict(event.properties)
        )
    ),
    tenant.TenantPoliciesSet: lambda event: _encode_policies(
        PolicyLevel.TENANT, event.tenant_id, event
    ),
    tenant.TenantDeletionStarted: lambda event: pb.Event(
        tenant_deletion_started=pb.TenantDeletionStarted(name=event.name)
    ),
    tenant.TenantDeletionAborted: lambda event: pb.Event(
        tenant_deletion_aborted=pb.TenantDeletionAborted(name=event.name)
    ),
    tenant.TenantDeleted: lambda event: pb.Event(
        tenant_deleted=pb.TenantDeleted(name=event.name, tenant_id=event.tenant_id)
    ),
    namespace.NamespaceCreated: _encode_namespace_created,
    namespace.NamespacePropertiesSet: lambda event: pb.Event(
        namespace_properties_set=pb.NamespacePropertiesSet(
            name=event.name, properties=dict(event.properties)
        )
    ),
    namespace.NamespacePoliciesSet: lambda event: _encode_policies(
        PolicyLevel.NAMESPACE, event.namespace_id, event
    ),
    namespace.NamespaceDeletionStarted: lambda event: pb.Event(
        namespace_deletion_started=pb.NamespaceDeletionStarted(name=event.name)
    ),
    namespace.NamespaceDeletionAborted: lambda event: pb.Event(
        namespace_deletion_aborted=pb.NamespaceDeletionAborted(name=event.name)
    ),
    namespace.NamespaceDeleted: lambda event: pb.Event(
        namespace_deleted=pb.NamespaceDeleted(name=event.name, namespace_id=event.namespace_id)
    ),
    topic.TopicPropertiesSet: lambda event: pb.Event(
        topic_properties_set=pb.TopicPropertiesSet(
            name=event.name, properties=dict(event.properties)
        )
    ),
    topic.TopicPoliciesSet: lambda event: _encode_policies(
        PolicyLevel.TOPIC, event.topic_id, event
    ),
    topic.TopicCreated: _encode_topic_created,
    topic.TopicDeleted: lambda event: pb.Event(
        topic_deleted=pb.TopicDeleted(name=event.name, topic_id=event.topic_id)
    ),
    assignment.TopicAssigned: _encode_assigned,
    assignment.TopicUnassigned: _encode_unassigned,
    **wire_session_event.ENCODERS,
    shard.SlotsAdopted: _encode_adopted,
    parent_gate.ParentGateOpened: _encode_gate_opened,
    parent_gate.ParentGateClosed: _encode_gate_closed,
}


# Stored -> domain ----------------------------------------------------------------------------


def _decode_topic_created(stored: pb.TopicCreated, time_ms: int) -> topic.TopicCreated:
    return topic.TopicCreated(
        stored.topic_id,
        stored.name,
        stored.partitions,
        stored.namespace_id,
        time_ms,
        to_properties(stored.properties),
    )


def _decode_policies(stored: pb.PolicySet | pb.PolicyCleared, packed: bytes) -> PoliciesSet:
    try:
        made = _POLICIES_SET[stored.scope]
    except KeyError:
        raise UnknownEvent(f"the log holds policies of a {stored.scope!a}") from None
    return made(stored.name, stored.object_id, packed, stored.version)


def _decode_assigned(stored: pb.TopicAssigned, time_ms: int) -> assignment.TopicAssigned:
    return assignment.TopicAssigned(
        stored.topic_id,
        stored.unit,
        stored.name,
        stored.epoch,
        stored.broker_id,
        stored.session_id,
        stored.reason,
        _decode_decision(stored.decision) if stored.HasField("decision") else None,
        stored.used_epoch,
    )


def _decode_decision(stored: pb.PlacementDecision) -> PlacementDecision:
    return PlacementDecision(
        stored.rule,
        stored.candidates,
        stored.excluded,
        tuple(
            [
                CandidateSeen(
                    seen.broker_id, seen.units_used, seen.units_leased, seen.load_permille
                )
                for seen in stored.compared
            ]
        ),
        stored.asked_by,
    )


def _decode_gate_opened(stored: pb.ParentGateOpened, time_ms: int) -> parent_gate.ParentGateOpened:
    return parent_gate.ParentGateOpened(
        ParentKind(stored.parent_kind), stored.parent_name, stored.parent_id, stored.attempt
    )


def _decode_gate_closed(stored: pb.ParentGateClosed, time_ms: int) -> parent_gate.ParentGateClosed:
    return parent_gate.ParentGateClosed(
        ParentKind(stored.parent_kind), stored.parent_name, stored.parent_id, stored.attempt
    )


_POLICIES_SET: dict[str, Callable[[str, str, bytes, int], PoliciesSet]] = {
    PolicyLevel.TENANT.value: tenant.TenantPoliciesSet,
    PolicyLevel.NAMESPACE.value: namespace.NamespacePoliciesSet,
    PolicyLevel.TOPIC.value: topic.TopicPoliciesSet,
}

_DECODERS: dict[str, Callable[[Any, int], DomainEvent]] = {
    "tenant_created": lambda stored, _: tenant.TenantCreated(
        stored.tenant_id, stored.name, to_properties(stored.properties)
    ),
    "tenant_properties_set": lambda stored, _: tenant.TenantPropertiesSet(
        stored.name, to_properties(stored.properties)
    ),
    "tenant_deletion_started": lambda stored, _: tenant.TenantDeletionStarted(stored.name),
    "tenant_deletion_aborted": lambda stored, _: tenant.TenantDeletionAborted(stored.name),
    "tenant_deleted": lambda stored, _: tenant.TenantDeleted(stored.name, stored.tenant_id),
    "namespace_created": lambda stored, _: namespace.NamespaceCreated(
        stored.namespace_id, stored.name, stored.tenant_id, to_properties(stored.properties)
    ),
    "namespace_properties_set": lambda stored, _: namespace.NamespacePropertiesSet(
        stored.name, to_properties(stored.properties)
    ),
    "namespace_deletion_started": lambda stored, _: namespace.NamespaceDeletionStarted(stored.name),
    "namespace_deletion_aborted": lambda stored, _: namespace.NamespaceDeletionAborted(stored.name),
    "namespace_deleted": lambda stored, _: namespace.NamespaceDeleted(
        stored.name, stored.namespace_id
    ),
    "topic_created": _decode_topic_created,
    "topic_properties_set": lambda stored, _: topic.TopicPropertiesSet(
        stored.name, to_properties(stored.properties)
    ),
    "topic_deleted": lambda stored, _: topic.TopicDeleted(stored.name, stored.topic_id),
    "policy_set": lambda stored, _: _decode_policies(stored, stored.policy),
    "policy_cleared": lambda stored, _: _decode_policies(stored, NOTHING_SAID),
    "topic_assigned": _decode_assigned,
    "topic_unassigned": lambda stored, _: assignment.TopicUnassigned(
        stored.topic_id, stored.unit, stored.name, stored.epoch, stored.reason
    ),
    **wire_session_event.DECODERS,
    "slots_adopted": lambda stored, _: shard.SlotsAdopted(
        tuple([(each.first, each.last) for each in stored.ranges]), stored.shard_map_version
    ),
    "parent_gate_opened": _decode_gate_opened,
    "parent_gate_closed": _decode_gate_closed,
}
