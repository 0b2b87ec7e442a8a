"""Permissions as Pulsar writes them: actions by role, and roles by subscription.

In the object of all policies they are ``auth_policies``. A topic's are not in there: they are
policies of the topic (ADR 0148).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, TypeAdapter

from nextgen.kernel.governance.permissions import (
    AuthAction,
    Permission,
    Permissions,
    SubscriptionPermission,
    SubscriptionPermissions,
    in_order,
    role_problem,
)
from nextgen.kernel.governance.policies import Policies
from nextgen.pulsar.policies.refusal import PolicyRefused

ActionName = Literal["produce", "consume", "functions", "sources", "sinks", "packages"]


def _given(value: Any) -> Any:
    """Return an empty map for None: Go's library sends it where nothing was chosen."""
    return {} if value is None else value


_ByRole = Annotated[dict[str, list[ActionName]], BeforeValidator(_given)]


class AuthPolicies(BaseModel):
    """All permissions in a namespace. Pulsar's documentation has the other names of the fields."""

    namespace_auth: _ByRole = Field(
        {}, validation_alias=AliasChoices("namespace_auth", "namespaceAuthentication")
    )
    destination_auth: Annotated[dict[str, _ByRole], BeforeValidator(_given)] = Field(
        {}, validation_alias=AliasChoices("destination_auth", "topicAuthentication")
    )
    subscription_auth_roles: Annotated[dict[str, list[str]], BeforeValidator(_given)] = Field(
        {}, validation_alias=AliasChoices("subscription_auth_roles", "subscriptionAuthentication")
    )


AUTH_POLICIES: TypeAdapter[AuthPolicies] = TypeAdapter(AuthPolicies)


def by_role(permissions: Permissions) -> dict[str, list[str]]:
    """Return the actions of each role."""
    return {each.role: [action.value for action in each.actions] for each in permissions}


def by_subscription(permissions: SubscriptionPermissions) -> dict[str, list[str]]:
    """Return the only roles of each subscription."""
    return {each.subscription: list(each.roles) for each in permissions}


def auth_policies(policies: Policies) -> dict[str, Any]:
    """Return what the object of a namespace's policies has of permissions."""
    return {
        "namespace_auth": by_role(policies.permissions),
        "destination_auth": {},
        "subscription_auth_roles": by_subscription(policies.subscription_permissions),
    }


def permissions_of(given: Mapping[str, Iterable[str]]) -> Permissions:
    """Return the permissions of ``given``. A role without actions has none."""
    return tuple(
        Permission(role, in_order(map(AuthAction, given[role])))
        for role in sorted(given)
        if given[role]
    )


def with_auth_policies(policies: Policies, given: AuthPolicies) -> Policies:
    """Return ``policies`` with the permissions of a namespace that is created.

    Raises:
        PolicyRefused: 412, nobody can have a role; or there are permissions of topics, which do
            not exist before their namespace.
    """
    if topics := [topic for topic, roles in given.destination_auth.items() if any(roles.values())]:
        raise PolicyRefused(
            412, f"permissions of {topics[0][:80]!a} are set for the topic, once it exists"
        )
    subscriptions = given.subscription_auth_roles
    for role in (
        *given.namespace_auth,
        *(one for roles in subscriptions.values() for one in roles),
    ):
        checked_role(role)
    return replace(
        policies,
        permissions=permissions_of(given.namespace_auth),
        subscription_permissions=tuple(
            SubscriptionPermission(name, tuple(sorted({*subscriptions[name]})))
            for name in sorted(subscriptions)
            if subscriptions[name]
        ),
    )


def checked_role(role: str) -> str:
    """Return ``role`` if somebody can have it.

    Raises:
        PolicyRefused: 412.
    """
    if problem := role_problem(role):
        raise PolicyRefused(412, f"role {role[:80]!a}: {problem}")
    return role
