"""What does it cost to list a namespace of a million topics, and is each listed once?

    python -m benchmarks.inventory.topic_listing [--topics 1000000] [--shards 3] [--check]

A real cluster (shards of 3 replicas), topics of one namespace created through the client library.
Prints its steps and one JSON line last:

- ``page_ms_p50``, ``page_ms_p99``: pages of 1,000 names, one after the other, at random places
- ``page_cpu_ms``: processor time of one such page, by kind of process; ``client`` is this one
- ``prefix_ms_p99``: pages of a prefix that a thousandth of the names has
- ``count_ms``: one exact count
- ``walk_s``, ``walk_once``: the whole namespace by pages while leaders are killed, one after the
  other, and whether each name came once, in order; ``walk_kills``: how many were killed meanwhile
- ``stream_s``, ``stream_once``, ``stream_kills``: the same over HTTP, in one answer; ``stream_mb``
- ``rss_mb_before``, ``rss_mb_peak``: the highest resident memory of a process of each kind before
  walk and stream, and during them
- ``load_average``: of the machine, at the end

Exits with 1 if a name is missing, comes twice or out of order. With ``--check`` also if the page's
p99 is above 100 ms, if fewer than ``KILLS_MIN`` leaders were killed, or if the memory of a process
grew by more than ``RSS_GROWTH_MB_MAX``.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, ClusterSize, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.kernel.limits.cluster import PAGE_ITEMS_MAX, TOPICS_PER_CREATE_MAX

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=1, shards=3)
NAMESPACE = "big/one"
PAGE_MS_P99_MAX = 100.0
CREATES_AT_ONCE = 4
KILLS_MIN = 1
"""During the walk, and again during the stream."""
KILL_PAUSE_S = 0.5
STREAM_S_MAX = 600.0
SETTLE_S = 5.0
"""Between the creates and the first page: views and snapshots are written behind a million."""
RSS_PAUSE_S = 0.05
RSS_GROWTH_MB_MAX = 64.0
"""Of any process while the namespace is walked and streamed."""


def name_of(number: int) -> str:
    """Return a name whose neighbours in order are numbers far away."""
    return f"persistent://{NAMESPACE}/t-{number * 7919 % 10**9:09d}"


async def create(client: Client, topics: int) -> None:
    starts = iter(range(0, topics, TOPICS_PER_CREATE_MAX))

    async def some() -> None:
        for start in starts:
            numbers = range(start, min(start + TOPICS_PER_CREATE_MAX, topics))
            created = await client.create_topics([name_of(number) for number in numbers])
            assert all(topic.is_created for topic in created), "a topic was refused"

    await asyncio.gather(*(some() for _ in range(CREATES_AT_ONCE)))


async def timed_pages(client: Client, pages: int, prefixes: bool) -> list[float]:
    """Return the milliseconds of pages, each behind the one before, begun at random prefixes."""
    chance = random.Random(1)
    latencies_ms: list[float] = []
    token = prefix = ""
    while len(latencies_ms) < pages:
        if not token:
            prefix = f"t-{chance.randrange(1_000):03d}" if prefixes else f"t-{chance.randrange(10)}"
        began = time.perf_counter()
        page = await client.topic_names_page(NAMESPACE, prefix=prefix, page_token=token)
        latencies_ms.append((time.perf_counter() - began) * 1_000)
        assert len(page.partitions) <= PAGE_ITEMS_MAX
        token = page.next_page_token
    return sorted(latencies_ms)


class Processes:
    """Processor time and memory of the cluster's processes, by kind."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def cpu_ms(self) -> dict[str, float]:
        """Return the processor time since start of all processes of a kind together."""
        spent = {"client": time.process_time() * 1_000}
        for kind, process in self._all():
            times = process.cpu_times()
            spent[kind] = spent.get(kind, 0.0) + (times.user + times.system) * 1_000
        return spent

    def rss_mb(self) -> dict[str, float]:
        """Return the resident memory of the biggest process of each kind."""
        found: dict[str, float] = {}
        for kind, process in self._all():
            try:
                rss_mb = round(process.memory_info().rss / 2**20, 1)
            except psutil.NoSuchProcess:
                continue  # It was killed a moment ago.
            found[kind] = max(found.get(kind, 0.0), rss_mb)
        return found

    def rss_mb_of(self, node_id: str) -> float:
        """Return the resident memory of one process."""
        process_id = self._cluster.process_id(node_id)
        assert process_id is not None
        return round(psutil.Process(process_id).memory_info().rss / 2**20, 1)

    @asynccontextmanager
    async def rss_peaks(self) -> AsyncIterator[dict[str, float]]:
        """Keep the highest ``rss_mb`` up to date within the context."""
        peaks = self.rss_mb()

        async def watch() -> None:
            while True:
                await asyncio.sleep(RSS_PAUSE_S)
                for kind, rss_mb in self.rss_mb().items():
                    peaks[kind] = max(peaks.get(kind, 0.0), rss_mb)

        watching = asyncio.create_task(watch())
        try:
            yield peaks
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _all(self) -> list[tuple[str, psutil.Process]]:
        found: list[tuple[str, psutil.Process]] = []
        for node in self._cluster.plan.nodes:
            process_id = self._cluster.process_id(node.node_id)
            if process_id is not None and psutil.pid_exists(process_id):
                found.append((node.kind, psutil.Process(process_id)))
        return found


@dataclass
class Walked:
    """The names that a walk over the whole namespace gave, and what happened meanwhile."""

    names: list[str] = field(default_factory=list)
    size_bytes: int = 0
    seconds: float = 0.0
    kills: int = 0

    def has_each_once(self, topics: int) -> bool:
        return self.names == sorted(name_of(number) for number in range(topics))


async def while_leaders_die(
    client: Client, cluster: LocalCluster, walk: Awaitable[Walked]
) -> Walked:
    """Await ``walk``; kill nodes that lead shards, one after the other, until it has ended."""
    kills = 0

    async def kill_leaders() -> None:
        nonlocal kills
        for turn in itertools.count():
            await asyncio.sleep(KILL_PAUSE_S)
            leaders = sorted({each.leader_node for each in (await client.cluster()).shards} - {""})
            if leaders:
                node_id = leaders[turn % len(leaders)]
                await cluster.kill(node_id)
                kills += 1
                await cluster.restart(node_id)
                await cluster.wait_ready([node_id])

    killing = asyncio.create_task(kill_leaders())
    began = time.perf_counter()
    try:
        walked = await walk
    finally:
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
    walked.seconds = time.perf_counter() - began
    walked.kills = kills
    await cluster.wait_ready()
    return walked


async def paged(client: Client) -> Walked:
    """Return all names by pages, each asked for with the token of the one before."""
    walked = Walked()
    token = ""
    while True:
        page = await client.topic_names_page(NAMESPACE, page_token=token)
        walked.names += page.partitions
        token = page.next_page_token
        if not token:
            return walked


async def streamed(url: str) -> Walked:
    """Return all names over HTTP, and their bytes."""
    limit = aiohttp.ClientTimeout(total=STREAM_S_MAX)
    async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as answer:
        assert answer.status == 200, await answer.text()
        body = await answer.read()
    return Walked(json.loads(body), len(body))


def quantile(ordered: list[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)


async def measure_pages(client: Client, processes: Processes, options: Any) -> dict[str, Any]:
    before = processes.cpu_ms()
    pages = await timed_pages(client, options.pages, prefixes=False)
    after = processes.cpu_ms()
    found = await timed_pages(client, options.pages, prefixes=True)
    began = time.perf_counter()
    count = await client.count_topics(NAMESPACE)
    return {
        "page_ms_p50": quantile(pages, 0.5),
        "page_ms_p99": quantile(pages, 0.99),
        "page_cpu_ms": {
            kind: round((after[kind] - before[kind]) / len(pages), 2) for kind in after
        },
        "prefix_ms_p99": quantile(found, 0.99),
        "count_ms": round((time.perf_counter() - began) * 1_000, 1),
        "counted": count.topics,
    }


async def run(options: argparse.Namespace, plan: ClusterPlan, cluster: LocalCluster) -> Any:
    (discovery,) = plan.of_kind("discovery")
    url = f"http://{discovery.http}/admin/v2/namespaces/{NAMESPACE}/topics"
    processes = Processes(cluster)
    async with Client(list(plan.discovery_endpoints), timeout_ms=60_000) as client:
        await client.create_tenant(NAMESPACE.partition("/")[0])
        await client.create_namespace(NAMESPACE)
        began = time.perf_counter()
        await create(client, options.topics)
        print(json.dumps({"create_s": round(time.perf_counter() - began, 1)}), flush=True)
        await asyncio.sleep(SETTLE_S)
        result = await measure_pages(client, processes, options)
        print(json.dumps(result), flush=True)
        rss_before = processes.rss_mb()
        async with processes.rss_peaks() as rss_peaks:
            walk = await while_leaders_die(client, cluster, paged(client))
            stream = await while_leaders_die(client, cluster, streamed(url))
    return {
        "benchmark": "topic_listing",
        "topics": options.topics,
        "shards": options.shards,
        **result,
        "walk_s": round(walk.seconds, 1),
        "walk_kills": walk.kills,
        "walk_once": walk.has_each_once(options.topics),
        "stream_s": round(stream.seconds, 1),
        "stream_mb": round(stream.size_bytes / 2**20, 1),
        "stream_kills": stream.kills,
        "stream_once": stream.has_each_once(options.topics),
        "rss_mb_before": rss_before,
        "rss_mb_peak": rss_peaks,
        "load_average": os.getloadavg()[0],
    }


def is_right(result: dict[str, Any]) -> bool:
    """Return whether each topic was counted, walked and streamed once."""
    is_whole = result["walk_once"] and result["stream_once"]
    return bool(is_whole and result["counted"] == result["topics"])


def keeps_promises(result: dict[str, Any]) -> bool:
    """Return whether pages were quick and memory was bounded although leaders died."""
    before, peak = result["rss_mb_before"], result["rss_mb_peak"]
    return bool(
        result["page_ms_p99"] <= PAGE_MS_P99_MAX
        and min(result["walk_kills"], result["stream_kills"]) >= KILLS_MIN
        and all(peak[kind] - before[kind] <= RSS_GROWTH_MB_MAX for kind in before)
    )


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=SIZE.shards)
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--directory", type=Path, help="On the disk to measure.")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        size = replace(SIZE, shards=options.shards)
        plan = make_plan_on_free_ports(size, cluster_id="listing")
        async with LocalCluster(plan, Path(folder)) as cluster:
            result = await run(options, plan, cluster)
    print(json.dumps(result))
    return 0 if is_right(result) and (keeps_promises(result) or not options.check) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
