"""What the states of a tenant and a namespace say of the units and topics below them."""

from __future__ import annotations

from nextgen.client.wire.policies import unpack_policies
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.governance.auto_creation import auto_creation
from nextgen.kernel.governance.policies import NO_POLICIES, PlacementRules, Policies, merge
from shards.domain.namespace import Namespace
from shards.domain.placement.broker_kinds import broker_kind_in
from shards.domain.tenant import Tenant
from shards.domain.topic import Topic
from shards.inventory.topic_bounds import OnDemand, ServedBy
from shards.sessions.metadata_state import MetadataState

Parents = tuple[MetadataState | None, MetadataState | None]
"""A tenant, and a namespace of it; None of either if it does not exist."""


def tenant_of(namespace: str) -> str:
    return namespace.partition("/")[0]


def parents_of(
    tenant: MetadataState | MetadataError | None, namespace: MetadataState | MetadataError | None
) -> Parents | MetadataError:
    """Return what was read of a namespace and its tenant, or why one of them was not read."""
    if isinstance(tenant, MetadataError):
        return tenant
    return namespace if isinstance(namespace, MetadataError) else (tenant, namespace)


def policies_of(state: MetadataState | None) -> Policies:
    return unpack_policies(state.policies) if isinstance(state, Tenant | Namespace) else NO_POLICIES


def together(tenant: Policies, namespace: Policies) -> Policies:
    """Return the merged policies of a namespace and its tenant."""
    if tenant is NO_POLICIES and namespace is NO_POLICIES:
        return NO_POLICIES
    return merge(tenant, namespace)


def merged(parents: Parents | MetadataError) -> Policies | MetadataError:
    """Return the merged policies of both, or why they are not known."""
    if isinstance(parents, MetadataError):
        return parents
    tenant, namespace = parents
    return together(policies_of(tenant), policies_of(namespace))


def on_demand(namespace: MetadataState | None, policies: Policies) -> OnDemand:
    """Return the rule for topics on demand in a namespace whose merged policies are given."""
    if not isinstance(namespace, Namespace):
        return OnDemand("", auto_creation({}))
    rule = auto_creation(dict(namespace.properties), policies.auto_creation)
    return OnDemand(namespace.namespace_id, rule)


def served_by(namespace: MetadataState | None) -> ServedBy:
    """Return which brokers serve the topics of a namespace."""
    if not isinstance(namespace, Namespace):
        return ServedBy("", "")
    return ServedBy(namespace.namespace_id, broker_kind_in(namespace.properties))


def rules_for(parents: Policies, topic: Topic) -> PlacementRules:
    """Return the placement rules of the units of ``topic``."""
    if not topic.policies:
        return parents.placement
    return merge(namespace=parents, topic=unpack_policies(topic.policies)).placement
