"""How many entries a second does one broker's ledger store take, and how long does one wait?

Appends to 1 and to 100 topics at a time, with 100-byte and 10-KB payloads, a fixed number of
entries in flight; and one entry at a time, which is what a client without batches feels. Beside
it, on the same disk in the same run, what one fsync per entry gives. Opening and taking over a
hundred topics is measured, too. One JSON line per row; the last one sums up.

    python -m benchmarks.brokers.ledger_append [--seconds 3] [--in-flight 1000] [--directory DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path

import uvloop

from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.ports.ledger import NewEntry, TopicLedger
from nextgen.tasks.groups import TaskGroup

TOPICS = 100
SIZES = (100, 10 * 1024)
FIRST_EPOCH = 1


def fsync_per_entry(directory: Path, size: int, seconds: float) -> float:
    """Return entries a second when each is written and fsynced before the next."""
    payload = os.urandom(size)
    handle = os.open(directory / "alone", os.O_RDWR | os.O_CREAT)
    count = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        os.write(handle, payload)
        os.fdatasync(handle)
        count += 1
    elapsed = time.perf_counter() - start
    os.close(handle)
    return count / elapsed


async def keep_appending(
    ledger: TopicLedger, payload: bytes, until: float, latencies: list[float]
) -> None:
    """Append one entry after another; run many of these to have many in flight."""
    sequence_id = 0
    while (start := time.perf_counter()) < until:
        await ledger.append(NewEntry(payload, 1, "producer", sequence_id))
        latencies.append(time.perf_counter() - start)
        sequence_id += 1


async def measure(
    ledgers: list[TopicLedger], size: int, in_flight: int, seconds: float
) -> dict[str, object]:
    payload = os.urandom(size)
    latencies: list[float] = []
    start, cpu = time.perf_counter(), time.process_time()
    async with TaskGroup() as group:
        for number in range(in_flight):
            ledger = ledgers[number % len(ledgers)]
            group.create_task(keep_appending(ledger, payload, start + seconds, latencies))
    elapsed = time.perf_counter() - start
    cpu_us = (time.process_time() - cpu) / len(latencies) * 1e6
    latencies.sort()
    return {
        "topics": len(ledgers),
        "payload_bytes": size,
        "in_flight": in_flight,
        "entries_s": round(len(latencies) / elapsed),
        "append_ms_p50": round(latencies[len(latencies) // 2] * 1e3, 3),
        "append_ms_p99": round(latencies[len(latencies) * 99 // 100] * 1e3, 3),
        "cpu_us_per_entry": round(cpu_us, 1),
    }


async def opened(store: DiskLedgerStore, epoch: int) -> tuple[list[TopicLedger], float]:
    start = time.perf_counter()
    ledgers = await asyncio.gather(
        *(
            store.open(f"{number:04x}{number:020x}", "", epoch, topic_name=f"topic-{number}")
            for number in range(TOPICS)
        )
    )
    return list(ledgers), time.perf_counter() - start


async def run(directory: Path, seconds: float, in_flight: int) -> dict[str, object]:
    store = DiskLedgerStore(directory / "ledgers", broker_id="benchmark")
    ledgers, open_s = await opened(store, FIRST_EPOCH)
    rows: list[dict[str, object]] = []
    ratios: dict[str, float] = {}
    for size in SIZES:
        alone = fsync_per_entry(directory, size, seconds / 3)
        for topics in (1, TOPICS):
            rows.append(await measure(ledgers[:topics], size, in_flight, seconds))
            rows[-1]["times_fsync_per_entry"] = round(float(str(rows[-1]["entries_s"])) / alone, 1)
            print(json.dumps(rows[-1]), flush=True)
        rows.append(await measure(ledgers[:1], size, 1, seconds / 3))
        rows[-1]["times_fsync_per_entry"] = round(float(str(rows[-1]["entries_s"])) / alone, 1)
        print(json.dumps(rows[-1]), flush=True)
        ratios[f"fsync_per_entry_s_{size}"] = round(alone)
    successor = DiskLedgerStore(directory / "ledgers", broker_id="successor")
    _, takeover_s = await opened(successor, FIRST_EPOCH + 1)
    await store.close()
    await successor.close()
    return {
        "benchmark": "ledger_append",
        "rows": rows,
        **ratios,
        "open_100_topics_ms": round(open_s * 1e3, 1),
        "take_over_100_topics_ms": round(takeover_s * 1e3, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--in-flight", type=int, default=1_000)
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix=".ledgers-") as directory:
        result = uvloop.run(run(Path(directory), arguments.seconds, arguments.in_flight))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
