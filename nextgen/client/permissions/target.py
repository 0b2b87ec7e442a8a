"""The objects whose permissions decide about a resource: its tenant, namespace and base topic."""

from __future__ import annotations

from typing import NamedTuple

from nextgen.kernel.governance.access import Action, Principal, Resource, ResourceKind
from nextgen.kernel.routing.names import Domain, parse_namespace, parse_tenant, parse_topic

_CLASSIC = frozenset({Domain.PERSISTENT, Domain.NON_PERSISTENT})


class Target(NamedTuple):
    """Names of objects, "" for those that a resource has not."""

    kind: ResourceKind
    tenant: str = ""
    namespace: str = ""
    """``tenant/namespace``"""
    topic: str = ""
    """Canonical name of the base topic; a scalable topic has the permissions of its name."""
    routing_key: str = ""
    """Of the base topic."""


def target_of(resource: Resource) -> Target:
    """Return the objects that decide about ``resource``.

    Raises:
        InvalidName: It is the name of no such object.
    """
    kind, name = resource
    if kind is ResourceKind.CLUSTER:
        return Target(kind)
    if kind is ResourceKind.TENANT:
        return Target(kind, parse_tenant(name))
    if kind is ResourceKind.NAMESPACE:
        namespace = parse_namespace(name)
        return Target(kind, namespace.tenant, namespace.text)
    topic = parse_topic(name)
    domain = topic.domain if topic.domain in _CLASSIC else Domain.PERSISTENT
    namespace_text = topic.namespace_text
    base = f"{domain}://{namespace_text}/{topic.base_name}"
    return Target(kind, topic.tenant, namespace_text, base, topic.routing_key)


def refusal(principal: Principal, action: Action, resource: Resource, subscription: str) -> str:
    """Return the sentence that refuses something."""
    who = principal.name if not principal.proxy else f"{principal.name} by {principal.proxy}"
    what = f" with subscription {subscription}" if subscription else ""
    return f"{who} has no permission to {action} {resource.kind} {resource.name}{what}"
