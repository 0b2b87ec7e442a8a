"""The broker sessions that assignments name, as the broker directory has them."""

from __future__ import annotations

import asyncio

from protos.nextgen.v1.events_pb2 import BrokerRecorded
from shards.domain.assignment import Assignment
from shards.ports import BrokerDirectory

_DIRECTORY_WAIT_MS = 1_000
"""How long an answer waits for a session that its manager knows and the directory not yet."""


class UnitOwners:
    """Finds the session of an assignment."""

    def __init__(self, directory: BrokerDirectory) -> None:
        self._directory = directory

    def known(self, assignment: Assignment) -> BrokerRecorded | None:
        """Return the session that ``assignment`` names, None if the directory lacks it."""
        return self._directory.session(assignment.session_id)

    async def find(self, assignment: Assignment) -> BrokerRecorded | None:
        """Return the session that ``assignment`` names; wait for the directory, at most a second.

        A new session may reach this shard through its broker manager before the cluster manager
        pushes it to every node.
        """
        found = self.known(assignment)
        if found is not None:
            return found
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look() -> None:
            if self.known(assignment) is not None and not arrived.done():
                arrived.set_result(None)

        unsubscribe = self._directory.on_change(look)
        try:
            await asyncio.wait((arrived,), timeout=_DIRECTORY_WAIT_MS / 1000)
        finally:
            unsubscribe()
        return self.known(assignment)
