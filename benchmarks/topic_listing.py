"""What does it cost to list a namespace of a million topics, and is each listed once?

    python -m benchmarks.topic_listing [--topics 1000000] [--pages 300] [--directory DIR]

A real cluster (3 shards of 3 replicas), topics of one namespace created through the client library.
Prints its steps and one JSON line last:

- ``page_ms_p50``, ``page_ms_p99``: pages of 1,000 names, one after the other, at random places
- ``prefix_ms_p99``: pages of a prefix that a thousandth of the names has
- ``count_ms``: one exact count
- ``stream_s``, ``stream_mb``: the whole namespace over HTTP while leaders are killed, one after the
  other, and what was read; ``streamed_once``: whether each name came once, in order
- ``discovery_rss_mb_before``, ``discovery_rss_mb_after``: resident memory around the stream

Exits with 1 if a name is missing, comes twice or out of order, or with ``--check`` if the page's
p99 is above 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
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
KILLS = 3
KILL_PAUSE_S = 0.1
STREAM_S_MAX = 600.0


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


async def kill_leaders(client: Client, cluster: LocalCluster) -> int:
    """Kill the nodes that lead a shard, one after the other; return how many."""
    for count in range(KILLS):
        await asyncio.sleep(KILL_PAUSE_S)
        leaders = {shard.leader_node for shard in (await client.cluster()).shards}
        node_id = sorted(leaders - {""})[count % len(leaders - {""})]
        await cluster.kill(node_id)
        await cluster.restart(node_id)
    return KILLS


async def streamed(url: str) -> tuple[list[str], int]:
    """Return all names over HTTP, and their bytes."""
    limit = aiohttp.ClientTimeout(total=STREAM_S_MAX)
    async with aiohttp.ClientSession(timeout=limit) as session, session.get(url) as answer:
        assert answer.status == 200, await answer.text()
        body = await answer.read()
    return json.loads(body), len(body)


def rss_mb(process_id: int | None) -> float:
    return round(psutil.Process(process_id).memory_info().rss / 2**20, 1)


def quantile(ordered: list[float], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)


async def run(options: argparse.Namespace, plan: ClusterPlan, cluster: LocalCluster) -> Any:
    (discovery,) = plan.of_kind("discovery")
    async with Client(list(plan.discovery_endpoints), timeout_ms=60_000) as client:
        await client.create_tenant(NAMESPACE.partition("/")[0])
        await client.create_namespace(NAMESPACE)
        began = time.perf_counter()
        await create(client, options.topics)
        print(json.dumps({"create_s": round(time.perf_counter() - began, 1)}), flush=True)
        pages = await timed_pages(client, options.pages, prefixes=False)
        found = await timed_pages(client, options.pages, prefixes=True)
        began = time.perf_counter()
        count = await client.count_topics(NAMESPACE)
        count_ms = (time.perf_counter() - began) * 1_000
        rss_before = rss_mb(cluster.process_id(discovery.node_id))
        url = f"http://{discovery.http}/admin/v2/namespaces/{NAMESPACE}/topics"
        killing = asyncio.create_task(kill_leaders(client, cluster))
        began = time.perf_counter()
        names, size_bytes = await streamed(url)
        stream_s = time.perf_counter() - began
        kills = await killing
    expected = sorted(name_of(number) for number in range(options.topics))
    return {
        "benchmark": "topic_listing",
        "topics": options.topics,
        "page_ms_p50": quantile(pages, 0.5),
        "page_ms_p99": quantile(pages, 0.99),
        "prefix_ms_p99": quantile(found, 0.99),
        "count_ms": round(count_ms, 1),
        "counted": count.topics,
        "stream_s": round(stream_s, 1),
        "stream_mb": round(size_bytes / 2**20, 1),
        "kills": kills,
        "streamed_once": names == expected,
        "discovery_rss_mb_before": rss_before,
        "discovery_rss_mb_after": rss_mb(cluster.process_id(discovery.node_id)),
    }


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--directory", type=Path, help="On the disk to measure.")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        plan = make_plan_on_free_ports(SIZE, cluster_id="listing")
        async with LocalCluster(plan, Path(folder)) as cluster:
            result = await run(options, plan, cluster)
    print(json.dumps(result))
    is_right = result["streamed_once"] and result["counted"] == options.topics
    is_quick = not options.check or result["page_ms_p99"] <= PAGE_MS_P99_MAX
    return 0 if is_right and is_quick else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
