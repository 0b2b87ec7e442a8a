"""How long do very many subscriptions take to connect, spread over the shadows of one source?

    .venv/bin/python benchmarks/shadow/many_subscriptions.py [--subscriptions 100000] [--quick]

Each is durable, is made by its SUBSCRIBE, and has a consumer. Then one message is published, and
all of them get it. Memory is what the brokers have more than before; bytes on disk are those of a
shadow's files. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.support.shadow_topics import (
    Brokers,
    Publisher,
    Shadowed,
    arrivals,
    make_shadows,
    subscribe,
)
from nextgen.cli.local.plan import LEDGERS_FOLDER, ClusterSize
from nextgen.harness.perf.bench import Bench, bench, note
from nextgen.pulsar.client import PulsarClientConnection

GOAL_S = {40_000: 120}
ARRIVES_S = 300
IDLE_S = 5
WINDOW = 500
"""SUBSCRIBE commands of one connection that are not answered."""


class Connecting:
    """All subscriptions. Each shadow has a connection of its own."""

    def __init__(self, shadowed: Shadowed, brokers: Brokers, count: int) -> None:
        self._shadowed = shadowed
        self._brokers = brokers
        self._each = count // len(shadowed.shadows)
        self.arrived = 0
        self.connected = 0

    async def run(self) -> float:
        """Connect all; return the seconds that it took."""
        began = time.perf_counter()
        await asyncio.gather(*(self._shadow(each) for each in self._shadowed.shadows))
        return time.perf_counter() - began

    async def _shadow(self, shadow: str) -> None:
        connection = await self._brokers.connect(
            self._shadowed.owners[shadow], arrivals(self._arrived)
        )
        numbers = iter(range(self._each))
        await asyncio.gather(*(self._some(connection, shadow, numbers) for _ in range(WINDOW)))

    async def _some(self, connection: PulsarClientConnection, shadow: str, numbers: Any) -> None:
        for number in numbers:
            await subscribe(connection, shadow, f"subscription-{number}", number, permits=10)
            self.connected += 1
            if self.connected % 10_000 == 0:
                note(f"{self.connected} subscriptions")

    def _arrived(self, _number: int, _at: float) -> None:
        self.arrived += 1


async def measure(subscriptions: int, shadows: int) -> dict[str, Any]:
    async with bench(None, ClusterSize(brokers=3)) as cluster:
        shadowed = await make_shadows(cluster, "many", shadows)
        brokers = Brokers(cluster)
        publisher = await Publisher.open(
            brokers, shadowed.owners[shadowed.source], shadowed.source, 100
        )
        before, cpu_before = _memory_mb(cluster), _cpu_s(cluster)
        connecting = Connecting(shadowed, brokers, subscriptions)
        seconds = await connecting.run()
        after, cpu = _memory_mb(cluster), _cpu_s(cluster)
        await asyncio.sleep(IDLE_S)
        idle_percent = (_cpu_s(cluster) - cpu) / IDLE_S * 100
        began = time.perf_counter()
        publisher.send()
        while connecting.arrived < subscriptions:
            assert time.perf_counter() - began < ARRIVES_S, f"{connecting.arrived} messages"
            await asyncio.sleep(0.02)
        delivered_s = time.perf_counter() - began
        assert cluster.cluster is not None
        disk = _disk_bytes(cluster.cluster.data_dir / LEDGERS_FOLDER, shadowed)
        brokers.close()
    return {
        "benchmark": "many_subscriptions",
        "connect_seconds": round(seconds, 1),
        "goal_seconds": GOAL_S.get(subscriptions),
        "subscriptions_per_s": round(subscriptions / seconds),
        "broker_cpu_ms_per_subscription": round((cpu - cpu_before) / subscriptions * 1e3, 3),
        "brokers_memory_mb_before": before,
        "brokers_memory_mb_after": after,
        "memory_kb_per_subscription": round(
            (sum(after.values()) - sum(before.values())) * 1024 / subscriptions, 2
        ),
        "brokers_idle_cpu_percent": round(idle_percent, 1),
        "one_message_to_all_seconds": round(delivered_s, 2),
        "disk_bytes_per_shadow": disk,
        "subscriptions": subscriptions,
        "shadows": shadows,
        "load_average_after": round(os.getloadavg()[0], 1),
    }


def _brokers(cluster: Bench) -> list[str]:
    assert cluster.cluster is not None
    return [node.node_id for node in cluster.cluster.plan.of_kind("broker")]


def _memory_mb(cluster: Bench) -> dict[str, float]:
    return {name: cluster.memory_mb(name) or 0.0 for name in _brokers(cluster)}


def _cpu_s(cluster: Bench) -> float:
    return sum(cluster.cpu_seconds(name) or 0.0 for name in _brokers(cluster))


def _disk_bytes(ledgers: Path, shadowed: Shadowed) -> int:
    folders = [
        ledgers / topic_id[:4] / topic_id
        for name, topic_id in shadowed.topic_ids.items()
        if name != shadowed.source
    ]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return round(sum(path.stat().st_blocks * 512 for path in files) / len(folders))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subscriptions", type=int, default=40_000)
    parser.add_argument("--shadows", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="2,000 subscriptions")
    options = parser.parse_args()
    count = 2_000 if options.quick else options.subscriptions
    print(json.dumps(asyncio.run(measure(count, options.shadows))))


if __name__ == "__main__":
    main()
