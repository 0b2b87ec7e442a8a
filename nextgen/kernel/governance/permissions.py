"""Permissions: which roles may produce to, and consume from, the topics of a namespace, or a topic.

They are policies: set, merged, delivered and made effective with them (ADR 0148). This module holds
the values; ``access_rules`` decides by them. A tenant's admins are its property ``adminRoles``.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from nextgen.kernel.events.decider import Rejected, RejectionCode
from nextgen.kernel.limits.inbound import ROLE_BYTES_MAX
from nextgen.kernel.limits.placement import (
    PERMISSIONS_PER_OBJECT_MAX,
    SUBSCRIPTION_PERMISSIONS_MAX,
)
from nextgen.kernel.limits.pulsar import SUBSCRIPTION_NAME_BYTES_MAX

ADMIN_ROLES_PROPERTY = "adminRoles"
"""The property of a tenant with its admins: a JSON list of roles."""

_SHOWN_CHARACTERS_MAX = 80


class AuthAction(StrEnum):
    """What a role may be permitted to do. The names are Pulsar's."""

    PRODUCE = "produce"
    CONSUME = "consume"
    FUNCTIONS = "functions"
    SOURCES = "sources"
    SINKS = "sinks"
    PACKAGES = "packages"


class SubscriptionAuthMode(StrEnum):
    """Which subscriptions a role may use that may consume."""

    NONE = "none"
    """All that no permission on subscriptions names."""

    PREFIX = "prefix"
    """Of these only such as begin with the role, as with Pulsar."""


@dataclass(frozen=True, slots=True)
class Permission:
    """What one role may do; never without any action."""

    role: str
    actions: tuple[AuthAction, ...]
    """In the order of ``AuthAction``, each once."""

    unknown: bytes = b""
    """Actions and fields of a later release, in their own form: kept, and nothing is allowed by
    them. With them there may be no actions."""


@dataclass(frozen=True, slots=True)
class SubscriptionPermission:
    """The only roles that may use the subscriptions of one name in a namespace."""

    subscription: str
    roles: tuple[str, ...]
    """Ascending, each once."""

    unknown: bytes = b""
    """Fields of a later release, in their own form."""


Permissions = tuple[Permission, ...]
"""Ascending by role, each role once."""

SubscriptionPermissions = tuple[SubscriptionPermission, ...]
"""Ascending by subscription, each once."""


def role_problem(role: str) -> str:
    """Return why nobody can have this role, "" if somebody can."""
    if not role:
        return "a role has at least one character"
    if len(role) > ROLE_BYTES_MAX or len(role.encode("utf-8", "surrogatepass")) > ROLE_BYTES_MAX:
        return f"the role has more than {ROLE_BYTES_MAX} bytes"
    if role != role.strip() or not role.isprintable():
        return "the role has control characters, or spaces around it"
    return ""


# Admins of tenants --------------------------------------------------------------------------------


def admin_roles_in(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the admins of a tenant by its properties; none if the property is no list of roles."""
    try:
        roles = json.loads(properties.get(ADMIN_ROLES_PROPERTY, "[]"))
    except (ValueError, RecursionError):
        return ()
    if not isinstance(roles, list):
        return ()
    return tuple(role for role in roles if isinstance(role, str) and role)


def admin_roles_text(roles: Iterable[str]) -> str:
    """Return the property's value for ``roles``: ascending, each once."""
    return json.dumps(sorted({*roles}), separators=(",", ":"))


# Changing -----------------------------------------------------------------------------------------


def permitted(permissions: Permissions, role: str) -> tuple[AuthAction, ...]:
    """Return the actions that ``role`` itself is permitted, without roles by pattern."""
    at = bisect_left(permissions, role, key=_role)
    if at < len(permissions) and permissions[at].role == role:
        return permissions[at].actions
    return ()


def granted(permissions: Permissions, role: str, actions: Iterable[AuthAction]) -> Permissions:
    """Return ``permissions`` by which ``role`` may do ``actions`` and nothing else, as with Pulsar.

    Without any action nothing remains of the role.
    """
    others = [each for each in permissions if each.role != role]
    chosen = {*actions}
    if chosen:
        others.append(Permission(role, in_order(chosen)))
    return tuple(sorted(others, key=_role))


def granted_subscription(
    permissions: SubscriptionPermissions, subscription: str, roles: Iterable[str]
) -> SubscriptionPermissions:
    """Return ``permissions`` by which only ``roles`` may use ``subscription``.

    With no role the subscription is restricted no more: each role that may consume may use it.
    """
    others = [each for each in permissions if each.subscription != subscription]
    chosen = {*roles}
    if chosen:
        others.append(SubscriptionPermission(subscription, tuple(sorted(chosen))))
    return tuple(sorted(others, key=_subscription))


def subscription_roles(permissions: SubscriptionPermissions, subscription: str) -> tuple[str, ...]:
    """Return the only roles that may use ``subscription``; empty if it is not restricted."""
    at = bisect_left(permissions, subscription, key=_subscription)
    if at < len(permissions) and permissions[at].subscription == subscription:
        return permissions[at].roles
    return ()


def union(upper: Permissions, lower: Permissions) -> Permissions:
    """Return what is permitted by either: grants on a topic add to those on its namespace."""
    if not (upper and lower):
        return upper or lower
    actions: dict[str, set[AuthAction]] = {}
    for permission in (*upper, *lower):
        actions.setdefault(permission.role, set()).update(permission.actions)
    return tuple(
        Permission(role, in_order(actions[role])) for role in sorted(actions) if actions[role]
    )


def in_order(actions: Iterable[AuthAction]) -> tuple[AuthAction, ...]:
    """Return ``actions`` each once, in the order in which they are kept."""
    chosen = {*actions}
    return tuple(action for action in AuthAction if action in chosen)


# Checking -----------------------------------------------------------------------------------------


def check_permissions(permissions: Permissions) -> Rejected | None:
    """Return why ``permissions`` may not be set, None if they may."""
    if len(permissions) > PERMISSIONS_PER_OBJECT_MAX:
        return _exceeded(
            f"permissions has {len(permissions)} roles, at most {PERMISSIONS_PER_OBJECT_MAX}"
        )
    seen: set[str] = set()
    for permission in permissions:
        if problem := role_problem(permission.role):
            return _nonsense(f"permissions has {_shown(permission.role)}: {problem}")
        if not permission.actions and not permission.unknown:
            return _nonsense(f"permissions has no action for {_shown(permission.role)}")
        if permission.role in seen:
            return _nonsense(f"permissions has {_shown(permission.role)} twice")
        seen.add(permission.role)
    return None


def check_subscription_permissions(permissions: SubscriptionPermissions) -> Rejected | None:
    """Return why ``permissions`` may not be set, None if they may."""
    field = "subscription_permissions"
    pairs = sum(len(permission.roles) for permission in permissions)
    if max(pairs, len(permissions)) > SUBSCRIPTION_PERMISSIONS_MAX:
        return _exceeded(
            f"{field} has {pairs} roles for {len(permissions)} subscriptions, "
            f"at most {SUBSCRIPTION_PERMISSIONS_MAX}"
        )
    seen: set[str] = set()
    for permission in permissions:
        name = permission.subscription
        if not 0 < len(name.encode("utf-8", "surrogatepass")) <= SUBSCRIPTION_NAME_BYTES_MAX:
            return _exceeded(
                f"{field} has a name that is not 1 to {SUBSCRIPTION_NAME_BYTES_MAX} bytes"
            )
        if not permission.roles and not permission.unknown:
            return _nonsense(f"{field} has no role for {_shown(name)}")
        if name in seen:
            return _nonsense(f"{field} has {_shown(name)} twice")
        seen.add(name)
        for role in permission.roles:
            if problem := role_problem(role):
                return _nonsense(f"{field} has {_shown(role)} for {_shown(name)}: {problem}")
        if len({*permission.roles}) < len(permission.roles):
            return _nonsense(f"{field} has a role twice for {_shown(name)}")
    return None


def _role(permission: Permission) -> str:
    return permission.role


def _subscription(permission: SubscriptionPermission) -> str:
    return permission.subscription


def _shown(text: str) -> str:
    return ascii(text[:_SHOWN_CHARACTERS_MAX])


def _exceeded(message: str) -> Rejected:
    return Rejected(RejectionCode.LIMIT_EXCEEDED, message)


def _nonsense(message: str) -> Rejected:
    return Rejected(RejectionCode.NOT_ALLOWED, message)
