"""A broker with 10,000 topics is killed: when does the last of them have another one?

The other brokers are down while the topics are looked up first, so that all are at one; then they
come back and that one is killed (SIGKILL). Nobody looks the topics up but for a few, which have to
be served at once. When each of the others was assigned anew is read in the shards' logs (leaders'
clocks; all run on this machine). The pace is promised: count ÷ rate, ± 20 %. One JSON line last.

    python -m benchmarks.brokers.lost_broker_pace [--topics 10000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from typing import Any

from nextgen.cli.calls.discovery_client import DiscoveryClient
from nextgen.cli.local.plan import ClusterSize
from nextgen.client.log.reader import read_events
from nextgen.harness.load.measure import quantile
from nextgen.harness.load.topic_range import TopicRange
from nextgen.harness.perf.bench import Bench, bench
from nextgen.harness.perf.lookup import prepare_assigned
from nextgen.kernel.errors import MetadataError
from nextgen.kernel.limits.placement import REASSIGN_UNITS_PER_SECOND
from nextgen.runtime.lifecycle.exit_code import CheckFailed
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.discovery_service_pb2 import GetClusterRequest, LookupRequest
from protos.nextgen.v1.shard_service_pb2 import UnitCountRequest

LOOKED_UP = 20
"""Topics that a client looks up right after the kill."""

LOOKUP_INTERVAL_S = 0.02
COUNT_INTERVAL_S = 0.5
TIMEOUT_SHARE = 3.0
TIMEOUT_EXTRA_S = 30.0
SETTLE_S = 3.0


async def gather_at_one(ready: Bench, topics: TopicRange) -> str:
    """Assign all topics while one broker is up; return which. The others run again behind it."""
    cluster = ready.cluster
    assert cluster is not None, "the cluster is our own"
    alone, *others = [node.node_id for node in cluster.plan.of_kind("broker")]
    for node_id in others:
        await cluster.kill(node_id)
    await wait_live(ready, {alone})
    await prepare_assigned(ready, topics)
    for node_id in others:
        await cluster.start_node(node_id)
    await cluster.wait_ready(others)
    await wait_live(ready, {alone, *others})
    await asyncio.sleep(SETTLE_S)
    return alone


async def wait_live(ready: Bench, wanted: set[str]) -> None:
    """Return once exactly these brokers are known to live."""
    async with DiscoveryClient(ready.targets) as client, timeout(TIMEOUT_EXTRA_S):
        while True:
            brokers = (await client.call("GetCluster", GetClusterRequest())).brokers
            if {one.broker_id for one in brokers if one.is_live} == wanted:
                return
            await asyncio.sleep(LOOKUP_INTERVAL_S)


async def first_answers_ms(ready: Bench, names: list[str], victim: str, at: float) -> list[float]:
    """Return for each name the milliseconds until a lookup named another broker."""
    waited_ms: list[float] = []
    left = list(names)
    async with DiscoveryClient(ready.targets) as client:
        while left:
            try:
                response = await client.call_at(
                    ready.targets[0], "Lookup", LookupRequest(topics=left)
                )
            except MetadataError:
                continue
            served = [
                name
                for name, answer in zip(left, response.answers, strict=True)
                if not answer.rejection_code and answer.broker_id != victim
            ]
            waited_ms += [(time.monotonic() - at) * 1000] * len(served)
            left = [name for name in left if name not in served]
            if left:
                await asyncio.sleep(LOOKUP_INTERVAL_S)
    return waited_ms


async def wait_none_left(ready: Bench, victim: str, timeout_s: float) -> int:
    """Return how many units are still the dead broker's: 0, unless the time is over."""
    left = 1
    ends_at = time.monotonic() + timeout_s
    async with DiscoveryClient(ready.targets) as client:
        while left and time.monotonic() < ends_at:
            await asyncio.sleep(COUNT_INTERVAL_S)
            counted = await client.call("CountUnits", UnitCountRequest())
            left = sum(one.units for one in counted.brokers if one.broker_id == victim)
    return left


async def reassigned_ms(ready: Bench, victim: str, killed_at_ms: int) -> list[int]:
    """Return when each unit was taken over, in milliseconds since the kill, ascending."""
    async with DiscoveryClient(ready.targets) as client:
        cluster = await client.call("GetCluster", GetClusterRequest())
    times: list[int] = []
    for shard in cluster.shard_map.shards:
        events = read_events(ready.targets, shard.shard_id, types=["topic_assigned"])
        async for event in events:
            is_later = event.time_ms >= killed_at_ms and event.topic_assigned.epoch > 1
            if is_later and event.topic_assigned.broker_id != victim:
                times.append(event.time_ms - killed_at_ms)
    return sorted(times)


async def measure(count: int) -> dict[str, Any]:
    predicted_s = count / REASSIGN_UNITS_PER_SECOND
    async with bench(None, ClusterSize()) as ready:
        assert ready.cluster is not None
        topics = ready.topics("lost", count)
        victim = await gather_at_one(ready, topics)
        names = topics.names()
        looked_up = names[:: max(1, count // LOOKED_UP)][:LOOKED_UP]
        killed_at, killed_at_ms = time.monotonic(), time.time_ns() // 1_000_000
        await ready.cluster.kill(victim)
        first_ms = sorted(await first_answers_ms(ready, looked_up, victim, killed_at))
        left = await wait_none_left(ready, victim, TIMEOUT_SHARE * predicted_s + TIMEOUT_EXTRA_S)
        taken_ms = await reassigned_ms(ready, victim, killed_at_ms)
    if left or len(taken_ms) < count:
        raise CheckFailed(f"{len(taken_ms)} of {count} units were taken over, {left} are left")
    last_s = taken_ms[-1] / 1000
    # From the first that was taken over: until then the death had not been noticed.
    paced_s = (taken_ms[-1] - taken_ms[0]) / 1000
    return {
        "benchmark": "lost_broker_pace",
        "last_s": round(last_s, 2),
        "paced_s": round(paced_s, 2),
        "predicted_s": round(predicted_s, 2),
        "paced_by_predicted": round(paced_s / predicted_s, 3),
        "is_within_a_fifth": abs(paced_s / predicted_s - 1) <= 0.2,
        "noticed_ms": taken_ms[0],
        "half_taken_s": round(taken_ms[len(taken_ms) // 2] / 1000, 2),
        "looked_up_p50_ms": quantile(first_ms, 0.50),
        "looked_up_max_ms": quantile(first_ms, 1.0),
        "units": len(taken_ms),
        "run": {
            "topics": count,
            "units_per_second": REASSIGN_UNITS_PER_SECOND,
            "load_average_after": os.getloadavg()[0],
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=10_000)
    print(json.dumps(asyncio.run(measure(parser.parse_args().topics))))


if __name__ == "__main__":
    main()
