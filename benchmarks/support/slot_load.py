"""Clients of topics whose slots move: each operation timed, what failed kept."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Iterator
from datetime import datetime

from nextgen.client import Client
from nextgen.kernel.errors import MetadataError
from tests.support.processes.local_cluster import LocalCluster

WORKERS = 4
PAUSE_S = 0.01
AROUND_S = 0.5


class SlotLoad:
    """Operations on topics in the slots, one after the other in each of some workers."""

    def __init__(self, client: Client, known: list[str], fresh: Iterator[str]) -> None:
        self.times: list[tuple[float, float]] = []
        """When each operation began and ended, in seconds since the epoch."""
        self.failures: list[str] = []
        self.created: list[str] = []
        self._client = client
        self._known = known
        self._fresh = fresh
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        await asyncio.gather(*(self._work(number) for number in range(WORKERS)))

    async def _work(self, worker: int) -> None:
        for number in itertools.count(worker):
            if self._stop.is_set():
                return
            began = time.time()
            try:
                await self._operate(number)
            except MetadataError as error:
                self.failures.append(f"{type(error).__name__}: {error}")
            self.times.append((began, time.time()))
            await asyncio.sleep(PAUSE_S)

    async def _operate(self, number: int) -> None:
        known = self._known[number * 7919 % len(self._known)]
        if number % 3 == 0:
            name = next(self._fresh)
            (created,) = await self._client.create_topics([name])
            if created.is_created:
                self.created.append(name)
            else:
                self.failures.append(f"{name}: {created.message}")
        elif number % 3 == 1:
            await self._client.set_topic_properties(known, {"number": str(number)})
        else:
            (found,) = await self._client.lookup([self._known[number % 100]])
            if not found.is_found:
                self.failures.append(f"{found.topic}: {found.message}")

    def all_ms(self) -> list[float]:
        """Return how long each operation took."""
        return [(ended - began) * 1_000 for began, ended in self.times]

    def waits_ms(self, adopted: list[tuple[float, float, int]]) -> list[float]:
        """Return how long those took that were under way in the second around an adoption."""
        return [
            (ended - began) * 1_000
            for began, ended in self.times
            if any(began - AROUND_S <= at <= ended + AROUND_S for at, _, _ in adopted)
        ]

    async def lost(self, names: list[str]) -> int:
        """Return how many of a sample of the names, and of those created here, are not there."""
        lost = 0
        for name in (*names[:: max(1, len(names) // 500)], *self.created):
            lost += await self._client.get_topic(name) is None
        return lost


def adoptions(cluster: LocalCluster) -> list[tuple[float, float, int]]:
    """Return when slots were adopted, in seconds since the epoch, how long nobody decided about
    them at most, in milliseconds, and the rows that were copied: from the nodes' logs."""
    found = []
    for node in cluster.plan.of_kind("shard-node"):
        for line in cluster.log_path(node.node_id).read_text().splitlines():
            if '"slots adopted"' in line:
                said = json.loads(line)
                at = datetime.fromisoformat(re.sub("Z$", "+00:00", said["timestamp"]))
                found.append((at.timestamp(), float(said["frozen_ms"]), int(said["rows"])))
    return sorted(found)


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else 0.0
