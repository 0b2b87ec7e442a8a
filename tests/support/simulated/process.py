"""Processes that share one event loop and can be frozen, killed or sent into the future.

A process is a context: whatever is started in it, and whatever that starts, belongs to it.
``VirtualTimeLoop`` looks at the process of each callback before it runs it: the callbacks
of a frozen process wait, those of a dead one never run. Nothing of the code inside knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from enum import Enum, auto
from typing import Any, TypeVar

T = TypeVar("T")

PROCESS: ContextVar[SimProcess | None] = ContextVar("process", default=None)
"""The process whose code is running, None for the test that watches them."""


class Condition(Enum):
    RUNNING = auto()
    FROZEN = auto()  # SIGSTOP: nothing runs, what arrives waits.
    DEAD = auto()
    RELEASED = auto()  # The run is over: what is left of it is cancelled.


class SimProcess:
    """One process. ``after_step`` is called after each of its callbacks."""

    def __init__(self, name: str, after_step: Callable[[SimProcess], None] | None = None) -> None:
        self.name = name
        self._condition = Condition.RUNNING
        self.may_run = True
        """False while it is frozen and once it is dead."""
        self.clock_ahead_s = 0.0
        """How much its clock has leapt ahead: see ``leap``."""
        self.steps = 0
        self._after_step = after_step
        self._loop = asyncio.get_running_loop()
        self._held: list[Callable[[], None]] = []
        self._died: asyncio.Future[None] = self._loop.create_future()
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)
        loop: Any = self._loop
        loop.processes.append(self)

    def __repr__(self) -> str:
        return f"<SimProcess {self.name} {self.condition.name.lower()}>"

    @property
    def condition(self) -> Condition:
        return self._condition

    @condition.setter
    def condition(self, condition: Condition) -> None:
        self._condition = condition
        # Looked up before each callback, and changed a few times in a run.
        self.may_run = condition in (Condition.RUNNING, Condition.RELEASED)

    def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call ``work`` as this process, at once."""
        inside = PROCESS.get() is self
        return work(*arguments) if inside else self.context.copy().run(work, *arguments)

    async def ask(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Have ``work`` done by this process and return what it returns.

        Like a request over a network: while the process is frozen the caller waits.

        Raises:
            ConnectionResetError: The process died first.
        """
        task = self._loop.create_task(work(), context=self.context.copy())
        # Whoever gives up waiting leaves nobody behind to hear of an error.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({task, self._died}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ConnectionResetError(f"{self.name} died")
        return task.result()

    def freeze(self) -> None:
        """Stop it where it is, between two callbacks."""
        if self.condition is Condition.RUNNING:
            self.condition = Condition.FROZEN

    def thaw(self) -> None:
        """Let it go on with everything that waited, in order."""
        if self.condition is Condition.FROZEN:
            self.condition = Condition.RUNNING
            self._run_held()

    def kill(self) -> None:
        """End it: nothing of it ever runs again, but for its cancelled tasks behind a run."""
        if self.condition is not Condition.RELEASED:
            self.condition = Condition.DEAD
        if not self._died.done():
            self._died.set_result(None)

    # For the loop -----------------------------------------------------------------------------

    def hold(self, run_again: Callable[[], None]) -> None:
        """Keep a callback that may not run."""
        self._held.append(run_again)

    def stepped(self) -> None:
        self.steps += 1
        if self._after_step is not None and self._condition is not Condition.RELEASED:
            self._after_step(self)

    def release(self) -> None:
        """Let pending tasks end by their cancellation, dead or not."""
        self.condition = Condition.RELEASED
        self._run_held()

    def _run_held(self) -> None:
        held, self._held = self._held, []
        for run_again in held:
            run_again()
