"""One object of a backup, brought into a shard: the events that make it what the backup says.

The ids are those of the backup: the messages of a topic are stored under its id, and children name
their parents by id. Its version begins anew; the version of its policies does not.
"""

from __future__ import annotations

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.routing.ids import is_id
from nextgen.kernel.routing.names import TopicName
from shards.domain.life import Life
from shards.domain.namespace import (
    Namespace,
    NamespaceCreated,
    NamespaceDeletionStarted,
    NamespaceEvent,
    NamespacePoliciesSet,
)
from shards.domain.parent_gate import ParentGateOpened, ParentGateState, ParentKind
from shards.domain.properties import check_properties
from shards.domain.tenant import (
    Tenant,
    TenantCreated,
    TenantDeletionStarted,
    TenantEvent,
    TenantPoliciesSet,
)
from shards.domain.topic import Topic, TopicCreated, TopicEvent, TopicPoliciesSet, check_creatable


def restore_tenant(before: Tenant | None, wanted: Tenant) -> Accepted[TenantEvent] | Rejected:
    """Decide the events of a tenant; none if it is there."""
    refusal = _refusal(
        "tenant", wanted.name, before.tenant_id if before else None, wanted.tenant_id
    )
    refusal = refusal or check_properties(wanted.properties)
    if refusal is not None or before is not None:
        return refusal or Accepted(())
    name, tenant_id = wanted.name, wanted.tenant_id
    events: list[TenantEvent] = [TenantCreated(tenant_id, name, wanted.properties)]
    if wanted.policies_version:
        events.append(TenantPoliciesSet(name, tenant_id, wanted.policies, wanted.policies_version))
    if wanted.life is Life.DELETING:
        events.append(TenantDeletionStarted(name))
    return Accepted(tuple(events))


def restore_namespace(
    before: Namespace | None, wanted: Namespace
) -> Accepted[NamespaceEvent] | Rejected:
    """Decide the events of a namespace; none if it is there."""
    name, namespace_id = wanted.name, wanted.namespace_id
    refusal = _refusal("namespace", name, before.namespace_id if before else None, namespace_id)
    refusal = refusal or _no_id("the tenant", name, wanted.tenant_id)
    refusal = refusal or check_properties(wanted.properties)
    if refusal is not None or before is not None:
        return refusal or Accepted(())
    events: list[NamespaceEvent] = [
        NamespaceCreated(namespace_id, name, wanted.tenant_id, wanted.properties)
    ]
    if wanted.policies_version:
        events.append(
            NamespacePoliciesSet(name, namespace_id, wanted.policies, wanted.policies_version)
        )
    if wanted.life is Life.DELETING:
        events.append(NamespaceDeletionStarted(name))
    return Accepted(tuple(events))


def restore_topic(
    before: Topic | None, wanted: Topic, name: TopicName, time_ms: int
) -> Accepted[TopicEvent] | Rejected:
    """Decide the events of a topic, whose name is ``name``; none if it is there. The layout of a
    scalable one follows: ``scalable.restore``."""
    refusal = _refusal("topic", wanted.name, before.topic_id if before else None, wanted.topic_id)
    refusal = refusal or _no_id("the namespace", wanted.name, wanted.namespace_id)
    refusal = refusal or check_creatable(name, wanted.partitions, wanted.properties)
    if refusal is not None or before is not None:
        return refusal or Accepted(())
    created = TopicCreated(
        wanted.topic_id,
        wanted.name,
        wanted.partitions,
        wanted.namespace_id,
        time_ms,
        wanted.properties,
    )
    if not wanted.policies_version:
        return Accepted((created,))
    policies_set = TopicPoliciesSet(
        wanted.name, wanted.topic_id, wanted.policies, wanted.policies_version
    )
    return Accepted((created, policies_set))


def open_gate(
    gate: ParentGateState, kind: ParentKind, name: str, parent_id: str
) -> tuple[ParentGateOpened, ...]:
    """Return the event that opens a parent's gate for its restored children, none if it is open.

    The parent is not read: a backup holds the parents of all that it holds.
    """
    if gate is not None and gate.is_open and gate.parent_id == parent_id:
        return ()
    return (ParentGateOpened(kind, name, parent_id, 0 if gate is None else gate.attempt),)


def _refusal(kind: str, name: str, present_id: str | None, wanted_id: str) -> Rejected | None:
    if present_id is not None and present_id != wanted_id:
        return Rejected(
            RejectionCode.ALREADY_EXISTS, f"{kind} {name} exists, and not from this backup"
        )
    return _no_id(kind, name, wanted_id)


def _no_id(kind: str, name: str, text: str) -> Rejected | None:
    if is_id(text):
        return None
    return Rejected(RejectionCode.INVALID_NAME, f"{text[:40]!r} is no id, for {kind} of {name}")
