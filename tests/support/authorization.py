"""An authorizer for tests: it allows what a test said, and revokes when a test says so."""

from __future__ import annotations

import asyncio
from collections import Counter

from nextgen.kernel.errors import Forbidden, Unavailable
from nextgen.kernel.governance.access import Action, Principal, Resource, ResourceKind
from nextgen.runtime.security.authorization.authorizer import OnRevoked

Asked = tuple[str, Action, Resource, str]
"""Role, action, resource, subscription."""


class AllowList:
    """Allows exactly what is in ``allowed``; names are compared as they are given.

    ``unknown``: what ``may_now`` answers None to, until ``check`` was awaited, which waits for
    ``known`` to be set. ``unavailable``: what ``check`` raises Unavailable for.
    """

    def __init__(self) -> None:
        self.allowed: set[tuple[str, Action, Resource]] = set()
        self.unknown: set[Resource] = set()
        self.unavailable: set[Resource] = set()
        self.known = asyncio.Event()
        self.known.set()
        self.asked: list[Asked] = []
        self.checked: list[Asked] = []
        """What ``check`` was called with."""
        self.sessions: list[AllowListAccess] = []
        """Those that are open."""

    def allow(self, role: str, action: Action, *resources: Resource) -> None:
        for resource in resources:
            self.allowed.add((role, action, resource))
            for each in self.sessions:
                if role in each.roles:
                    each.refresh()

    def revoke(self, role: str, action: Action, *resources: Resource) -> None:
        """Take permissions back, and call ``on_revoked`` of whoever keeps one of them."""
        for resource in resources:
            self.allowed.discard((role, action, resource))
        for each in tuple(self.sessions):
            each.refresh()
            each.end_if_revoked()

    def may_now(
        self, principal: Principal, action: Action, resource: Resource, subscription: str = ""
    ) -> bool | None:
        self.asked.append((principal.name, action, resource, subscription))
        if resource in self.unknown or resource in self.unavailable:
            return None
        return self._may(principal, action, resource)

    async def check(
        self, principal: Principal, action: Action, resource: Resource, subscription: str = ""
    ) -> None:
        self.checked.append((principal.name, action, resource, subscription))
        if resource in self.unavailable:
            raise Unavailable("permissions cannot be read")
        if resource in self.unknown:
            await self.known.wait()
            self.unknown.discard(resource)
        if not self._may(principal, action, resource):
            raise Forbidden(f"{principal.name} may not {action} {resource.name}")

    def session(self, principal: Principal, on_revoked: OnRevoked) -> AllowListAccess:
        return AllowListAccess(self, principal, on_revoked)

    def counts(self) -> dict[str, int]:
        return {}

    def gauges(self) -> dict[str, int]:
        return {}

    def _may(self, principal: Principal, action: Action, resource: Resource) -> bool:
        roles = [principal.name, *([principal.proxy] if principal.proxy else [])]
        return all((role, action, resource) in self.allowed for role in roles)


class AllowListAccess:
    """The ``Access`` of an ``AllowList``."""

    def __init__(self, source: AllowList, principal: Principal, on_revoked: OnRevoked) -> None:
        self.principal = principal
        self.lookable: set[bytes] = set()
        self.kept: Counter[tuple[Action, Resource, str]] = Counter()
        self._source = source
        self._on_revoked = on_revoked
        source.sessions.append(self)

    @property
    def roles(self) -> tuple[str, ...]:
        return (self.principal.name, self.principal.proxy)

    def may_now(self, action: Action, resource: Resource, subscription: str = "") -> bool | None:
        answer = self._source.may_now(self.principal, action, resource, subscription)
        self.refresh()
        return answer

    async def check(self, action: Action, resource: Resource, subscription: str = "") -> None:
        await self._source.check(self.principal, action, resource, subscription)
        self.refresh()

    def keep(self, action: Action, resource: Resource, subscription: str = "") -> None:
        self.kept[action, resource, subscription] += 1

    def release(self, action: Action, resource: Resource, subscription: str = "") -> None:
        self.kept -= Counter({(action, resource, subscription): 1})

    def close(self) -> None:
        if self in self._source.sessions:
            self._source.sessions.remove(self)

    def refresh(self) -> None:
        """Put topics and namespaces that may be looked up into ``lookable``, and no others."""
        may = self._source._may
        known = {
            named
            for role, allowed, named in self._source.allowed
            if role == self.principal.name and allowed is Action.LOOK_UP
        } - self._source.unknown
        self.lookable.clear()
        self.lookable.update(
            _bytes(each) for each in known if may(self.principal, Action.LOOK_UP, each)
        )

    def end_if_revoked(self) -> None:
        for action, resource, _ in tuple(self.kept):
            if not self._source._may(self.principal, action, resource):
                self.close()
                self._on_revoked(f"{self.principal.name} may no longer {action} {resource.name}")
                return


def _bytes(resource: Resource) -> bytes:
    is_topic = resource.kind is ResourceKind.TOPIC
    return (resource.name if is_topic else f"persistent://{resource.name}").encode()
