"""The other processes of a discovery node: all of them answer on one Pulsar port.

    this process ─┬─ Pulsar, gRPC, HTTP
                  ├─ worker 2 ─ Pulsar          the kernel deals connections out (SO_REUSEPORT)
                  └─ worker 3 ─ Pulsar          each has a cache and watches of its own

A worker that ends is started again. All end with this process: their standard input is a pipe
that it holds (``nextgen.runtime.lifecycle.lifeline``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import structlog

from discovery.adapters.workers.line import ParentEnd
from discovery.config import WORKER_VARIABLE
from discovery.service.report import Report, merged
from nextgen.kernel.limits.pulsar import (
    WORKER_ANSWER_MS_MAX,
    WORKER_RESTART_PAUSE_MS_MAX,
    WORKER_RESTART_PAUSE_MS_MIN,
    WORKER_RUN_COUNTS_MS,
)
from nextgen.runtime.lifecycle.lifeline import LIFELINE_STDIN, LIFELINE_VARIABLE
from nextgen.tasks.background import cancel_and_wait, join, keep

_logger = structlog.get_logger(__name__)


class _Worker:
    """One worker, with its present process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.line: ParentEnd | None = None
        self.process: asyncio.subprocess.Process | None = None


class WorkerPool:
    """Keeps ``count - 1`` workers running, numbered from 2. Owned by one event loop.

    ``arguments`` are the flags of each worker, ``{number}`` standing for its number.
    """

    def __init__(self, count: int, arguments: Sequence[str]) -> None:
        self._arguments = tuple(arguments)
        self._workers = [_Worker(number) for number in range(2, count + 1)]
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = Report()
        self._is_stopping = False
        self.restarts = 0

    def __repr__(self) -> str:
        running = sum(worker.process is not None for worker in self._workers)
        return f"<WorkerPool running={running} of={len(self._workers)} restarts={self.restarts}>"

    @property
    def process_ids(self) -> dict[int, int]:
        """Process ids of the workers that run, by number."""
        return {
            worker.number: worker.process.pid
            for worker in self._workers
            if worker.process is not None and worker.process.returncode is None
        }

    def start(self) -> None:
        """Start the workers in the background."""
        self._tasks = [keep("worker", partial(self._keep, worker)) for worker in self._workers]

    def report(self) -> Report:
        """Return the workers' last reports, and the counters of those that ended."""
        latest = [worker.line.latest for worker in self._workers if worker.line is not None]
        return merged([self._ended, *(report for report in latest if report is not None)])

    async def refresh(self) -> None:
        """Request the workers' present numbers, and wait a limited time for them."""
        asking = [
            join(worker.line.refresh()) for worker in self._workers if worker.line is not None
        ]
        if asking:
            _, late = await asyncio.wait(asking, timeout=WORKER_ANSWER_MS_MAX / 1_000)
            for answer in late:
                answer.cancel()

    async def stop(self, grace_ms: int) -> None:
        """Have the workers answer pending requests and end; kill them after ``grace_ms``."""
        self._is_stopping = True
        for worker in self._workers:
            _signal(worker.process, kill=False)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_ms / 1_000)
        await cancel_and_wait(*self._tasks)

    async def _keep(self, worker: _Worker) -> None:
        """Keep the worker running; start a new process whenever one ends."""
        loop = asyncio.get_running_loop()
        pause_ms = WORKER_RESTART_PAUSE_MS_MIN
        while not self._is_stopping:
            started = loop.time()
            try:
                code = await self._run(worker)
            except OSError as error:
                code = -1
                _logger.error("a worker did not start", worker=worker.number, error=str(error))
            if self._is_stopping:
                return
            if (loop.time() - started) * 1_000 > WORKER_RUN_COUNTS_MS:
                pause_ms = WORKER_RESTART_PAUSE_MS_MIN
            _logger.warning("a worker ended", worker=worker.number, code=code, pause_ms=pause_ms)
            self.restarts += 1
            await asyncio.sleep(pause_ms / 1_000)
            pause_ms = min(pause_ms * 2, WORKER_RESTART_PAUSE_MS_MAX)

    async def _run(self, worker: _Worker) -> int:
        """Start the worker and return its exit code once it has ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            worker.line = await ParentEnd.open(ours)
            try:
                worker.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-m", "discovery"),
                    *(part.replace("{number}", str(worker.number)) for part in self._arguments),
                    stdin=asyncio.subprocess.PIPE,
                    pass_fds=(theirs.fileno(),),
                    env=_environment(worker.number, theirs.fileno()),
                )
            except OSError:
                worker.line.close()
                raise
        try:
            return await worker.process.wait()
        finally:
            _signal(worker.process, kill=True)
            await self._retire(worker)

    async def _retire(self, worker: _Worker) -> None:
        """Keep the counters of an ended worker; its gauges end with it."""
        line, process = worker.line, worker.process
        assert line is not None
        assert process is not None
        await process.wait()
        assert process.stdin is not None, "the lifeline is a pipe"
        process.stdin.close()
        await line.ended.wait()
        worker.line = worker.process = None
        last = line.latest
        if last is not None:
            self._ended = merged(
                [self._ended, Report(counts=last.counts, watch_resets=last.watch_resets)]
            )


def _environment(number: int, descriptor: int) -> dict[str, str]:
    source = str(Path(__file__).resolve().parents[3])
    path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        LIFELINE_VARIABLE: LIFELINE_STDIN,
        WORKER_VARIABLE: f"{number}:{descriptor}",
        "PYTHONPATH": f"{source}{os.pathsep}{path}" if path else source,
    }


def _signal(process: asyncio.subprocess.Process | None, *, kill: bool) -> None:
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            if kill:
                process.kill()
            else:
                process.terminate()
