"""Decides whether a principal may do an action: one pure function and its table (ADR 0149).

    action on a kind of resource ─▶ NEEDS ─▶ everybody | superusers | the tenant's admins
                                             | these, or whom permissions name

The semantics are those of Pulsar's own provider. What is not in the table is for superusers only.
Facts may be unknown: then the answer is None, unless the known ones decide it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from nextgen.kernel.governance.access import Action, ResourceKind
from nextgen.kernel.governance.permissions import (
    AuthAction,
    Permissions,
    SubscriptionAuthMode,
    permitted,
    subscription_roles,
)
from nextgen.kernel.governance.policies import NO_POLICIES, Policies

WILDCARD = "*"
"""At the end of a role: every role that begins so; at its beginning: every role that ends so."""


class Need(Enum):
    """Who may do something that no permission gives."""

    ROLE = "everybody who has a role"
    SUPERUSER = "superusers"
    ADMIN = "the tenant's admins"


_USE = frozenset({AuthAction.PRODUCE, AuthAction.CONSUME})
_PRODUCE = frozenset({AuthAction.PRODUCE})
_CONSUME = frozenset({AuthAction.CONSUME})

Needs = Need | frozenset[AuthAction]
"""A set of actions stands for the tenant's admins, and each role that is permitted one of them."""

NEEDS: Mapping[tuple[ResourceKind, Action], Needs] = MappingProxyType(
    {
        (ResourceKind.CLUSTER, Action.CONNECT): Need.ROLE,
        (ResourceKind.TENANT, Action.READ): Need.ADMIN,
        (ResourceKind.TENANT, Action.LIST): Need.ADMIN,
        (ResourceKind.NAMESPACE, Action.LOOK_UP): _USE,
        (ResourceKind.NAMESPACE, Action.LIST): _CONSUME,
        (ResourceKind.NAMESPACE, Action.READ): Need.ADMIN,
        (ResourceKind.NAMESPACE, Action.CREATE): Need.ADMIN,
        (ResourceKind.NAMESPACE, Action.CHANGE): Need.ADMIN,
        (ResourceKind.NAMESPACE, Action.DELETE): Need.ADMIN,
        (ResourceKind.NAMESPACE, Action.UNLOAD): Need.ADMIN,
        (ResourceKind.NAMESPACE, Action.PRODUCE): _PRODUCE,
        (ResourceKind.NAMESPACE, Action.CONSUME): _CONSUME,
        (ResourceKind.TOPIC, Action.LOOK_UP): _USE,
        (ResourceKind.TOPIC, Action.READ): _USE,
        (ResourceKind.TOPIC, Action.PRODUCE): _PRODUCE,
        (ResourceKind.TOPIC, Action.CONSUME): _CONSUME,
        (ResourceKind.TOPIC, Action.LIST): Need.ADMIN,
        (ResourceKind.TOPIC, Action.CREATE): Need.ADMIN,
        (ResourceKind.TOPIC, Action.CHANGE): Need.ADMIN,
        (ResourceKind.TOPIC, Action.DELETE): Need.ADMIN,
        (ResourceKind.TOPIC, Action.UNLOAD): Need.ADMIN,
    }
)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """What holds for all decisions of a cluster."""

    superusers: frozenset[str] = frozenset()
    wildcards: bool = False
    """Whether ``*`` at either end of a permission's role stands for any characters."""


@dataclass(frozen=True, slots=True)
class AccessFacts:
    """What is known about a resource; None: it is not known. Absent objects permit nothing."""

    admins: frozenset[str] | None = None
    """The admins of its tenant."""
    namespace: Policies | None = None
    """The policies of its namespace; only permissions, and who may use subscriptions, count."""
    topic: Policies | None = None
    """The topic's own policies; only permissions count."""


NO_FACTS = AccessFacts()


def needs(kind: ResourceKind, action: Action) -> Needs:
    """Return who may do ``action`` on resources of ``kind``, beside superusers."""
    return NEEDS.get((kind, action), Need.SUPERUSER)


def may(
    rules: AccessRules,
    roles: Iterable[str],
    action: Action,
    kind: ResourceKind,
    facts: AccessFacts,
    subscription: str = "",
) -> bool | None:
    """Return whether all of ``roles`` may do ``action``; None if facts that are missing decide it.

    ``roles``: of the client and, behind a proxy, of the proxy.
    """
    allowed: bool | None = True
    count = 0
    for role in roles:
        count += 1
        each = _may(rules, role, action, kind, facts, subscription)
        if each is False:
            return False
        if each is None:
            allowed = None
    return allowed if count else False


def _may(
    rules: AccessRules,
    role: str,
    action: Action,
    kind: ResourceKind,
    facts: AccessFacts,
    subscription: str,
) -> bool | None:
    if not role:
        return False
    if role in rules.superusers:
        return True
    needed = needs(kind, action)
    if needed is Need.ROLE:
        return True
    if needed is Need.SUPERUSER:
        return False
    is_admin = None if facts.admins is None else role in facts.admins
    if is_admin or isinstance(needed, Need):
        return is_admin
    is_permitted = _is_permitted(rules, role, needed, kind, facts, subscription)
    # Known not to be permitted: that it may be an admin is all that is left, and the reverse.
    return is_permitted or (is_admin if is_permitted is False else None)


def _is_permitted(
    rules: AccessRules,
    role: str,
    wanted: frozenset[AuthAction],
    kind: ResourceKind,
    facts: AccessFacts,
    subscription: str,
) -> bool | None:
    namespace, topic = facts.namespace, facts.topic
    if subscription and wanted is _CONSUME:
        # Before permissions: a topic's own do not open a subscription that is kept for others.
        if namespace is None:
            return None
        if not _may_use(namespace, role, subscription):
            return False
    if namespace is not None and _gives(rules, namespace.permissions, role, wanted):
        return True
    if kind is not ResourceKind.TOPIC:
        return None if namespace is None else False
    if topic is not None and _gives(rules, topic.permissions, role, wanted):
        return True
    return None if namespace is None or topic is None else False


def _may_use(namespace: Policies, role: str, subscription: str) -> bool:
    roles = subscription_roles(namespace.subscription_permissions, subscription)
    if roles and role not in roles:
        return False
    is_by_prefix = namespace.subscription_auth_mode is SubscriptionAuthMode.PREFIX
    return not is_by_prefix or subscription.startswith(role)


def _gives(
    rules: AccessRules, permissions: Permissions, role: str, wanted: frozenset[AuthAction]
) -> bool:
    if not permissions:
        return False
    if not wanted.isdisjoint(permitted(permissions, role)):
        return True
    return rules.wildcards and any(
        matches(each.role, role) and not wanted.isdisjoint(each.actions) for each in permissions
    )


def matches(pattern: str, role: str) -> bool:
    """Return whether ``role`` is one that a role with a wildcard stands for."""
    if pattern.endswith(WILDCARD):
        return role.startswith(pattern[:-1])
    return pattern.startswith(WILDCARD) and role.endswith(pattern[1:])


NOTHING = AccessFacts(frozenset(), NO_POLICIES, NO_POLICIES)
"""Everything is known, and nothing is permitted."""
