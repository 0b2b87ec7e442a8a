"""What do 16 idle shards cost, with 3 replicas each in 3 processes?

CPU seconds of the three shard nodes over a minute without any request, in percent of one core and
in total; the other processes of the cluster (managers, discovery, a broker) are told apart, since
every shard also keeps streams to them. Checked in the same run: all shards have a leader at the
beginning and at the end, no election took place in between, and a topic can be created then.
Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import psutil

from benchmarks.support.shard_nodes import ShardNodes
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, ClusterSize, make_plan_on_free_ports
from nextgen.client import Client

NAMESPACE = "idle/shards"


def cpu_s(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


async def elections(nodes: ShardNodes, shards: int) -> int:
    """Return how many elections were won so far.

    Raises:
        SystemExit: A shard has no leader.
    """
    replicas = [replica for status in await nodes.statuses() for replica in status.replicas]
    led = {replica.group_id for replica in replicas if replica.role == "leader"}
    if len(led) != shards or len(replicas) != 3 * shards:
        raise SystemExit(f"{len(led)} of {shards} shards are led, by {len(replicas)} replicas")
    return sum(replica.elections for replica in replicas)


async def create_one(plan: ClusterPlan) -> None:
    async with Client(list(plan.discovery_endpoints)) as client:
        await client.create_tenant(NAMESPACE.partition("/")[0])
        await client.create_namespace(NAMESPACE)
        (outcome,) = await client.create_topics([f"persistent://{NAMESPACE}/one"])
        if not outcome.is_created:
            raise SystemExit(f"no topic can be created: {outcome.message}")


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    size = ClusterSize(brokers=1, discovery=1, shards=options.shards)
    plan = make_plan_on_free_ports(size, cluster_id="idle")
    with tempfile.TemporaryDirectory() as directory:
        async with LocalCluster(plan, Path(directory)) as cluster:
            await cluster.wait_ready()
            async with ShardNodes([node.grpc for node in plan.of_kind("shard-node")]) as nodes:
                await asyncio.sleep(options.settle_s)
                elected = await elections(nodes, options.shards)
                processes = {n: psutil.Process(cluster.process_id(n)) for n in cluster.running}
                before = {node: cpu_s(process) for node, process in processes.items()}
                await asyncio.sleep(options.measure_s)
                used = {node: cpu_s(process) - before[node] for node, process in processes.items()}
                rss_mb = {n: round(p.memory_info().rss / 1e6, 1) for n, p in processes.items()}
                elected = await elections(nodes, options.shards) - elected
            await create_one(plan)
    percent = {node: round(used[node] / options.measure_s * 100, 2) for node in used}
    of_shards = [node for node in percent if node.startswith("shard-node")]
    return {
        "benchmark": "engine_idle",
        "shards": options.shards,
        "shard_nodes_percent_of_one_core": round(sum(percent[node] for node in of_shards), 2),
        "cluster_percent_of_one_core": round(sum(percent.values()), 2),
        "percent_by_process": percent,
        "rss_mb_by_process": rss_mb,
        "elections_meanwhile": elected,
        "measured_s": options.measure_s,
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--settle-s", type=float, default=15)
    parser.add_argument("--measure-s", type=float, default=60)
    print(json.dumps(asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
