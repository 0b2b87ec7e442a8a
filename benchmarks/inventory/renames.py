"""What do renames of topics and of a namespace take, and how many shards does a lookup of a renamed
name ask?

    python -m benchmarks.inventory.renames [--topics 1000] [--one-replica] [--check]

A cluster of real processes (default settings, 3 replicas, fsync), or a small one whose three shards
have one replica each. The topics are assigned, without
clients. Then they are renamed one after the other over the public port, half of them into another
namespace, and before each rename a property of the topic is set, a write of one record, to compare.
Afterwards names are looked up one by one at one discovery node, whose own counter of requests to
shards says how many each lookup took:

- ``rename_ms``, ``property_ms``: of one rename and of one write of a property, from the call to the
  answer; each write begins when the answer to a rename has come, and its broker releases the unit
- ``rename_idle_ms``, ``property_idle_ms``: the same of as many topics that no broker has
- ``namespace_topics_per_s``: of a namespace with as many other topics, which are not assigned, from
  the first call of its rename to the deletion of the old namespace
- ``requests_per_lookup``: of topics that were never renamed (``unrenamed``), of new names the first
  time and again, of former names the first time and again; answers for former names are not cached

The same run checks that every name leads to the topic with the id that it had, and with ``--check``
exits with 1 if a promise is broken: 10 ms a rename at p50, 2 requests a lookup. One JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from nextgen.cli.local.plan import ClusterSize
from nextgen.client import Client
from nextgen.harness.load.measure import Latencies
from nextgen.harness.perf.bench import Bench, bench, grown
from nextgen.runtime.lifecycle.exit_code import CheckFailed

RENAME_MS_MAX = 10.0
REQUESTS_MAX = 2.0
TIMEOUT_MS = 60_000
ONE_REPLICA = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=1, shards=3)


async def rename_all(
    client: Client, names: Sequence[tuple[str, str]]
) -> tuple[Latencies, Latencies]:
    """Set a property of each topic and rename it; return how long each of both took."""
    properties, renames = Latencies(), Latencies()
    for name, new_name in names:
        began = time.perf_counter()
        await client.set_topic_properties(name, {"renamed": "soon"})
        written = time.perf_counter()
        await client.rename_topic(name, new_name)
        properties.add(written - began)
        renames.add(time.perf_counter() - written)
    return properties, renames


async def look_up_all(
    cluster: Bench, client: Client, names: Sequence[str], ids: Sequence[str] | None
) -> tuple[float, list[str]]:
    """Look names up one by one; return the requests to shards that one took, and the ids.

    Raises:
        CheckFailed: A name was not found, or leads to another topic than the one in ``ids``.
    """
    before = await cluster.counters(cluster.targets[:1])
    found = []
    for name in names:
        (location,) = await client.lookup([name])
        if not location.is_found:
            raise CheckFailed(f"{name}: {location.message}")
        found.append(location.topic_id)
    after = await cluster.counters(cluster.targets[:1])
    if ids is not None and found != list(ids):
        raise CheckFailed("a name leads to another topic than before")
    return round(grown(before, after, "routed_requests") / len(names), 3), found


async def rename_namespace(cluster: Bench, client: Client, tenant: str, topics: int) -> float:
    """Rename a namespace of so many new topics; return how many were renamed in a second.

    Raises:
        CheckFailed: Not all of them have their new names.
    """
    old, new = f"{tenant}/leaving", f"{tenant}/arrived"
    await client.create_namespace(old)
    await cluster.create([f"persistent://{old}/t-{n}" for n in range(topics)])
    began = time.perf_counter()
    await client.rename_namespace(old, new)
    seconds = time.perf_counter() - began
    found = (await client.count_topics(new)).topics
    if found != topics:
        raise CheckFailed(f"{found} of {topics} topics have their new names")
    return round(topics / seconds, 1)


def names_for(tenant: str, word: str, topics: int) -> list[str]:
    """Return new names: half of them in another namespace."""
    places = ("load", "elsewhere")
    return [f"persistent://{tenant}/{places[n % 2]}/{word}-{n}" for n in range(topics)]


async def measure(topics: int, size: ClusterSize) -> dict[str, Any]:
    async with bench(None, size) as cluster:
        tenant = cluster.namespace.partition("/")[0]
        async with Client(cluster.targets[:1], timeout_ms=TIMEOUT_MS) as client:
            await client.create_namespace(f"{tenant}/elsewhere")
            idle = [f"persistent://{cluster.namespace}/idle-{n}" for n in range(topics)]
            names = [f"persistent://{cluster.namespace}/first-{n}" for n in range(topics)]
            await cluster.create([*idle, *names])
            idle_names = names_for(tenant, "rested", topics)
            idle_properties, idle_renames = await rename_all(
                client, list(zip(idle, idle_names, strict=True))
            )
            requests: dict[str, float] = {}
            requests["unrenamed"], ids = await look_up_all(cluster, client, names, None)
            new_names = names_for(tenant, "second", topics)
            properties, renames = await rename_all(client, list(zip(names, new_names, strict=True)))
            namespace_topics_per_s = await rename_namespace(cluster, client, tenant, topics)
            for title, asked in (("renamed", new_names), ("former", names)):
                for times in ("first", "again"):
                    requests[f"{title}_{times}"], _ = await look_up_all(cluster, client, asked, ids)
    return {
        "benchmark": "renames",
        "rename_ms": renames.summary(),
        "property_ms": properties.summary(),
        "rename_idle_ms": idle_renames.summary(),
        "property_idle_ms": idle_properties.summary(),
        "namespace_topics_per_s": namespace_topics_per_s,
        "requests_per_lookup": requests,
        "topics": topics,
        "replicas": min(3, size.shard_nodes),
        "load_average_after": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--one-replica", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    size = ONE_REPLICA if given.one_replica else ClusterSize()
    result = asyncio.run(measure(given.topics, size))
    is_kept = (
        result["rename_ms"]["p50"] <= RENAME_MS_MAX
        and max(result["requests_per_lookup"].values()) <= REQUESTS_MAX
    )
    print(json.dumps(result))
    sys.exit(1 if given.check and not is_kept else 0)


if __name__ == "__main__":
    main()
