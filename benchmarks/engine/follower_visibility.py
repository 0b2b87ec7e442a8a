"""How soon after its commit is an event seen by a reader that follows a follower?

One shard with three replicas (fsync). This process creates topics on the public port and follows
the shard's log at a replica that does not lead. Measured for each topic: from its acknowledgement
to its event, both as this process receives them; an event that comes before the acknowledgement
counts as 0, and how many did is told. First one create at a time with pauses (nothing else brings
the news to the follower), then `--in-flight` at a time.

Checked in the same run: the reader sees each event once. Exits with 1 otherwise. Prints one JSON
line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.client.log.reader import ShardLogReader
from nextgen.harness.load.measure import Latencies
from nextgen.tasks.groups import TaskGroup
from nextgen.tasks.timeouts import timeout

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=0, shards=1)
SHARD = 1
NAMESPACE = "bench/visible"
SEEN_TIMEOUT_S = 20


class Seen:
    """When the reader received which topic."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}
        self.times: Counter[str] = Counter()
        self.grew = asyncio.Event()

    async def follow(self, target: str) -> None:
        reader = ShardLogReader([target], SHARD, prefer_follower=True, types=["topic_created"])
        async for page in reader.pages(follow=True):
            now = time.perf_counter()
            for event in page.events:
                self.at[event.topic_created.name] = now
                self.times[event.topic_created.name] += 1
            self.grew.set()

    async def wait_for(self, names: set[str]) -> None:
        async with timeout(SEEN_TIMEOUT_S):
            while not names <= self.at.keys():
                self.grew.clear()
                await self.grew.wait()


async def create(
    client: Client, name: str, count: int, in_flight: int, pause_s: float
) -> dict[str, float]:
    """Create topics; return when each was acknowledged."""
    acknowledged: dict[str, float] = {}
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            topic = f"persistent://{NAMESPACE}/{name}-{number}"
            await client.create_topics([topic])
            acknowledged[topic] = time.perf_counter()
            await asyncio.sleep(pause_s)

    await asyncio.gather(*(work() for _ in range(in_flight)))
    return acknowledged


def summary(seen: Seen, acknowledged: dict[str, float]) -> dict[str, float]:
    """Return the delays in milliseconds."""
    twice = [topic for topic in acknowledged if seen.times[topic] != 1]
    if twice:
        sys.exit(f"{twice[0]} was seen {seen.times[twice[0]]} times")
    delays = Latencies()
    for topic, at in acknowledged.items():
        delays.add(max(0.0, seen.at[topic] - at))
    before = sum(seen.at[topic] <= at for topic, at in acknowledged.items())
    return {**delays.summary(), "events": len(acknowledged), "before_the_answer": before}


async def measure(count: int, in_flight: int, pause_s: float) -> dict[str, object]:
    plan = make_plan_on_free_ports(SIZE, cluster_id="visibility")
    with tempfile.TemporaryDirectory() as directory:
        async with LocalCluster(plan, Path(directory)) as cluster:
            await cluster.wait_ready()
            target = plan.discovery_endpoints[0]
            seen = Seen()
            async with Client([target]) as client, TaskGroup() as tasks:
                await client.create_tenant(NAMESPACE.partition("/")[0])
                await client.create_namespace(NAMESPACE)
                following = tasks.create_task(seen.follow(target))
                warm = await create(client, "warm", 20, 1, pause_s)
                await seen.wait_for(set(warm))
                paced = await create(client, "paced", count, 1, pause_s)
                await seen.wait_for(set(paced))
                busy = await create(client, "busy", count, in_flight, 0.0)
                await seen.wait_for(set(busy))
                following.cancel()
            return {
                "benchmark": "follower_visibility",
                "one_at_a_time_ms": summary(seen, paced),
                "many_at_a_time_ms": summary(seen, busy),
                "in_flight": in_flight,
                "load_average": os.getloadavg()[0],
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--pause-s", type=float, default=0.02)
    given = parser.parse_args()
    print(json.dumps(asyncio.run(measure(given.count, given.in_flight, given.pause_s))))


if __name__ == "__main__":
    main()
