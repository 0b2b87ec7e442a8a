"""What does an idle cluster cost? CPU of one core and memory (PSS), in total and by process.

Starts a cluster (that of `nextgen up` unless options say otherwise), waits for it to settle, then
measures one minute without any request. Checked in the same run: every shard has a leader before
and afterwards, how many elections took place in between, and a topic can be created then. Prints
one JSON line last.

    python -m benchmarks.cluster.idle_cost [--shards 16 --brokers 1 --discovery 1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path

import psutil

from benchmarks.support.shard_nodes import ShardNodes
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, ClusterSize, make_plan_on_free_ports
from nextgen.client import Client

NAMESPACE = "idle/cluster"
SUPERVISOR = "supervisor"


def _cpu_s(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


async def _elections(nodes: ShardNodes, shards: int) -> int:
    """Return how many elections were won so far.

    Raises:
        SystemExit: A shard has no leader.
    """
    replicas = [replica for status in await nodes.statuses() for replica in status.replicas]
    led = {replica.group_id for replica in replicas if replica.role == "leader"}
    if len(led) != shards:
        raise SystemExit(f"{len(led)} of {shards} shards are led, by {len(replicas)} replicas")
    return sum(replica.elections for replica in replicas)


async def _create_one(plan: ClusterPlan) -> None:
    async with Client(list(plan.discovery_endpoints)) as client:
        await client.create_tenant(NAMESPACE.partition("/")[0])
        await client.create_namespace(NAMESPACE)
        (outcome,) = await client.create_topics([f"persistent://{NAMESPACE}/one"])
        if not outcome.is_created:
            raise SystemExit(f"no topic can be created: {outcome.message}")


async def measure(size: ClusterSize, settle_s: float, measure_s: float) -> dict[str, object]:
    plan = make_plan_on_free_ports(size, cluster_id="idle")
    with tempfile.TemporaryDirectory() as directory:
        async with LocalCluster(plan, Path(directory)) as cluster:
            await cluster.wait_ready()
            async with ShardNodes([node.grpc for node in plan.of_kind("shard-node")]) as nodes:
                await asyncio.sleep(settle_s)
                processes = {n: psutil.Process(cluster.process_id(n)) for n in cluster.running}
                processes[SUPERVISOR] = psutil.Process(os.getpid())
                elected = await _elections(nodes, size.shards)
                before_s = {node: _cpu_s(process) for node, process in processes.items()}
                await asyncio.sleep(measure_s)
                used_s = {node: _cpu_s(processes[node]) - before_s[node] for node in processes}
                pss = {node: one.memory_full_info().pss for node, one in processes.items()}
                elected = await _elections(nodes, size.shards) - elected
            await _create_one(plan)
    percent = {node: used_s[node] / measure_s * 100 for node in used_s}
    of_shards = [node for node in percent if node.startswith("shard-node")]
    return {
        "benchmark": "idle_cost",
        "shards": size.shards,
        "processes": len(processes),
        "cpu_percent_of_one_core": round(sum(percent.values()), 2),
        "shard_nodes_percent_of_one_core": round(sum(percent[node] for node in of_shards), 2),
        "cpu_percent_by_process": {node: round(share, 2) for node, share in percent.items()},
        "pss_mb": round(sum(pss.values()) / 1e6, 1),
        "pss_mb_by_process": {node: round(size / 1e6, 1) for node, size in pss.items()},
        "elections_meanwhile": elected,
        "measured_s": measure_s,
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    size = ClusterSize()
    parser.add_argument("--shards", type=int, default=size.shards)
    parser.add_argument("--brokers", type=int, default=size.brokers)
    parser.add_argument("--discovery", type=int, default=size.discovery)
    parser.add_argument("--settle-s", type=float, default=15)
    parser.add_argument("--measure-s", type=float, default=60)
    given = parser.parse_args()
    size = ClusterSize(shards=given.shards, brokers=given.brokers, discovery=given.discovery)
    print(json.dumps(asyncio.run(measure(size, given.settle_s, given.measure_s))))


if __name__ == "__main__":
    main()
