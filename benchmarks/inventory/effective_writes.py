"""What does an effective write cost, and is anything stale at a broker after one?

A cluster on loopback with fsync; every broker has topics of one namespace. Policies of the topic,
the namespace and the tenant are set in turn, effective, and each broker that has the object is
asked at once what it holds. The same number of writes that are only committed is measured beside
it. With --leader-kills the leader of the namespace's shard is killed so many times in between, and
the first effective write behind each kill is timed. One JSON line last, times in ms.

    python -m benchmarks.inventory.effective_writes [--changes 1000] [--leader-kills 0]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.client.brokers.metadata import broker_metadata
from nextgen.client.transport.channel import close_channel, open_channel
from nextgen.client.wire.policies import policies_from_proto
from nextgen.harness.load.measure import Latencies
from nextgen.kernel.governance.policies import Policies
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC, Kind
from protos.nextgen.v1.shard_service_pb2 import ObjectName

TENANT = "bench"
NAMESPACE = f"{TENANT}/effective"
TOPICS = [f"persistent://{NAMESPACE}/t-{number}" for number in range(32)]
TIMEOUT_MS = 30_000
SHARDS = 4
BROKERS = 2


@dataclass(frozen=True)
class Held:
    """An object, and the brokers that have it."""

    kind: Kind
    name: str
    broker_ids: Sequence[str]


class Bench:
    """A cluster under measurement."""

    def __init__(self, cluster: LocalCluster, effective: Client, committed: Client) -> None:
        self.cluster = cluster
        self.effective = effective
        self.committed = committed
        self.stale = 0
        self.reads = 0
        self.objects: list[Held] = []
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def prepare(self) -> None:
        for node in self.cluster.plan.of_kind("broker"):
            self._channels[node.node_id] = open_channel(node.grpc)
        await self.committed.create_tenant(TENANT)
        await self.committed.create_namespace(NAMESPACE)
        await self.committed.create_topics(TOPICS)
        places = await self.committed.lookup(TOPICS)
        self.objects = [
            held
            for place in places
            for held in (
                Held(KIND_TOPIC, place.topic, [place.broker_id]),
                Held(KIND_NAMESPACE, NAMESPACE, list(self._channels)),
                Held(KIND_TENANT, TENANT, list(self._channels)),
            )
        ]

    @property
    def names(self) -> list[str]:
        """Every object once."""
        return list(dict.fromkeys(held.name for held in self.objects))

    async def close(self) -> None:
        for channel in self._channels.values():
            await close_channel(channel)

    async def write(self, client: Client, held: Held, value: int) -> float:
        """Return how many milliseconds a change took."""
        began = time.perf_counter()
        await client.set_policies(held.name, Policies(message_ttl_ms=value))
        return (time.perf_counter() - began) * 1000

    async def check(self, held: Held, value: int) -> None:
        """Count the brokers that do not say what was written, or something later."""
        for broker_id in held.broker_ids:
            names = [ObjectName(kind=held.kind, name=held.name)]
            item = (await broker_metadata(self._channels[broker_id], names)).items[0]
            holder = getattr(item, item.WhichOneof("value") or "topic")
            said = policies_from_proto(holder.policies).message_ttl_ms
            self.reads += 1
            self.stale += said is None or said < value


async def measure(bench: Bench, changes: int, at_once: int) -> dict[str, object]:
    """Make effective changes, ``at_once`` of different objects at a time, and check each."""
    effective, committed = Latencies(), Latencies()
    # Leaders are spread behind a start, and each waits once for whoever subscribed before it.
    for held in {held.name: held for held in bench.objects}.values():
        await bench.write(bench.effective, held, 0)
    began = time.perf_counter()
    # Each object is written by one lane, so that its values grow in the order they are written.
    lane_of = {name: number % at_once for number, name in enumerate(bench.names)}
    lanes = [
        [held for held in bench.objects if lane_of[held.name] == lane] for lane in range(at_once)
    ]
    values = iter(range(1, changes + 1))

    async def work(objects: Sequence[Held]) -> None:
        for number, value in enumerate(values):
            held = objects[number % len(objects)]
            effective.add((await bench.write(bench.effective, held, value)) / 1000)
            await bench.check(held, value)

    await asyncio.gather(*(work(lane) for lane in lanes))
    seconds = time.perf_counter() - began
    for number in range(min(changes, 200)):
        held = bench.objects[number % len(bench.objects)]
        value = changes + 1 + number
        committed.add((await bench.write(bench.committed, held, value)) / 1000)
    return {
        "effective_ms": effective.summary(),
        "committed_ms": committed.summary(),
        "changes_per_s": round(changes / seconds, 1),
    }


async def kill_leaders(bench: Bench, kills: int) -> list[float]:
    """Return how long the first effective write behind each kill of a shard's leader took."""
    took: list[float] = []
    held = Held(
        KIND_NAMESPACE, NAMESPACE, [node.node_id for node in bench.cluster.plan.of_kind("broker")]
    )
    for number in range(kills):
        state = await bench.committed.cluster()
        written = await bench.committed.set_policies(NAMESPACE, Policies(message_ttl_ms=10**6))
        leader = next(each for each in state.shards if each.shard_id == written.shard_id)
        bench.cluster.strike(leader.leader_node)
        value = 2 * 10**6 + number
        took.append(round(await bench.write(bench.effective, held, value), 1))
        await bench.check(held, value)
        await bench.cluster.start_node(leader.leader_node)
        await bench.cluster.wait_ready([leader.leader_node])
    return took


async def run(arguments: argparse.Namespace) -> dict[str, object]:
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        size = ClusterSize(1, 3, 2, BROKERS, shards=SHARDS)
        plan = make_plan_on_free_ports(size, cluster_id="bench")
        cluster = await stack.enter_async_context(LocalCluster(plan, Path(directory)))
        await cluster.wait_ready()
        endpoints = plan.discovery_endpoints
        effective = await stack.enter_async_context(
            Client(endpoints, timeout_ms=TIMEOUT_MS, effective=True)
        )
        committed = await stack.enter_async_context(Client(endpoints, timeout_ms=TIMEOUT_MS))
        bench = Bench(cluster, effective, committed)
        stack.push_async_callback(bench.close)
        await bench.prepare()
        result = await measure(bench, arguments.changes, arguments.at_once)
        if arguments.leader_kills:
            result["after_kill_ms"] = await kill_leaders(bench, arguments.leader_kills)
        return result | {
            "changes": arguments.changes,
            "at_once": arguments.at_once,
            "reads": bench.reads,
            "stale": bench.stale,
            "load": round(os.getloadavg()[0], 2),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--leader-kills", type=int, default=0)
    result = asyncio.run(run(parser.parse_args()))
    print(json.dumps(result))
    if result["stale"]:
        raise SystemExit("brokers were stale behind effective writes")


if __name__ == "__main__":
    main()
