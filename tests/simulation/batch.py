"""Many seeds on two processes; what is done stays done when the run is interrupted."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from tests.simulation.kinds import run_one
from tests.simulation.report import Kind, SeedReport

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".simulation" / "batch.jsonl"
"""The progress of a run: a line that identifies it, then one line per seed."""

PROCESSES = 2
SEEDS_PER_POOL = 200
"""After which the processes are replaced, so that none grows for ever."""

CPU_S_MAX = 120
"""For one seed. One that takes more turns in circles."""

_SOURCES = ("nextgen", "shards", "cluster_manager", "discovery", "brokers", "protos", "tests")

Job = tuple[Kind, int]


class TooLong(BaseException):
    """A seed took more processor time than any sound one does."""


class Batch:
    """The requested seeds, and those that are done."""

    def __init__(self, jobs: Sequence[Job], state: Path = STATE) -> None:
        self._jobs = tuple(jobs)
        self._state = state
        self._header = json.dumps({"code": code_digest(), "jobs": _digest_of(self._jobs)})
        self.done = self._read()

    def run(self) -> Iterator[SeedReport]:
        """Run the missing seeds and yield each report once it is there."""
        done = {(report.kind, report.seed) for report in self.done}
        missing = [job for job in self._jobs if job not in done]
        if not done:
            self._state.parent.mkdir(exist_ok=True)
            self._state.write_text(self._header + "\n")
        for first in range(0, len(missing), SEEDS_PER_POOL):
            for report in _run_together(missing[first : first + SEEDS_PER_POOL]):
                with self._state.open("a") as file:
                    file.write(_to_line(report) + "\n")
                yield report
        self._state.unlink()

    def _read(self) -> list[SeedReport]:
        """Return what an interrupted run of the same seeds and the same code has done."""
        try:
            header, *lines = self._state.read_text().splitlines()
        except (FileNotFoundError, ValueError):
            return []
        if header != self._header:
            return []
        try:
            return [_from_line(line) for line in lines]
        except ValueError:
            return []  # It was killed in the middle of a line.


def worker_pool() -> ProcessPoolExecutor:
    """Return processes that have everything of their own and end with this one, however it does."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a worker"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_together(jobs: Sequence[Job]) -> Iterator[SeedReport]:
    with worker_pool() as pool:
        futures = [pool.submit(guarded, *job) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def guarded(kind: Kind, seed: int) -> SeedReport:
    """Run one seed; whatever happens becomes a report."""

    def too_long(_signal: int, _frame: FrameType | None) -> None:
        raise TooLong

    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, CPU_S_MAX)
    try:
        return run_one(kind, seed)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        sentence = f"the simulation itself broke: {type(error).__name__}: {error}"
        return SeedReport(seed, kind, 0, 0.0, {}, {}, "", sentence)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def code_digest() -> str:
    """Return a hash of the code: a run is only continued by the code that began it."""
    found = hashlib.blake2b(digest_size=16)
    for folder in _SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()


def _digest_of(jobs: Sequence[Job]) -> str:
    return hashlib.blake2b(repr(jobs).encode(), digest_size=16).hexdigest()


def _to_line(report: SeedReport) -> str:
    fields = asdict(report)
    fields["cells"] = [[fault, state, count] for (fault, state), count in report.cells.items()]
    return json.dumps(fields)


def _from_line(line: str) -> SeedReport:
    fields = json.loads(line)
    fields["cells"] = {(fault, state): count for fault, state, count in fields["cells"]}
    return SeedReport(**fields)
