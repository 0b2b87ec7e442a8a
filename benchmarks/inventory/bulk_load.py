"""How long do ten million topics take from an inventory of names into 4 shards of 3 replicas?

    python -m benchmarks.inventory.bulk_load [--topics 10000000] [--directory DIR]

End to end: an inventory is written, ``nextgen pipeline bulk`` makes load files of it, the loader
brings them into a real cluster (default settings, fsync) on its public ports. The first ``--small``
topics are loaded alone before, and lookups are measured then and at the end: warm ones, of the same
topics, by the same connection, half of them while nothing else happens. During the load single
creates are timed, as an ordinary client's would be.

Checked in the same run: every row is accounted for, the shards' logs grew by exactly what was
created, all views got to the end of their logs, and topics drawn by chance are there. Exits with 1
otherwise, or with ``--check`` if a promise is broken: 15 minutes, lookups within a fifth.

- ``prepare_s``: the Spark job; ``load_s``: the loader, until every replica's view is complete
- ``lookups_per_s_small``, ``lookups_per_s_all``: and their ``ratio``
- ``create_ms_p50``, ``create_ms_p99``, ``create_ms_max``: single creates during the load
- ``view_bytes_per_topic``: of one replica of all shards

Prints its steps and one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow
import pyarrow.parquet

from benchmarks.support.shard_nodes import ShardNodes
from nextgen.bulk.loader import load_folder
from nextgen.bulk.progress import Loaded
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, ClusterSize, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.kernel.errors import MetadataError

LOAD_S_MAX = 900.0
LOOKUP_RATIO_MIN = 0.8

NAMESPACES = 1_000
CHUNK = 250_000
"""Names written at once."""

LOOKED_UP = 2_000
"""Topics that are looked up: few enough for any broker to have room for."""
LOOKUPS_PER_CALL = 500
LOOKUP_CALLERS = 4
LOOKUP_S = 10.0
DRAWN = 2_000
"""Topics drawn by chance that must be there at the end."""
PROBE_PAUSE_S = 0.02
CATCH_UP_S = 600.0


def name_of(number: int) -> str:
    """Return the name that the inventory has for a number."""
    local = number * 7919 % 10**11
    return f"persistent://bulk-{number % 10}/n-{number % NAMESPACES:03d}/customer-{local:012d}"


def write_inventory(path: Path, first: int, topics: int) -> None:
    """Write the names of a range of numbers as Parquet."""
    schema = pyarrow.schema({"name": pyarrow.string()})
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(first, first + topics, CHUNK):
            numbers = range(start, min(start + CHUNK, first + topics))
            writer.write_table(pyarrow.table({"name": [name_of(number) for number in numbers]}))


def prepare(folder: Path, target: str, first: int, topics: int, heap: str) -> tuple[Path, Any]:
    """Write the inventory of a range of numbers and make load files; return them and the time."""
    inventory, out = folder / f"inventory-{first}.parquet", folder / f"load-{first}"
    write_inventory(inventory, first, topics)
    began = time.perf_counter()
    made = subprocess.run(
        [
            *(sys.executable, "-m", "pipelines", "bulk", str(inventory), "--out", str(out)),
            *("--target", target, "--files-only", "--heap", heap, "--json"),
        ],
        check=True,
        stdout=subprocess.PIPE,
    )
    summary = json.loads(made.stdout.splitlines()[-1])
    assert summary["rows_accounted"]["topics"] == topics, "names were lost"
    return out, time.perf_counter() - began


async def lookups_per_s(target: str, topics: int) -> float:
    """Return warm lookups a second of topics of the first ``topics``, the best of three runs."""
    chance = random.Random(1)
    names = [name_of(chance.randrange(topics)) for _ in range(LOOKED_UP)]
    parts = [
        names[start : start + LOOKUPS_PER_CALL] for start in range(0, LOOKED_UP, LOOKUPS_PER_CALL)
    ]
    async with Client([target], timeout_ms=60_000) as client:
        for part in parts:
            for location in await client.lookup(part):
                assert location.broker_id, f"{location.topic} is nowhere: {location.message}"

        async def ask(until: float) -> int:
            count = 0
            while time.perf_counter() < until:
                count += len(await client.lookup(parts[count // LOOKUPS_PER_CALL % len(parts)]))
            return count

        rates = []
        for _ in range(3):
            began = time.perf_counter()
            counts = await asyncio.gather(
                *(ask(began + LOOKUP_S / 3) for _ in range(LOOKUP_CALLERS))
            )
            rates.append(sum(counts) / (time.perf_counter() - began))
    return max(rates)


async def probe(target: str, latencies_ms: list[float], failures: list[str]) -> None:
    """Create one topic after the other until cancelled, as a client may during the load."""
    async with Client([target], timeout_ms=30_000) as client:
        while True:
            began = time.perf_counter()
            try:
                await client.create_topics([f"persistent://probe/p/{len(latencies_ms):09d}"])
            except MetadataError as error:
                failures.append(str(error))
            latencies_ms.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(PROBE_PAUSE_S)


async def wait_views(nodes: ShardNodes) -> None:
    deadline = time.perf_counter() + CATCH_UP_S
    while await nodes.views_behind():
        if time.perf_counter() > deadline:
            raise SystemExit("the views did not get to the end of their logs")
        await asyncio.sleep(0.1)


async def missing(target: str, topics: int) -> int:
    """Return how many of some topics drawn by chance are not there."""
    chance = random.Random(2)
    lost = 0
    async with Client([target], timeout_ms=60_000) as client:
        for _ in range(DRAWN):
            lost += await client.get_topic(name_of(chance.randrange(topics))) is None
    return lost


def note(**values: object) -> None:
    print(json.dumps(values), flush=True)


async def load(folder: Path, target: str, nodes: ShardNodes) -> tuple[Loaded, float]:
    """Return what was loaded, and the seconds until every view has it."""
    began = time.perf_counter()
    loaded = await load_folder(folder, [target], parents=True)
    await wait_views(nodes)
    assert loaded.is_whole, "a row was not answered for"
    return loaded, time.perf_counter() - began


async def run(options: argparse.Namespace, plan: ClusterPlan, cluster: LocalCluster) -> Any:
    target = plan.discovery_endpoints[0]
    folder = cluster.data_dir.parent
    nodes = ShardNodes([node.grpc for node in plan.of_kind("shard-node")])
    small, _ = await asyncio.to_thread(prepare, folder, target, 0, options.small, options.heap)
    await load(small, target, nodes)
    rate_small = await lookups_per_s(target, options.small)
    note(lookups_per_s_small=round(rate_small))
    rest, prepare_s = await asyncio.to_thread(
        prepare, folder, target, options.small, options.topics - options.small, options.heap
    )
    note(prepare_s=round(prepare_s, 1))
    async with Client([target]) as client:
        await client.create_tenant("probe")
        await client.create_namespace("probe/p")
    processes = [psutil.Process(cluster.process_id(node)) for node in cluster.running]
    cpu_before = sum(sum(process.cpu_times()[:2]) for process in processes)
    before = await nodes.committed_events()
    latencies_ms: list[float] = []
    failures: list[str] = []
    probing = asyncio.create_task(probe(target, latencies_ms, failures))
    loaded, load_s = await load(rest, target, nodes)
    probing.cancel()
    await asyncio.gather(probing, return_exceptions=True)
    cpu_s = sum(sum(process.cpu_times()[:2]) for process in processes) - cpu_before
    await wait_views(nodes)
    events = await nodes.committed_events() - before
    note(load_s=round(load_s, 1), created=loaded.total("created"))
    rate_all = await lookups_per_s(target, options.small)
    lost = await missing(target, options.topics)
    await nodes.__aexit__(None, None, None)
    # A probe that was cut off by the end may have created its topic; gates are events too.
    extra = events - loaded.total("created")
    latencies_ms.sort()
    return {
        "topics": options.topics,
        "prepare_s": round(prepare_s, 1),
        "load_s": round(load_s, 1),
        "created": loaded.total("created"),
        "created_per_s": round(loaded.total("created") / load_s),
        "refused": loaded.total("refused"),
        "other_events": extra,
        "lost": lost,
        "lookups_per_s_small": round(rate_small),
        "lookups_per_s_all": round(rate_all),
        "ratio": round(rate_all / rate_small, 3),
        "creates": len(latencies_ms),
        "creates_failed": len(failures),
        "create_ms_p50": round(latencies_ms[len(latencies_ms) // 2], 1),
        "create_ms_p99": round(latencies_ms[int(len(latencies_ms) * 0.99)], 1),
        "create_ms_max": round(latencies_ms[-1], 1),
        "server_cpu_us_per_topic": round(cpu_s / loaded.total("created") * 1e6, 1),
        "view_bytes_per_topic": round(view_bytes(cluster, plan) / options.topics),
        "is_sound": lost == 0 and extra >= 0 and loaded.total("refused") == 0,
        "is_kept": load_s <= LOAD_S_MAX and rate_all >= LOOKUP_RATIO_MIN * rate_small,
    }


def view_bytes(cluster: LocalCluster, plan: ClusterPlan) -> int:
    """Return what the views of one replica of all shards take, the largest of all nodes."""
    return max(
        sum(
            path.stat().st_size
            for path in (cluster.data_dir / node.node_id).glob("group-*/view/view.*")
        )
        for node in plan.of_kind("shard-node")
    )


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = make_plan_on_free_ports(ClusterSize(shards=options.shards), cluster_id="bulk")
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        async with LocalCluster(plan, Path(directory) / "cluster") as cluster:
            await cluster.wait_ready()
            result = await run(options, plan, cluster)
    return {
        "benchmark": "bulk_load",
        "shards": options.shards,
        **result,
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000_000)
    parser.add_argument("--small", type=int, default=100_000, help="topics loaded before")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--heap", default="2g", help="of Spark's driver")
    parser.add_argument("--directory", type=Path, default=None, help="where the disk is")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a promise is broken")
    options = parser.parse_args()
    result = asyncio.run(measure(options))
    print(json.dumps(result))
    sys.exit(0 if result["is_sound"] and (result["is_kept"] or not options.check) else 1)


if __name__ == "__main__":
    main()
