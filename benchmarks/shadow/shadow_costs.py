"""What do the shadows of a source cost its broker for each message, and how many bytes on disk?

    .venv/bin/python benchmarks/shadow/shadow_costs.py [--quick]

Sources with no, one and many shadows get as many messages at the same rate, in turns in one
cluster. Each shadow has a consumer, at other brokers. Processor time is that of the source's
broker, without what it uses while nothing is published. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections import Counter
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
from nextgen.harness.perf.bench import Bench, bench

GOAL_RATIO = 1.1
"""Of the processor time for a message with a hundred shadows to that with one."""

BODY_BYTES = 1_000
PERMITS = 1_000_000
ARRIVES_S = 60


class Measured:
    """One source, its publisher, and what its shadows' consumers have."""

    def __init__(self, cluster: Bench, shadowed: Shadowed) -> None:
        self.cluster = cluster
        self.shadowed = shadowed
        self.broker = shadowed.owners[shadowed.source]
        self.arrived = 0
        self.cpu_ms: list[float] = []

    async def begin(self, brokers: Brokers) -> None:
        source, shadows = self.shadowed.source, self.shadowed.shadows
        self.publisher = await Publisher.open(brokers, self.broker, source, BODY_BYTES)
        for number, shadow in enumerate(shadows):
            connection = await brokers.connect(
                self.shadowed.owners[shadow], arrivals(self._arrived)
            )
            await subscribe(connection, shadow, "reads", number, permits=PERMITS)

    async def round(self, messages: int, per_second: float) -> None:
        """Publish; note the processor time for a message."""
        idle = await self._cpu_while(asyncio.sleep(messages / per_second / 2)) * 2
        used = await self._cpu_while(self.publisher.publish(messages, per_second))
        self.cpu_ms.append((used - idle) / messages * 1e3)
        expected = len(self.publisher.sent_at) * len(self.shadowed.shadows)
        deadline = time.monotonic() + ARRIVES_S
        while self.arrived < expected:
            assert time.monotonic() < deadline, f"{self.arrived} of {expected} messages arrived"
            await asyncio.sleep(0.05)

    async def _cpu_while(self, work: Any) -> float:
        before = self.cluster.cpu_seconds(self.broker) or 0.0
        await work
        return (self.cluster.cpu_seconds(self.broker) or 0.0) - before

    def _arrived(self, _number: int, _at: float) -> None:
        self.arrived += 1


async def measure(counts: list[int], rounds: int, messages: int, per_second: float) -> Any:
    async with bench(None, ClusterSize(brokers=2)) as cluster:
        brokers = Brokers(cluster)
        measured = {}
        for count in counts:
            shadowed = await make_shadows(cluster, f"costs-{count}", count)
            measured[count] = Measured(cluster, shadowed)
            await measured[count].begin(brokers)
        for each in measured.values():
            await each.round(messages // 2, per_second)
            each.cpu_ms.clear()
        for _ in range(rounds):
            for each in measured.values():
                await each.round(messages, per_second)
        assert cluster.cluster is not None
        disk = _disk(cluster.cluster.data_dir / LEDGERS_FOLDER, measured[counts[-1]].shadowed)
        brokers.close()
    cpu_ms = {count: statistics.median(each.cpu_ms) for count, each in measured.items()}
    many, one = cpu_ms[counts[-1]], cpu_ms[counts[-2]]
    pairs = zip(measured[counts[-1]].cpu_ms, measured[counts[-2]].cpu_ms, strict=True)
    return {
        "benchmark": "shadow_costs",
        "source_broker_cpu_ms_per_message": {
            str(count): round(value, 3) for count, value in cpu_ms.items()
        },
        "ratio_many_to_one": round(many / one, 3),
        "ratios_of_rounds": [round(first / second, 3) for first, second in pairs],
        "goal_ratio": GOAL_RATIO,
        **disk,
        "messages": messages,
        "rounds": rounds,
        "per_second": per_second,
        "load_average_after": round(os.getloadavg()[0], 1),
    }


def _disk(ledgers: Path, shadowed: Shadowed) -> dict[str, Any]:
    """Return the bytes of entries, and of all files, of the source and of its average shadow."""
    sizes = {name: _bytes_of(ledgers, topic_id) for name, topic_id in shadowed.topic_ids.items()}
    source = sizes.pop(shadowed.source)
    total = sum(sizes.values(), start=Counter[str]())
    return {
        "source_entries_bytes": source["entries"],
        "shadow_entries_bytes": total["entries"],
        "shadow_all_bytes_each": round(sum(total.values()) / max(1, len(sizes))),
    }


def _bytes_of(ledgers: Path, topic_id: str) -> Counter[str]:
    """Return the allocated bytes of a topic's files, by the ends of their names."""
    found: Counter[str] = Counter()
    for path in (ledgers / topic_id[:4] / topic_id).rglob("*"):
        found[path.suffix.removeprefix(".") or "other"] += path.stat().st_blocks * 512
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shadows", type=int, default=100)
    parser.add_argument("--messages", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-second", type=float, default=150)
    parser.add_argument("--quick", action="store_true", help="one round of 600 messages")
    options = parser.parse_args()
    messages, rounds = (600, 1) if options.quick else (options.messages, options.rounds)
    counts = [0, 1, options.shadows]
    print(json.dumps(asyncio.run(measure(counts, rounds, messages, options.per_second))))


if __name__ == "__main__":
    main()
