"""What do watches of a namespace with many scalable topics cost a node, with filters and without?

    python -m benchmarks.inventory.namespace_watches [--topics 100000] [--watches 2000]

A real cluster (3 shards of one replica, a discovery node); topics of one segment with three
properties each. Prints its steps and one JSON line last:

- ``all_s``, ``all_mb``: from WATCH to the last name of all topics, and how much the resident memory
  of the discovery node grew by it; ``all_updates`` in how many updates
- ``filtered_s``, ``filtered_mb``: the same for a filter that a hundredth of the topics match
- ``watches``: their number, over 100 connections with 10 such filters; ``watches_s`` until all have
  their list, ``watches_mb`` the growth by them
- ``enter_ms_p50``, ``enter_ms_p99``: from the change of a topic's properties to the update of a
  watch that it enters, the time of gathering (``NAMESPACE_CHANGES_GATHERED_MS``) included
- ``right``: whether every watch has exactly its topics at the end
- ``load_average``: of the machine, at the end
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.inventory.topic_listing import Processes, quantile
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, ClusterSize, make_plan_on_free_ports
from nextgen.client import Client, NewTopic
from nextgen.kernel.limits.cluster import TOPICS_PER_CREATE_MAX
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import BaseCommand, CommandWatchScalableTopics

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=1, shards=3)
NAMESPACE = "many/scalable"
CONNECTIONS = 100
FILTERS = 100
WATCHED_FILTERS = 10
CHANGES = 100
SETTLE_S = 5.0
WAIT_S = 300


def name_of(number: int) -> str:
    return f"topic://{NAMESPACE}/orders-of-customer-{number:09d}"


def properties_of(number: int) -> dict[str, str]:
    return {"part": f"{number % FILTERS}", "owner": f"team-{number % 7}", "purpose": "a benchmark"}


class Watcher:
    """One connection, with what each of its watches was sent."""

    def __init__(self) -> None:
        self.names: dict[int, set[str]] = {}
        self.updates = 0
        self.moved = asyncio.Event()
        self._connection: PulsarClientConnection

    @classmethod
    async def open(cls, address: str) -> Watcher:
        self = cls()
        host, _, port = address.rpartition(":")
        self._connection = await PulsarClientConnection.open(host, int(port), on_push=self._take)
        return self

    def watch(self, watch_id: int, **properties: str) -> None:
        request = CommandWatchScalableTopics(watch_id=watch_id, namespace=NAMESPACE)
        for key, value in properties.items():
            request.property_filters.add(key=key, value=value)
        self._connection.send_command(
            BaseCommand(type=BaseCommand.WATCH_SCALABLE_TOPICS, watchScalableTopics=request)
        )

    async def until(self, watch_id: int, count: int) -> None:
        async with timeout(WAIT_S):
            while len(self.names.get(watch_id, ())) != count or watch_id not in self.names:
                self.moved.clear()
                await self.moved.wait()

    def close(self) -> None:
        self._connection.close()

    def _take(self, command: BaseCommand, _: bytes) -> None:
        update = command.watchScalableTopicsUpdate
        assert not update.HasField("error"), update
        names = self.names.setdefault(update.watch_id, set())
        if update.HasField("snapshot"):
            names.clear()
            names.update(map(sys.intern, update.snapshot.topics))
        else:
            names.difference_update(update.diff.removed)
            names.update(map(sys.intern, update.diff.added))
        self.updates += 1
        self.moved.set()


async def measured(node: str, count: int, rss_mb: Any, **properties: str) -> dict[str, Any]:
    before_mb = rss_mb()
    watcher = await Watcher.open(node)
    began = time.perf_counter()
    watcher.watch(1, **properties)
    await watcher.until(1, count)
    seconds = time.perf_counter() - began
    grown_mb = rss_mb() - before_mb
    watcher.close()
    return {"s": round(seconds, 2), "mb": round(grown_mb, 1), "updates": watcher.updates}


async def run(options: argparse.Namespace, plan: ClusterPlan, cluster: LocalCluster) -> Any:
    (node,) = plan.of_kind("discovery")
    assert node.pulsar is not None
    processes = Processes(cluster)

    def rss_mb() -> float:
        return processes.rss_mb_of(node.node_id)

    async with Client([node.grpc], timeout_ms=60_000) as programs:
        await programs.create_tenant(NAMESPACE.partition("/")[0])
        await programs.create_namespace(NAMESPACE)
        began = time.perf_counter()
        for start in range(0, options.topics, TOPICS_PER_CREATE_MAX):
            numbers = range(start, min(start + TOPICS_PER_CREATE_MAX, options.topics))
            created = await programs.create_topics(
                [NewTopic(name_of(each), 0, properties_of(each)) for each in numbers]
            )
            assert all(each.is_created for each in created)
        create_s = time.perf_counter() - began
        print(json.dumps({"create_s": round(create_s, 1), "rss_mb": rss_mb()}), flush=True)
        await asyncio.sleep(SETTLE_S)
        of_part = options.topics // FILTERS
        everything = await measured(node.pulsar, options.topics, rss_mb)
        print(json.dumps({"all": everything}), flush=True)
        filtered = await measured(node.pulsar, of_part, rss_mb, part="0")
        print(json.dumps({"filtered": filtered}), flush=True)

        before_mb = rss_mb()
        began = time.perf_counter()
        watchers = [await Watcher.open(node.pulsar) for _ in range(CONNECTIONS)]
        for number in range(options.watches):
            part = f"{number // CONNECTIONS % WATCHED_FILTERS}"
            watchers[number % CONNECTIONS].watch(number, part=part)
        for number in range(options.watches):
            await watchers[number % CONNECTIONS].until(number, of_part)
        watches_s = time.perf_counter() - began
        watches_mb = rss_mb() - before_mb
        print(json.dumps({"watches_s": round(watches_s, 1), "mb": watches_mb}), flush=True)

        latencies_ms = []
        changes = range(1, min(CHANGES + 1, of_part))
        for number in changes:
            # From another part into that of the first watch.
            changing = number * FILTERS + 1
            began = time.perf_counter()
            entering = asyncio.ensure_future(
                programs.set_topic_properties(name_of(changing), properties_of(0))
            )
            await watchers[0].until(0, of_part + number)
            latencies_ms.append((time.perf_counter() - began) * 1_000)
            await entering
        await asyncio.sleep(SETTLE_S)
        parts: dict[int, set[str]] = {
            part: {name_of(each) for each in range(part, options.topics, FILTERS)}
            for part in range(FILTERS)
        }
        moved = {name_of(number * FILTERS + 1) for number in changes}
        parts[0] |= moved
        parts[1] -= moved
        right = all(
            names == parts[watch // CONNECTIONS % WATCHED_FILTERS]
            for watcher in watchers
            for watch, names in watcher.names.items()
        )
        for watcher in watchers:
            watcher.close()
    latencies_ms.sort()
    return {
        "benchmark": "namespace_watches",
        "topics": options.topics,
        "create_s": round(create_s, 1),
        **{f"all_{key}": value for key, value in everything.items()},
        **{f"filtered_{key}": value for key, value in filtered.items()},
        "watches": options.watches,
        "watches_s": round(watches_s, 1),
        "watches_mb": round(watches_mb, 1),
        "enter_ms_p50": quantile(latencies_ms, 0.5),
        "enter_ms_p99": quantile(latencies_ms, 0.99),
        "rss_mb": rss_mb(),
        "right": right,
        "load_average": os.getloadavg()[0],
    }


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--watches", type=int, default=2_000)
    parser.add_argument("--directory", type=Path, help="On the disk to measure.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        plan = make_plan_on_free_ports(SIZE, cluster_id="namespaces")
        async with LocalCluster(plan, Path(folder)) as cluster:
            await cluster.wait_ready()
            result = await run(options, plan, cluster)
    print(json.dumps(result))
    return 0 if result["right"] else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
