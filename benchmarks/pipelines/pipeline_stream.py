"""How long does a micro-batch of the stream take, and does a stream keep up?

    python -m benchmarks.pipelines.pipeline_stream [--rows 20000] [--batches 10] [--shards 4]

Makes an export of `--batches` files a shard: topics, assignments and load reports in the logs of
`--shards` shards; a batch is one file of each, `--rows` events together. It is read as
`pipeline stream --once` does. The first batches compile what the later ones run: medians are those
of the batches behind the second, of a batch and of each phase that Spark tells of. Checked in the
same run: every event is counted once. Exits with 1 otherwise. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from nextgen.export.writing.shard_files import FileLimits
from pipelines.running.session import HEAP, LOCAL_MASTER, open_session
from pipelines.stream.job import JOB, StreamOptions, run
from protos.nextgen.v1 import events_pb2 as e
from tests.support.logs.export_logs import FakeLog

TIME_MS = 1_764_000_000_000
BROKERS = 20
WARM_BATCHES = 2
LIMIT_MS = 2_000


def events_of(shard_id: int, rows: int) -> list[Any]:
    """Return a shard's log: of ten events four create, four assign, one unassigns, one reports."""
    return [_event(shard_id, position) for position in range(1, rows + 1)]


def _event(shard_id: int, position: int) -> Any:
    event = e.Event(position=position, term=1, shard_id=shard_id, time_ms=TIME_MS + position)
    name = f"persistent://acme/orders/{shard_id}-{position}"
    match position % 10:
        case 0 | 2 | 4 | 6:
            event.topic_created.CopyFrom(e.TopicCreated(topic_id=f"{position:024x}", name=name))
        case 8:
            gone = e.TopicUnassigned(topic_id=f"{position - 1:024x}", name=name, reason="idle")
            event.topic_unassigned.CopyFrom(gone)
        case 9:
            broker_id = f"broker-{shard_id}-{position // 10 % BROKERS}"
            load = e.LoadReport(topics=position, cpu_fraction=0.5, memory_bytes=2**30)
            reported = e.BrokerLoadReported(broker_id=broker_id, session_id="s", load=load)
            event.broker_load_reported.CopyFrom(reported)
        case _:
            assigned = e.TopicAssigned(
                topic_id=f"{position - 1:024x}", name=name, epoch=1, reason="first_lookup"
            )
            event.topic_assigned.CopyFrom(assigned)
    return event


def make_export(directory: Path, rows: int, batches: int, shards: int) -> int:
    """Write the export; return its events."""
    file_rows = rows // shards
    logs: dict[int, Sequence[Any]] = {
        shard_id: events_of(shard_id, file_rows * batches) for shard_id in range(1, shards + 1)
    }
    limits = FileLimits(rows=file_rows)
    asyncio.run(export_log(FakeLog(logs), LocalStore(directory), limits=limits))
    return sum(map(len, logs.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--master", default=LOCAL_MASTER)
    parser.add_argument("--heap", default=HEAP)
    asked = parser.parse_args()
    shown: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        export = Path(directory) / "export"
        events = make_export(export, asked.rows, asked.batches, asked.shards)
        with open_session(JOB, master=asked.master, heap=asked.heap) as spark:
            began = time.monotonic()
            options = StreamOptions(is_once=True, rows_per_batch=asked.rows)
            summary = run(spark, str(export), Path(directory) / "out", options, shown.append)
            took_s = time.monotonic() - began
    warm = [batch for batch in shown if batch["batch"] >= WARM_BATCHES]
    median_ms = statistics.median(batch["duration_ms"] for batch in warm)
    print(
        json.dumps(
            {
                "events": events,
                "events_counted": summary.rows_read,
                "batch_rows": asked.rows,
                "batch_ms_median": median_ms,
                "batch_ms_max": max(batch["duration_ms"] for batch in warm),
                "first_batch_ms": shown[0]["duration_ms"],
                "phases_ms_median": {
                    phase: statistics.median(batch["phases_ms"].get(phase, 0) for batch in warm)
                    for phase in warm[0]["phases_ms"]
                },
                "events_per_second": round(events / took_s),
                "within_limit": median_ms <= LIMIT_MS,
                "load_average": round(os.getloadavg()[0], 1),
            }
        )
    )
    if summary.rows_read != events:
        sys.exit("events were lost or counted twice")


if __name__ == "__main__":
    main()
