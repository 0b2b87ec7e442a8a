"""One namespace in a shard's inventory: may it be created, changed, deleted?

Whether its tenant exists is not checked here but by the tenant's gate in this shard
(``shards.domain.parent_gate``). A deletion takes two decisions, because the topics of a namespace
live in other shards: the namespace is closed for children, then deleted once every shard has agreed
(docs/flows/inventory.md). Event classes mirror protos/nextgen/v1/events.proto.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from nextgen.kernel.events.decider import Accepted, Rejected, RejectionCode
from nextgen.kernel.governance.policies import PolicyLevel
from shards.domain.life import Life
from shards.domain.policies import (
    NO_PACKED_POLICIES,
    PackedPolicies,
    SetPolicies,
    changes_nothing,
    check_set,
)
from shards.domain.properties import Properties, check_properties


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    """``namespace_id`` is minted for this command: the same id again is a retry.

    ``name`` is ``tenant/namespace``; ``tenant_id`` comes from the tenant's open gate.
    """

    namespace_id: str
    name: str
    tenant_id: str
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class SetNamespaceProperties:
    """Replace all properties. ``expected_version`` 0 means any."""

    name: str
    properties: Properties
    expected_version: int = 0


@dataclass(frozen=True, slots=True)
class StartNamespaceDeletion:
    name: str


@dataclass(frozen=True, slots=True)
class AbortNamespaceDeletion:
    """Some shard has topics of it: the namespace stays."""

    name: str
    namespace_id: str


@dataclass(frozen=True, slots=True)
class FinishNamespaceDeletion:
    """Every shard has closed its gate for ``namespace_id``."""

    name: str
    namespace_id: str


@dataclass(frozen=True, slots=True)
class NamespaceCreated:
    namespace_id: str
    name: str
    tenant_id: str
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class NamespacePropertiesSet:
    name: str
    properties: Properties


@dataclass(frozen=True, slots=True)
class NamespacePoliciesSet:
    """``policies`` are all its policies, ``NO_PACKED_POLICIES`` if they were cleared."""

    name: str
    namespace_id: str
    policies: PackedPolicies
    policies_version: int


@dataclass(frozen=True, slots=True)
class NamespaceDeletionStarted:
    name: str


@dataclass(frozen=True, slots=True)
class NamespaceDeletionAborted:
    name: str


@dataclass(frozen=True, slots=True)
class NamespaceDeleted:
    name: str
    namespace_id: str


NamespaceCommand = (
    CreateNamespace
    | SetNamespaceProperties
    | SetPolicies
    | StartNamespaceDeletion
    | AbortNamespaceDeletion
    | FinishNamespaceDeletion
)
NamespaceEvent = (
    NamespaceCreated
    | NamespacePropertiesSet
    | NamespacePoliciesSet
    | NamespaceDeletionStarted
    | NamespaceDeletionAborted
    | NamespaceDeleted
)


@dataclass(frozen=True, slots=True)
class Namespace:
    """State of a namespace that exists. ``version`` grows by 1 with each event."""

    namespace_id: str
    name: str
    tenant_id: str
    properties: Properties
    version: int
    life: Life
    policies: PackedPolicies = NO_PACKED_POLICIES
    policies_version: int = 0
    """Grows by 1 with each change of the policies; 0: never set."""


NamespaceState = Namespace | None
INITIAL: NamespaceState = None


def decide(
    namespace: NamespaceState, command: NamespaceCommand
) -> Accepted[NamespaceEvent] | Rejected:
    """Decide what ``command`` means for ``namespace``."""
    match command:
        case CreateNamespace():
            return _decide_create(namespace, command)
        case SetNamespaceProperties():
            return _decide_set_properties(namespace, command)
        case SetPolicies():
            return _decide_set_policies(namespace, command)
        case StartNamespaceDeletion():
            return _decide_start_deletion(namespace, command)
        case AbortNamespaceDeletion():
            return _decide_abort_deletion(namespace, command)
        case FinishNamespaceDeletion():
            return _decide_finish_deletion(namespace, command)
        case _:
            assert_never(command)


def evolve(namespace: NamespaceState, event: NamespaceEvent) -> NamespaceState:
    """Return ``namespace`` as it is after ``event``."""
    if isinstance(event, NamespaceCreated):
        return Namespace(
            event.namespace_id, event.name, event.tenant_id, event.properties, 1, Life.ACTIVE
        )
    if isinstance(event, NamespaceDeleted):
        return None
    assert namespace is not None, (
        f"{type(event).__name__} for namespace {event.name}, never created"
    )
    version = namespace.version + 1
    match event:
        case NamespacePropertiesSet():
            return replace(namespace, properties=event.properties, version=version)
        case NamespacePoliciesSet():
            return replace(
                namespace,
                policies=event.policies,
                policies_version=event.policies_version,
                version=version,
            )
        case NamespaceDeletionStarted():
            return replace(namespace, life=Life.DELETING, version=version)
        case NamespaceDeletionAborted():
            return replace(namespace, life=Life.ACTIVE, version=version)
        case _:
            assert_never(event)


def _decide_create(
    namespace: NamespaceState, command: CreateNamespace
) -> Accepted[NamespaceEvent] | Rejected:
    if namespace is not None:
        if namespace.namespace_id == command.namespace_id:
            return Accepted(())
        return Rejected(RejectionCode.ALREADY_EXISTS, f"namespace {command.name} already exists")
    refusal = check_properties(command.properties)
    if refusal is not None:
        return refusal
    return Accepted(
        (
            NamespaceCreated(
                command.namespace_id, command.name, command.tenant_id, command.properties
            ),
        )
    )


def _decide_set_properties(
    namespace: NamespaceState, command: SetNamespaceProperties
) -> Accepted[NamespaceEvent] | Rejected:
    if namespace is None:
        return _not_found(command.name)
    if namespace.life is Life.DELETING:
        return Rejected(RejectionCode.NOT_ALLOWED, f"namespace {command.name} is being deleted")
    if namespace.properties == command.properties:
        return Accepted(())
    if command.expected_version not in (0, namespace.version):
        return Rejected(
            RejectionCode.VERSION_MISMATCH,
            f"namespace {command.name} is at version {namespace.version}, "
            f"command expected {command.expected_version}",
        )
    refusal = check_properties(command.properties)
    if refusal is not None:
        return refusal
    return Accepted((NamespacePropertiesSet(command.name, command.properties),))


def _decide_set_policies(
    namespace: NamespaceState, command: SetPolicies
) -> Accepted[NamespaceEvent] | Rejected:
    if namespace is None:
        return _not_found(command.name)
    if namespace.life is Life.DELETING:
        return Rejected(RejectionCode.NOT_ALLOWED, f"namespace {command.name} is being deleted")
    version = namespace.policies_version
    refusal = check_set(command, PolicyLevel.NAMESPACE, version)
    if refusal is not None:
        return refusal
    if changes_nothing(command, namespace.policies):
        return Accepted(())
    event = NamespacePoliciesSet(command.name, namespace.namespace_id, command.packed, version + 1)
    return Accepted((event,))


def _decide_start_deletion(
    namespace: NamespaceState, command: StartNamespaceDeletion
) -> Accepted[NamespaceEvent] | Rejected:
    if namespace is None:
        return _not_found(command.name)
    if namespace.life is Life.DELETING:
        return Accepted(())
    return Accepted((NamespaceDeletionStarted(command.name),))


def _decide_abort_deletion(
    namespace: NamespaceState, command: AbortNamespaceDeletion
) -> Accepted[NamespaceEvent] | Rejected:
    if namespace is None or namespace.namespace_id != command.namespace_id:
        return _not_found(command.name)
    if namespace.life is Life.ACTIVE:
        return Accepted(())
    return Accepted((NamespaceDeletionAborted(command.name),))


def _decide_finish_deletion(
    namespace: NamespaceState, command: FinishNamespaceDeletion
) -> Accepted[NamespaceEvent] | Rejected:
    # Absent, or replaced by another of the same name: this one was deleted already.
    if namespace is None or namespace.namespace_id != command.namespace_id:
        return Accepted(())
    if namespace.life is Life.ACTIVE:
        return Rejected(
            RejectionCode.NOT_ALLOWED, f"deletion of namespace {command.name} was not started"
        )
    return Accepted((NamespaceDeleted(command.name, command.namespace_id),))


def _not_found(name: str) -> Rejected:
    return Rejected(RejectionCode.NOT_FOUND, f"namespace {name} does not exist")
