"""A light load that goes on while a cluster is changed: creates and lookups, each one timed.

    async with steady_load(cluster) as load:
        …restart, add, remove…
    await load.assert_nothing_lost()
    print(load.summary())

A *gap* is a time in which no operation of a kind succeeded. The slowest operation says more: it
waited for one shard, while others may have gone on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from nextgen.cli.local.cluster import LocalCluster
from nextgen.client import Client
from nextgen.kernel.errors import MetadataError
from nextgen.tasks.groups import TaskGroup
from nextgen.tasks.timeouts import timeout
from tests.support.callers.chaos_load import Ledger, assert_ledger_holds

NAMESPACE = "steady/load"
WORKERS_PER_KIND = 3
PAUSE_S = 0.005
"""Between two operations of a worker: enough to notice a gap, too little to be its cause."""

TIMEOUT_MS = 10_000
NAMES_PER_LOOKUP = 4
WARM_UP_OPERATIONS = 60


@dataclass(slots=True)
class Timed:
    """When operations of one kind were done, and how long the slowest took."""

    done_at: list[float] = field(default_factory=list)
    slowest_ms: float = 0.0
    slowest_at: float = 0.0
    errors: list[str] = field(default_factory=list)

    @property
    def gap_ms_max(self) -> float:
        """The longest time without a success."""
        return max(((b - a) * 1_000 for a, b in pairwise(sorted(self.done_at))), default=0.0)

    def note(self, began: float, ended: float) -> None:
        self.done_at.append(ended)
        if (ended - began) * 1_000 > self.slowest_ms:
            self.slowest_ms, self.slowest_at = (ended - began) * 1_000, began


class SteadyLoad:
    """See the module. ``steps`` are noted by ``step``, so that a summary can say when it was."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.creates, self.lookups = Timed(), Timed()
        self.ledger = Ledger()
        self._stop = asyncio.Event()
        self._at_work = 0
        self._random = random.Random(1)
        self._known: list[str] = []
        self._steps: list[tuple[float, str]] = []

    def step(self, name: str) -> None:
        """Note what is done to the cluster from here on."""
        self._steps.append((asyncio.get_running_loop().time(), name))

    @property
    def errors(self) -> list[str]:
        return [*self.creates.errors, *self.lookups.errors]

    @property
    def is_at_work(self) -> bool:
        """Whether a worker has not noticed ``stop`` yet."""
        return self._at_work > 0

    async def warmed_up(self) -> None:
        """Return once both kinds of operations are going well, and forget how it began."""
        for timed in (self.creates, self.lookups):
            await self.progress(timed, WARM_UP_OPERATIONS)
        self.creates, self.lookups = Timed(), Timed()

    async def progress(self, timed: Timed | None = None, operations: int = 20) -> None:
        """Return when this many more operations (default: of each kind) have succeeded."""
        for each in (timed,) if timed is not None else (self.creates, self.lookups):
            wanted = len(each.done_at) + operations
            async with timeout(60):
                while len(each.done_at) < wanted:
                    await asyncio.sleep(0.02)

    async def run(self) -> None:
        async with TaskGroup() as tasks:
            for worker in range(WORKERS_PER_KIND):
                tasks.create_task(self._repeat(self._create, worker))
                tasks.create_task(self._repeat(self._look_up, worker))

    def stop(self) -> None:
        self._stop.set()

    async def assert_nothing_lost(self) -> None:
        """Compare what was acknowledged with what is there."""
        await assert_ledger_holds(self.client, self.ledger, namespace=NAMESPACE)

    def summary(self) -> dict[str, Any]:
        """Return the measured numbers; milliseconds are whole."""
        said: dict[str, Any] = {}
        for kind, timed in (("creates", self.creates), ("lookups", self.lookups)):
            said |= {
                kind: len(timed.done_at),
                f"{kind}_failed": len(timed.errors),
                f"{kind}_gap_ms_max": round(timed.gap_ms_max),
                f"{kind}_slowest_ms": round(timed.slowest_ms),
                f"{kind}_slowest_during": self._during(timed.slowest_at),
            }
        return said

    def _during(self, moment: float) -> str:
        return next((name for at, name in reversed(self._steps) if at <= moment), "")

    async def _repeat(
        self, operation: Callable[[int, int], Coroutine[Any, Any, None]], worker: int
    ) -> None:
        number = 0
        self._at_work += 1
        try:
            while not self._stop.is_set():
                number += 1
                await operation(worker, number)
                await asyncio.sleep(PAUSE_S)
        finally:
            self._at_work -= 1

    async def _create(self, worker: int, number: int) -> None:
        name = f"persistent://{NAMESPACE}/w{worker}-{number}"
        self.ledger.attempted.add(name)
        began = asyncio.get_running_loop().time()
        try:
            (created,) = await self.client.create_topics([name])
        except MetadataError as error:
            self.ledger.unknown.add(name)
            self.creates.errors.append(f"{type(error).__name__}: {error}")
            return
        assert created.is_created, f"{name}: {created.rejection_code} {created.message}"
        self.creates.note(began, asyncio.get_running_loop().time())
        self.ledger.present.add(name)
        self._known.append(name)

    async def _look_up(self, _worker: int, _number: int) -> None:
        if not self._known:
            return
        count = min(NAMES_PER_LOOKUP, len(self._known))
        names = self._random.sample(self._known, count)
        began = asyncio.get_running_loop().time()
        try:
            answers = await self.client.lookup(names)
        except MetadataError as error:
            self.lookups.errors.append(f"{type(error).__name__}: {error}")
            return
        unanswered = [answer for answer in answers if not answer.is_found]
        if unanswered:
            self.lookups.errors.append(f"not found: {unanswered[0]}")
            return
        self.lookups.note(began, asyncio.get_running_loop().time())


@asynccontextmanager
async def steady_load(
    cluster: LocalCluster, *, timeout_ms: int = TIMEOUT_MS
) -> AsyncIterator[SteadyLoad]:
    """Run the load until the block ends; its client stays open for the checks behind it.

    An operation that takes longer than ``timeout_ms`` is an error.
    """
    client = Client(list(cluster.plan.discovery_endpoints), timeout_ms=timeout_ms)
    try:
        await client.create_tenant(NAMESPACE.partition("/")[0])
        await client.create_namespace(NAMESPACE)
        load = SteadyLoad(client)
        running = asyncio.create_task(load.run())
        try:
            await load.warmed_up()
            yield load
        finally:
            load.stop()
            await running
        await load.assert_nothing_lost()
    finally:
        await client.close()
