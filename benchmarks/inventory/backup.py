"""How long do backup and restore of a million topics take, and is everything there afterwards?

    python -m benchmarks.inventory.backup [--topics 1000000] [--shards 3] [--into 9]

A cluster of one process of each kind is filled by ``nextgen import metadata`` and backed up; a
second one with ``--into`` shards is restored from the backup and exported. The commands are run as
people run them. Prints its steps and one JSON line last:

- ``backup_s``, ``restore_s``: the commands, the start of their interpreter included
- ``megabytes``: of the backup
- ``equal``: whether both clusters export the same lines
- ``again_s``: the same restore once more, which finds that it is done
- ``verified``: whether ``nextgen shards verify`` finds nothing in the restored cluster
- ``load_average``: of the machine, at the end

Exits with 1 if anything is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.inventory.metadata_import import command, lines_of
from nextgen.cli.local.cluster import LocalCluster
from nextgen.cli.local.plan import ClusterPlan, ClusterSize, make_plan_on_free_ports
from nextgen.runtime.security.cluster_proof import CLUSTER_ID_VARIABLE, SECRET_FILE_VARIABLE
from nextgen.runtime.security.cluster_secret import SECRET_FILE


def use(plan: ClusterPlan, data_dir: Path) -> str:
    """Let commands prove the cluster's secret; return the target."""
    os.environ[SECRET_FILE_VARIABLE] = str(data_dir / SECRET_FILE)
    os.environ[CLUSTER_ID_VARIABLE] = plan.cluster_id
    return plan.discovery_endpoints[0]


def size_of(shards: int) -> ClusterSize:
    return ClusterSize(cluster_managers=1, shard_nodes=1, discovery=1, brokers=1, shards=shards)


async def back_up(directory: Path, topics: int, shards: int) -> dict[str, Any]:
    """Fill a cluster, back it up, and export it."""
    file = directory / "metadata.jsonl"
    with file.open("w", encoding="utf-8") as out:
        for line in lines_of(topics):
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
    plan = make_plan_on_free_ports(size_of(shards))
    async with LocalCluster(plan, directory / "first") as cluster:
        await cluster.wait_ready()
        target = use(plan, directory / "first")
        _, import_s = await command(target, "import", "metadata", str(file))
        print(json.dumps({"import_s": round(import_s, 1)}), flush=True)
        taken, backup_s = await command(target, "backup", str(directory / "backup"))
        print(json.dumps({"backup_s": round(backup_s, 1), **taken}), flush=True)
        await command(target, "export", "metadata", str(directory / "first.jsonl"))
    return {
        "topics": topics,
        "backup_s": round(backup_s, 1),
        "megabytes": round(taken["bytes"] / 1e6, 1),
        "complete": taken["topics"] == topics,
    }


async def bring_back(directory: Path, shards: int) -> dict[str, Any]:
    """Restore into a second cluster, and compare what it exports."""
    plan = make_plan_on_free_ports(size_of(shards))
    async with LocalCluster(plan, directory / "second") as cluster:
        await cluster.wait_ready()
        target = use(plan, directory / "second")
        restored, restore_s = await command(target, "restore", str(directory / "backup"))
        print(json.dumps({"restore_s": round(restore_s, 1), **restored}), flush=True)
        again, again_s = await command(target, "restore", str(directory / "backup"))
        await command(target, "export", "metadata", str(directory / "second.jsonl"))
        verified, verify_s = await command(target, "shards", "verify")
    first, second = (directory / name for name in ("first.jsonl", "second.jsonl"))
    return {
        "restore_s": round(restore_s, 1),
        "again_s": round(again_s, 1),
        "again_changes_nothing": again["was_done"],
        "equal": first.read_bytes() == second.read_bytes(),
        "verify_s": round(verify_s, 1),
        "verified": bool(verified),
    }


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--into", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        result = await back_up(directory, options.topics, options.shards)
        result |= await bring_back(directory, options.into)
    result["load_average"] = round(os.getloadavg()[0], 1)
    print(json.dumps(result))
    return int(any(value is False for value in result.values()))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
