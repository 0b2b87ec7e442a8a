"""Broker managers that a new leader of their objects' home shard waits for.

    elected ─▶ ask the manager of each shard ─▶ it follows nothing ───────────────────▶ back
                    ▲                     └───▶ its stream says: all of it is watched ─▶ back
                    └── each ``_PAUSE_S`` until it is back, or EFFECTIVE_MANAGER_MS have passed

The leader before this one knew which broker managers watched; a new one does not. A broker that
holds an object may act on an old version of it until its manager watches that object here. So no
write is effective before every manager is back: a manager that is back knows what its brokers hold,
watches all of it here, and refuses messages of former leaders.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.placement import FOLLOW_REQUESTS_MAX
from nextgen.tasks.background import start
from protos.nextgen.v1.shard_service_pb2 import FollowRequest
from shards.ports import BrokerManagers

_ASK_MS = 1_000
"""For one answer. A manager that was just elected answers when its brokers have reported."""

_PAUSE_S = 0.25

_logger = structlog.get_logger(__name__)


class ReturningManagers:
    """The managers that are not back, for one term. ``until`` ends the wait for all of them.

    Before ``expect`` the shards of the map are not known here, so there may be any manager.
    """

    def __init__(self, until: float) -> None:
        self.until = until
        self._term = 0
        self._expected: set[int] | None = None

    def __repr__(self) -> str:
        return f"<ReturningManagers expected={self._expected} until={self.until:.3f}>"

    def expect(self, shard_ids: Iterable[int], term: int) -> None:
        """Expect the managers of exactly these shards, at a leader of ``term``."""
        self._expected = set(shard_ids)
        self._term = term

    def expected(self, now: float) -> Sequence[int]:
        """Return the shards whose managers are expected at ``now``."""
        return sorted(self._expected or ()) if now < self.until else ()

    def is_expected(self, shard_id: int, now: float) -> bool:
        """Return whether a shard's manager is expected at ``now``."""
        return now < self.until and shard_id in (self._expected or ())

    def are_back(self, now: float) -> bool:
        """Return whether every manager is back, or no longer counts."""
        return now >= self.until or (self._expected is not None and not self._expected)

    def note_back(self, shard_id: int) -> None:
        """Note that a manager is back, or watches no objects of this shard."""
        if self._expected is not None:
            self._expected.discard(shard_id)

    def note_complete(self, shard_id: int, complete_term: int) -> bool:
        """Note an acknowledgement of a manager; return whether it was expected and is now back."""
        if complete_term < self._term or shard_id not in (self._expected or ()):
            return False
        self.note_back(shard_id)
        return True


class AwaitsManagers(Protocol):
    """The service that waits for the managers. Implemented by ``EffectiveWrites``."""

    @property
    def returning(self) -> ReturningManagers: ...

    def expect_managers(self, shard_ids: Iterable[int], term: int) -> None: ...

    def manager_is_back(self, shard_id: int) -> None: ...


class ManagerRollCall:
    """Calls the broker managers of all shards, for one term. ``start`` it once."""

    def __init__(
        self,
        request: FollowRequest,
        managers: BrokerManagers,
        effective: AwaitsManagers,
        shard_ids: Callable[[], Sequence[int]],
        monotonic: Callable[[], float],
    ) -> None:
        self._request = request
        self._managers = managers
        self._effective = effective
        self._shard_ids = shard_ids
        self._monotonic = monotonic
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(FOLLOW_REQUESTS_MAX)

    def start(self) -> None:
        """Call every manager in the background, each until it is back or no longer counts."""
        try:
            shard_ids = self._shard_ids()
        except MetadataError:
            # Without a map no manager can be called: each one counts for its full time.
            return
        self._effective.expect_managers(shard_ids, self._request.term)
        # In any order: leaders that begin together do not all ask the same nodes first.
        for shard_id in random.sample(shard_ids, len(shard_ids)):
            start("returning_manager", self._ask(shard_id), self._tasks)

    def close(self) -> None:
        """Ask no more."""
        for task in self._tasks:
            task.cancel()

    async def _ask(self, shard_id: int) -> None:
        request = FollowRequest()
        request.CopyFrom(self._request)
        while self._is_expected(shard_id):
            try:
                async with self._turns:
                    if not self._is_expected(shard_id):
                        # Another manager of the same node answered for it.
                        return
                    response = await self._managers.follow(shard_id, request, timeout_ms=_ASK_MS)
            except MetadataError as error:
                _logger.debug("a broker manager is not back", shard=shard_id, why=str(error))
            else:
                for idle in response.idle:
                    self._effective.manager_is_back(idle.shard_id)
                if not response.follows:
                    self._effective.manager_is_back(shard_id)
                    return
            await asyncio.sleep(_PAUSE_S)

    def _is_expected(self, shard_id: int) -> bool:
        return self._effective.returning.is_expected(shard_id, self._monotonic())
