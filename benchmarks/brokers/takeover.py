"""What does it cost to take a unit's ledger over from an owner that died, and to begin there?

A child process makes ledgers as a broker under load leaves them: epochs that were handed over and
one that was not, with a megabyte of entries, two hundred small ones behind the last point of the
index, and a cursor that was stored fifty times; then it is gone. This process opens them all with
the next epoch, appends one entry and stores one fact in each, and closes. Nothing else runs in it,
so that its processor time is that of the takeovers. Beside it, on the same disk in the same run:
five files made durable with bare calls. A last pass counts the calls to the system, without those
of the interpreter itself.

On a machine that others use, run two versions in turns, several times, and compare the medians.

Each row is a round of ``--units`` takeovers; the last line has the medians.

    python -m benchmarks.brokers.takeover [--units 100] [--rounds 5] [--large 16] [--directory DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import builtins
import json
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from brokers.adapters.ledger.store import DiskLedgerStore
from brokers.ports.ledger import NewEntry, TopicLedger
from nextgen.kernel.limits.pulsar import LEDGER_TAKEOVERS_AT_A_TIME

EPOCHS_BEFORE = 2
DEAD_EPOCH = EPOCHS_BEFORE + 1
LARGE_BYTES = 64 * 1024
SMALL_ENTRIES = 200
SMALL_BYTES = 160
FACTS = 50
FACT_BYTES = 30
COUNTED_UNITS = 20
CALLS = (
    *("access", "close", "fdatasync", "fstat", "fsync", "ftruncate", "link", "listdir", "lseek"),
    *("mkdir", "open", "posix_fadvise", "posix_fallocate", "pread", "pwrite", "read", "rename"),
    *("stat", "unlink"),
)
FILES = ("claim", "fence", "seal", "snapshot", "entries")


def topic_id(number: int) -> str:
    return f"{number:04x}{number:020x}"


async def open_all(store: DiskLedgerStore, units: int, epoch: int) -> list[TopicLedger]:
    names = [(topic_id(number), f"topic-{number}") for number in range(units)]
    opened = (store.open(topic, "", epoch, topic_name=name) for topic, name in names)
    return list(await asyncio.gather(*opened))


async def use(ledger: TopicLedger, sequence_id: int) -> None:
    """Append an entry and store a fact, as with a producer and a consumer that come back."""
    await asyncio.gather(
        ledger.append(NewEntry(b"x" * SMALL_BYTES, 1, "producer", sequence_id)),
        ledger.put_state("cursor/subscription", sequence_id.to_bytes(FACT_BYTES, "big")),
    )


async def fill(ledger: TopicLedger, large: int) -> None:
    first = ledger.epoch * 1_000
    sizes = [LARGE_BYTES] * large + [SMALL_BYTES] * SMALL_ENTRIES
    for number in range(FACTS):
        stored = ledger.put_state("cursor/subscription", number.to_bytes(FACT_BYTES, "big"))
        share = len(sizes) * number // FACTS, len(sizes) * (number + 1) // FACTS
        entries = [
            ledger.append(NewEntry(b"x" * sizes[index], 1, "producer", first + index))
            for index in range(*share)
        ]
        await asyncio.gather(stored, *entries)


async def leave(root: Path, units: int, large: int) -> None:
    """Be the owners before, of which the last one does not close anything."""
    store = DiskLedgerStore(root, broker_id="before")
    for epoch in range(1, DEAD_EPOCH):
        for ledger in await open_all(store, units, epoch):
            await use(ledger, epoch)
            await ledger.close(is_over=True)
    ledgers = await open_all(store, units, DEAD_EPOCH)
    await asyncio.gather(*(fill(ledger, large) for ledger in ledgers))


def make_dead(root: Path, units: int, large: int) -> None:
    """Have a process leave ``units`` ledgers behind and die."""
    child = os.fork()
    if not child:
        code = 1
        try:
            asyncio.run(leave(root, units, large))
            code = 0
        finally:
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise RuntimeError("the owner before did not come to its end")


async def take_over(root: Path, units: int, large: int) -> dict[str, float]:
    """Take all over, use each and close; return processor time and time of it, ms per unit."""
    store = DiskLedgerStore(root, broker_id="successor")
    began, began_cpu = time.perf_counter(), time.process_time()
    ledgers = await open_all(store, units, DEAD_EPOCH + 1)
    opened, opened_cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(use(ledger, DEAD_EPOCH * 2_000) for ledger in ledgers))
    used_cpu = time.process_time()
    entries = EPOCHS_BEFORE + large + SMALL_ENTRIES + 1
    assert all(ledger.entry_count == entries for ledger in ledgers), "nothing may be missing"
    await store.close()
    ended_cpu = time.process_time()
    return {
        "open_cpu_ms": (opened_cpu - began_cpu) / units * 1e3,
        "first_round_cpu_ms": (used_cpu - opened_cpu) / units * 1e3,
        "close_cpu_ms": (ended_cpu - used_cpu) / units * 1e3,
        "cpu_ms": (ended_cpu - began_cpu) / units * 1e3,
        "open_ms": (opened - began) / units * 1e3,
    }


def bare(root: Path, units: int) -> float:
    """Make the files of a takeover with bare calls; return processor time in ms per unit."""
    began = time.process_time()
    for number in range(units):
        folder = f"{root}/{number}"
        os.mkdir(folder)
        for name in FILES:
            handle = os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT | os.O_EXCL)
            os.pwrite(handle, b"x" * SMALL_BYTES, 0)
            os.fsync(handle)
            os.close(handle)
            above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(above)
            os.close(above)
    return (time.process_time() - began) / units * 1e3


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count the calls to the system that Python code makes on any thread."""
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **options: Any) -> Any:
            with lock:
                counts[name] += 1
            return call(*arguments, **options)

        return count

    kept = {name: getattr(os, name) for name in CALLS if hasattr(os, name)}
    kept_open = builtins.open
    try:
        for name, call in kept.items():
            setattr(os, name, counted(name, call))
        builtins.open = counted("open file", kept_open)
        yield counts
    finally:
        for name, call in kept.items():
            setattr(os, name, call)
        builtins.open = kept_open


def run(directory: Path, units: int, rounds: int, large: int) -> dict[str, object]:
    rows: list[dict[str, float]] = []
    for number in range(rounds):
        root = directory / f"round-{number}"
        make_dead(root, units, large)
        row = uvloop.run(take_over(root, units, large))
        (root / "bare").mkdir()
        row["bare_cpu_ms"] = bare(root / "bare", units)
        rows.append({name: round(value, 3) for name, value in row.items()})
        print(json.dumps(rows[-1]), flush=True)
    root = directory / "counted"
    make_dead(root, COUNTED_UNITS, large)
    with counting() as counts:
        uvloop.run(take_over(root, COUNTED_UNITS, large))
    medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    return {
        "benchmark": "takeover",
        **medians,
        "times_bare": round(medians["cpu_ms"] / medians["bare_cpu_ms"], 2),
        "calls": round(counts.total() / COUNTED_UNITS, 1),
        "calls_by_name": {
            name: round(count / COUNTED_UNITS, 1) for name, count in counts.most_common()
        },
        "units": units,
        "rounds": rounds,
        "large": large,
        "at_a_time": LEDGER_TAKEOVERS_AT_A_TIME,
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", type=int, default=16, help="entries of 64 KiB in each")
    parser.add_argument("--directory", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix=".takeover-") as directory:
        result = run(Path(directory), arguments.units, arguments.rounds, arguments.large)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
