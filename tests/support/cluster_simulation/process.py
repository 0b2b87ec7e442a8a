"""One process of the simulation: its workers, its clock, its tasks, its end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nextgen.runtime.security.cluster_proof import ClusterCredentials
from tests.support.cluster_simulation.virtual_loop import OUTSIDE, SimulatedLoop, SimulatedTask
from tests.support.simulated.process import Condition, SimProcess
from tests.support.simulated.virtual_time import VirtualWorker

DISK_DELAY_MS = 0.4
"""A typical write or sync; a view's transaction takes as long."""

WAITS_MAX = 1_000
"""How often what is left of a process may wait while it is unwound."""


class SimulatedProcess(SimProcess):
    """One life of one process. A restart makes another one with the same name."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random, name: str) -> None:
        super().__init__(name)
        self.host = name  # One process on each machine.
        self.freezes = 0
        self.wall_offset_ms = 0
        self.disk_delay_ms = DISK_DELAY_MS
        self.credentials: ClusterCredentials | None = None
        """What it proves its calls with; None: it has no cluster secret."""
        self.collectors: list[Any] = []
        """Its Prometheus collectors, through which judges reach its objects."""
        self.resident: Any = None
        """Of a broker: the clients that are connected to it."""
        self._simulated_loop = loop
        self._chance = chance
        self._tasks: dict[SimulatedTask, None] = {}
        self._workers: dict[str, VirtualWorker] = {}
        self._threads: list[VirtualWorker] = []
        self.disk_hangs_until_s = 0.0

    @property
    def is_dead(self) -> bool:
        return self.condition is Condition.DEAD

    @property
    def is_frozen(self) -> bool:
        return self.condition is Condition.FROZEN

    def freeze(self) -> None:
        super().freeze()
        self.freezes += 1

    def kill(self) -> None:
        super().kill()
        self._held.clear()
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]

    def bury(self) -> None:
        """Release unfinished work, once the loop runs nothing of this process any more."""
        self.condition = Condition.DEAD
        self.context.copy().run(self._bury)

    def _bury(self) -> None:
        while self._tasks:
            task, _ = self._tasks.popitem()
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            asyncio.tasks._unregister_task(task)
            _unwind(task.get_coro())

    # For the loop -----------------------------------------------------------------------------

    def hold(self, run_again: Callable[[], None]) -> None:
        if self.is_frozen:
            super().hold(run_again)

    def stepped(self) -> None:
        self._simulated_loop.count_step()

    def own(self, task: SimulatedTask) -> None:
        self._tasks[task] = None
        task.add_done_callback(self._disown, context=OUTSIDE)

    def _disown(self, task: Any) -> None:
        self._tasks.pop(task, None)

    # Threads ----------------------------------------------------------------------------------

    def worker(self, purpose: str) -> VirtualWorker:
        """Return the thread for ``purpose``; work in it takes as long as the disk does."""
        worker = self._workers.get(purpose)
        if worker is None:
            worker = self._workers[purpose] = self.new_worker()
        return worker

    def new_worker(self) -> VirtualWorker:
        worker: VirtualWorker = self.run(VirtualWorker, self._delay_ms)
        worker.hang(self.disk_hangs_until_s - self._simulated_loop.now_s)
        self._threads.append(worker)
        return worker

    def hang_disk(self, seconds: float) -> None:
        """Let nothing that a thread has not begun yet end within so long."""
        self.disk_hangs_until_s = self._simulated_loop.now_s + seconds
        for worker in self._threads:
            worker.hang(seconds)

    def _delay_ms(self) -> float:
        return self._chance.uniform(0.5, 1.5) * self.disk_delay_ms


def _unwind(coroutine: Any) -> None:
    """Let ``coroutine`` end by cancellation, wherever it waits and however often.

    ``close`` would not do: a ``finally`` that waits makes it give up half way.
    """
    for _ in range(WAITS_MAX):
        if coroutine.cr_frame is None:
            return
        with suppress(BaseException):
            coroutine.throw(asyncio.CancelledError())
