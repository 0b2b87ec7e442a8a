"""The sizes of shards as their leaders reported them last. Soft state: never in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster_manager.ports import Clock
from nextgen.kernel.limits.placement import SHARD_SIZE_STALE_MS
from protos.nextgen.v1.cluster_service_pb2 import ShardSize, ShardSizes


class SizeBoard:
    """The last size of each shard, for one term of the cluster manager's leadership."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sizes: dict[int, ShardSize] = {}
        self._reported_ms: dict[int, int] = {}
        self._disk_free: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<SizeBoard shards={len(self._sizes)}>"

    def take(self, node_id: str, report: ShardSizes, shard_ids: Iterable[int]) -> None:
        """Record a node's report; a deposed leader's, or of no shard of the map, is ignored."""
        if report.disk_free_bytes:  # 0: the node cannot tell.
            self._disk_free[node_id] = report.disk_free_bytes
        known = set(shard_ids)
        for size in report.shards:
            before = self._sizes.get(size.shard_id)
            if size.shard_id in known and (before is None or before.term <= size.term):
                self._sizes[size.shard_id] = size
                self._reported_ms[size.shard_id] = self._clock.monotonic_ms()

    def get(self, shard_id: int) -> ShardSize | None:
        return self._sizes.get(shard_id)

    def disk_free(self) -> Mapping[str, int]:
        """Return the bytes left on the disk of each node that has reported them."""
        return dict(self._disk_free)

    def fresh(self, now_ms: int) -> Mapping[int, ShardSize]:
        """Return the sizes that were reported within ``SHARD_SIZE_STALE_MS``, by shard."""
        return {
            shard_id: size
            for shard_id, size in self._sizes.items()
            if now_ms - self._reported_ms[shard_id] < SHARD_SIZE_STALE_MS
        }

    def rows(self) -> Mapping[int, int]:
        """Return the rows of each shard that has reported them."""
        return {shard_id: size.rows for shard_id, size in self._sizes.items()}
