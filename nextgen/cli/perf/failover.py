"""``perf commit-failover``: from kill -9 of a shard's leader to the shard's next commit.

Several lanes create topics in that shard, each one after the other. Measured is the first
acknowledgement of a create that was sent after the kill: every lane's create that was on its way
must be acknowledged before, so the shard's very first commit was even a little earlier.
"""

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
from protos.nextgen.v1.cluster_service_pb2 import LeaderReport
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest

LANES = 4
NAMES = 200_000
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
        shard_id = 1 + number % cluster.plan.size.shards
        killed, took_ms = await _kill_once(bench, shard_id)
        latencies.add(took_ms / 1000)
        kills.append({"shard": shard_id, "killed": killed.node_id, "ms": round(took_ms, 1)})
        note(f"shard {shard_id}: {killed.node_id} killed, next commit after {took_ms:.0f} ms")
        await _check_replaced(bench, killed)
        await cluster.start_node(killed.node_id)
        await cluster.wait_ready([killed.node_id])
    return {
        "benchmark": "commit-failover",
        "rate": None,
        **latencies.summary(),
        "errors": 0,
        "kills": kills,
        "run": {"rounds": rounds, "shards": cluster.plan.size.shards, "lanes": LANES},
    }


async def _kill_once(bench: Bench, shard_id: int) -> tuple[LeaderReport, float]:
    """Return who was killed, and the milliseconds until the next commit."""
    assert bench.cluster is not None
    names = await _names_in_shard(bench, shard_id)
    acknowledged: list[float] = []
    recovered = asyncio.Event()
    killed_at = float("inf")

    def hear(message: dict[str, Any]) -> None:
        # What was sent before the kill may have been committed before it, too.
        if message.get("sent_at", 0.0) > killed_at:
            acknowledged.append(message["acknowledged_at"])
            recovered.set()

    job = {"kind": "commit_probe", "targets": list(bench.targets), "names": names, "lanes": LANES}
    probe = await LoadProcess.start(job)
    listening = asyncio.create_task(probe.result(hear))
    try:
        await asyncio.sleep(SETTLE_SECONDS)
        # Asked for at the last moment: leaders are handed over while they are being spread.
        leader = await _leader(bench, shard_id)
        bench.cluster.strike(leader.node_id)
        killed_at = time.monotonic()
        await bench.cluster.kill(leader.node_id)
        async with asyncio.timeout(RECOVERED_TIMEOUT_MS / 1000):
            await recovered.wait()
        await probe.request_stop()
        result = await listening
        if result["errors"]:
            raise CheckFailed(f"{result['errors']} creates were refused during the failover")
    except TimeoutError:
        raise CheckFailed(
            f"shard {shard_id} had no commit for {RECOVERED_TIMEOUT_MS} ms after its leader died"
        ) from None
    finally:
        listening.cancel()
        await probe.stop()
    return leader, (acknowledged[0] - killed_at) * 1000


async def _leader(bench: Bench, shard_id: int) -> LeaderReport:
    cluster = await _cluster(bench)
    for leader in cluster.leaders:
        if leader.shard_id == shard_id:
            found: LeaderReport = leader
            return found
    raise Unavailable(f"shard {shard_id} has no leader")


async def _check_replaced(bench: Bench, killed: LeaderReport) -> None:
    """Return if the killed node really was the leader: another one leads in a later term.

    Raises:
        CheckFailed: The kill hit a node that did not lead, so nothing was measured.
    """
    leader = await _leader(bench, killed.shard_id)
    if leader.node_id == killed.node_id or leader.term <= killed.term:
        raise CheckFailed(f"shard {killed.shard_id} is still led by {leader.node_id}")


async def _names_in_shard(bench: Bench, shard_id: int) -> list[str]:
    cluster = await _cluster(bench)
    table = SlotTable.from_bytes(cluster.shard_map.version, cluster.shard_map.slot_owners)
    stem = f"failover-{time.monotonic_ns():x}"
    candidates = bench.topics(stem, NAMES).names()
    return [n for n in candidates if table.shard_for_key(parse_topic(n).routing_key) == shard_id]


async def _cluster(bench: Bench) -> Any:
    async with DiscoveryClient(bench.targets) as client:
        return await client.call("GetCluster", GetClusterRequest())
