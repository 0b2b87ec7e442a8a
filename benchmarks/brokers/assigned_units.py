"""What does a shard node keep in memory of each assigned unit?

    python -m benchmarks.brokers.assigned_units [--units 20000] [--lines 20]

One shard in one process without sockets: topic controller, broker manager and home shard are the
real ones over real change streams, log and broker are fakes and are left out. Topics of one
namespace are created, then looked up; what was allocated since is what the units take. Prints one
JSON line last:

- ``bytes_per_unit``: all of it, by allocation (tracemalloc), and by what it is for: ``controller``
  is what lookups know, ``manager`` what the session has and follows, ``states`` topics and
  assignments that a leader keeps of what it read or decided, as many as it may keep
  (``SHARD_STATES_CACHED_MAX``, ``NODE_STATES_CACHED_MAX``), ``watches`` the home shard's
- ``lines``: with ``--lines``, where most of it was allocated
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

from nextgen.runtime.lifecycle.exit_code import CheckFailed
from tests.support.shards.harness import Harness
from tests.support.shards.streamed_homes import StreamedHomes
from tests.support.shards.streamed_shard import in_streamed_shard

SETTLED_S = 30.0
"""In virtual time: what is kept for seconds, in case that it is asked for again, is gone."""

PER_REQUEST = 1_000

ROOT = Path(__file__).parents[2]
PARTS = {
    "shards/assignment/": "controller",
    "shards/sessions/": "manager",
    "nextgen/client/changes/": "manager",
    "shards/state/": "states",
    "shards/domain/": "states",
    "shards/projections/": "states",
    "shards/watches/": "watches",
}
FAKES = (
    str(ROOT / "tests" / "*"),
    # Records, which the fake log keeps.
    str(ROOT / "shards" / "wire" / "event.py"),
    tracemalloc.__file__,
)


def snapshot() -> tracemalloc.Snapshot:
    gc.collect()
    fakes = [tracemalloc.Filter(False, each) for each in FAKES]
    return tracemalloc.take_snapshot().filter_traces(fakes)


def part_of(filename: str) -> str:
    path = Path(filename)
    relative = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else filename
    return next((part for folder, part in PARTS.items() if relative.startswith(folder)), "other")


async def assign(shard: Harness, names: list[str]) -> None:
    for start in range(0, len(names), PER_REQUEST):
        answers = await shard.lookup(*names[start : start + PER_REQUEST])
        if any(answer.rejection_code for answer in answers):
            raise CheckFailed("a unit was not assigned")


async def measure(shard: Harness, units: int, lines: int) -> dict[str, Any]:
    broker = await shard.start_broker("broker-1", capacity_units=2 * units)
    texts = [f"invoices-of-customer-{number:09}" for number in range(units)]
    names: list[str] = []
    for start in range(0, units, PER_REQUEST):
        names += await shard.create_topics(*texts[start : start + PER_REQUEST])
    await asyncio.sleep(SETTLED_S)
    tracemalloc.start()
    before = snapshot()
    await assign(shard, names)
    await asyncio.sleep(SETTLED_S)
    broker.deliveries.clear()
    grown = snapshot().compare_to(before, "lineno")
    tracemalloc.stop()
    if shard.leader.state.reads.used_units(broker.session_id) != units:
        raise CheckFailed("not all units are assigned")
    parts: Counter[str] = Counter()
    for each in grown:
        parts[part_of(each.traceback[0].filename)] += each.size_diff
    result: dict[str, Any] = {
        "benchmark": "assigned_units",
        "bytes_per_unit": {
            "all": round(parts.total() / units),
            **{part: round(size / units) for part, size in sorted(parts.items())},
        },
        "units": units,
        "load_average_after": round(os.getloadavg()[0], 1),
    }
    if lines:
        result["lines"] = {
            str(each.traceback[0]).removeprefix(f"{ROOT}/"): round(each.size_diff / units, 1)
            for each in grown[:lines]
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--units", type=int, default=20_000)
    parser.add_argument("--lines", type=int, default=0)
    given = parser.parse_args()
    results: list[dict[str, Any]] = []

    async def scenario(shard: Harness, _homes: StreamedHomes) -> None:
        results.append(await measure(shard, given.units, given.lines))

    with tempfile.TemporaryDirectory() as directory:
        in_streamed_shard(Path(directory), scenario, units=4 * given.units)
    print(json.dumps(results[0]))


if __name__ == "__main__":
    main()
