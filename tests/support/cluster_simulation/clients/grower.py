"""A client that splits, merges and rebuckets scalable topics, and deletes them.

One topic after the other: each is created, changed some times, subscribed to meanwhile, and
deleted. The judge of contenders compares what it was told with the logs.
"""

from __future__ import annotations

import asyncio
import random

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.client import Client
from nextgen.harness.history.model import Drained
from nextgen.harness.load.recorded.layout_operator import choose
from nextgen.harness.load.recorded.recorded_calls import RecordedCalls
from nextgen.kernel.errors import MetadataError
from tests.support.cluster_simulation.clients.contenders import NAMESPACE, Records
from tests.support.cluster_simulation.process import SimulatedProcess
from tests.support.cluster_simulation.simulation import ClusterSimulation

CALL_MS = 6_000
PAUSE_S = (0.2, 3.0)
CHANGES_MAX = 6
"""Changes of one topic; it is deleted then."""


def grower(
    simulation: ClusterSimulation, seed: int, records: Records
) -> tuple[SimulatedProcess, Grower]:
    """Return the one of a simulation, and its process."""
    process = simulation.client("grower")
    endpoints = [f"{name}:7000" for name in simulation.plan.discovery_names]
    return process, process.run(Grower, endpoints, random.Random(f"grower {seed}"), records)


class Grower:
    """One client process. ``run`` it in that process's name until ``stopping``."""

    def __init__(self, endpoints: list[str], chance: random.Random, records: Records) -> None:
        self.stopping = False
        self._chance = chance
        self._records = records
        self._client = Client(endpoints, timeout_ms=CALL_MS)
        self._calling = DiscoveryClient(endpoints, timeout_ms=CALL_MS)
        self._calls = RecordedCalls("grower", self._calling, records)  # type: ignore[arg-type]

    async def run(self) -> None:
        number = 0
        try:
            while not self.stopping:
                number += 1
                await self._one_topic(f"topic://{NAMESPACE}/growing-{number}")
        finally:
            await self._client.close()
            await self._calling.__aexit__()

    async def _one_topic(self, topic: str) -> None:
        segments = self._chance.randint(1, 3)
        while not (created := await self._calls.create(topic, {}, segments=segments)).is_ok:
            if self.stopping or created.refusal == "ALREADY_EXISTS":
                break
            await self._pause()
        if created.is_ok:
            # When everything is settled, no change of it may be under way.
            self._records.write(Drained("", topic, "none"))
        await self._calls.create_subscription(topic, "s", "stream")
        for _ in range(self._chance.randint(1, CHANGES_MAX)):
            await self._pause()
            if self.stopping:
                return
            await self._change(topic)
        # A topic that is subscribed to is deleted by force only.
        await self._calls.delete_subscription(topic, "s")
        await self._calls.delete(topic)

    async def _change(self, topic: str) -> None:
        try:
            layout = await self._client.get_scalable_topic(topic)
        except MetadataError:
            return
        choice = choose(layout, self._chance) if layout is not None else None
        if choice is not None:
            await self._calls.change_layout(topic, *choice)

    async def _pause(self) -> None:
        await asyncio.sleep(self._chance.uniform(*PAUSE_S))
