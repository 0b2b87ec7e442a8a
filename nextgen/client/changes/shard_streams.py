"""One change stream to each shard of the map, shared by all users in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nextgen.client.changes.shard_watch import ShardWatch, WatchListener
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.transport.shared_channels import SharedChannels
from nextgen.kernel.limits.stream import STREAM_CHANNEL_KEEPALIVE_MS, WATCH_SILENCE_MS_MAX
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.tasks.background import cancel_and_wait, keep
from protos.nextgen.v1.inventory_pb2 import Kind


class ShardStreams:
    """Streams to the shards' leaders. Owned by one event loop; ``stop`` it at the end.

    A stream begins with its first watch, and anew when it was silent for ``silence_ms``.
    """

    def __init__(
        self, subscriber_id: str, link: ClusterLink, *, silence_ms: int = WATCH_SILENCE_MS_MAX
    ) -> None:
        self._subscriber_id = subscriber_id
        self._silence_ms = silence_ms
        self._link = link
        self._channels = SharedChannels(
            NodeRole.SHARD_NODE, keepalive_ms=STREAM_CHANNEL_KEEPALIVE_MS
        )
        self._streams: dict[int, tuple[ShardWatch, asyncio.Task[None]]] = {}

    def __repr__(self) -> str:
        return f"<ShardStreams shards={sorted(self._streams)}>"

    def position(self, shard_id: int) -> int:
        """Return the position of the shard's stream; 0 before its first update."""
        entry = self._streams.get(shard_id)
        return 0 if entry is None else entry[0].position

    def is_current(self, shard_id: int) -> bool:
        """Return whether the shard's stream is connected and has brought an update."""
        entry = self._streams.get(shard_id)
        return entry is not None and entry[0].is_current

    def stream(self, shard_id: int) -> ShardWatch:
        """Return the stream of a shard; begin it if there is none."""
        entry = self._streams.get(shard_id)
        if entry is None:
            stream = ShardWatch(
                shard_id,
                self._subscriber_id,
                self._link,
                channels=self._channels,
                silence_ms=self._silence_ms,
            )
            task = keep("shard_stream", stream.run)
            entry = self._streams[shard_id] = stream, task
        return entry[0]

    def add(
        self,
        shard_id: int,
        listener: WatchListener,
        *,
        kind: Kind,
        prefix: str,
        names: Sequence[str],
        from_position: int,
    ) -> int:
        """Watch from a position, 0: from the present on, without a snapshot."""
        return self.stream(shard_id).add(
            listener,
            kinds=[kind],
            prefix=prefix,
            names=names,
            from_position=from_position,
            without_snapshot=True,
        )

    def remove(self, shard_id: int, watch_id: int) -> None:
        """End a watch; its listener is not called any more. Unknown ids are ignored."""
        entry = self._streams.get(shard_id)
        if entry is not None:
            entry[0].remove(watch_id)

    async def stop(self) -> None:
        """End all streams."""
        tasks = [task for _, task in self._streams.values()]
        self._streams.clear()
        await cancel_and_wait(*tasks)
