"""Which shard has which key, as one client knows it.

Keys are hashed. A topic that was renamed stays in the shard of its first name: the client notes it
when such a topic's shard answers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.stream import MOVED_NAMES_MAX
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
        self._elsewhere: OrderedDict[str, int] = OrderedDict()
        """By key of a topic: the shard that answered for it, which may be another than the key's.
        The latest ``MOVED_NAMES_MAX`` are kept."""

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

    def note_found(self, routing_key: str, shard_id: int) -> None:
        """Note that this shard answered for the topic with a key."""
        self._elsewhere.pop(routing_key, None)
        if self._slots is not None and self._slots.shard_for_key(routing_key) == shard_id:
            return
        self._elsewhere[routing_key] = shard_id
        if len(self._elsewhere) > MOVED_NAMES_MAX:
            self._elsewhere.popitem(last=False)

    def shard_of(self, routing_key: str) -> int | None:
        """Return the shard of a key. While no map is known, have one read and return None."""
        if self._slots is not None:
            return self._slots.shard_for_key(routing_key)
        if self._reading is None or self._reading.done():
            self._reading = start("client_shard_map", self._take(), expected=MetadataError)
        return None

    async def wait_shard(self, routing_key: str) -> int | None:
        """Return the shard of a key; None if the node knows no map either, or if the topic with the
        key was last found in another shard.

        Raises:
            MetadataError: The state of the cluster could not be read.
        """
        if self._slots is None:
            await self._take()
        if self._slots is None:
            return None
        shard_id = self._slots.shard_for_key(routing_key)
        return shard_id if self._elsewhere.get(routing_key, shard_id) == shard_id else None

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
