"""One way to run a server: event loop, signals, lifeline, exit codes.

    def main() -> None:
        run(serve)

    async def serve(shutdown: Shutdown) -> None:
        ... start ...
        tune_garbage_collector()
        await shutdown.wait()
        ... stop, within SHUTDOWN_MS_MAX ...

Exit codes: 0 a stop was requested, or ``serve`` returned; 70 it broke; 74 a write that it cannot do
without failed on a full disk; 75 a requested stop took too long; 78 it refuses to start, with one
sentence on what to do. After 70 and 74 it may be started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import faulthandler
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NoReturn

import structlog

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.cluster import SHUTDOWN_MS_MAX
from nextgen.kernel.limits.pulsar import OPEN_FILES_MAX
from nextgen.runtime.lifecycle.lifeline import hold_lifeline
from nextgen.runtime.telemetry.logs import configure_logging
from nextgen.tasks.background import report

EXIT_BROKEN = os.EX_SOFTWARE
EXIT_DISK_FULL = os.EX_IOERR
EXIT_HUNG = os.EX_TEMPFAIL
EXIT_REFUSED = os.EX_CONFIG

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

_logger = structlog.get_logger(__name__)


class Shutdown:
    """Whether a stop of this process was requested, and why. Used on the event loop only."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self.reason = ""
        self.deadline_ms = SHUTDOWN_MS_MAX
        """How long a stop may take. A process that first hands work over sets more, beforehand."""

    def __repr__(self) -> str:
        return f"<Shutdown {self.reason or 'not requested'}>"

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    def request(self, reason: str) -> None:
        """Request a stop of the process. Only the first reason is kept."""
        if not self._requested.is_set():
            self.reason = reason
            self._requested.set()

    async def wait(self) -> None:
        """Return once a stop is requested."""
        await self._requested.wait()


def run(main: Callable[[Shutdown], Awaitable[None]]) -> NoReturn:
    """Run ``main`` until it returns, and exit. SIGTERM, SIGINT or a dead parent request a stop.

    A second SIGINT, or ``Shutdown.deadline_ms`` after the first request, ends the process at once:
    a crash must be safe at any moment anyway. A second SIGTERM is ignored, because a parent's death
    causes one besides the end of the lifeline.
    """
    if not __debug__:
        sys.stderr.write("refuses to start under python -O: the assertions guard the data\n")
        sys.exit(EXIT_REFUSED)
    faulthandler.enable()
    allow_open_files()
    try:
        if not structlog.is_configured():
            configure_logging()
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_supervised(main))
    except KeyboardInterrupt:
        sys.exit(0)
    except Exception as error:
        sys.exit(_report(error))
    sys.exit(0)


def allow_open_files() -> None:
    """Raise this process's limit of open files and connections to the system's hard limit.

    A shell's soft limit is often 1,024, meant for programs that use ``select``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Some systems announce a higher limit than they grant; the present one has to do.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def tune_garbage_collector() -> None:
    """Exclude all present objects from garbage collection. Call it once the long-lived ones exist.

    Collections become rarer too. A full one over a large cache would stop the loop for longer than
    a lookup may take, and reference counts free the garbage of the servers.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


async def _supervised(main: Callable[[Shutdown], Awaitable[None]]) -> None:
    shutdown = Shutdown()

    def stop(reason: str) -> None:
        if shutdown.is_requested:
            if reason == signal.SIGINT.name:
                os._exit(EXIT_HUNG)
            return
        _logger.info("stopping", reason=reason)
        # A thread, not a timer of the loop: the loop itself may hang.
        deadline = threading.Timer(shutdown.deadline_ms / 1000, _give_up, (shutdown.deadline_ms,))
        deadline.daemon = True
        deadline.start()
        shutdown.request(reason)

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_report_callback)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, signal.Signals(number).name)
    lifeline = await hold_lifeline(lambda: stop("parent is gone"))
    try:
        await main(shutdown)
    finally:
        if lifeline is not None:
            lifeline.close()


def _report_callback(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log and count an exception outside of any supervised task, for example in a timer."""
    error = context.get("exception")
    if error is None:
        loop.default_exception_handler(context)
    else:
        report("event_loop", error)


def _give_up(after_ms: int) -> None:
    _logger.error("did not stop in time", after_ms=after_ms)
    faulthandler.dump_traceback()
    os._exit(EXIT_HUNG)


def _report(error: Exception) -> int:
    causes = list(_leaves(error))
    for cause in causes:
        if isinstance(cause, RefusesToStart):
            sys.stderr.write(f"refuses to start: {cause}\n")
            return EXIT_REFUSED
    for cause in causes:
        if isinstance(cause, OSError) and cause.errno in _DISK_FULL:
            _logger.critical("cannot go on: the disk is full", error=str(cause))
            return EXIT_DISK_FULL
    _logger.critical("broken", exc_info=error)
    return EXIT_BROKEN


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield ``error``, or the exceptions in it if it is a group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
