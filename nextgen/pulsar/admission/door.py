"""The door of one connection: whether its client may do what a command asks for (ADR 0158).

    command ─▶ known here: handled, or refused in its own answer
       │ not known yet: nothing more is read
       ▼
    frames that were read wait behind it ─▶ known: handled, then they, in their order

What the client goes on using is kept (``Kept``): when it is no longer allowed, the connection is
closed, before whoever took the permission back gets an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

import structlog

from nextgen.kernel.errors import Forbidden, MetadataError, Unavailable
from nextgen.kernel.governance.access import Action, Principal, Resource
from nextgen.pulsar.admission.command_access import Need, needs_of
from nextgen.pulsar.frames import RawFrame
from nextgen.runtime.security.authorization.authorizer import Authorizer
from nextgen.tasks.background import start
from protos.pulsar.PulsarApi_pb2 import BaseCommand

_logger = structlog.get_logger(__name__)


class AdmittedConnection(Protocol):
    """A connection as its ``Admission`` uses it: a ``PulsarConnection``."""

    def refuse_command(self, command: BaseCommand, error: Exception) -> None: ...

    def go_on(
        self,
        frame: RawFrame,
        command: BaseCommand,
        behind: Iterable[RawFrame],
        error: Exception | None,
    ) -> None: ...

    def abort(self, reason: str) -> None: ...


class Admission:
    """What the client of one connection may do. ``close`` it with the connection."""

    __slots__ = ("_behind", "_connection", "_task", "access", "waiting_bytes")

    def __init__(
        self, connection: AdmittedConnection, authorizer: Authorizer, principal: Principal
    ) -> None:
        self._connection = connection
        self._task: asyncio.Task[None] | None = None
        self._behind: list[RawFrame] = []
        self.access = authorizer.session(principal, self._revoked)
        self.waiting_bytes = 0
        """Bytes of the command that waits, and of the frames behind it."""

    @property
    def is_waiting(self) -> bool:
        """Whether a command waits for permissions; frames then go to ``wait_behind``."""
        return self._task is not None

    def admits(self, command: BaseCommand, frame: RawFrame) -> bool:
        """Return whether ``command``, which is in ``frame``, can be handled now.

        If not, it was refused, or it waits, and ``go_on`` is called.
        """
        try:
            needs = needs_of(command)
            if self._are_allowed(needs):
                return True
        except (MetadataError, ValueError) as error:
            self._connection.refuse_command(command, error)
            return False
        self.waiting_bytes = len(frame.command) + len(frame.payload)
        work = self._check(frame, command, needs)
        self._task = start("client_authorization", work)
        return False

    def wait_behind(self, frames: Iterable[RawFrame]) -> None:
        """Keep frames until the command before them was handled."""
        for frame in frames:
            self._behind.append(frame)
            self.waiting_bytes += len(frame.command) + len(frame.payload)

    def close(self) -> None:
        """Stop what is being asked, and keep nothing."""
        self._behind.clear()
        if self._task is not None:
            self._task.cancel()
        self.access.close()

    def _are_allowed(self, needs: tuple[Need, ...]) -> bool:
        """Return whether all are allowed; False if that is not known here yet.

        Raises:
            Forbidden: One of them is not.
        """
        is_known = True
        for action, resource, subscription, _ in needs:
            allowed = self.access.may_now(action, resource, subscription)
            if allowed is None:
                is_known = False
            elif not allowed:
                raise refused(self.access.principal, action, resource)
        return is_known

    async def _check(self, frame: RawFrame, command: BaseCommand, needs: tuple[Need, ...]) -> None:
        failure: MetadataError | None = None
        try:
            for action, resource, subscription, _ in needs:
                await self.access.check(action, resource, subscription)
            # While the last was asked for, an earlier one may have been taken back.
            if len(needs) > 1 and not self._are_allowed(needs):
                failure = Unavailable("permissions changed meanwhile: try again")
        except MetadataError as error:
            failure = error
        except Exception as error:
            # The client must get an answer even if this is a bug.
            _logger.exception("permissions could not be asked for", type=command.type)
            failure = Unavailable(f"permissions cannot be read: {error!r}")
        self._task = None
        behind, self._behind = self._behind, []
        self.waiting_bytes = 0
        self._connection.go_on(frame, command, behind, failure)

    def _revoked(self, reason: str) -> None:
        self._connection.abort(f"a permission in use was taken back: {reason}")


def refused(principal: Principal, action: Action, resource: Resource) -> Forbidden:
    """Return the error for what ``principal`` may not do."""
    role = f"role {principal.name}"
    if principal.proxy:
        role = f"{role} behind proxy {principal.proxy}"
    what = f"{resource.kind} {resource.name}" if resource.name else f"the {resource.kind}"
    return Forbidden(f"{role} has no permission to {action} {what}")
