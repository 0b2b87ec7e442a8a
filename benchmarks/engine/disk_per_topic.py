"""How much disk does a topic take on one replica? Journal and view, created and then assigned.

Creates topics without properties on the smallest cluster, stops it, and looks at the files;
then assigns every topic by looking it up, and looks again. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import MINIMAL, ClusterPlan, make_plan_on_free_ports
from nextgen.client import Client
from nextgen.kernel.limits.cluster import NAMES_PER_LOOKUP_MAX

NODE = "shard-node-1"
NAMESPACE = "acme/orders"
SETTLE_S = 1


def names(count: int) -> list[str]:
    return [f"persistent://{NAMESPACE}/region-7-customer-{n:08d}" for n in range(count)]


def bytes_on_disk(data_dir: Path) -> tuple[int, int]:
    """Return the bytes of the journal, without reserved space, and of the view."""
    group = data_dir / NODE / "group-1"
    segments = (group / "journal").glob("*.journal")
    journal = sum(len(path.read_bytes().rstrip(b"\0")) for path in segments)
    view = sum(path.stat().st_size for path in (group / "view").iterdir())
    return journal, view


async def create(client: Client, topics: list[str]) -> None:
    await client.create_tenant(NAMESPACE.partition("/")[0])
    await client.create_namespace(NAMESPACE)
    await client.create_topics(topics)


async def assign(client: Client, topics: list[str]) -> None:
    for start in range(0, len(topics), NAMES_PER_LOOKUP_MAX):
        found = await client.lookup(topics[start : start + NAMES_PER_LOOKUP_MAX])
        assert all(location.broker_id for location in found)


async def run(plan: ClusterPlan, data_dir: Path, topics: list[str], *, first: bool) -> None:
    async with LocalCluster(plan, data_dir) as cluster:
        await cluster.wait_ready()
        async with Client(list(plan.discovery_endpoints), timeout_ms=60_000) as client:
            await (create if first else assign)(client, topics)
        await asyncio.sleep(SETTLE_S)  # The view is applied behind the answers.


async def measure(count: int) -> dict[str, object]:
    topics = names(count)
    plan = make_plan_on_free_ports(MINIMAL, cluster_id="disk")
    with tempfile.TemporaryDirectory() as directory:
        data_dir = Path(directory)
        await run(plan, data_dir, topics, first=True)
        journal_created, view_created = bytes_on_disk(data_dir)
        await run(plan, data_dir, topics, first=False)
        journal_assigned, view_assigned = bytes_on_disk(data_dir)
    return {
        "benchmark": "disk_per_topic",
        "topics": count,
        "name_bytes": len(topics[0]),
        "journal_bytes_created": round(journal_created / count),
        "view_bytes_created": round(view_created / count),
        "journal_bytes_assigned": round((journal_assigned - journal_created) / count),
        "view_bytes_assigned": round((view_assigned - view_created) / count),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=50_000)
    print(json.dumps(asyncio.run(measure(parser.parse_args().topics))))


if __name__ == "__main__":
    main()
