"""One tenant in a shard's inventory: may it be created, changed, deleted?

A deletion takes two decisions, because the namespaces of a tenant live in other shards: the tenant
is closed for children, then deleted once every shard has agreed (docs/flows/inventory.md). Event
classes mirror protos/nextgen/v1/events.proto.
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
class CreateTenant:
    """``tenant_id`` is minted for this command: the same id again is a retry."""

    tenant_id: str
    name: str
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class SetTenantProperties:
    """Replace all properties. ``expected_version`` 0 means any."""

    name: str
    properties: Properties
    expected_version: int = 0


@dataclass(frozen=True, slots=True)
class StartTenantDeletion:
    name: str


@dataclass(frozen=True, slots=True)
class AbortTenantDeletion:
    """Some shard has namespaces of it: the tenant stays."""

    name: str
    tenant_id: str


@dataclass(frozen=True, slots=True)
class FinishTenantDeletion:
    """Every shard has closed its gate for ``tenant_id``."""

    name: str
    tenant_id: str


@dataclass(frozen=True, slots=True)
class TenantCreated:
    tenant_id: str
    name: str
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class TenantPropertiesSet:
    name: str
    properties: Properties


@dataclass(frozen=True, slots=True)
class TenantPoliciesSet:
    """``policies`` are all its policies, ``NO_PACKED_POLICIES`` if they were cleared."""

    name: str
    tenant_id: str
    policies: PackedPolicies
    policies_version: int


@dataclass(frozen=True, slots=True)
class TenantDeletionStarted:
    name: str


@dataclass(frozen=True, slots=True)
class TenantDeletionAborted:
    name: str


@dataclass(frozen=True, slots=True)
class TenantDeleted:
    name: str
    tenant_id: str


TenantCommand = (
    CreateTenant
    | SetTenantProperties
    | SetPolicies
    | StartTenantDeletion
    | AbortTenantDeletion
    | FinishTenantDeletion
)
TenantEvent = (
    TenantCreated
    | TenantPropertiesSet
    | TenantPoliciesSet
    | TenantDeletionStarted
    | TenantDeletionAborted
    | TenantDeleted
)


@dataclass(frozen=True, slots=True)
class Tenant:
    """State of a tenant that exists. ``version`` grows by 1 with each event."""

    tenant_id: str
    name: str
    properties: Properties
    version: int
    life: Life
    policies: PackedPolicies = NO_PACKED_POLICIES
    policies_version: int = 0
    """Grows by 1 with each change of the policies; 0: never set."""


TenantState = Tenant | None
INITIAL: TenantState = None


def decide(tenant: TenantState, command: TenantCommand) -> Accepted[TenantEvent] | Rejected:
    """Decide what ``command`` means for ``tenant``."""
    match command:
        case CreateTenant():
            return _decide_create(tenant, command)
        case SetTenantProperties():
            return _decide_set_properties(tenant, command)
        case SetPolicies():
            return _decide_set_policies(tenant, command)
        case StartTenantDeletion():
            return _decide_start_deletion(tenant, command)
        case AbortTenantDeletion():
            return _decide_abort_deletion(tenant, command)
        case FinishTenantDeletion():
            return _decide_finish_deletion(tenant, command)
        case _:
            assert_never(command)


def evolve(tenant: TenantState, event: TenantEvent) -> TenantState:
    """Return ``tenant`` as it is after ``event``."""
    if isinstance(event, TenantCreated):
        return Tenant(event.tenant_id, event.name, event.properties, 1, Life.ACTIVE)
    if isinstance(event, TenantDeleted):
        return None
    assert tenant is not None, f"{type(event).__name__} for tenant {event.name}, never created"
    version = tenant.version + 1
    match event:
        case TenantPropertiesSet():
            return replace(tenant, properties=event.properties, version=version)
        case TenantPoliciesSet():
            return replace(
                tenant,
                policies=event.policies,
                policies_version=event.policies_version,
                version=version,
            )
        case TenantDeletionStarted():
            return replace(tenant, life=Life.DELETING, version=version)
        case TenantDeletionAborted():
            return replace(tenant, life=Life.ACTIVE, version=version)
        case _:
            assert_never(event)


def _decide_create(tenant: TenantState, command: CreateTenant) -> Accepted[TenantEvent] | Rejected:
    if tenant is not None:
        if tenant.tenant_id == command.tenant_id:
            return Accepted(())
        return Rejected(RejectionCode.ALREADY_EXISTS, f"tenant {command.name} already exists")
    refusal = check_properties(command.properties)
    if refusal is not None:
        return refusal
    return Accepted((TenantCreated(command.tenant_id, command.name, command.properties),))


def _decide_set_properties(
    tenant: TenantState, command: SetTenantProperties
) -> Accepted[TenantEvent] | Rejected:
    if tenant is None:
        return _not_found(command.name)
    if tenant.life is Life.DELETING:
        return Rejected(RejectionCode.NOT_ALLOWED, f"tenant {command.name} is being deleted")
    if tenant.properties == command.properties:
        return Accepted(())
    if command.expected_version not in (0, tenant.version):
        return Rejected(
            RejectionCode.VERSION_MISMATCH,
            f"tenant {command.name} is at version {tenant.version}, "
            f"command expected {command.expected_version}",
        )
    refusal = check_properties(command.properties)
    if refusal is not None:
        return refusal
    return Accepted((TenantPropertiesSet(command.name, command.properties),))


def _decide_set_policies(
    tenant: TenantState, command: SetPolicies
) -> Accepted[TenantEvent] | Rejected:
    if tenant is None:
        return _not_found(command.name)
    if tenant.life is Life.DELETING:
        return Rejected(RejectionCode.NOT_ALLOWED, f"tenant {command.name} is being deleted")
    version = tenant.policies_version
    refusal = check_set(command, PolicyLevel.TENANT, version)
    if refusal is not None:
        return refusal
    if changes_nothing(command, tenant.policies):
        return Accepted(())
    event = TenantPoliciesSet(command.name, tenant.tenant_id, command.packed, version + 1)
    return Accepted((event,))


def _decide_start_deletion(
    tenant: TenantState, command: StartTenantDeletion
) -> Accepted[TenantEvent] | Rejected:
    if tenant is None:
        return _not_found(command.name)
    if tenant.life is Life.DELETING:
        return Accepted(())
    return Accepted((TenantDeletionStarted(command.name),))


def _decide_abort_deletion(
    tenant: TenantState, command: AbortTenantDeletion
) -> Accepted[TenantEvent] | Rejected:
    if tenant is None or tenant.tenant_id != command.tenant_id:
        return _not_found(command.name)
    if tenant.life is Life.ACTIVE:
        return Accepted(())
    return Accepted((TenantDeletionAborted(command.name),))


def _decide_finish_deletion(
    tenant: TenantState, command: FinishTenantDeletion
) -> Accepted[TenantEvent] | Rejected:
    # Absent, or replaced by another of the same name: this one was deleted already.
    if tenant is None or tenant.tenant_id != command.tenant_id:
        return Accepted(())
    if tenant.life is Life.ACTIVE:
        return Rejected(
            RejectionCode.NOT_ALLOWED, f"deletion of tenant {command.name} was not started"
        )
    return Accepted((TenantDeleted(command.name, command.tenant_id),))


def _not_found(name: str) -> Rejected:
    return Rejected(RejectionCode.NOT_FOUND, f"tenant {name} does not exist")
