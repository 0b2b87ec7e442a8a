"""How do creates here compare with puts in etcd, on the same machine, one after the other?

Needs etcd in PATH. Three members of etcd with its defaults, then a default cluster of ours: both
fsync on a majority before they answer, and the same client library (grpc, in this process) asks
both. Names are the keys; etcd's values have as many bytes as one of our topics' rows has beside
its name. One caller, then many callers with one key each, then many callers with a batch each.

What is done is not the same. A put replaces whatever is there, in one Raft group, at the leader
that the client is connected to. A create goes through a discovery node to one of four Raft groups,
whose leader checks that the namespace exists and the name is free, mints an id, and remembers the
outcome under the command's id so that a retry gets the same answer; a batch is spread over the
groups, each name accepted or refused by itself, where etcd's transaction is all or nothing and
holds 128 at most.

Checked in the same run: each system says itself that it has as many keys as were acknowledged.
Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.support.etcd_cluster import EtcdClient, EtcdCluster
from benchmarks.support.shard_nodes import ShardNodes
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.harness.load.measure import Latencies

NAMESPACE = "peer/keys"
PREFIX = f"persistent://{NAMESPACE}/"
VALUE = b"." * 40
WARM_UP = 200
Write = Callable[[list[str]], Awaitable[None]]
Result = dict[str, Any]


async def serial(write: Write, stem: str, count: int) -> Result:
    for number in range(WARM_UP):
        await write([f"{PREFIX}{stem}-warm-{number:06d}"])
    latencies = Latencies()
    for number in range(count):
        began = time.perf_counter()
        await write([f"{PREFIX}{stem}-{number:06d}"])
        latencies.add(time.perf_counter() - began)
    return {f"serial_{name}_ms": value for name, value in latencies.summary().items()}


async def concurrent(write: Write, stem: str, *, callers: int, batch: int, count: int) -> Result:
    """Return keys a second and how long a request took, ``count`` keys in all."""
    latencies = Latencies()
    starts = iter(range(0, count, batch))

    async def call() -> None:
        for start in starts:
            began = time.perf_counter()
            await write([f"{PREFIX}{stem}-{n:08d}" for n in range(start, start + batch)])
            latencies.add(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(callers)))
    seconds = time.perf_counter() - began
    return {
        "callers": callers,
        "batch": batch,
        "keys_per_s": round(count / seconds),
        **{f"{name}_ms": value for name, value in latencies.summary().items()},
    }


async def all_of(write: Write, options: argparse.Namespace, batch: int) -> tuple[Result, int]:
    """Return the measurements, and how many keys there must be."""
    single, batched = options.single, options.batched // batch * batch
    result = await serial(write, "serial", options.serial)
    result["single"] = await concurrent(
        write, "single", callers=options.callers, batch=1, count=single
    )
    result["batched"] = await concurrent(
        write, "batched", callers=options.batches, batch=batch, count=batched
    )
    return result, WARM_UP + options.serial + single + batched


async def measure_etcd(options: argparse.Namespace) -> Result:
    async with EtcdCluster(options.directory) as cluster:
        client: EtcdClient = await cluster.leader()
        try:

            async def write(names: list[str]) -> None:
                if len(names) == 1:
                    await client.put(names[0].encode(), VALUE)
                else:
                    await client.put_all([name.encode() for name in names], VALUE)

            result, expected = await all_of(write, options, batch=100)
            counted = await client.count(PREFIX.encode())
            if counted != expected:
                raise SystemExit(f"etcd has {counted} keys, {expected} were acknowledged")
            return {"version": await client.version(), **result, "keys_counted": counted}
        finally:
            await client.close()


async def measure_ours(options: argparse.Namespace) -> Result:
    plan = make_plan_on_free_ports(ClusterSize(), cluster_id="beside-etcd")
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        async with LocalCluster(plan, Path(directory)) as cluster:
            await cluster.wait_ready()
            client = Client(list(plan.discovery_endpoints), timeout_ms=60_000)
            nodes = ShardNodes([node.grpc for node in plan.of_kind("shard-node")])
            try:
                return await _measure_cluster(client, nodes, options)
            finally:
                await client.close()
                await nodes.__aexit__(None, None, None)


async def _measure_cluster(
    client: Client, nodes: ShardNodes, options: argparse.Namespace
) -> Result:
    await client.create_tenant(NAMESPACE.partition("/")[0])
    await client.create_namespace(NAMESPACE)
    # The first topics open the namespace's gate in every shard: an event each that is no topic.
    await client.create_topics([f"{PREFIX}first-{number}" for number in range(100)])
    before = await nodes.committed_events()

    async def write(names: list[str]) -> None:
        for outcome in await client.create_topics(names):
            if not outcome.is_created:
                raise SystemExit(f"{outcome.name}: {outcome.message}")

    result, expected = await all_of(write, options, batch=1_000)
    counted = await nodes.committed_events() - before
    if counted != expected:
        raise SystemExit(f"the shards count {counted} events, {expected} were acknowledged")
    return {**result, "events_counted": counted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serial", type=int, default=2_000)
    parser.add_argument("--single", type=int, default=20_000)
    parser.add_argument("--callers", type=int, default=256)
    parser.add_argument("--batched", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=8, help="batches in flight")
    parser.add_argument("--directory", type=Path, default=None, help="where the disk is")
    options = parser.parse_args()
    etcd = asyncio.run(measure_etcd(options))
    print(json.dumps({"etcd": etcd}), flush=True)
    ours = asyncio.run(measure_ours(options))
    print(json.dumps({"ours": ours}), flush=True)
    report = {"benchmark": "etcd_beside", "etcd": etcd, "ours": ours}
    print(json.dumps({**report, "load_average": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
