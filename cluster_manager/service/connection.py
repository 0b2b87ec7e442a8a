"""The leader's side of one node's Join stream: a bounded outbox, and its end."""

from __future__ import annotations

import asyncio
from collections import deque

from nextgen.kernel.errors import MetadataError, Overloaded
from nextgen.kernel.limits.cluster import JOIN_OUTBOX_UPDATES_MAX
from protos.nextgen.v1 import cluster_service_pb2 as cluster_pb


class NodeConnection:
    """A connected node. Updates go out in the order they were pushed, until ``end``."""

    def __init__(
        self, node_id: str, kind: str, heard_at_ms: int, *, takes_deltas: bool = False
    ) -> None:
        self.node_id = node_id
        self.kind = kind
        self.takes_deltas = takes_deltas
        """Whether it is sent the differences of the shard map, instead of whole maps."""
        self.heard_at_ms = heard_at_ms
        self.error: MetadataError | None = None
        self._updates: deque[cluster_pb.ClusterUpdate] = deque()
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    def __repr__(self) -> str:
        status = "ended" if self._ended.is_set() else "connected"
        return f"<NodeConnection {self.node_id} {status} waiting={len(self._updates)}>"

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def push(self, update: cluster_pb.ClusterUpdate) -> None:
        """Queue ``update`` behind earlier ones; never blocks.

        The update is shared with other connections and MUST NOT be changed. A node that does not
        read its updates is disconnected; it gets a full update when it reconnects.
        """
        if self._ended.is_set():
            return
        if len(self._updates) >= JOIN_OUTBOX_UPDATES_MAX:
            self.end(Overloaded(f"node {self.node_id} left {len(self._updates)} updates waiting"))
            return
        self._updates.append(update)
        self._changed.set()

    def end(self, error: MetadataError | None) -> None:
        """End the stream with ``error``; queued updates are dropped. Only the first call counts."""
        if self._ended.is_set():
            return
        self._ended.set()
        self.error = error
        self._updates.clear()
        self._changed.set()

    async def next_update(self) -> cluster_pb.ClusterUpdate | None:
        """Return the next update as soon as there is one, or None once the stream has ended."""
        while not self._updates:
            if self._ended.is_set():
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._updates.popleft()

    async def wait_ended(self) -> None:
        """Return once the stream has ended."""
        await self._ended.wait()
