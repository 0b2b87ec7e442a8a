"""How every port asks whether a principal may do something (ADR 0149).

One ``Authorizer`` per process. A port that has none (``Authorizer | None``) allows everything:
authorisation is off. A connection, or a long call, takes a ``session`` for its principal:

    access = authorizer.session(principal, on_revoked)
    known = access.may_now(Action.PRODUCE, Resource.topic(name))
    if known is None:
        await access.check(Action.PRODUCE, Resource.topic(name))
    elif not known: refuse
    access.keep(Action.PRODUCE, Resource.topic(name))     # as long as the producer lives
    ...
    access.release(Action.PRODUCE, Resource.topic(name))
    access.close()                                        # with the connection

A resource's name may be that of a partition or a segment: the authorizer asks for its base name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from nextgen.kernel.governance.access import Action, Principal, Resource

OnRevoked = Callable[[str], None]
"""Called once, with the reason, when a kept permission is gone. It may not raise or wait."""


class Access(Protocol):
    """What one connection, or one long call, may do. ``close`` it with the connection."""

    @property
    def principal(self) -> Principal: ...

    @property
    def lookable(self) -> set[bytes]:
        """What may be looked up at this moment: names as the fast lookup path has them.

        ``b"persistent://tenant/namespace"`` of namespaces, and whole base names of topics that are
        allowed by their own permissions. A name that is absent has to be asked for by ``may_now``
        and ``check``, which add it. The authorizer takes names out, always of the same set, as
        soon as they no longer hold: look there anew for each lookup and keep no copy.
        """
        ...

    def may_now(self, action: Action, resource: Resource, subscription: str = "") -> bool | None:
        """Return whether it is allowed, by what is known here; None: ask ``check``."""
        ...

    async def check(self, action: Action, resource: Resource, subscription: str = "") -> None:
        """Return if it is allowed.

        Raises:
            Forbidden: It is not.
            Unavailable, Overloaded: Permissions cannot be read at the moment; the client may try
                again.
        """
        ...

    def keep(self, action: Action, resource: Resource, subscription: str = "") -> None:
        """Note that the connection goes on using what was just allowed: a producer, a watch.

        When it is no longer allowed, ``on_revoked`` of the session is called, before the change
        that took it is acknowledged as effective. Call it in the same turn of the event loop in
        which ``may_now`` or ``check`` allowed it. Each call counts.
        """
        ...

    def release(self, action: Action, resource: Resource, subscription: str = "") -> None:
        """Undo one ``keep``; without one nothing happens."""
        ...

    def close(self) -> None:
        """End the session: nothing is called any more. Closing twice is allowed."""
        ...


class Authorizer(Protocol):
    """Decides for all connections of one process. Owned by one event loop."""

    def may_now(
        self, principal: Principal, action: Action, resource: Resource, subscription: str = ""
    ) -> bool | None:
        """Return whether it is allowed, by what is known here; None: ask ``check``."""
        ...

    async def check(
        self, principal: Principal, action: Action, resource: Resource, subscription: str = ""
    ) -> None:
        """Return if it is allowed.

        Raises:
            Forbidden: It is not.
            Unavailable, Overloaded: Permissions cannot be read at the moment; the client may try
                again.
        """
        ...

    def session(self, principal: Principal, on_revoked: OnRevoked) -> Access:
        """Return a new session; it ends with its ``close``."""
        ...

    def counts(self) -> dict[str, int]:
        """Return counters since the start by name."""
        ...

    def gauges(self) -> dict[str, int]:
        """Return present numbers by name."""
        ...
