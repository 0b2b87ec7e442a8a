"""Do the shards take 10,000 topics a second for a minute, with every view at their heels?

The default cluster (4 shards, 3 replicas each, fsync). This process is the generator, on the
public ports through the client library: an open loop, one batch every 50 ms whatever became of the
one before. A batch's latency is from the time it was due until its acknowledgement, so a stall is
counted in full. Meanwhile every replica is asked ten times a second how old the oldest event is
that it knows to be committed and has not folded.

Checked in the same run: the shards' logs grew by exactly what was acknowledged, all views got to
the end of their logs, and a listing of all namespaces has exactly these names. Exits with 1
otherwise.

``--names random`` spreads the names over the whole key space, which makes each a page of its own
to write; a ``series`` is what numbered topics are. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.support.shard_nodes import Lags, ShardNodes
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, ClusterSize, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.harness.load.measure import Latencies
from nextgen.tasks.groups import TaskGroup

TENANT = "sustained"
NAMESPACES = 16
TICK_S = 0.05
CATCH_UP_S = 30.0
TIMEOUT_MS = 60_000


def namespace(number: int) -> str:
    return f"{TENANT}/region-{number:02d}"


def series(number: int) -> str:
    return f"persistent://{namespace(number % NAMESPACES)}/customer-{number:09d}"


def random_name(number: int) -> str:
    digest = hashlib.blake2b(number.to_bytes(8), digest_size=8).hexdigest()
    return f"persistent://{namespace(number % NAMESPACES)}/customer-{digest}"


class Generator:
    """Creates topics at a fixed rate through the client library."""

    def __init__(self, clients: list[Client], name_of: Callable[[int], str]) -> None:
        self._clients = clients
        self._name_of = name_of
        self.latencies = Latencies()
        self.created: set[str] = set()
        self.refused: list[str] = []

    async def run(self, rate: int, seconds: float) -> float:
        """Return how many seconds passed until the last acknowledgement."""
        batch = round(rate * TICK_S)
        began = time.perf_counter()
        async with TaskGroup() as tasks:
            for tick in range(round(seconds / TICK_S)):
                due = began + tick * TICK_S
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                names = [self._name_of(n) for n in range(tick * batch, (tick + 1) * batch)]
                client = self._clients[tick % len(self._clients)]
                tasks.create_task(self._create(client, names, due))
        return time.perf_counter() - began

    async def _create(self, client: Client, names: list[str], due: float) -> None:
        outcomes = await client.create_topics(names)
        self.latencies.add(time.perf_counter() - due)
        for outcome in outcomes:
            if outcome.is_created:
                self.created.add(outcome.name)
            else:
                self.refused.append(outcome.message)


async def prepare(client: Client) -> None:
    await client.create_tenant(TENANT)
    for number in range(NAMESPACES):
        await client.create_namespace(namespace(number))
    # The first topic of a namespace opens a gate in each shard that it has topics in.
    await client.create_topics(
        [f"persistent://{namespace(n % NAMESPACES)}/first-{n:04d}" for n in range(NAMESPACES * 32)]
    )


async def wait_views(nodes: ShardNodes) -> float:
    began = time.perf_counter()
    while await nodes.views_behind():
        if time.perf_counter() - began > CATCH_UP_S:
            raise SystemExit("the views did not get to the end of their logs")
        await asyncio.sleep(0.05)
    return time.perf_counter() - began


async def missing(client: Client, created: set[str]) -> tuple[int, int]:
    """Return how many of ``created`` are not listed, and how many others are."""
    missed, others = set(created), 0
    for number in range(NAMESPACES):
        async for topic in client.list_topics(namespace(number)):
            if topic.name in missed:
                missed.discard(topic.name)
            elif "/first-" not in topic.name:
                others += 1
    return len(missed), others


async def load(plan: ClusterPlan, cluster: LocalCluster, options: argparse.Namespace) -> Any:
    clients = [Client([at], timeout_ms=TIMEOUT_MS) for at in plan.discovery_endpoints]
    nodes = ShardNodes([node.grpc for node in plan.of_kind("shard-node")])
    processes = [psutil.Process(cluster.process_id(node)) for node in cluster.running]
    try:
        await prepare(clients[0])
        await wait_views(nodes)
        before = await nodes.committed_events()
        cpu_before = sum(sum(process.cpu_times()[:2]) for process in processes)
        generator = Generator(clients, random_name if options.names == "random" else series)
        lags = Lags()
        watch = asyncio.create_task(nodes.watch_lags(lags))
        seconds = await generator.run(options.rate, options.seconds)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        catch_up_s = await wait_views(nodes)
        cpu = sum(sum(process.cpu_times()[:2]) for process in processes) - cpu_before
        events = await nodes.committed_events() - before
        lost, others = await missing(clients[0], generator.created)
        return {
            "created": len(generator.created),
            "refused": len(generator.refused),
            "first_refusal": next(iter(generator.refused), ""),
            "seconds": round(seconds, 2),
            "rate": round(len(generator.created) / seconds),
            **{f"{name}_ms": value for name, value in generator.latencies.summary().items()},
            "view_lag_ms_max": round(lags.max_ms, 1),
            "view_samples": lags.samples,
            "view_samples_late": lags.late,
            "views_complete_after_s": round(catch_up_s, 2),
            "events_counted_by_shards": events,
            "lost": lost,
            "never_asked_for": others,
            "server_cpu_s": round(cpu, 1),
            "is_sound": events == len(generator.created) and lost == others == 0,
        }
    finally:
        for client in clients:
            await client.close()
        await nodes.__aexit__(None, None, None)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = make_plan_on_free_ports(ClusterSize(shards=options.shards), cluster_id="sustained")
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        async with LocalCluster(plan, Path(directory)) as cluster:
            await cluster.wait_ready()
            result = await load(plan, cluster, options)
    return {
        "benchmark": "create_sustained",
        "rate_wanted": options.rate,
        "names": options.names,
        "shards": options.shards,
        **result,
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000, help="topics a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--names", choices=("series", "random"), default="series")
    parser.add_argument("--directory", type=Path, default=None, help="where the disk is")
    result = asyncio.run(measure(parser.parse_args()))
    print(json.dumps(result))
    sys.exit(0 if result["is_sound"] else 1)


if __name__ == "__main__":
    main()
