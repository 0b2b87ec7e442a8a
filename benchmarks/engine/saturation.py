"""Saturation is not death: does anybody elect another leader while every core is taken?

The default cluster on loopback with fsync. While as many processes as are asked for do nothing but
spin, topics are created in batches with several requests under way, for so long. Counted are the
elections of all groups in that time, the cluster manager's among them, and broker sessions that
ended. One JSON line last.

    python -m benchmarks.engine.saturation [--hogs 4] [--seconds 30]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nextgen.cli.calls.cluster_status import gather_status
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.kernel.errors import MetadataError

NAMESPACE = "bench/saturation"
BATCH = 500
LANES = 6
READY_TIMEOUT_MS = 120_000
SETTLED_S = 8.0
"""Until leaders are at the preferred replicas and stay there."""


@contextmanager
def hogs(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def terms(status: dict[str, Any]) -> dict[str, int]:
    """Return the highest term of each group that any replica tells of."""
    found = {"group 0": max(int(each.get("term", 0)) for each in status["managers"])}
    for shard in status["shards"]:
        found[f"shard {shard['shard_id']}"] = int(shard["term"])
    return found


async def create_for_ever(client: Client, counts: dict[str, int], gaps_ms: list[float]) -> None:
    while True:
        stem = secrets.token_hex(6)
        names = [f"persistent://{NAMESPACE}/{stem}-{number}" for number in range(BATCH)]
        began = time.monotonic()
        try:
            await client.create_topics(names)
            counts["created"] += len(names)
        except MetadataError as error:
            counts["failed_requests"] += 1
            print(f"failed: {error}", file=sys.stderr)
        gaps_ms.append((time.monotonic() - began) * 1000)


async def saturated(cluster: LocalCluster, hog_count: int, seconds: float) -> dict[str, Any]:
    endpoints = list(cluster.plan.discovery_endpoints)
    counts = {"created": 0, "failed_requests": 0}
    took_ms: list[float] = []
    async with Client(endpoints, timeout_ms=30_000) as client:
        await client.create_tenant(NAMESPACE.partition("/")[0])
        await client.create_namespace(NAMESPACE)
        await asyncio.sleep(SETTLED_S)
        before = await gather_status(endpoints)
        lanes = [
            asyncio.create_task(create_for_ever(client, counts, took_ms)) for _ in range(LANES)
        ]
        with hogs(hog_count):
            await asyncio.sleep(seconds)
        for lane in lanes:
            lane.cancel()
        await asyncio.gather(*lanes, return_exceptions=True)
        after = await gather_status(endpoints)
    elected = {
        group: terms(after)[group] - term
        for group, term in terms(before).items()
        if terms(after)[group] != term
    }
    sessions = {(one["broker_id"], one["session_id"]) for one in before["sessions"]}
    ended = sessions - {(one["broker_id"], one["session_id"]) for one in after["sessions"]}
    return {
        "elections": sum(elected.values()),
        "elections_by_group": elected,
        "broker_sessions_ended": len(ended),
        **counts,
        "creates_per_second": round(counts["created"] / seconds),
        "slowest_request_ms": round(max(took_ms, default=0.0), 1),
    }


async def measure(hog_count: int, seconds: float, data_dir: Path) -> None:
    plan = make_plan_on_free_ports(ClusterSize(), cluster_id="bench")
    load_before = os.getloadavg()[0]
    async with LocalCluster(plan, data_dir) as cluster:
        await cluster.wait_ready(timeout_ms=READY_TIMEOUT_MS)
        result = await saturated(cluster, hog_count, seconds)
    print(
        json.dumps(
            {
                "benchmark": "saturation",
                **result,
                "hogs": hog_count,
                "seconds": seconds,
                "cores": os.cpu_count(),
                "load_average_before": load_before,
                "load_average_after": os.getloadavg()[0],
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hogs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure(arguments.hogs, arguments.seconds, Path(directory)))


if __name__ == "__main__":
    main()
