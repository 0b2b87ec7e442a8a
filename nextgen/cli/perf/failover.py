"""``perf commit-failover``: from kill -9 of a shard's leader to the shard's next commit."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from nextgen.cli.discovery_client import DiscoveryClient
from nextgen.cli.exit_code import CheckFailed
from nextgen.cli.load.measure import Latencies
from nextgen.cli.load.process import LoadProcess
from nextgen.cli.perf.bench import Bench, note
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.names import parse_topic
from nextgen.kernel.slots import SlotTable
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest

LANES = 4
NAMES = 200_000
ON_THE_WAY_MS = 5
"""An acknowledgement this soon after the kill was sent before it."""

RECOVERED_TIMEOUT_MS = 15_000
SETTLE_SECONDS = 3
"""Commits in peace before each kill, so that nothing of the kill before it is measured."""


async def measure_failover(bench: Bench, *, rounds: int) -> dict[str, Any]:
    """Return the measurement of ``rounds`` kills, each of a leader at that moment.

    Raises:
        CheckFailed: A shard did not come back.
    """
    cluster = bench.cluster
    assert cluster is not None, "only a cluster of our own is killed"
    latencies = Latencies()
    kills = []
    for number in range(rounds):
        shard_id, leader = await _leader_of_some_shard(bench, number)
        took_ms = await _kill_once(bench, shard_id, leader)
        latencies.add(took_ms / 1000)
        kills.append({"shard": shard_id, "killed": leader, "ms": round(took_ms, 1)})
        note(f"shard {shard_id}: {leader} killed, next commit after {took_ms:.0f} ms")
        await cluster.start_node(leader)
        await cluster.wait_ready([leader])
    return {
        "benchmark": "commit-failover",
        "rate": 0,
        **latencies.summary(),
        "errors": 0,
        "kills": kills,
        "run": {"rounds": rounds, "shards": cluster.plan.size.shards, "lanes": LANES},
    }


async def _kill_once(bench: Bench, shard_id: int, leader: str) -> float:
    assert bench.cluster is not None
    names = await _names_in_shard(bench, shard_id)
    acknowledged: list[float] = []
    recovered = asyncio.Event()
    killed_at = float("inf")

    def hear(message: dict[str, Any]) -> None:
        at = message.get("acknowledged_at", 0.0)
        if (at - killed_at) * 1000 > ON_THE_WAY_MS:
            acknowledged.append(at)
            recovered.set()

    job = {"kind": "commit_probe", "targets": list(bench.targets), "names": names, "lanes": LANES}
    probe = await LoadProcess.start(job)
    listening = asyncio.create_task(probe.result(hear))
    try:
        await asyncio.sleep(SETTLE_SECONDS)
        await bench.cluster.kill(leader)
        killed_at = time.monotonic()
        async with asyncio.timeout(RECOVERED_TIMEOUT_MS / 1000):
            await recovered.wait()
        await probe.request_stop()
        result = await listening
        if result["errors"]:
            raise CheckFailed(f"{result['errors']} creates were refused during the failover")
    except TimeoutError:
        raise CheckFailed(
            f"shard {shard_id} had no commit for {RECOVERED_TIMEOUT_MS} ms after {leader} died"
        ) from None
    finally:
        listening.cancel()
        await probe.stop()
    return (acknowledged[0] - killed_at) * 1000


async def _leader_of_some_shard(bench: Bench, number: int) -> tuple[int, str]:
    cluster = await _cluster(bench)
    leaders = sorted((leader.shard_id, leader.node_id) for leader in cluster.leaders)
    if not leaders:
        raise Unavailable("no shard has a leader")
    return leaders[number % len(leaders)]


async def _names_in_shard(bench: Bench, shard_id: int) -> list[str]:
    cluster = await _cluster(bench)
    table = SlotTable.from_bytes(cluster.shard_map.version, cluster.shard_map.slot_owners)
    stem = f"failover-{time.monotonic_ns():x}"
    candidates = bench.topics(stem, NAMES).names()
    return [n for n in candidates if table.shard_for_key(parse_topic(n).routing_key) == shard_id]


async def _cluster(bench: Bench) -> Any:
    async with DiscoveryClient(bench.targets) as client:
        return await client.call("GetCluster", GetClusterRequest())
