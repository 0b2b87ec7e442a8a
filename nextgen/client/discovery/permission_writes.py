"""Grants and revocations of permissions, and of the administration of tenants, by a ``Client``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from nextgen.client.model import ObjectPolicies, Tenant, Written
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.permissions import (
    ADMIN_ROLES_PROPERTY,
    AuthAction,
    admin_roles_in,
    admin_roles_text,
    granted,
    granted_subscription,
    role_problem,
    subscription_roles,
)
from nextgen.kernel.governance.policies import Policies

_ATTEMPTS_MAX = 5
"""Changes of one object's permissions, which others change at the same time."""

_Roles = tuple[str, ...]


class PermissionWrites:
    """What a ``Client`` does about permissions. Use one that is ``effective``: then each method
    returns once no process decides by the former permissions.

    All of them read and write at the version they read, so what others set meanwhile is kept. One
    that failed because its outcome is unknown can be repeated. Each raises ``Refused`` NOT_FOUND if
    there is no such object, and LIMIT_EXCEEDED if it has too many permissions.
    """

    async def grant(self, name: str, role: str, actions: Iterable[AuthAction]) -> Written:
        """Permit ``role`` these actions, and no others, on a namespace or a topic.

        Raises:
            InvalidRequest: Nobody can have the role, or there is no action.
        """
        chosen = tuple(actions)
        _check(role)
        if not chosen:
            raise InvalidRequest("no action is named")
        return await self._change_policies(name, lambda policies: _granted(policies, role, chosen))

    async def revoke(self, name: str, role: str) -> Written:
        """Permit ``role`` nothing on a namespace or a topic, by the object itself."""
        return await self._change_policies(name, lambda policies: _granted(policies, role, ()))

    async def grant_subscription(self, namespace: str, subscription: str, role: str) -> Written:
        """Add ``role`` to the only ones that may use a subscription in a namespace.

        Raises:
            InvalidRequest: Nobody can have the role.
        """
        _check(role)
        return await self._change_subscription(
            namespace, subscription, lambda roles: (*roles, role)
        )

    async def revoke_subscription(self, namespace: str, subscription: str, role: str) -> Written:
        """Take ``role`` from those that may use a subscription. Without any, all may use it."""
        return await self._change_subscription(
            namespace, subscription, lambda roles: tuple(each for each in roles if each != role)
        )

    async def grant_admin(self, tenant: str, role: str) -> Written:
        """Make ``role`` an admin of a tenant.

        Raises:
            InvalidRequest: Nobody can have the role.
        """
        _check(role)
        return await self._change_admins(tenant, lambda roles: (*roles, role))

    async def revoke_admin(self, tenant: str, role: str) -> Written:
        """Make ``role`` an admin of a tenant no more."""
        return await self._change_admins(
            tenant, lambda roles: tuple(each for each in roles if each != role)
        )

    async def _change_subscription(
        self, namespace: str, subscription: str, change: Callable[[_Roles], _Roles]
    ) -> Written:
        def changed(policies: Policies) -> Policies:
            held = policies.subscription_permissions
            roles = change(subscription_roles(held, subscription))
            after = granted_subscription(held, subscription, roles)
            return replace(policies, subscription_permissions=after)

        return await self._change_policies(namespace, changed)

    async def _change_policies(self, name: str, change: Callable[[Policies], Policies]) -> Written:
        attempt = 0
        while True:
            attempt += 1
            found = await self.get_policies(name)
            try:
                # Written also if nothing changes: an earlier attempt may not have become effective.
                return await self.set_policies(
                    name, change(found.policies), expected_version=found.version
                )
            except Refused as error:
                if error.code != RejectionCode.VERSION_MISMATCH or attempt == _ATTEMPTS_MAX:
                    raise

    async def _change_admins(self, tenant: str, change: Callable[[_Roles], _Roles]) -> Written:
        attempt = 0
        while True:
            attempt += 1
            found = await self.get_tenant(tenant)
            if found is None:
                raise Refused(RejectionCode.NOT_FOUND, f"tenant {tenant} does not exist")
            roles = change(admin_roles_in(found.properties))
            properties = {**found.properties, ADMIN_ROLES_PROPERTY: admin_roles_text(roles)}
            try:
                return await self.set_tenant_properties(
                    tenant, properties, expected_version=found.version
                )
            except Refused as error:
                if error.code != RejectionCode.VERSION_MISMATCH or attempt == _ATTEMPTS_MAX:
                    raise

    async def get_tenant(self, name: str, *, min_position: int = 0) -> Tenant | None:
        raise NotImplementedError("a client reads it")

    async def set_tenant_properties(
        self, name: str, properties: Mapping[str, str], *, expected_version: int = 0
    ) -> Written:
        raise NotImplementedError("a client sets them")

    async def get_policies(self, name: str, *, merged: bool = False) -> ObjectPolicies:
        raise NotImplementedError("a client reads them")

    async def set_policies(
        self, name: str, policies: Policies, *, expected_version: int | None = None
    ) -> Written:
        raise NotImplementedError("a client sets them")


def _granted(policies: Policies, role: str, actions: Iterable[AuthAction]) -> Policies:
    return replace(policies, permissions=granted(policies.permissions, role, actions))


def _check(role: str) -> None:
    if problem := role_problem(role):
        raise InvalidRequest(f"role {role[:80]!a}: {problem}")
