"""What a backup and a restore ask of a cluster, besides snapshots and logs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from nextgen.backup.manifest import Counts
from nextgen.bulk.cluster_source import AskedCluster
from nextgen.client.routing.exchange import ExchangePool
from nextgen.client.routing.router import ShardRouter
from nextgen.kernel.errors import Indefinite, NotLeader, Overloaded, StaleShardMap, Unavailable
from nextgen.kernel.governance.quota_file import QuotaFile
from nextgen.kernel.limits.bulk import BULK_REQUEST_TIMEOUT_MS
from nextgen.kernel.routing.slots import SlotTable
from protos.nextgen.v1.shard_service_pb2 import (
    CutRequest,
    CutResponse,
    ShardRequest,
    ShardResponse,
)

PATIENCE_S = 120.0
"""A command ends when a shard has answered nothing for so long. It can be repeated."""

PAUSE_S = 0.25
"""Pause before a request is sent again."""

_PASSING = (Indefinite, NotLeader, Overloaded, Unavailable, StaleShardMap)


class Quotas(Protocol):
    """The quotas that the cluster manager keeps."""

    async def read(self) -> QuotaFile | None:
        """Return the quotas that hold, None if none were ever set."""

    async def write(self, quotas: QuotaFile) -> None:
        """Replace all quotas.

        Raises:
            Refused: They do not fit the cluster.
        """


class Settings(Protocol):
    """The service-level settings that the cluster manager keeps."""

    async def read(self) -> Mapping[str, str]:
        """Return the settings that differ from their defaults, by name."""

    async def write(self, settings: Mapping[str, str]) -> None:
        """Set these settings, all or none; others stay as they are.

        Raises:
            Refused: They make no sense to the cluster.
        """


class BackupCluster:
    """The shards of a cluster, through its discovery nodes. ``close`` it."""

    def __init__(self, endpoints: Sequence[str], quotas: Quotas, settings: Settings) -> None:
        self.endpoints = tuple(endpoints)
        self.quotas = quotas
        self.settings = settings
        self.link = AskedCluster(endpoints)
        self._pool = ExchangePool(lambda: self.link.view.shard_map_version)
        self._router = ShardRouter(self.link, self._pool)

    async def table(self) -> SlotTable:
        """Return the shard map.

        Raises:
            MetadataError: No discovery node answers, or none has a map.
        """
        await self.link.ask()
        table = self.link.view.slot_table
        assert table is not None, "the request raises if there is no map"
        return table

    async def cuts(self, shard_ids: Sequence[int]) -> dict[int, CutResponse]:
        """Return where each shard is, by its leader."""
        answers = await asyncio.gather(
            *(self.ask(shard_id, ShardRequest(cut=CutRequest())) for shard_id in shard_ids)
        )
        return {shard_id: answer.cut for shard_id, answer in zip(shard_ids, answers, strict=True)}

    async def ask(self, shard_id: int, request: ShardRequest) -> ShardResponse:
        """Send a repeatable request until the shard's leader answers.

        Raises:
            Refused, InvalidRequest: By the leader.
            MetadataError: There was no answer for ``PATIENCE_S``.
        """
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await self._router.call(
                    shard_id, request, timeout_ms=BULK_REQUEST_TIMEOUT_MS
                )
            except _PASSING:
                if time.monotonic() >= give_up_at:
                    raise
                await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        await self._pool.stop()
        await self.link.close()


def counts_of(cuts: Iterable[CutResponse]) -> Counts:
    """Return how many objects all shards have together."""
    return sum(
        (Counts(cut.tenants, cut.namespaces, cut.topics, cut.scalable_topics) for cut in cuts),
        Counts(),
    )
