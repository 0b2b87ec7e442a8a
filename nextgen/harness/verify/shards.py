"""``shards verify`` without a target: a cluster of its own, changes of leaders under load, then
the check.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.cli.local.plan import ClusterSize
from nextgen.cli.shards.verify import VerifyReport, verify_shards
from nextgen.harness.load.process import run_job
from nextgen.harness.perf.bench import Bench, bench, note
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from nextgen.tasks.background import cancel_and_wait
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.cluster_service_pb2 import LeaderReport
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest

BATCH_TOPICS = 100
BATCHES_IN_FLIGHT = 4
ROUNDS = 10
"""Rounds of load, each a process of its own, so that the load lasts as long as leaders are
changed."""
LOAD_TIMEOUT_MS = 600_000
LEADER_TIMEOUT_MS = 30_000
LEADER_POLL_MS = 250

STRIKES = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)
"""Signals to the node that leads a shard, one after the other: SIGKILL, and a stop with a
handover."""


async def verify_own_cluster(*, events: int, shards: int) -> tuple[VerifyReport, dict[str, Any]]:
    """Return the findings, and the numbers of events and of leader changes.

    Raises:
        CheckFailed: A create was refused, or a shard got no new leader.
    """
    size = ClusterSize(discovery=1, brokers=1, shards=shards)
    async with bench(None, size) as system:
        changes = await _load_and_strike(system, events)
        note("verifying")
        report = await verify_shards(system.targets)
        return report, {"events": await system.committed_events(), "leader_changes": changes}


async def _load_and_strike(system: Bench, events: int) -> int:
    """Create topics, one event each, and change leaders meanwhile; return how many changed."""
    load = _Load(system, events)
    creating = asyncio.create_task(load.run())
    try:
        changes = 0
        for number, strike in enumerate(STRIKES, start=1):
            await load.reach(events * number // (len(STRIKES) + 1), creating)
            changes += await _change_leader(system, 1 + number % _shards(system), strike)
        load.may_end = True
        await creating
    finally:
        await cancel_and_wait(creating)
    return changes


class _Load:
    """Creates ``events`` topics, round by round, and more until ``may_end`` is set."""

    def __init__(self, system: Bench, events: int) -> None:
        self._system = system
        self._events = events
        self._created = 0
        self._in_round = 0
        self._moved = asyncio.Event()
        self.may_end = False

    async def run(self) -> None:
        """Raises:
        CheckFailed: A create was refused.
        """
        size = max(BATCH_TOPICS, self._events // ROUNDS)
        while self._created < self._events or not self.may_end:
            names = self._system.topics("verified", size, first=self._created)
            job = {
                "kind": "create_batched",
                "targets": list(self._system.targets),
                "topics": names.as_json(),
                "batch": BATCH_TOPICS,
                "in_flight": BATCHES_IN_FLIGHT,
            }
            result = await run_job(job, self._hear, timeout_ms=LOAD_TIMEOUT_MS)
            if result["errors"]:
                raise CheckFailed(
                    f"{result['errors']} creates were refused: {result['first_error']}"
                )
            self._created, self._in_round = self._created + size, 0

    async def reach(self, count: int, creating: asyncio.Task[None]) -> None:
        """Return once ``count`` topics are created; raises the error that ended ``creating``."""
        moved = asyncio.create_task(self._wait(count))
        try:
            await asyncio.wait((moved, creating), return_when=asyncio.FIRST_COMPLETED)
            if creating.done():
                creating.result()
        finally:
            moved.cancel()

    async def _wait(self, count: int) -> None:
        while self._created + self._in_round < count:
            self._moved.clear()
            await self._moved.wait()

    def _hear(self, message: dict[str, Any]) -> None:
        self._in_round = message.get("progress", self._in_round)
        self._moved.set()


async def _change_leader(system: Bench, shard_id: int, strike: signal.Signals) -> int:
    """End the node that leads ``shard_id`` and start it again; return how many shards changed
    their leader."""
    cluster = system.cluster
    assert cluster is not None, "only a cluster of our own is struck"
    before = await _wait_leaders(system, lambda found: shard_id in found)
    node_id = before[shard_id].node_id
    led = {shard for shard, leader in before.items() if leader.node_id == node_id}
    note(f"{strike.name} to {node_id}, which leads {len(led)} shards")
    await cluster.kill(node_id, strike)

    def is_replaced(found: dict[int, LeaderReport]) -> bool:
        return all(
            shard in found
            and found[shard].node_id != node_id
            and found[shard].term > before[shard].term
            for shard in led
        )

    await _wait_leaders(system, is_replaced)
    await cluster.start_node(node_id)
    await cluster.wait_ready([node_id])
    return len(led)


async def _wait_leaders(
    system: Bench, condition: Callable[[dict[int, LeaderReport]], bool]
) -> dict[int, LeaderReport]:
    """Return the leaders by shard once ``condition`` holds of them."""
    found: dict[int, LeaderReport] = {}
    try:
        async with timeout(LEADER_TIMEOUT_MS / 1000):
            while not condition(found):
                await asyncio.sleep(LEADER_POLL_MS / 1000)
                found = {leader.shard_id: leader for leader in await _leaders(system)}
    except TimeoutError:
        raise CheckFailed(f"no new leaders {LEADER_TIMEOUT_MS} ms after one was ended") from None
    return found


async def _leaders(system: Bench) -> list[LeaderReport]:
    async with DiscoveryClient(system.targets) as client:
        cluster = await client.call("GetCluster", GetClusterRequest())
    return list(cluster.leaders)


def _shards(system: Bench) -> int:
    assert system.cluster is not None
    return system.cluster.plan.size.shards
