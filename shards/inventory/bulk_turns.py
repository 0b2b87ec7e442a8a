"""The turns of large records: one is decided at a time, and few are ahead of the views.

Ordinary commands do not wait for them: each turn yields the event loop before the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nextgen.kernel.errors import NotLeader, Overloaded
from nextgen.kernel.limits.bulk import BULK_LOOK_MS, BULK_RECORDS_AHEAD_MAX, BULK_REQUESTS_MAX
from nextgen.replication.ports import Commit, LogStatus
from shards.state.shard_state import ShardState


class BulkTurns:
    """The large requests of one shard, for one term."""

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._turn = asyncio.Lock()
        self._requests = 0
        self._ahead: deque[asyncio.Future[Commit]] = deque()

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        """Count a request, from its arrival to its answer.

        Raises:
            Overloaded: ``BULK_REQUESTS_MAX`` are waiting already.
        """
        if self._requests >= BULK_REQUESTS_MAX:
            raise Overloaded(
                f"shard {self._state.shard_id} has {self._requests} loads in bulk waiting"
            )
        self._requests += 1
        try:
            # Parsing the names blocked the loop for some milliseconds: other work goes first.
            await asyncio.sleep(0)
            yield
        finally:
            self._requests -= 1

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold the only turn, once a majority of views has all but the latest large records.

        Raises:
            NotLeader: Leadership moved: followers no longer report their progress here.
        """
        async with self._turn:
            await self._wait_room()
            yield

    def note(self, commit: asyncio.Future[Commit]) -> None:
        """Count a record that was proposed in this turn."""
        self._ahead.append(commit)

    async def _wait_room(self) -> None:
        while len(self._ahead) >= BULK_RECORDS_AHEAD_MAX:
            if self._state.term.is_over:
                raise NotLeader(self._state.shard_id)
            oldest = self._ahead[0]
            commit = await asyncio.shield(oldest)
            if majority_applied(self._state.log.status) >= commit.index:
                self._ahead.popleft()
            else:
                await asyncio.sleep(BULK_LOOK_MS / 1000)


def majority_applied(status: LogStatus) -> int:
    """Return the entry up to which a majority of voters has applied the log, as far as the leader
    knows."""
    others = len(status.members) // 2
    if not others:
        return status.applied.index
    applied = {each.node_id: each.applied_index for each in status.progress}
    # A voter that has not reported counts as 0. So does this node; its own view is added below.
    indexes = sorted((applied.get(voter, 0) for voter in status.members), reverse=True)
    return min(status.applied.index, indexes[others - 1])
