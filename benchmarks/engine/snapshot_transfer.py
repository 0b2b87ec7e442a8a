"""How fast does a snapshot reach a follower, and what do commits of another group pay for it?

    python -m benchmarks.engine.snapshot_transfer [--megabytes 64] [--directory DIR]

Two groups of two hosts in this process, on loopback; both share one connection. A snapshot of
random bytes is sent in the one while single records are committed in the other. Prints a line per
chunk size and window, and one JSON line last. Sender and receiver share one interpreter here: on
machines of their own a transfer is faster, and disturbs less.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from nextgen.replication.config import RaftConfig
from nextgen.replication.host.raft_host import PySyncObjHost
from nextgen.replication.ports import (
    AppliedPoint,
    Entry,
    GroupId,
    NodeId,
    Record,
    ReplicatedLog,
    ViewDigest,
)
from nextgen.replication.snapshot import sender as snapshot_sender

BIG, SMALL = GroupId(1), GroupId(2)
CHOICES = ((64, 4), (256, 1), (256, 2), (256, 4), (256, 16))
"""KiB of a chunk, chunks in flight."""


class BlobView:
    """Folds nothing; its snapshot is ``size`` random bytes behind its applied point."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._point = AppliedPoint(0, 0, 0)

    def applied(self) -> AppliedPoint:
        return self._point

    def apply(self, entries: Sequence[Entry]) -> None:
        last = entries[-1]
        self._point = AppliedPoint(last.index, last.term, last.next_position - 1)

    def make_durable(self) -> AppliedPoint:
        return self._point

    def digest(self) -> ViewDigest | None:
        return None

    def write_snapshot(self, path: Path) -> AppliedPoint:
        point = self._point
        head = json.dumps(dataclasses.astuple(point)).encode().ljust(64)
        path.write_bytes(head + os.urandom(self._size))
        return point

    def install_snapshot(self, path: Path) -> AppliedPoint:
        with path.open("rb") as file:
            self._point = AppliedPoint(*json.loads(file.read(64)))
        return self._point

    def close(self) -> None:
        """There is nothing to close."""


async def wait_leader(logs: Sequence[ReplicatedLog]) -> ReplicatedLog:
    while True:
        for log in logs:
            if log.is_leader:
                return log
        await asyncio.sleep(0.01)


async def commit_for_ever(log: ReplicatedLog, latencies_ms: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await log.propose(Record(b"x" * 100, 1))
        latencies_ms.append((time.perf_counter() - began) * 1000)
        await asyncio.sleep(0.002)


async def measure(directory: Path, size: int, chunk_bytes: int) -> dict[str, float]:
    config = RaftConfig(
        log_tail_entries=0, journal_segment_bytes=64 * 1024, snapshot_chunk_bytes=chunk_bytes
    )
    members = [NodeId("node-1"), NodeId("node-2"), NodeId("node-3")]
    hosts = [
        PySyncObjHost(
            node_id=member,
            cluster_id="benchmark",
            listen_host="127.0.0.1",
            listen_port=0,
            data_directory=directory / member,
            config=config,
        )
        for member in members
    ]
    for member, host in zip(members, hosts, strict=True):
        (directory / member).mkdir()
        await host.start()
    for host in hosts:
        for member, other in zip(members, hosts, strict=True):
            await host.set_peer_address(member, "127.0.0.1", other.port)
    present = [await host.open_group(BIG, members, BlobView(size)) for host in hosts[:2]]
    others = [await host.open_group(SMALL, members, BlobView(0)) for host in hosts]
    log, small = await wait_leader(present), await wait_leader(others)
    for _ in range(40):
        await log.propose(Record(os.urandom(10_000), 1))
    await log.compact()
    latencies_ms: list[float] = []
    task = asyncio.create_task(commit_for_ever(small, latencies_ms))
    await asyncio.sleep(1)
    quiet_ms = list(latencies_ms)
    latencies_ms.clear()
    began = time.perf_counter()
    away = await hosts[2].open_group(BIG, members, BlobView(size))
    goal = log.status.commit_index
    await away.wait_applied(goal)
    elapsed_s = time.perf_counter() - began
    assert away.statistics.snapshots_installed == 1
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    for host in hosts:
        await host.stop()
    return {
        "transfer_mb_per_s": round(size / elapsed_s / 1e6, 1),
        "commit_ms_p50": round(statistics.median(latencies_ms), 2),
        "commit_ms_max": round(max(latencies_ms), 1),
        "commit_ms_p50_before": round(statistics.median(quiet_ms), 2),
        "commit_ms_max_before": round(max(quiet_ms), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--directory", type=Path, default=None, help="where the disk is")
    options = parser.parse_args()
    results = {}
    for chunk_kib, in_flight in CHOICES:
        snapshot_sender.SNAPSHOT_CHUNKS_IN_FLIGHT_MAX = in_flight
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            size = options.megabytes * 1024 * 1024
            found = asyncio.run(measure(Path(directory), size, chunk_kib * 1024))
        results[f"{chunk_kib} KiB x {in_flight}"] = found
        print(f"{chunk_kib:>5} KiB x {in_flight:<3} {found}", flush=True)
    print(json.dumps({"benchmark": "snapshot_transfer", "results": results}))


if __name__ == "__main__":
    main()
