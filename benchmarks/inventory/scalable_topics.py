"""What do 100,000 scalable topics cost, beside as many ordinary ones?

    python -m benchmarks.inventory.scalable_topics [--topics 100000] [--kills 10] [--check]

Two clusters in one run, each of one shard with three replicas: one gets scalable topics, of which
each tenth has 4 segments and the others one, the other one ordinary topics. Both are measured in
turns. All topics are in one shard, so that a leader has as many as it can have here.
Prints its steps and one JSON line last; of each pair ``scalable`` and ``ordinary``:

- ``create_per_s``: creates through the client library, 1,000 in a request, four requests at a time
- ``view_bytes_per_topic``, ``log_bytes_per_topic``: of one replica, the largest of three
- ``rss_mb``: resident memory of each shard node after the creates
- ``failover_ms``: from SIGKILL of the shard's leader to the first create that was sent later and is
  acknowledged, as ``nextgen perf failover`` measures it; all, and their median
- ``failover_ratio``: the median with scalable topics by the one with ordinary topics
- ``index_ms``: the two questions with which a leader of the scalable topics begins, to its view;
  ``index_plans``: how SQLite answers them
- ``right``: whether topics drawn by chance have the segments that they were created with
- ``load_average``: of the machine, at the end

Exits with 1 if a layout is wrong or a question is not answered by its index; with ``--check`` also
if failover takes more than a tenth longer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import sys
import time
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

from benchmarks.support.node_metrics import metrics_of
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize
from nextgen.client import Client, NewTopic
from nextgen.harness.perf.bench import Bench, bench
from nextgen.harness.perf.failover import Counts, measure_failover
from nextgen.kernel.limits.cluster import (
    TOPICS_PER_CREATE_MAX,
)
from nextgen.tasks.timeouts import timeout

SIZE = ClusterSize(cluster_managers=1, shard_nodes=3, discovery=1, brokers=1, shards=1)
RATIO_MAX = 1.1
TURN_TOPICS = 10_000
"""Topics of one cluster before it is the other's turn."""
CREATES_AT_ONCE = 4
DRAWN = 300
WAIT_S = 60.0
POLL_S = 0.2
QUESTIONS = {
    "has_work": "scalable_topics_with_work",
    "has_consumers": "scalable_topics_with_consumers",
}


class Inventory:
    """One of the two clusters, and what was found out about it."""

    def __init__(self, made: Bench, *, is_scalable: bool) -> None:
        assert made.cluster is not None
        self.bench = made
        self.cluster: LocalCluster = made.cluster
        self.is_scalable = is_scalable
        self.created = 0
        self.create_s = 0.0
        self.failover_ms: list[float] = []
        self._nodes = self.cluster.plan.of_kind("shard-node")

    def topic(self, number: int) -> NewTopic:
        if self.is_scalable:
            name = f"topic://{self.bench.namespace}/customer-{number:09d}"
            return NewTopic(name, segments=segments_of(number))
        return NewTopic(f"persistent://{self.bench.namespace}/customer-{number:09d}")

    async def create(self, count: int) -> None:
        starts = iter(range(self.created, self.created + count, TOPICS_PER_CREATE_MAX))
        end = self.created + count
        began = time.perf_counter()
        async with Client(list(self.bench.targets), timeout_ms=60_000) as client:

            async def some() -> None:
                for start in starts:
                    numbers = range(start, min(start + TOPICS_PER_CREATE_MAX, end))
                    created = await client.create_topics([self.topic(each) for each in numbers])
                    assert all(each.is_created for each in created), "a topic was refused"

            await asyncio.gather(*(some() for _ in range(CREATES_AT_ONCE)))
        self.create_s += time.perf_counter() - began
        self.created = end

    async def wait_views(self) -> None:
        """Return when the views of all nodes have what is committed."""
        async with timeout(WAIT_S):
            while True:
                all_numbers = [
                    await metrics_of(each.http, "nextgen_replication_") for each in self._nodes
                ]
                goal = max(numbers.get("commit_position", 1.0) for numbers in all_numbers)
                if all(numbers.get("applied_position") == goal for numbers in all_numbers):
                    return
                await asyncio.sleep(POLL_S)

    async def kill_leader(self) -> None:
        measured = await measure_failover(self.bench, Counts(kills=1, hangs=0, terms=0))
        self.failover_ms += [trial["ms"] for trial in measured["trials"]]

    def folders(self) -> list[Path]:
        return [self.cluster.data_dir / each.node_id / "group-1" for each in self._nodes]

    def log_bytes(self) -> int:
        """Return the bytes of the longest log, without the space that is reserved."""
        return max(
            sum(len(path.read_bytes().rstrip(b"\0")) for path in each.glob("journal/*.journal"))
            for each in self.folders()
        )

    def rss_mb(self) -> list[float | None]:
        return [self.bench.memory_mb(each.node_id) for each in self._nodes]


def segments_of(number: int) -> int:
    return 1 if number % 10 else 4


def note(**values: object) -> None:
    print(json.dumps(values), flush=True)


def ask_view(folder: Path) -> tuple[dict[str, float], dict[str, str]]:
    """Return the milliseconds and plans of a new leader's questions to a view."""
    took_ms, plans = {}, {}
    (path,) = (folder / "view").glob("view.*.sqlite")
    with closing(sqlite3.connect(path)) as view:
        for flag in QUESTIONS:
            question = (
                f"SELECT name FROM scalable_topics WHERE {flag} = 1 AND name > ? "
                "ORDER BY name LIMIT 256"
            )
            plans[flag] = view.execute(f"EXPLAIN QUERY PLAN {question}", ("",)).fetchall()[0][3]
            began = time.perf_counter()
            view.execute(question, ("",)).fetchall()
            took_ms[flag] = round((time.perf_counter() - began) * 1000, 3)
    return took_ms, plans


async def run(both: dict[str, Inventory], topics: int, kills: int) -> dict[str, Any]:
    scalable = both["scalable"]
    for first in range(0, topics, TURN_TOPICS):
        for each in both.values():
            await each.create(min(TURN_TOPICS, topics - first))
    for each in both.values():
        await each.wait_views()
    found: dict[str, dict[str, Any]] = {
        name: {"log_bytes_per_topic": round(each.log_bytes() / topics), "rss_mb": each.rss_mb()}
        for name, each in both.items()
    }
    note(created=topics, **found)
    for number in range(kills):
        # Neither is always the first.
        turns = list(both.items())
        for name, each in turns if number % 2 else reversed(turns):
            await each.kill_leader()
            note(**{name: round(each.failover_ms[-1], 1)})
    wrong = await scalable.wrong_layouts()
    for name, each in both.items():
        found[name] |= each.figures()
        found[name]["view_bytes_per_topic"] = each.bytes_per_topic("view/view.*.sqlite")
    index_ms, plans = ask_view(scalable.folders()[0])
    ratio = found["scalable"]["failover_ms_p50"] / found["ordinary"]["failover_ms_p50"]
    uses_indexes = all(QUESTIONS[flag] in plan for flag, plan in plans.items())
    return {
        **found,
        "failover_ratio": round(ratio, 3),
        "index_ms": index_ms,
        "index_plans": plans,
        "right": wrong == 0 and uses_indexes,
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        both = {
            name: Inventory(
                await stack.enter_async_context(bench(None, SIZE)), is_scalable=name == "scalable"
            )
            for name in ("scalable", "ordinary")
        }
        measured = await run(both, options.topics, options.kills)
    return {
        "benchmark": "scalable_topics",
        "topics": options.topics,
        **measured,
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=10, help="of each of the two leaders")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a promise is broken")
    options = parser.parse_args()
    result = asyncio.run(measure(options))
    print(json.dumps(result))
    is_kept = result["failover_ratio"] <= RATIO_MAX or not options.check
    sys.exit(0 if result["right"] and is_kept else 1)


if __name__ == "__main__":
    main()
