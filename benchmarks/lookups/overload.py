"""What does a cluster do with five times the first lookups that it can answer?

The default cluster. First what it can do: so many names in flight, for some seconds. Then the
flood: 60,000 names in one moment and, for some seconds, five times as many a second as were served
before. What cannot be served has to be refused in so many words, retryably and soon; nobody's
memory may grow by more than 256 MB. Then four fifths of the capacity are asked for: when is all of
it served again? One JSON line last; exits with 1 if a bound is broken.

    python -m benchmarks.lookups.overload [--flood-seconds 10] [--at-once 60000] [--times 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import psutil

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize
from nextgen.harness.load.jobs.lookup_flood import recovered_s
from nextgen.harness.load.process import LoadProcess
from nextgen.harness.perf.bench import SETUP_TIMEOUT_MS, Bench, bench

NAMES_PER_MESSAGE = 100
CAPACITY_WINDOW = 4_000
"""Names in flight while the capacity is measured: enough that no shard waits for work."""

CAPACITY_SECONDS = 4.0
CAPACITY_PER_SECOND_MAX = 12_000
"""More first lookups than two cores answer; topics are made for so many."""

RECOVERY_SECONDS = 12.0
RECOVERY_SHARE = 0.8
FULL_SHARE = 0.9
"""Of what is asked for in a bucket: as much as that is all, as messages straddle buckets."""

MEMORY_INTERVAL_S = 0.25
MEMORY_GROWTH_MB_MAX = 256
RECOVERED_S_MAX = 5.0
IN_FLIGHT_MIN = 50_000


class MemoryWatch:
    """The highest resident memory of each process, taken a few times a second."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._processes = {
            node_id: psutil.Process(process_id)
            for node_id in cluster.running
            if (process_id := cluster.process_id(node_id)) is not None
        }
        self.before_mb = self._read()
        self.peak_mb = dict(self.before_mb)

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await asyncio.sleep(MEMORY_INTERVAL_S)
            for node_id, now_mb in self._read().items():
                self.peak_mb[node_id] = max(self.peak_mb[node_id], now_mb)

    def growth_mb(self) -> dict[str, float]:
        """Return by how much each process grew at most."""
        return {n: round(self.peak_mb[n] - before, 1) for n, before in self.before_mb.items()}

    def _read(self) -> dict[str, float]:
        # Discovery has worker processes: what they hold is its own.
        return {
            node_id: sum(
                one.memory_info().rss for one in (process, *process.children(recursive=True))
            )
            / 2**20
            for node_id, process in self._processes.items()
        }


class Phases:
    """Tells the generator when to begin each of its phases."""

    def __init__(self, process: LoadProcess) -> None:
        self._process = process
        self._over: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.result = asyncio.create_task(process.result(self._hear))

    async def run(self, **changed: Any) -> dict[str, Any]:
        """Begin the next phase with these values, and return what it was when it was over."""
        await self._process.tell({"go": True, **changed})
        over = asyncio.create_task(self._over.get())
        try:
            await asyncio.wait({over, self.result}, return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                self.result.result()
            return await over
        finally:
            over.cancel()

    def _hear(self, message: dict[str, Any]) -> None:
        if "event" in message:
            self._over.put_nowait(message)


async def flood(ready: Bench, arguments: argparse.Namespace) -> dict[str, Any]:
    cluster = ready.cluster
    assert cluster is not None, "the cluster is our own"
    topics = ready.topics("flood", topics_needed(arguments))
    await ready.create_range(topics, in_flight=8, timeout_ms=SETUP_TIMEOUT_MS)
    process = await LoadProcess.start(
        {
            "kind": "lookup_flood",
            "targets": list(ready.targets),
            "topics": topics.as_json(),
            "names_per_message": NAMES_PER_MESSAGE,
            "phases": [
                {"name": "capacity", "window": CAPACITY_WINDOW, "seconds": CAPACITY_SECONDS},
                {"name": "flood", "at_once": arguments.at_once, "seconds": arguments.flood_seconds},
                {"name": "recovery", "seconds": RECOVERY_SECONDS},
            ],
        }
    )
    phases = Phases(process)
    memory = MemoryWatch(cluster)
    watching = asyncio.create_task(memory.run())
    try:
        before = (await phases.run())["phase"]
        capacity = before["served"] / before["seconds"]
        await phases.run(per_second=arguments.times * capacity)
        await phases.run(per_second=RECOVERY_SHARE * capacity)
        told = await phases.result
    finally:
        watching.cancel()
        phases.result.cancel()
        await process.stop()
    return {"capacity": capacity, "growth_mb": memory.growth_mb(), **told}


def topics_needed(arguments: argparse.Namespace) -> int:
    seconds = CAPACITY_SECONDS + arguments.times * arguments.flood_seconds + RECOVERY_SECONDS
    paced = int(arguments.capacity_max * seconds)
    return paced + int(arguments.at_once) + CAPACITY_WINDOW


def report(told: Mapping[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the figures to print and the bounds that were exceeded. Pure."""
    _, flooded, after = told["phases"]
    wanted = FULL_SHARE * RECOVERY_SHARE * told["capacity"] * after["bucket_ms"] / 1000
    buckets = (after["served_by_bucket"], after["bucket_ms"], after["seconds"])
    whole_s = recovered_s(*buckets, wanted)
    growth_mb = max(told["growth_mb"].values())
    broken = [
        sentence
        for is_broken, sentence in (
            (told["in_flight_max"] <= IN_FLIGHT_MIN, "too few lookups were in flight"),
            (not flooded["refused"], "nothing was refused"),
            (flooded["failed"] > 0, "lookups failed without a retryable refusal"),
            (flooded["late"] > 0, "lookups waited in vain instead of being refused"),
            (growth_mb > MEMORY_GROWTH_MB_MAX, "memory grew too much"),
            (whole_s is None or whole_s > RECOVERED_S_MAX, "full goodput came back too late"),
        )
        if is_broken
    ]
    return {
        "benchmark": "overload",
        "capacity_per_second": round(told["capacity"]),
        "in_flight_max": told["in_flight_max"],
        "refused": flooded["refused"],
        "refused_share": round(flooded["refused"] / max(1, flooded["asked"]), 3),
        "late": flooded["late"],
        "failed": flooded["failed"],
        "served_per_second": round(flooded["served"] / flooded["seconds"]),
        "memory_growth_mb_max": growth_mb,
        "memory_growth_mb": told["growth_mb"],
        "full_goodput_s": whole_s,
        "broken": broken,
        "phases": told["phases"],
        "run": {
            "times": arguments.times,
            "flood_seconds": arguments.flood_seconds,
            "at_once": arguments.at_once,
            "names_per_message": NAMES_PER_MESSAGE,
            "load_average_after": os.getloadavg()[0],
        },
    }


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    size = ClusterSize(capacity_units=500_000)
    async with bench(None, size) as ready:
        began_at = time.monotonic()
        told = await flood(ready, arguments)
    return report(told, arguments) | {"seconds": round(time.monotonic() - began_at, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flood-seconds", type=float, default=10.0)
    parser.add_argument("--at-once", type=int, default=60_000)
    parser.add_argument("--times", type=float, default=5.0)
    parser.add_argument(
        "--capacity-max", type=int, default=CAPACITY_PER_SECOND_MAX, help="first lookups a second"
    )
    result = asyncio.run(measure(parser.parse_args()))
    print(json.dumps(result))
    if result["broken"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
