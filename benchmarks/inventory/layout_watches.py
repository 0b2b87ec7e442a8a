"""What do ten thousand watches of layouts cost at one node, of as many topics and of one?

    python -m benchmarks.inventory.layout_watches [--watches 10000] [--segments 4] [--check]

A real cluster (3 shards, two discovery nodes, one broker), stock Pulsar commands at discovery.
Prints its steps and one JSON line last:

- ``create_s``: creating as many scalable topics as there are watches
- ``open_s``: opening a watch of each topic, over 100 connections to one node, until each has its
  layout; ``open_cpu_ms``: processor time of one watch by kind of process; ``rss_mb_before``,
  ``rss_mb``: resident memory of that node before and behind it
- ``push_ms_p50``, ``push_ms_p99``: from a call of the client library that deletes a topic to the
  update at its watcher, one by one
- ``shared_open_s``, ``shared_rss_mb``: the same number of watches of one topic, at another node
- ``shared_push_ms``: from deleting that topic until its last watcher has the update
- ``right``: whether each watcher has got exactly one layout, and the end of its topic
- ``load_average``: of the machine, at the end

Exits with 1 if a watcher is wrong; with ``--check`` also if a node takes more than 300 MB.
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
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.frames import encode_command
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandScalableTopicLookup,
    TopicNotFound,
)

SIZE = ClusterSize(cluster_managers=1, shard_nodes=1, discovery=2, brokers=1, shards=3)
NAMESPACE = "big/scaled"
CONNECTIONS = 100
DELETED = 200
WAIT_S = 120
MB_MAX = 300.0


class LayoutClient:
    """One connection with watches, each with how many layouts and ends it was sent."""

    def __init__(self) -> None:
        self.layouts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.updated = asyncio.Event()
        self._connection: PulsarClientConnection

    @classmethod
    async def open(cls, address: str) -> LayoutClient:
        self = cls()
        host, _, port = address.rpartition(":")
        self._connection = await PulsarClientConnection.open(host, int(port), on_push=self._take)
        return self

    def watch(self, watch: int, topic: str) -> None:
        self.layouts[watch] = 0
        lookup = CommandScalableTopicLookup(session_id=watch, topic=topic, create_if_missing=False)
        command = BaseCommand(type=BaseCommand.SCALABLE_TOPIC_LOOKUP, scalableTopicLookup=lookup)
        self._connection.send(encode_command(command))

    async def until(self, done: Any) -> None:
        async with timeout(WAIT_S):
            while not done():
                self.updated.clear()
                await self.updated.wait()

    def close(self) -> None:
        self._connection.close()

    def _take(self, command: BaseCommand, _: bytes) -> None:
        update = command.scalableTopicUpdate
        if update.HasField("dag"):
            self.layouts[update.session_id] += 1
        elif update.error == TopicNotFound:
            self.ends[update.session_id] = self.ends.get(update.session_id, 0) + 1
        self.updated.set()


def name_of(number: int) -> str:
    return f"topic://{NAMESPACE}/t-{number:07d}"


async def opened(address: str, topics: list[str]) -> list[LayoutClient]:
    """Watch the topics over many connections, and wait until each watch has its layout."""
    clients = [await LayoutClient.open(address) for _ in range(CONNECTIONS)]
    for number, topic in enumerate(topics):
        clients[number % CONNECTIONS].watch(number, topic)
    for client in clients:
        await client.until(lambda client=client: all(client.layouts.values()))
    return clients


async def create(programs: Client, count: int, segments: int) -> float:
    began = time.perf_counter()
    for start in range(0, count, 500):
        topics = [
            NewTopic(name_of(number), segments=segments)
            for number in range(start, min(start + 500, count))
        ]
        assert all(each.is_created for each in await programs.create_topics(topics))
    return time.perf_counter() - began


async def measure_pushes(programs: Client, clients: list[LayoutClient]) -> list[float]:
    """Return the milliseconds from deleting a topic until its watcher has the update."""
    latencies_ms = []
    for number in range(DELETED):
        client = clients[number % CONNECTIONS]
        began = time.perf_counter()
        deleting = asyncio.ensure_future(programs.delete_topic(name_of(number)))
        await client.until(lambda client=client, number=number: number in client.ends)
        latencies_ms.append((time.perf_counter() - began) * 1_000)
        await deleting
    return sorted(latencies_ms)


async def measure_shared(programs: Client, address: str, count: int) -> dict[str, Any]:
    """Watch one topic with all watches, and delete it."""
    shared = name_of(count)
    await programs.create_topics([NewTopic(shared, segments=4)])
    began = time.perf_counter()
    clients = await opened(address, [shared] * count)
    open_s = time.perf_counter() - began
    began = time.perf_counter()
    deleting = asyncio.ensure_future(programs.delete_topic(shared))
    for client in clients:
        await client.until(lambda client=client: len(client.ends) == len(client.layouts))
    push_ms = (time.perf_counter() - began) * 1_000
    await deleting
    right = all(
        set(client.layouts.values()) == {1} and set(client.ends.values()) == {1}
        for client in clients
    )
    for client in clients:
        client.close()
    return {
        "shared_open_s": round(open_s, 1),
        "shared_push_ms": round(push_ms, 1),
        "shared_right": right,
    }


async def run(options: argparse.Namespace, plan: ClusterPlan, cluster: LocalCluster) -> Any:
    node, other = plan.of_kind("discovery")
    processes = Processes(cluster)
    async with Client([other.grpc], timeout_ms=60_000) as programs:
        await programs.create_tenant(NAMESPACE.partition("/")[0])
        await programs.create_namespace(NAMESPACE)
        create_s = await create(programs, options.watches, options.segments)
        print(json.dumps({"create_s": round(create_s, 1)}), flush=True)
        before_mb = processes.rss_mb_of(node.node_id)
        cpu_before = processes.cpu_ms()
        began = time.perf_counter()
        clients = await opened(node.pulsar, [name_of(each) for each in range(options.watches)])
        open_s = time.perf_counter() - began
        rss_mb = processes.rss_mb_of(node.node_id)
        spent = {
            kind: round((now - cpu_before.get(kind, 0.0)) / options.watches, 3)
            for kind, now in processes.cpu_ms().items()
        }
        print(json.dumps({"open_s": round(open_s, 1), "rss_mb": rss_mb}), flush=True)
        pushes = await measure_pushes(programs, clients)
        right = all(count == 1 for client in clients for count in client.layouts.values())
        for client in clients:
            client.close()
        shared = await measure_shared(programs, other.pulsar, options.watches)
        shared["shared_rss_mb"] = processes.rss_mb_of(other.node_id)
    return {
        "benchmark": "layout_watches",
        "watches": options.watches,
        "segments": options.segments,
        "create_s": round(create_s, 1),
        "open_s": round(open_s, 1),
        "open_cpu_ms": spent,
        "rss_mb_before": before_mb,
        "rss_mb": rss_mb,
        "push_ms_p50": quantile(pushes, 0.5),
        "push_ms_p99": quantile(pushes, 0.99),
        **shared,
        "right": right and shared["shared_right"],
        "load_average": os.getloadavg()[0],
    }


def keeps_promises(result: dict[str, Any]) -> bool:
    return bool(result["rss_mb"] <= MB_MAX and result["shared_rss_mb"] <= MB_MAX)


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--watches", type=int, default=10_000)
    parser.add_argument("--segments", type=int, default=4)
    parser.add_argument("--directory", type=Path, help="On the disk to measure.")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        plan = make_plan_on_free_ports(SIZE, cluster_id="layouts")
        async with LocalCluster(plan, Path(folder)) as cluster:
            await cluster.wait_ready()
            result = await run(options, plan, cluster)
    print(json.dumps(result))
    return 0 if result["right"] and (keeps_promises(result) or not options.check) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
