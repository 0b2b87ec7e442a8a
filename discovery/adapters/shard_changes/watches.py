"""Keeps the cache true: one watch per shard of the map, and the broker directory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from discovery.adapters.shard_changes.leased_assignments import LeasedAssignments
from discovery.domain.absent_names import AbsentNames
from discovery.domain.answer_cache import AnswerCache
from discovery.domain.partition_counts import PartitionCounts
from nextgen.client.changes.shard_streams import ShardStreams
from nextgen.client.cluster.link import ClusterLink
from nextgen.client.cluster.view import ClusterView
from nextgen.tasks.background import cancel_and_wait, keep
from protos.nextgen.v1.cluster_service_pb2 import ClusterUpdate


class CacheWatches:
    """Starts a watch for each shard that the map names. Owned by one event loop."""

    def __init__(
        self,
        streams: ShardStreams,
        link: ClusterLink,
        cache: AnswerCache,
        absent: AbsentNames,
        counts: PartitionCounts,
        uses: Callable[[], int],
    ) -> None:
        self._streams = streams
        self._cache = cache
        self._absent = absent
        self._counts = counts
        self._uses = uses
        self._watches: dict[int, LeasedAssignments] = {}
        self._tasks: list[asyncio.Task[None]] = []
        link.on_change(self._on_change)

    @property
    def by_shard(self) -> Mapping[int, LeasedAssignments]:
        """The watches, by shard id."""
        return self._watches

    def wake(self, shard_id: int) -> None:
        """Have the shard's lease renewed again: a lookup is sent to the shard."""
        watch = self._watches.get(shard_id)
        if watch is not None:
            watch.wake()

    async def stop(self) -> None:
        """End all watches. The cached answers expire by themselves."""
        await cancel_and_wait(*self._tasks)

    def _on_change(self, view: ClusterView, update: ClusterUpdate) -> None:
        if update.brokers:
            self._cache.end_sessions(view.has_session_ended)
        for shard_id in view.shard_ids:
            if shard_id not in self._watches:
                self._watch(shard_id)

    def _watch(self, shard_id: int) -> None:
        stream = self._streams.stream(shard_id)
        watch = LeasedAssignments(stream, self._cache, self._absent, self._counts, self._uses)
        self._watches[shard_id] = watch
        self._tasks.append(keep("leased_assignments", watch.run))
