"""How long after kill -9 of a broker does a lookup through discovery answer another one?

The default cluster on loopback with fsync. Each round kills the broker that has the most topics
of those looked up, and asks both discovery nodes for one of them, one question after the other,
until the answer names a broker that lives; then for all of them at once. The session's end is
taken from the event log. One JSON line last, times in ms.

    python -m benchmarks.broker_failover [--kills 20] [--topics 100]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, ClusterSize, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.client.log.reader import read_events
from nextgen.client.model import TopicLocation
from nextgen.harness.load.measure import Latencies
from nextgen.tasks.timeouts import timeout

NAMESPACE = "bench/failover"
FAILOVER_TIMEOUT_S = 15
QUESTION_PAUSE_S = 0.002
SETTLE_S = 1.5
"""Heartbeats and leases of the broker that came back, before the next one goes."""


async def first_answer_elsewhere(endpoint: str, topic: str, victim: str, began: float) -> float:
    """Return the milliseconds until this discovery node names another broker for ``topic``."""
    async with Client([endpoint], timeout_ms=5_000) as client:
        while True:
            (found,) = await client.lookup([topic])
            if found.is_found and found.broker_id != victim:
                return (time.monotonic() - began) * 1000
            await asyncio.sleep(QUESTION_PAUSE_S)


async def all_elsewhere(client: Client, topics: Sequence[str], victim: str) -> list[TopicLocation]:
    while True:
        found = await client.lookup(topics)
        if all(one.is_found and one.broker_id != victim for one in found):
            return found
        await asyncio.sleep(QUESTION_PAUSE_S)


async def kill_once(
    cluster: LocalCluster, client: Client, topics: Sequence[str]
) -> dict[str, str | float]:
    before = await client.lookup(topics)
    (victim, owned), *_ = Counter(one.broker_id for one in before).most_common()
    topic = next(one.topic for one in before if one.broker_id == victim)
    session_id = next(one.session_id for one in before if one.broker_id == victim)
    killed_at_ms, began = time.time() * 1000, time.monotonic()
    cluster.strike(victim)
    async with timeout(FAILOVER_TIMEOUT_S):
        answered_ms = await asyncio.gather(
            *(
                first_answer_elsewhere(endpoint, topic, victim, began)
                for endpoint in cluster.plan.discovery_endpoints
            )
        )
        after = await all_elsewhere(client, topics, victim)
        all_ms = (time.monotonic() - began) * 1000
    for old, new in zip(before, after, strict=True):
        moved = old.broker_id == victim
        assert new.epoch == old.epoch + moved, f"{new.topic}: epoch {old.epoch} → {new.epoch}"
    ended_ms = await session_end_ms(cluster.plan, session_id) - killed_at_ms
    await cluster.kill(victim)
    await cluster.start_node(victim)
    await cluster.wait_ready([victim])
    return {
        "killed": victim,
        "topics": owned,
        "session_ended_ms": round(ended_ms, 1),
        "first_ms": round(min(answered_ms), 1),
        "answered_ms": round(max(answered_ms), 1),
        "all_ms": round(all_ms, 1),
    }


async def session_end_ms(plan: ClusterPlan, session_id: str) -> float:
    """Return when the end of the session was decided, in Unix milliseconds."""
    for shard_id in range(1, plan.size.shards + 1):
        ends = read_events(plan.discovery_endpoints, shard_id, types=["broker_session_ended"])
        async for event in ends:
            if event.broker_session_ended.session_id == session_id:
                return float(event.time_ms)
    raise AssertionError(f"session {session_id} has not ended, yet its topics moved")


async def measure(kills: int, topic_count: int, data_dir: Path) -> None:
    answered, complete = Latencies(), Latencies()
    ended: list[float] = []
    plan = make_plan_on_free_ports(ClusterSize(), cluster_id="bench")
    async with LocalCluster(plan, data_dir) as cluster:
        await cluster.wait_ready()
        async with Client(list(plan.discovery_endpoints), timeout_ms=5_000) as client:
            await client.create_tenant(NAMESPACE.partition("/")[0])
            await client.create_namespace(NAMESPACE)
            topics = [f"persistent://{NAMESPACE}/t-{number}" for number in range(topic_count)]
            await client.create_topics(topics)
            for _ in range(kills):
                await client.lookup(topics)
                await asyncio.sleep(SETTLE_S)
                one = await kill_once(cluster, client, topics)
                answered.add(float(one["answered_ms"]) / 1000)
                complete.add(float(one["all_ms"]) / 1000)
                ended.append(float(one["session_ended_ms"]))
                print(json.dumps(one), flush=True)
    print(
        json.dumps(
            {
                "benchmark": "broker_failover",
                "kills": kills,
                "topics": topic_count,
                **answered.summary(),
                "all_topics": complete.summary(),
                "session_ended_ms_max": max(ended),
                "load_average": os.getloadavg()[0],
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--topics", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure(arguments.kills, arguments.topics, Path(directory)))


if __name__ == "__main__":
    main()
