"""The event loop of all processes: ``IsolatedLoop``, with what makes a run repeat exactly.

Tasks and futures are hashed by number, so that sets of them are walked in the same order each
time; garbage is collected at fixed steps, so that finalizers run at the same moments; threads are
virtual; servers that nobody calls in this simulation listen in vain.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, copy_context
from typing import Any, Protocol, TypeVar

from tests.support.simulated.process import PROCESS
from tests.support.simulated.virtual_time import IsolatedLoop, VirtualWorker

T = TypeVar("T")

STEPS_PER_COLLECTION = 200_000
"""Callbacks between two collections of garbage."""

OUTSIDE = Context()
"""Callbacks of the network and the simulation itself: they belong to no process."""


class Resident(Protocol):
    """What the loop has to know of a process besides what ``IsolatedLoop`` does."""

    def worker(self, purpose: str) -> VirtualWorker: ...

    def own(self, task: SimulatedTask) -> None: ...


class SimulatedTask(asyncio.Task[Any]):
    """A task whose place in a set is the same in each run."""

    def __init__(self, coroutine: Any, *, loop: SimulatedLoop, **named: Any) -> None:
        self.serial = loop.next_serial()
        self.owner: Any = None
        """The process it belongs to, None for the simulation."""
        super().__init__(coroutine, loop=loop, **named)

    def __hash__(self) -> int:
        return self.serial

    def __eq__(self, other: object) -> bool:
        return self is other


class _SimulatedFuture(asyncio.Future[Any]):
    def __init__(self, *, loop: SimulatedLoop) -> None:
        self.serial = loop.next_serial()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.serial

    def __eq__(self, other: object) -> bool:
        return self is other


class SimulatedLoop(IsolatedLoop):
    """See the module. ``collect_garbage`` is called every ``STEPS_PER_COLLECTION`` steps."""

    def __init__(self, collect_garbage: Callable[[], object]) -> None:
        super().__init__()
        self.steps = 0
        self._collect_garbage = collect_garbage
        self._serials = itertools.count(1)
        self._ports = itertools.count(40_000)
        self.set_task_factory(_make_task)

    def next_serial(self) -> int:
        return next(self._serials)

    def count_step(self) -> None:
        self.steps += 1
        if self.steps % STEPS_PER_COLLECTION == 0:
            self._collect_garbage()

    def create_future(self) -> asyncio.Future[Any]:
        return _SimulatedFuture(loop=self)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, function: Callable[..., T], *arguments: Any
    ) -> asyncio.Future[T]:
        if not isinstance(executor, VirtualWorker):
            executor = _present_process().worker("default")
        return asyncio.wrap_future(executor.submit(function, *arguments), loop=self)

    async def create_server(self, *_: Any, **__: Any) -> Any:
        """Listen without clients: HTTP and the Pulsar protocol have none in this simulation."""
        return _NobodyComes(next(self._ports))


def _present_process() -> Resident:
    process: Any = PROCESS.get()
    assert process is not None, "only processes have threads"
    resident: Resident = process
    return resident


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **named: Any
) -> SimulatedTask:
    assert isinstance(loop, SimulatedLoop)
    task = SimulatedTask(coroutine, loop=loop, **named)
    context = named.get("context") or copy_context()
    process: Any = context.get(PROCESS)
    if process is not None:
        task.owner = process
        process.own(task)
    return task


class _NobodyComes:
    """As much of a server as its owners look at."""

    def __init__(self, port: int) -> None:
        self.sockets: tuple[_NobodyComes, ...] = (self,)
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", self._port)

    def is_serving(self) -> bool:
        return True

    def close(self) -> None:
        self.sockets = ()

    async def start_serving(self) -> None:
        """Do nothing: it serves from its creation on."""

    async def wait_closed(self) -> None:
        """Do nothing: there is no connection to wait for."""
