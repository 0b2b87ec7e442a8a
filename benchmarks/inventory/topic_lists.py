"""What do kept topic lists cost: a million names, their hash, and ten thousand watchers?

    python -m benchmarks.inventory.topic_lists [--topics 1000000] [--watchers 10000] [--check]

A real cluster (3 shards of 3 replicas, two discovery nodes), stock Pulsar commands at discovery.
Prints its steps and one JSON line last:

- ``load_s``, ``load_busy_s``: reading the list of all topics, with nothing else and beside as many
  creates as ``CREATES_BESIDE`` callers can make; ``created_beside`` of them
- ``list_mb``: how much the resident memory of the discovery node grew by the first list
- ``unchanged_ms_p50``, ``unchanged_ms_p99``: listings with the hash that the list has;
  ``names_read``: whether one of them was answered by reading names
- ``update_ms_p50``, ``update_ms_p99``: from creating a topic to the update, with the hash, at a
  watcher of that list
- ``change_cpu_ms``: processor time of a change of that many names with the new hash, without any
  process around it
- ``watchers``: their number, over 100 connections with 100 patterns, at the second node;
  ``watchers_rss_mb`` the highest resident memory of that node while 100 topics of each pattern are
  created, ``right`` whether each watcher has got exactly its topics, each once, and the right hash
- ``load_average``: of the machine, at the end

Exits with 1 if a watcher or a hash is wrong, or names were read for an unchanged list. With
``--check`` also if a list takes longer than ``TOPIC_LIST_LOAD_MS_MAX``, an unchanged listing more
than 5 ms (p50), or the watchers more than 300 MB.
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

from benchmarks.inventory.topic_listing import NAMESPACE, Processes, create, name_of, quantile
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, ClusterSize, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.client.topic_lists.name_set import NameSet
from nextgen.kernel.limits.listing import TOPIC_LIST_LOAD_MS_MAX
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.topic_lists.hash import topics_hash
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandWatchTopicList,
)

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=2, brokers=1, shards=3)
WATCHED = "big/watched"
BESIDE = "big/beside"
CONNECTIONS = 100
PATTERNS = 100
TOPICS_PER_PATTERN = 100
CREATES_BESIDE = 16
UNCHANGED = 300
UPDATES = 200
CHANGES = 500
SETTLE_S = 5.0
REQUEST_TIMEOUT_MS = 120_000
UNCHANGED_MS_P50_MAX = 5.0
WATCHERS_MB_MAX = 300.0
ALL = f"{NAMESPACE}/.*"
ALL_AGAIN = f"{NAMESPACE}/t-.*"
"""Another list of the same names."""


class ListClient:
    """One connection with watchers, each with what it was sent."""

    def __init__(self) -> None:
        self.names: dict[int, list[str]] = {}
        self.hashes: dict[int, str] = {}
        self.updated = asyncio.Event()
        self._connection: PulsarClientConnection

    @classmethod
    async def open(cls, address: str) -> ListClient:
        self = cls()
        host, _, port = address.rpartition(":")
        self._connection = await PulsarClientConnection.open(host, int(port), on_push=self._take)
        return self

    async def listed(self, pattern: str, known_hash: str) -> CommandGetTopicsOfNamespaceResponse:
        request = CommandGetTopicsOfNamespace(
            namespace=NAMESPACE, topics_pattern=pattern, topics_hash=known_hash
        )
        answer = await self._request(
            BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request)
        )
        assert answer.type == BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, str(answer)[:500]
        return answer.getTopicsOfNamespaceResponse

    async def watch(self, watcher: int, namespace: str, pattern: str, known_hash: str = "") -> None:
        self.names[watcher] = []
        request = CommandWatchTopicList(
            watcher_id=watcher, namespace=namespace, topics_pattern=pattern, topics_hash=known_hash
        )
        answer = await self._request(
            BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST, watchTopicList=request)
        )
        assert answer.type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS, str(answer)[:500]
        assert not answer.watchTopicListSuccess.topic
        self.hashes[watcher] = answer.watchTopicListSuccess.topics_hash

    def close(self) -> None:
        self._connection.close()

    async def _request(self, command: BaseCommand) -> BaseCommand:
        return await self._connection.request(command, timeout_ms=REQUEST_TIMEOUT_MS)

    def _take(self, command: BaseCommand, _: bytes) -> None:
        if command.type == BaseCommand.WATCH_TOPIC_UPDATE:
            update = command.watchTopicUpdate
            self.names[update.watcher_id] += update.new_topics
            self.hashes[update.watcher_id] = update.topics_hash
            self.updated.set()


async def timed(work: Any) -> float:
    """Await ``work``; return the seconds that it took."""
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def load(client: ListClient, pattern: str, known_hash: str) -> None:
    answer = await client.listed(pattern, known_hash)
    assert not answer.changed, f"the list has the hash {answer.topics_hash}, not {known_hash}"


async def measure_unchanged(client: ListClient, known_hash: str) -> list[float]:
    return sorted([await timed(load(client, ALL, known_hash)) * 1_000 for _ in range(UNCHANGED)])


async def measure_updates(programs: Client, client: ListClient, known_hash: str) -> list[float]:
    """Return the milliseconds from creating a topic until a watcher of all topics has it."""
    await client.watch(1, NAMESPACE, ALL, known_hash)
    latencies_ms: list[float] = []
    for number in range(UPDATES):
        client.updated.clear()
        began = time.perf_counter()
        creating = asyncio.ensure_future(
            programs.create_topics([f"persistent://{NAMESPACE}/u-{number:09d}"])
        )
        await client.updated.wait()
        latencies_ms.append((time.perf_counter() - began) * 1_000)
        await creating
    return sorted(latencies_ms)


async def load_beside_creates(
    programs: Client, client: ListClient, known_hash: str
) -> tuple[float, int]:
    """Return how long another list took while topics were created, and how many were."""
    created = 0
    is_over = False

    async def creates(caller: int) -> None:
        nonlocal created
        for number in range(1_000_000):
            if is_over:
                return
            await programs.create_topics([f"persistent://{BESIDE}/c-{caller:02d}-{number:07d}"])
            created += 1

    callers = [asyncio.ensure_future(creates(caller)) for caller in range(CREATES_BESIDE)]
    await asyncio.sleep(1)
    created = 0
    seconds = await timed(load(client, ALL_AGAIN, known_hash))
    is_over, during = True, created
    await asyncio.gather(*callers)
    return seconds, during


def change_cpu_ms(topics: int) -> float:
    """Return the processor time of one change of a list with so many names, and of its hash."""
    names = NameSet()
    for start in range(0, topics, 1_000):
        names.add(name_of(number) for number in range(start, min(start + 1_000, topics)))
    assert names.hash
    began = time.process_time()
    for number in range(CHANGES):
        names.add([f"persistent://{NAMESPACE}/t-{number * 104_729 % 10**9:09d}x"])
        assert names.hash
    return (time.process_time() - began) * 1_000 / CHANGES


async def measure_watchers(
    programs: Client, address: str, count: int, rss_mb: Any
) -> dict[str, Any]:
    """Watch with many clients, create the topics of all patterns, and compare what each has."""
    before_mb = rss_mb()
    clients = [await ListClient.open(address) for _ in range(CONNECTIONS)]
    for number in range(count):
        client = clients[number % CONNECTIONS]
        await client.watch(number, WATCHED, f"{WATCHED}/p{number // CONNECTIONS % PATTERNS:02d}-.*")
    wanted = {
        pattern: [
            f"persistent://{WATCHED}/p{pattern:02d}-{number:04d}"
            for number in range(TOPICS_PER_PATTERN)
        ]
        for pattern in range(PATTERNS)
    }
    everything = [wanted[pattern][number] for number in range(TOPICS_PER_PATTERN)
                  for pattern in wanted]  # fmt: skip
    peak_mb = watching_mb = rss_mb()
    began = time.perf_counter()
    for start in range(0, len(everything), PATTERNS):
        await programs.create_topics(everything[start : start + PATTERNS])
        peak_mb = max(peak_mb, rss_mb())
    for client in clients:
        async with timeout(60):
            while any(len(names) < TOPICS_PER_PATTERN for names in client.names.values()):
                client.updated.clear()
                await client.updated.wait()
    seconds = time.perf_counter() - began
    peak_mb = max(peak_mb, rss_mb())
    await asyncio.sleep(1)
    hashes = {pattern: topics_hash(names) for pattern, names in wanted.items()}
    right = all(
        sorted(names) == wanted[watcher // CONNECTIONS % PATTERNS]
        and client.hashes[watcher] == hashes[watcher // CONNECTIONS % PATTERNS]
        for client in clients
        for watcher, names in client.names.items()
    )
    for client in clients:
        client.close()
    return {
        "watchers": sum(len(client.names) for client in clients),
        "watchers_rss_mb_before": before_mb,
        "watchers_rss_mb_idle": watching_mb,
        "watchers_rss_mb": peak_mb,
        "updates_s": round(seconds, 1),
        "right": right,
    }


async def run(options: argparse.Namespace, plan: ClusterPlan, cluster: LocalCluster) -> Any:
    lists_node, watchers_node = plan.of_kind("discovery")
    processes = Processes(cluster)
    known_hash = topics_hash([name_of(number) for number in range(options.topics)])
    async with Client([lists_node.grpc], timeout_ms=60_000) as programs:
        await programs.create_tenant(NAMESPACE.partition("/")[0])
        for namespace in (NAMESPACE, WATCHED, BESIDE):
            await programs.create_namespace(namespace)
        watchers = await measure_watchers(
            programs,
            watchers_node.pulsar,
            options.watchers,
            lambda: processes.rss_mb_of(watchers_node.node_id),
        )
        print(json.dumps(watchers), flush=True)
        await create(programs, options.topics)
        await asyncio.sleep(SETTLE_S)
        client = await ListClient.open(lists_node.pulsar)
        before_mb = processes.rss_mb_of(lists_node.node_id)
        load_s = await timed(load(client, ALL, known_hash))
        list_mb = processes.rss_mb_of(lists_node.node_id) - before_mb
        print(json.dumps({"load_s": round(load_s, 2), "list_mb": round(list_mb, 1)}), flush=True)
        unchanged_before = await unchanged_count(programs)
        unchanged = await measure_unchanged(client, known_hash)
        answered = await unchanged_count(programs) - unchanged_before
        load_busy_s, created = await load_beside_creates(programs, client, known_hash)
        updates = await measure_updates(programs, client, known_hash)
        client.close()
    return {
        "benchmark": "topic_lists",
        "topics": options.topics,
        "load_s": round(load_s, 2),
        "list_mb": round(list_mb, 1),
        "load_busy_s": round(load_busy_s, 2),
        "created_beside": created,
        "unchanged_ms_p50": quantile(unchanged, 0.5),
        "unchanged_ms_p99": quantile(unchanged, 0.99),
        "names_read": answered != UNCHANGED,
        "update_ms_p50": quantile(updates, 0.5),
        "update_ms_p99": quantile(updates, 0.99),
        "change_cpu_ms": round(change_cpu_ms(options.topics), 3),
        **watchers,
        "load_average": os.getloadavg()[0],
    }


async def unchanged_count(programs: Client) -> int:
    """Return how many listings the nodes have answered from a list, without its names."""
    counters = await programs.counters()
    return counters["topic_lists_unchanged"]


def is_right(result: dict[str, Any]) -> bool:
    return result["right"] and not result["names_read"]


def keeps_promises(result: dict[str, Any]) -> bool:
    slowest_s = max(result["load_s"], result["load_busy_s"])
    return bool(
        slowest_s * 1_000 <= TOPIC_LIST_LOAD_MS_MAX
        and result["unchanged_ms_p50"] <= UNCHANGED_MS_P50_MAX
        and result["watchers_rss_mb"] <= WATCHERS_MB_MAX
    )


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--watchers", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, help="On the disk to measure.")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        plan = make_plan_on_free_ports(SIZE, cluster_id="lists")
        async with LocalCluster(plan, Path(folder)) as cluster:
            await cluster.wait_ready()
            result = await run(options, plan, cluster)
    print(json.dumps(result))
    return 0 if is_right(result) and (keeps_promises(result) or not options.check) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
