"""How many events a second can one view fold, and what does a snapshot of it cost?

    python -m benchmarks.engine.view_apply [--events 100000] [--directory DIR]

Folds events (one row each, random names of 66 characters, a WITHOUT ROWID table) in
transactions of 1, 100 and 1,000 events, then reads single rows, makes the view durable,
writes a snapshot and opens it. One JSON line last; rates are events or reads a second.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import Column, Connection, Integer, MetaData, String, Table

from nextgen.replication.ports import Entry, Record
from nextgen.replication.view.digest import rows_digest
from nextgen.replication.view.store import ViewStore

BATCHES = (1, 100, 1_000)
READS = 20_000

_metadata = MetaData()
_topics = Table(
    "topics",
    _metadata,
    Column("name", String, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("partitions", Integer, nullable=False),
    sqlite_with_rowid=False,
)


def fold(connection: Connection, entries: Sequence[Entry]) -> int:
    rows = [
        (record.payload.decode(), entry.index, 4) for entry in entries for record in entry.records
    ]
    connection.exec_driver_sql("INSERT INTO topics VALUES (?, ?, ?)", rows)
    return rows_digest("topics", rows)


def entries_of(names: list[str], batch: int, view: ViewStore) -> list[Entry]:
    """Return entries of ``batch`` events each that follow what ``view`` has applied."""
    index, position = view.applied().index, view.applied().position
    entries = []
    for begin in range(0, len(names), batch):
        records = tuple(Record(name.encode(), 1) for name in names[begin : begin + batch])
        entries.append(Entry(index + 1, 1, position + 1, records))
        index, position = index + 1, position + len(records)
    return entries


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def random_names(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [f"persistent://tenant-7/orders/{chance.getrandbits(148):037x}" for _ in range(count)]


def measure(directory: Path, events: int) -> dict[str, float]:
    result: dict[str, float] = {}
    view = ViewStore(directory / "view", _metadata, fold)
    names: list[str] = []
    for batch in BATCHES:
        names = random_names(events if batch > 1 else max(events // 10, 1), seed=batch)
        entries = entries_of(names, batch, view)

        def apply_one_by_one(entries: list[Entry] = entries) -> None:
            for entry in entries:
                view.apply([entry])

        result[f"apply_batch_{batch}"] = round(len(names) / timed(apply_one_by_one))
    wanted = random.Random(0).choices(names, k=READS)

    def read() -> None:
        for name in wanted:
            rows = view.reader().exec_driver_sql("SELECT * FROM topics WHERE name = ?", (name,))
            assert rows.one()[0] == name

    result["point_reads"] = round(READS / timed(read))
    result["make_durable_ms"] = round(timed(view.make_durable) * 1_000, 1)
    snapshot = directory / "snapshot"
    result["snapshot_ms"] = round(timed(lambda: view.write_snapshot(snapshot)) * 1_000, 1)
    result["install_ms"] = round(timed(lambda: view.install_snapshot(snapshot)) * 1_000, 1)
    result["snapshot_mb"] = round(snapshot.stat().st_size / 1e6, 1)
    result["events"] = view.applied().position
    view.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--directory", type=Path, default=None, help="where the disk is")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="view-apply-", dir=arguments.directory))
    try:
        result = measure(directory, arguments.events)
    finally:
        shutil.rmtree(directory)
    for name, value in result.items():
        print(f"{name:>20} {value:>12,}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
