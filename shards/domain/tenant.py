"""One tenant in a shard's inventory: may it be created, changed, deleted?

The rules are those of every parent (``shards.domain.parent``).
Event classes mirror protos/nextgen/v1/events.proto.
"""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.events.decider import Accepted, Rejected
from nextgen.kernel.governance.policies import PolicyLevel
from shards.domain.life import Life
from shards.domain.parent import ParentCommand, ParentRules
from shards.domain.policies import NO_PACKED_POLICIES, PackedPolicies, SetPolicies
from shards.domain.properties import Properties


@dataclass(frozen=True, slots=True)
class CreateTenant:
    """``tenant_id`` is minted for this command: the same id again is a retry.

    ``policies`` are set with it. ``is_rename``: it is what another tenant is renamed to.
    """

    tenant_id: str
    name: str
    properties: Properties = ()
    policies: SetPolicies | None = None
    is_rename: bool = False


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


TenantCommand = CreateTenant | ParentCommand
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

    @property
    def parent_id(self) -> str:
        return self.tenant_id


TenantState = Tenant | None
INITIAL: TenantState = None


_RULES: ParentRules[Tenant] = ParentRules(
    PolicyLevel.TENANT,
    TenantPropertiesSet,
    TenantPoliciesSet,
    TenantDeletionStarted,
    TenantDeletionAborted,
    TenantDeleted,
)


def decide(tenant: TenantState, command: TenantCommand) -> Accepted[TenantEvent] | Rejected:
    """Decide what ``command`` means for ``tenant``."""
    if isinstance(command, CreateTenant):
        created = TenantCreated(command.tenant_id, command.name, command.properties)
        return _RULES.decide_create(
            tenant,
            command.name,
            command.tenant_id,
            created,
            command.policies,
            is_rename=command.is_rename,
        )
    return _RULES.decide(tenant, command)


def evolve(tenant: TenantState, event: TenantEvent) -> TenantState:
    """Return ``tenant`` as it is after ``event``."""
    if isinstance(event, TenantCreated):
        return Tenant(event.tenant_id, event.name, event.properties, 1, Life.ACTIVE)
    return _RULES.evolve(tenant, event)
