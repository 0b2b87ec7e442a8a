"""What does a rolling restart of all brokers cost those who look topics up meanwhile?

Each broker of the default cluster is stopped with SIGTERM, which drains it, and started again, one
after the other. ``--topics`` units are assigned before. Six clients create and look up topics all
the time; an operation is timed from its first attempt to its answer. Every session must have ended
with nothing assigned to it. One JSON line last; exit code 1 if a lookup failed.

    python -m benchmarks.brokers.rolling_brokers [--topics 1000] [--shards 4] [--rounds 1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterSize
from nextgen.client import Client
from nextgen.client.log.reader import read_events
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX, TOPICS_PER_CREATE_MAX
from tests.support.callers.steady_load import SteadyLoad, steady_load
from tests.support.processes.local_cluster import running_cluster

ROLLED = "rolled/topics"
BATCH = min(500, NAMES_PER_LOOKUP_MAX, TOPICS_PER_CREATE_MAX)


async def measure(directory: Path, topics: int, shards: int, rounds: int) -> dict[str, Any]:
    """Return the load's numbers over all rounds, and what the brokers' stops took."""
    drains_s: list[float] = []
    async with running_cluster(directory, ClusterSize(shards=shards)) as cluster:
        async with steady_load(cluster) as load:
            await _assign(load.client, topics)
            for _ in range(rounds):
                for node in cluster.plan.of_kind("broker"):
                    drains_s.append(await _restart(cluster, load, node.node_id))
        lost = await _reasons(cluster)
    return {
        "question": "rolling_brokers",
        "restarts": len(drains_s),
        "topics": topics,
        "shards": shards,
        **load.summary(),
        "drain_s_max": max(drains_s),
        "assigned_because": lost,
    }


async def _assign(client: Client, topics: int) -> None:
    await client.create_tenant(ROLLED.partition("/")[0])
    await client.create_namespace(ROLLED)
    names = [f"persistent://{ROLLED}/{number}" for number in range(topics)]
    for start in range(0, topics, BATCH):
        some = names[start : start + BATCH]
        await client.create_topics(some)
        await client.lookup(some)


async def _restart(cluster: LocalCluster, load: SteadyLoad, node_id: str) -> float:
    """Stop a broker by SIGTERM and start it again; return the seconds that the stop took."""
    loop = asyncio.get_running_loop()
    load.step(node_id)
    began = loop.time()
    await cluster.kill(node_id, signal.SIGTERM)
    took_s = round(loop.time() - began, 2)
    await cluster.start_node(node_id)
    await cluster.wait_ready([node_id])
    await load.progress()
    return took_s


async def _reasons(cluster: LocalCluster) -> dict[str, int]:
    """Return how many units were assigned for which reason, over all shards."""
    counts: dict[str, int] = {}
    for shard_id in range(1, cluster.plan.size.shards + 1):
        async for event in read_events(
            cluster.plan.discovery_endpoints, shard_id, types=["topic_assigned"]
        ):
            reason = event.topic_assigned.reason
            counts[reason] = counts.get(reason, 0) + 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nextgen-brokers-") as directory:
        measured = asyncio.run(
            measure(Path(directory), options.topics, options.shards, options.rounds)
        )
    print(json.dumps(measured))
    sys.exit(1 if measured["lookups_failed"] else 0)


if __name__ == "__main__":
    main()
