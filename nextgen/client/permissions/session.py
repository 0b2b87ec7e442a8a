"""What one connection may do: an ``Access`` of the table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from nextgen.client.permissions.known_object import Kept, KnownObject
from nextgen.client.permissions.target import Target, target_of
from nextgen.kernel.governance.access import Action, Principal, Resource, ResourceKind
from nextgen.kernel.limits.inbound import LOOKABLE_NAMES_MAX
from nextgen.kernel.routing.names import InvalidName
from nextgen.runtime.security.authorization.authorizer import OnRevoked

_logger = structlog.get_logger(__name__)


class Table(Protocol):
    """The ``PermissionTable``, as its sessions call it."""

    clock: Callable[[], float]
    lookable_until: float
    sessions: int
    revoked: int

    def may_now(
        self, principal: Principal, action: Action, resource: Resource, subscription: str = ""
    ) -> bool | None: ...

    def is_known(
        self, principal: Principal, action: Action, resource: Resource, subscription: str = ""
    ) -> bool | None: ...

    def may_keep(self, principal: Principal, kept: Kept) -> bool: ...

    async def check(
        self, principal: Principal, action: Action, resource: Resource, subscription: str = ""
    ) -> None: ...

    def objects_of(self, target: Target) -> list[KnownObject]: ...

    def needs_facts(self, principal: Principal) -> bool: ...

    def note_looker(self, known: KnownObject, access: WatchedAccess, name: bytes) -> None: ...

    def expire(self) -> None: ...


class WatchedAccess:
    """See ``nextgen.runtime.security.authorization.authorizer.Access``."""

    __slots__ = (
        "_is_closed",
        "_kept",
        "_lookable",
        "_lookers",
        "_on_revoked",
        "_table",
        "principal",
    )

    def __init__(self, table: Table, principal: Principal, on_revoked: OnRevoked) -> None:
        self.principal = principal
        self._table = table
        self._on_revoked = on_revoked
        self._lookable: set[bytes] = set()
        self._lookers: set[KnownObject] = set()
        """The objects that names in ``_lookable`` rest on, and some that they did."""
        self._kept: dict[Kept, tuple[int, list[KnownObject]]] = {}
        """How often each is kept, and the objects that it rests on."""
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<WatchedAccess {self.principal.name} kept={len(self._kept)}>"

    @property
    def lookable(self) -> set[bytes]:
        table = self._table
        if table.clock() >= table.lookable_until:
            table.expire()
        return self._lookable

    def may_now(self, action: Action, resource: Resource, subscription: str = "") -> bool | None:
        allowed = self._table.may_now(self.principal, action, resource, subscription)
        if allowed and action is Action.LOOK_UP and resource.kind is ResourceKind.TOPIC:
            self._note_lookable(resource)
        return allowed

    async def check(self, action: Action, resource: Resource, subscription: str = "") -> None:
        await self._table.check(self.principal, action, resource, subscription)
        if action is Action.LOOK_UP and resource.kind is ResourceKind.TOPIC:
            self._note_lookable(resource)

    def keep(self, action: Action, resource: Resource, subscription: str = "") -> None:
        if self._is_closed or not self._table.needs_facts(self.principal):
            return
        kept = action, resource, subscription
        count, objects = self._kept.get(kept, (0, None))
        if objects is None:
            objects = self._table.objects_of(target_of(resource))
            for known in objects:
                known.kept[self, kept] = None
            if not self._table.may_keep(self.principal, kept):
                # It was taken back since it was asked for. The caller is not done with it yet.
                asyncio.get_running_loop().call_soon(self.revoke, kept)
        self._kept[kept] = count + 1, objects

    def release(self, action: Action, resource: Resource, subscription: str = "") -> None:
        kept = action, resource, subscription
        count, objects = self._kept.get(kept, (0, None))
        if objects is None:
            return
        if count > 1:
            self._kept[kept] = count - 1, objects
            return
        del self._kept[kept]
        for known in objects:
            known.kept.pop((self, kept), None)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._table.sessions -= 1
        for kept, (_, objects) in self._kept.items():
            for known in objects:
                known.kept.pop((self, kept), None)
        self._kept.clear()
        self._look_up_nothing()

    # As the table calls it ------------------------------------------------------------------------

    def drop(self, names: Iterable[bytes]) -> None:
        """Let these names be asked for again."""
        self._lookable.difference_update(names)

    def revoke(self, kept: Kept) -> None:
        """End the session, because something that the connection keeps is not allowed any more."""
        if self._is_closed:
            return
        self.close()
        self._table.revoked += 1
        action, resource, _ = kept
        reason = f"{self.principal.name} may no longer {action} {resource.kind} {resource.name}"
        try:
            self._on_revoked(reason)
        except Exception:
            # One connection must not keep the others of a revoked role open.
            _logger.exception("a connection could not be told", reason=reason)

    # ----------------------------------------------------------------------------------------------

    def _note_lookable(self, resource: Resource) -> None:
        """Let a name, or its namespace if that is allowed, be looked up without a question."""
        try:
            target = target_of(resource)
        except InvalidName:
            return
        if self._is_closed:
            return
        if len(self._lookable) >= LOOKABLE_NAMES_MAX:
            self._look_up_nothing()
        name = resource.name.encode()
        is_whole = self._table.is_known(
            self.principal, Action.LOOK_UP, Resource.namespace(target.namespace)
        )
        if is_whole:
            domain = resource.name.partition("://")[0]
            name = f"{domain}://{target.namespace}".encode()
        if name in self._lookable:
            return
        if self._table.needs_facts(self.principal):
            self._rest_on(target, name, is_whole=bool(is_whole))
        self._lookable.add(name)

    def _rest_on(self, target: Target, name: bytes, *, is_whole: bool) -> None:
        for known in self._table.objects_of(target._replace(topic="") if is_whole else target):
            if known.stream is not None:
                self._table.note_looker(known, self, name)
                self._lookers.add(known)

    def _look_up_nothing(self) -> None:
        self._lookable.clear()
        for known in self._lookers:
            known.lookers.pop(self, None)
        self._lookers.clear()
