"""How fast does an exporter read a follower and write files, and how large is an event in them?

    python -m benchmarks.pipelines.export_rate [--topics 100000] [--batch 1] [--directory DIR]

Creates topics on a cluster of two shard nodes and looks each of them up, which makes one more event
each. Then an exporter, a process of its own, exports both shards from their followers while nobody
writes; the export is checked against the log. ``--batch`` is how many topics one command creates:
with 1 every event has a command id of its own, 16 random bytes, which is the most it can take.
The rate counts from the opening of the directory to the last manifest. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nextgen.cli.local.plan import ClusterSize
from nextgen.harness.perf.bench import Bench, bench

SIZE = ClusterSize(cluster_managers=1, shard_nodes=2, discovery=1, brokers=2, shards=2)
IN_FLIGHT = 64
LOOKUP_BATCH = 500


async def fill(system: Bench, count: int, batch: int) -> None:
    """Make an event for each topic's creation, and one for its assignment."""
    topics = system.topics("exported", count).as_json()
    made = await system.run(
        "create_batched", "creating", count, topics=topics, batch=batch, in_flight=IN_FLIGHT
    )
    assert not made["errors"], made["first_error"]
    await system.run(
        "lookup_all", "assigning", count, topics=topics, names_per_message=LOOKUP_BATCH, in_flight=4
    )


async def command(*arguments: str) -> tuple[dict[str, Any], float]:
    """Run an export command in a process of its own; return its JSON and how long it took."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nextgen", "export", *arguments, "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    stdout, _ = await process.communicate()
    assert process.returncode == 0, stdout.decode()
    return json.loads(stdout), time.perf_counter() - began


async def measure(count: int, batch: int, directory: Path) -> dict[str, Any]:
    target_directory = directory / "export"
    async with bench(None, SIZE) as system:
        await fill(system, count, batch)
        target = ("--target", ",".join(system.targets))
        exported, wall_seconds = await command("run", str(target_directory), *target)
        checked, check_seconds = await command("check", str(target_directory), *target)
    assert checked["ok"], checked["findings"]
    assert checked["compared_events"] == exported["events"]
    return {
        "benchmark": "export_rate",
        "topics": count,
        "batch": batch,
        "events": exported["events"],
        "seconds": exported["seconds"],
        "events_per_second": exported["events_per_second"],
        "wall_seconds_with_start": round(wall_seconds, 2),
        "bytes_per_event": checked["bytes_per_event"],
        "files": checked["files"],
        "check_seconds": round(check_seconds, 2),
        "compared_events": checked["compared_events"],
        "load_average": os.getloadavg()[0],
        "cores": os.cpu_count(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--directory", type=Path)
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="nextgen-export-"))
    try:
        print(json.dumps(asyncio.run(measure(given.topics, given.batch, directory))))
    finally:
        if given.directory is None:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
