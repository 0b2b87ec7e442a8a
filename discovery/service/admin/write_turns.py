"""Admission of creates to a shard: at once while there is room, else in turns of tenants."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nextgen.client.routing.write_admission import WriteAdmission, WriteBounds
from nextgen.kernel.errors import Overloaded
from nextgen.kernel.limits.write import WRITE_REQUEST_COST, WRITES_SENT_MAX
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.shard_service_pb2 import TopicSpec

SENT_BOUNDS = WriteBounds(cost_in_flight_max=WRITES_SENT_MAX)
"""The default bounds."""


class WriteTurns:
    """One queue for each shard, for the creates of this process. Owned by one event loop."""

    def __init__(self, bounds: WriteBounds) -> None:
        self._bounds = bounds
        self._admissions: dict[int, WriteAdmission] = {}

    async def enter(self, shard_id: int, topics: Sequence[TopicSpec], timeout_ms: int) -> int:
        """Wait for a turn of each tenant of ``topics``; return the rest of ``timeout_ms``.

        The names of ``topics`` are canonical. The caller has to call ``leave`` for the same topics
        once they are answered.

        Raises:
            Overloaded: A turn did not come in time, or too many wait. Nothing may be sent.
        """
        admission = self._admissions.get(shard_id)
        if admission is None:
            admission = WriteAdmission(shard_id, bounds=self._bounds)
            self._admissions[shard_id] = admission
        cost = _cost(topics)
        if admission.try_enter(cost):
            return timeout_ms
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        # As ``tenant_in``, but for a thousand names at a time: domain://tenant/namespace/local.
        tenants = dict.fromkeys([topic.name.split("/", 3)[2] for topic in topics])
        try:
            async with timeout(timeout_ms / 1_000):
                await admission.enter(tenants, cost)
        except TimeoutError:
            raise Overloaded(f"a create waited {timeout_ms} ms for shard {shard_id}") from None
        return max(1, timeout_ms - round(1_000 * (loop.time() - began_at)))

    def leave(self, shard_id: int, topics: Sequence[TopicSpec]) -> None:
        """Release the room of a request that the shard has answered, or will not answer."""
        self._admissions[shard_id].leave(_cost(topics))


def _cost(topics: Sequence[TopicSpec]) -> int:
    return WRITE_REQUEST_COST + len(topics)
