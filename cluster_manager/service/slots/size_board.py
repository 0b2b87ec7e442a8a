"""The sizes of shards as their leaders reported them last. Soft state: never in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from protos.nextgen.v1.cluster_service_pb2 import ShardSize


class SizeBoard:
    """The last size of each shard, for one term of the cluster manager's leadership."""

    def __init__(self) -> None:
        self._sizes: dict[int, ShardSize] = {}

    def __repr__(self) -> str:
        return f"<SizeBoard shards={len(self._sizes)}>"

    def take(self, sizes: Iterable[ShardSize], shard_ids: Iterable[int]) -> None:
        """Record a node's report; a deposed leader's, or of no shard of the map, is ignored."""
        known = set(shard_ids)
        for size in sizes:
            before = self._sizes.get(size.shard_id)
            if size.shard_id in known and (before is None or before.term <= size.term):
                self._sizes[size.shard_id] = size

    def get(self, shard_id: int) -> ShardSize | None:
        return self._sizes.get(shard_id)

    def rows(self) -> Mapping[int, int]:
        """Return the rows of each shard that has reported them."""
        return {shard_id: size.rows for shard_id, size in self._sizes.items()}
