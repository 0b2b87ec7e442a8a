"""One watch of the shard map and its leaders: all of it first, then changes.

Only the latest state matters: a slow watcher gets fewer updates, and nothing waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from discovery.domain.update_queue import NO_POSITIONS
from discovery.ports import Clock, Directory
from discovery.service.watches.public_watch import Stalls
from nextgen.kernel.errors import MetadataError, Overloaded
from nextgen.kernel.limits.stream import WATCH_STALLED_MS_MAX
from protos.nextgen.v1.discovery_service_pb2 import WatchUpdate


class ShardMapWatch:
    """A watch like ``public_watch.Watch``. ``notice`` each change of the cluster."""

    def __init__(self, directory: Directory, clock: Clock) -> None:
        self.error: MetadataError | None = None
        self.ended = asyncio.Event()
        self.stalls = Stalls(clock)
        self._directory = directory
        self._version = 0
        self._terms: dict[int, int] = {}
        self._has_changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ShardMapWatch version={self._version} leaders={len(self._terms)}>"

    @property
    def sent(self) -> Mapping[int, int]:
        return NO_POSITIONS

    def notice(self) -> None:
        """Note a change of the cluster, which may affect this watch."""
        self._has_changed.set()

    async def take(self) -> bytes:
        while True:
            if self.error is not None:
                raise self.error
            self._has_changed.clear()
            update = self._difference()
            if update is not None:
                return update.SerializeToString()
            await self._has_changed.wait()

    def fail(self, error: MetadataError) -> None:
        if self.error is None:
            self.error = error
            self.ended.set()
            self._has_changed.set()

    async def close(self) -> None:
        """Do nothing: the watch holds no resources."""

    def tick(self) -> None:
        if self.stalls.is_stalled:
            self.fail(
                Overloaded(f"the watcher has read nothing for {WATCH_STALLED_MS_MAX // 1_000} s")
            )

    def _difference(self) -> WatchUpdate | None:
        """Return the changes that the watcher does not have, None if there are none."""
        view = self._directory.view
        leaders = [
            leader
            for shard_id, leader in sorted(view.leaders.items())
            if leader.term > self._terms.get(shard_id, 0)
        ]
        is_map_new = view.shard_map_version > self._version
        if not is_map_new and not leaders:
            return None
        update = WatchUpdate(leaders=leaders, shard_map=view.shard_map if is_map_new else None)
        if is_map_new:
            self._version = view.shard_map_version
        self._terms.update((leader.shard_id, leader.term) for leader in leaders)
        return update
