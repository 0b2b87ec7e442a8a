"""Does folding creates into a shard's view become slower as the view grows?

    python -m benchmarks.engine.view_growth [--topics 1000000] [--order random] [--directory DIR]

Folds records of ``--batch`` creates each, as a leader decides them, into a view on disk: one
transaction a record, no cluster. Names in random order or, as ``million_topics`` creates them, in
their own. One JSON line last: processor and wall microseconds per topic for each ``--step``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.support.topic_load import topic_name
from nextgen.replication.ports import Entry, Record
from protos.nextgen.v1.events_pb2 import DecidedCommand
from shards.projections.stored_view import open_view_store

NAMESPACE_ID = "0123456789abcdef01234567"
DIGITS = 10**14
"""So many names of one length there are."""


def names(order: str) -> Iterator[str]:
    chance = random.Random(7)
    number = 0
    while True:
        yield topic_name(chance.randrange(DIGITS) if order == "random" else number)
        number += 1


def decided(created: list[str]) -> bytes:
    command = DecidedCommand(
        command_id=os.urandom(16), time_ms=1_700_000_000_000, outcome=os.urandom(40)
    )
    for name in created:
        event = command.events.add(schema_version=1)
        event.topic_created.name = name
        event.topic_created.topic_id = os.urandom(12).hex()
        event.topic_created.namespace_id = NAMESPACE_ID
    return command.SerializeToString()


def measure(directory: Path, options: argparse.Namespace) -> dict[str, object]:
    view = open_view_store(directory / "view")
    source = names(options.order)
    index = position = 0
    cpu_us: list[float] = []
    wall_us: list[float] = []
    for done in range(options.step, options.topics + 1, options.step):
        cpu = wall = 0.0
        for _ in range(options.step // options.batch):
            record = Record(decided([next(source) for _ in range(options.batch)]), options.batch)
            entry = Entry(index + 1, 1, position + 1, (record,))
            began, cpu_began = time.perf_counter(), time.process_time()
            view.apply([entry])
            wall += time.perf_counter() - began
            cpu += time.process_time() - cpu_began
            index, position = index + 1, position + options.batch
        cpu_us.append(round(cpu / options.step * 1e6, 2))
        wall_us.append(round(wall / options.step * 1e6, 2))
        print(
            json.dumps({"topics": done, "cpu_us": cpu_us[-1], "wall_us": wall_us[-1]}), flush=True
        )
    size = view.bytes_on_disk()
    view.close()
    return {
        "benchmark": "view_growth",
        "order": options.order,
        "topics": options.topics,
        "cpu_us_per_topic": cpu_us,
        "wall_us_per_topic": wall_us,
        "view_bytes_per_topic": round(size / options.topics),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--step", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--order", choices=["random", "sequence"], default="random")
    parser.add_argument("--directory", type=Path, default=None, help="where the disk is")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="view-growth-", dir=options.directory))
    try:
        print(json.dumps(measure(directory, options)))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
