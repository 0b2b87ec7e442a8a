"""One namespace in a shard's inventory: may it be created, changed, deleted?

The tenant's gate in this shard says whether its tenant exists (``shards.domain.parent_gate``). The
rules are those of every parent (``shards.domain.parent``). Event classes mirror
protos/nextgen/v1/events.proto.
"""

from __future__ import annotations

from dataclasses import dataclass

from nextgen.kernel.events.decider import Accepted, Rejected
from nextgen.kernel.governance.policies import PolicyLevel
from shards.domain.life import Life
from shards.domain.parent import ParentCommand, ParentRules, SetProperties
from shards.domain.placement.broker_kinds import check_broker_kind, check_broker_kind_kept
from shards.domain.policies import NO_PACKED_POLICIES, PackedPolicies, SetPolicies
from shards.domain.properties import Properties


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    """``namespace_id`` is minted for this command: the same id again is a retry.

    ``name`` is ``tenant/namespace``; ``tenant_id`` comes from the tenant's open gate. ``policies``
    are set with it: there is no moment at which it exists without them. ``is_rename``: it is what
    another one is renamed to.
    """

    namespace_id: str
    name: str
    tenant_id: str
    properties: Properties = ()
    policies: SetPolicies | None = None
    is_rename: bool = False


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


NamespaceCommand = CreateNamespace | ParentCommand
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

    @property
    def parent_id(self) -> str:
        return self.namespace_id


NamespaceState = Namespace | None
INITIAL: NamespaceState = None


_RULES: ParentRules[Namespace] = ParentRules(
    PolicyLevel.NAMESPACE,
    NamespacePropertiesSet,
    NamespacePoliciesSet,
    NamespaceDeletionStarted,
    NamespaceDeletionAborted,
    NamespaceDeleted,
)


def decide(
    namespace: NamespaceState, command: NamespaceCommand
) -> Accepted[NamespaceEvent] | Rejected:
    """Decide what ``command`` means for ``namespace``."""
    if isinstance(command, CreateNamespace):
        if (refusal := check_broker_kind(command.properties)) is not None:
            return refusal
        created = NamespaceCreated(
            command.namespace_id, command.name, command.tenant_id, command.properties
        )
        return _RULES.decide_create(
            namespace,
            command.name,
            command.namespace_id,
            created,
            command.policies,
            is_rename=command.is_rename,
        )
    if isinstance(command, SetProperties) and namespace is not None:
        what = f"namespace {command.name}"
        refusal = check_broker_kind_kept(what, namespace.properties, command.properties)
        if refusal is not None:
            return refusal
    return _RULES.decide(namespace, command)


def evolve(namespace: NamespaceState, event: NamespaceEvent) -> NamespaceState:
    """Return ``namespace`` as it is after ``event``."""
    if isinstance(event, NamespaceCreated):
        return Namespace(
            event.namespace_id, event.name, event.tenant_id, event.properties, 1, Life.ACTIVE
        )
    return _RULES.evolve(namespace, event)
