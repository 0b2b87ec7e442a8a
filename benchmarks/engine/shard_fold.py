"""How many topics does one core create: decided, encoded, and folded into a view?

    .venv/bin/python benchmarks/engine/shard_fold.py --topics 100000 --batch 1000

Decides through the real service on a log that commits at once and does not apply, so that deciding
and folding are measured apart; then folds the same entries into a view on disk. The last line is
JSON: rates in events per second, costs in microseconds per topic.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.replication.ports import Entry
from nextgen.replication.view.store import ViewStore
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.parent_gate import ParentKind
from shards.inventory.service import InventoryService
from shards.ports import GateAnswer, Parent
from shards.projections.fold import fold
from shards.projections.rows import query_of
from shards.projections.tables import METADATA
from shards.state.shard_state import ShardState
from tests.support.logs.memory_log import MemoryLog

NAMESPACES = 20


class AnyParent:
    """Every namespace exists."""

    def shard_ids(self) -> Sequence[int]:
        return (1,)

    async def read_parent(self, kind: ParentKind, name: str) -> Parent | None:
        return Parent(f"id-of-{name}", is_deleting=False)

    async def close_gate(self, *_: object) -> GateAnswer:
        raise AssertionError("nothing is deleted here")

    async def reopen_gate(self, *_: object) -> GateAnswer:
        raise AssertionError("nothing is deleted here")


def requests_for(topics: int, batch: int) -> list[pb.ExecuteRequest]:
    """Return creates of ``batch`` topics each, with command ids, as discovery sends them."""
    requests = []
    for first in range(0, topics, batch):
        specs = [
            pb.TopicSpec(name=f"persistent://acme/ns-{n % NAMESPACES}/orders-{n * 7919:x}")
            for n in range(first, min(first + batch, topics))
        ]
        create = pb.CreateTopics(topics=specs)
        command = pb.Command(command_id=os.urandom(16), create_topics=create)
        requests.append(pb.ExecuteRequest(commands=[command]))
    return requests


async def decide(requests: list[pb.ExecuteRequest], view: ViewStore) -> tuple[float, list[Entry]]:
    """Return the CPU seconds of carrying the requests out, and the entries they left."""
    log = MemoryLog(view)
    query = query_of(view.reader)
    state = ShardState(
        1, 1, log, query, lambda: time.time_ns() // 1_000_000, os.urandom, time.monotonic
    )
    state.adopt_first_slots(((0, SLOT_COUNT - 1),), 1)
    await state.proposer.confirm()
    entries: list[Entry] = []
    log.on_commit(entries.extend)
    service = InventoryService(state, AnyParent())
    log.hold_applies()
    started = time.process_time()
    for request in requests:
        (result,) = (await service.execute(request)).results
        assert not any(each.rejection_code for each in result.topics), "a create was refused"
    return time.process_time() - started, entries


def apply_all(entries: list[Entry], view: ViewStore) -> tuple[float, float]:
    """Return CPU and wall seconds of folding ``entries``, one transaction each."""
    cpu, wall = time.process_time(), time.perf_counter()
    for entry in entries:
        view.apply((entry,))
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    if not __debug__:
        sys.exit("asserts must be on")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        view = ViewStore(Path(folder) / "view", METADATA, fold)
        requests = requests_for(options.topics, options.batch)
        decide_seconds, entries = asyncio.run(decide(requests, view))
        fold_cpu_seconds, fold_wall_seconds = apply_all(entries, view)
        count = view.reader().exec_driver_sql("SELECT COUNT(*) FROM topics").scalar_one()
        assert count == options.topics, f"{count} topics in the view"
        size_bytes = sum(path.stat().st_size for path in (Path(folder) / "view").iterdir())
        view.close()
    events = sum(record.events for entry in entries for record in entry.records)
    payload_bytes = sum(len(record.payload) for entry in entries for record in entry.records)
    print(
        f"{options.topics} topics in batches of {options.batch}, python {platform.python_version()}"
    )
    print(f"folded at {events / fold_wall_seconds:,.0f} events/s by the clock")
    print(
        json.dumps(
            {
                "topics": options.topics,
                "batch": options.batch,
                "fold_events_per_cpu_second": round(events / fold_cpu_seconds),
                "fold_events_per_second": round(events / fold_wall_seconds),
                "decide_us_per_topic": round(decide_seconds / options.topics * 1e6, 1),
                "payload_bytes_per_topic": round(payload_bytes / options.topics, 1),
                "view_bytes_per_topic": round(size_bytes / options.topics),
            }
        )
    )


if __name__ == "__main__":
    main()
