"""A shard of a million topics is split under load: does a request fail, and how long may one wait?

    python -m benchmarks.cluster.shard_split [--topics 1000000] [--dir DIR] [--check]

One shard of three replicas in three processes (default settings, fsync) gets the topics by the
public bulk path. Then it is split into itself and a new shard, as ``nextgen shards split 1`` does,
while clients create, look up and set properties of topics of all of its slots, each operation timed
from its first attempt to its answer. The same clients worked for ``--quiet-seconds`` before.

- ``split_s``: from the plan to its end, rows removed at the source included; ``moved``: the rows
- ``frozen_ms``: from the target's question for the release to its committed adoption, each move
- ``waits_ms_*``: of the operations that were under way in the second around an adoption
- ``during_ms_*``, ``before_ms_*``: of all operations while it was split, and before
- ``failed``; ``lost``: of 500 of the loaded topics and all that were created meanwhile

Exits with 1 with ``--check`` if a promise is broken: 250 ms p99 while it is split, nothing failed,
nothing lost. One JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.support.scale.names import name_of
from benchmarks.support.slot_load import SlotLoad, adoptions, quantile
from nextgen.cli.shards.slot_plans import follow, plan_slots
from nextgen.client import Client
from protos.nextgen.v1.cluster_service_pb2 import PlanSlotsRequest, SlotPlan
from tests.support.processes.local_cluster import ClusterSize, LocalCluster, running_cluster

SPLIT_MS_MAX = 250.0
SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=2, shards=1)
CHUNK = 250_000
KNOWN = 20_000
"""Topics that the clients use, spread over all that were loaded."""

SIZES_KNOWN_S = 25.0
AFTER_S = 2.0
PLAN_TIMEOUT_MS = 900_000
TIMEOUT_MS = 30_000


async def generated(cluster: LocalCluster, what: str, *arguments: str) -> None:
    """Run a step of the bulk load in a process of its own.

    Raises:
        SystemExit: It failed; its reason is on the standard error.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.support.scale.load", what),
        *("--target", cluster.plan.discovery_endpoints[0], *arguments),
        stdout=asyncio.subprocess.DEVNULL,
    )
    if await process.wait():
        raise SystemExit(f"the bulk load failed: {what}")


async def load_topics(cluster: LocalCluster, directory: Path, topics: int) -> float:
    """Load the topics, and return the seconds that it took."""
    began = time.perf_counter()
    for first in range(0, topics, CHUNK):
        folder = str(directory / f"load-{first}")
        count = min(CHUNK, topics - first)
        await generated(
            cluster, "make", "--folder", folder, "--first", str(first), "--count", str(count)
        )
        parents = ("--parents",) if first == 0 else ()
        known = ("--cluster", str(cluster.data_dir))
        await generated(cluster, "load", "--folder", folder, *known, *parents)
        print(json.dumps({"loaded": first + count}), file=sys.stderr, flush=True)
    return time.perf_counter() - began


async def split(cluster: LocalCluster) -> SlotPlan:
    """Split the first shard into itself and a new one; return the plan when it has ended."""
    endpoints = list(cluster.plan.discovery_endpoints)
    plan = await plan_slots(endpoints, PlanSlotsRequest(kind="split", shard_id=1))
    return await follow(endpoints, plan.plan.plan_id, PLAN_TIMEOUT_MS, lambda _plan: None)


def fresh_names(topics: int) -> Iterator[str]:
    return (name_of(number) for number in itertools.count(topics))


async def measure(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    async with running_cluster(directory, SIZE) as cluster:
        load_s = await load_topics(cluster, directory, options.topics)
        await asyncio.sleep(SIZES_KNOWN_S)
        names = [name_of(number) for number in range(options.topics)]
        known = names[:: max(1, len(names) // KNOWN)]
        async with Client(list(cluster.plan.discovery_endpoints), timeout_ms=TIMEOUT_MS) as client:
            load = SlotLoad(client, known, fresh_names(options.topics))
            working = asyncio.create_task(load.run())
            await asyncio.sleep(options.quiet_seconds)
            before = load.all_ms()
            began = time.perf_counter()
            ended = await split(cluster)
            split_s = time.perf_counter() - began
            during = load.all_ms()[len(before) :]
            await asyncio.sleep(AFTER_S)
            load.stop()
            await working
            lost = await load.lost(names)
        adopted = adoptions(cluster)
    waits, frozen = load.waits_ms(adopted), [each for _, each, _ in adopted]
    return {
        "question": "shard_split",
        "topics": options.topics,
        "load_s": round(load_s, 1),
        "split_s": round(split_s, 1),
        "slots": ended.slots,
        "moves": len(adopted),
        "moved": sum(rows for _, _, rows in adopted),
        "frozen_ms_p50": quantile(frozen, 0.5),
        "frozen_ms_max": quantile(frozen, 1.0),
        "waits": len(waits),
        "waits_ms_p50": quantile(waits, 0.5),
        "waits_ms_p99": quantile(waits, 0.99),
        "waits_ms_max": quantile(waits, 1.0),
        "before": len(before),
        "before_ms_p50": quantile(before, 0.5),
        "before_ms_p99": quantile(before, 0.99),
        "during": len(during),
        "during_ms_p50": quantile(during, 0.5),
        "during_ms_p99": quantile(during, 0.99),
        "during_ms_max": quantile(during, 1.0),
        "failed": len(load.failures),
        "first_failures": load.failures[:3],
        "created": len(load.created),
        "lost": lost,
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--quiet-seconds", type=float, default=15.0)
    parser.add_argument("--dir", type=Path, help="an empty folder for the cluster, which is kept")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = options.dir or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="nextgen-split-"))
        )
        directory.mkdir(parents=True, exist_ok=True)
        measured = asyncio.run(measure(directory.absolute(), options))
    print(json.dumps(measured))
    is_kept = (
        measured["during_ms_p99"] <= SPLIT_MS_MAX
        and not measured["failed"]
        and not measured["lost"]
    )
    sys.exit(bool(options.check and not is_kept))


if __name__ == "__main__":
    main()
