"""Which shard has which key, as one client knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.routing.slots import SlotTable
from nextgen.tasks.background import cancel_and_wait, start
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate

ReadCluster = Callable[[], Awaitable[ClusterUpdate]]


class KnownMap:
    """The slots of the last state of the cluster that was read; forgotten for a later version.

    ``read`` requests the state from a discovery node. Owned by one event loop; ``stop`` it at the
    end.
    """

    def __init__(self, read: ReadCluster) -> None:
        self._read = read
        self._slots: SlotTable | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def version(self) -> int:
        """The version of the map, 0 while none is known."""
        return 0 if self._slots is None else self._slots.version

    @property
    def owners(self) -> Sequence[int]:
        """The shard that owns each slot, by slot; empty while no map is known."""
        return () if self._slots is None else self._slots.owners

    def notice(self, version: int) -> None:
        """Forget the map if it is older than ``version``, which an answer named."""
        if version > self.version:
            self._slots = None

    def shard_of(self, routing_key: str) -> int | None:
        """Return the shard of a key. While no map is known, have one read and return None."""
        if self._slots is not None:
            return self._slots.shard_for_key(routing_key)
        if self._reading is None or self._reading.done():
            self._reading = start("client_shard_map", self._take(), expected=MetadataError)
        return None

    async def wait_shard(self, routing_key: str) -> int | None:
        """Return the shard of a key, None if the node knows no map either.

        Raises:
            MetadataError: The state of the cluster could not be read.
        """
        if self._slots is None:
            await self._take()
        return None if self._slots is None else self._slots.shard_for_key(routing_key)

    async def state(self) -> ClusterUpdate:
        """Read the state of the cluster, and remember its slots."""
        update = await self._read()
        if update.HasField("shard_map"):
            shard_map = update.shard_map
            self._slots = SlotTable.from_bytes(shard_map.version, shard_map.slot_owners)
        return update

    async def stop(self) -> None:
        """Cancel the read under way."""
        if self._reading is not None:
            await cancel_and_wait(self._reading)

    async def _take(self) -> None:
        await self.state()
