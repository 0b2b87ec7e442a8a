"""Reports to the cluster manager how large the shards are that this node leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from nextgen.kernel.limits.placement import SHARD_SIZES_MS
from protos.nextgen.v1.cluster_service_pb2 import NodeMessage, ShardSize, ShardSizes
from shards.domain.states import StateKind
from shards.node.replica import Replica
from shards.ports import Clock


class SizeReports:
    """Sends ``ShardSizes`` when asked, and every ``SHARD_SIZES_MS`` while ``run`` runs.

    Rows are an estimate: each topic counts with one assignment. Rows of slots that are on their way
    to a shard count there.
    """

    def __init__(
        self,
        replicas: Mapping[int, Replica],
        send: Callable[[NodeMessage], object],
        disk_free_bytes: Callable[[], int],
        clock: Clock,
    ) -> None:
        self._replicas = replicas
        self._send = send
        self._disk_free_bytes = disk_free_bytes
        self._clock = clock
        self._counted: dict[int, tuple[int, int, float]] = {}
        """By shard: the term, the events that were committed at the last report, and when."""

    async def run(self) -> None:
        """Send reports until cancelled."""
        while True:
            self.report()
            await asyncio.sleep(SHARD_SIZES_MS / 1_000)

    def report(self, only: int | None = None) -> None:
        """Send the room on the disk, and the sizes of the shards that this node leads.

        ``only``: of one shard, if this node leads it.
        """
        sizes = [
            self._size(shard_id, replica)
            for shard_id, replica in sorted(self._replicas.items())
            if only in (None, shard_id)
            and replica.leader is not None
            and not replica.leader.state.term.is_over
        ]
        if sizes or only is None:
            free_bytes = self._disk_free_bytes()
            report = ShardSizes(shards=sizes, disk_free_bytes=free_bytes)
            self._send(NodeMessage(shard_sizes=report))

    def _size(self, shard_id: int, replica: Replica) -> ShardSize:
        leader = replica.leader
        assert leader is not None, "only leaders know the size of their shard"
        reads = leader.state.reads
        topics = reads.total(StateKind.TOPIC)
        parents = reads.total(StateKind.TENANT) + reads.total(StateKind.NAMESPACE)
        return ShardSize(
            shard_id=shard_id,
            term=leader.term,
            topics=topics,
            rows=2 * topics + parents,
            commands_per_second=self._rate(shard_id, leader.term, replica.log.commit_position),
        )

    def _rate(self, shard_id: int, term: int, position: int) -> float:
        """Return the events committed a second since the last report of this term, 0 before one."""
        now = self._clock.monotonic()
        before = self._counted.get(shard_id)
        if before is None or before[0] != term:
            self._counted[shard_id] = term, position, now
            return 0.0
        _, counted, at = before
        if now <= at:
            return 0.0
        self._counted[shard_id] = term, position, now
        return (position - counted) / (now - at)
