"""How fast is the log of a shard read from one replica, and what do commits pay for it?

One shard with three replicas (fsync). Its log gets `--topics` topics, `--per-create` in a command
(one: every event is a record of its own, the most there is to do for an event). Then this process
reads it through `ShardLogReader`, as an exporter would: every event is received, parsed, its
position checked, and counted; the CPU time that the replicas take for an event is told. First
alone, `--scans` times, from a follower and from the leader. Then single creates go on one after
the other, in a process of their own, for some seconds without a reader and with one that scans
again and again.

Checked in the same run: each scan sees exactly the positions that are committed. Exits with 1
otherwise. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.support.topic_load import NAMESPACE, topic_name
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.client.log.reader import ShardLogReader

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=0, shards=1)
SHARD = 1
CREATES_IN_FLIGHT = 64


async def fill(client: Client, topics: int, per_create: int) -> None:
    """Create ``topics`` topics, ``per_create`` with each command."""
    starts = iter(range(0, topics, per_create))

    async def work() -> None:
        for start in starts:
            end = min(start + per_create, topics)
            await client.create_topics([topic_name(number) for number in range(start, end)])

    await asyncio.gather(*(work() for _ in range(max(1, CREATES_IN_FLIGHT // per_create))))


async def scan(target: str, *, prefer_follower: bool) -> tuple[int, float]:
    """Read the whole log; return how many events it has, and the seconds."""
    reader = ShardLogReader([target], SHARD, prefer_follower=prefer_follower)
    began = time.perf_counter()
    events, end = 0, 1
    async for page in reader.pages():
        events += len(page.events)
        end = page.next_position
    if events != end - 1:
        sys.exit(f"{events} events were read of a log of {end - 1}")
    return events, time.perf_counter() - began


async def commits(target: str, seconds: float, round_name: str) -> dict[str, float]:
    """Create topics one by one, in a process of its own; return rate and latencies."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.support.serial_creates",
        f"--target={target}",
        f"--seconds={seconds}",
        f"--name=persistent://{NAMESPACE}/{round_name}",
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    if process.returncode:
        sys.exit("the creates failed")
    measured: dict[str, float] = json.loads(output)
    return measured


async def commits_beside(target: str, seconds: float, *, prefer_follower: bool) -> dict[str, float]:
    """Return what commits take while one reader scans again and again."""
    name = "beside-follower" if prefer_follower else "beside-leader"
    load = asyncio.create_task(commits(target, seconds, name))
    events = 0
    began = time.perf_counter()
    while not load.done():
        events += (await scan(target, prefer_follower=prefer_follower))[0]
    elapsed_s = time.perf_counter() - began
    return {**await load, "scanned_per_s": round(events / elapsed_s)}


def cpu_s_of_replicas(cluster: LocalCluster) -> float:
    nodes = [node.node_id for node in cluster.plan.of_kind("shard-node")]
    return sum(sum(psutil.Process(cluster.process_id(node)).cpu_times()[:2]) for node in nodes)


async def measure(topics: int, per_create: int, scans: int, seconds: float) -> dict[str, object]:
    plan = make_plan_on_free_ports(SIZE, cluster_id="log-scan")
    with tempfile.TemporaryDirectory() as directory:
        async with LocalCluster(plan, Path(directory)) as cluster:
            await cluster.wait_ready()
            target = plan.discovery_endpoints[0]
            async with Client([target], timeout_ms=60_000) as client:
                await client.create_tenant(NAMESPACE.partition("/")[0])
                await client.create_namespace(NAMESPACE)
                await fill(client, topics, per_create)
            rates: dict[str, list[int]] = {}
            events = 0
            cpu_before_s = cpu_s_of_replicas(cluster)
            for place in ("follower", "leader"):
                for _ in range(scans):
                    events, took_s = await scan(target, prefer_follower=place == "follower")
                    rates.setdefault(place, []).append(round(events / took_s))
            cpu_s = cpu_s_of_replicas(cluster) - cpu_before_s
            return {
                "benchmark": "log_scan",
                "events": events,
                "topics_per_create": per_create,
                "events_per_s": max(rates["follower"]),
                "events_per_s_of_each_scan": rates,
                "replica_cpu_us_per_event": round(cpu_s / (2 * scans * events) * 1e6, 2),
                "commits_alone": await commits(target, seconds, "alone"),
                "commits_beside_a_scan_of_a_follower": await commits_beside(
                    target, seconds, prefer_follower=True
                ),
                "commits_beside_a_scan_of_the_leader": await commits_beside(
                    target, seconds, prefer_follower=False
                ),
                "load_average": os.getloadavg()[0],
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=200_000)
    parser.add_argument("--per-create", type=int, default=1)
    parser.add_argument("--scans", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    print(
        json.dumps(asyncio.run(measure(given.topics, given.per_create, given.scans, given.seconds)))
    )


if __name__ == "__main__":
    main()
