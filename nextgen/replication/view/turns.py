"""The thread on which all views of a process are changed: one batch at a time, in turns.

Threads that fold side by side mostly pass the interpreter's lock around, and their number would
grow with the number of groups. A batch that a caller waits for goes first. None waits for long: a
view that hangs, or that is replaced by a snapshot, holds up its own group alone (ADR 0099).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

from nextgen.kernel.limits.cluster import VIEW_TURN_WAIT_MS

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Turn:
    """A batch that waits for a thread."""

    thread: asyncio.Future[Executor]
    since: float
    is_awaited: Callable[[], bool]


class ViewTurns:
    """Runs one piece of work at a time for each of any number of groups.

    One thread does all, as long as no work has waited for it for ``VIEW_TURN_WAIT_MS``: then there
    is another one until it finds nothing to do. ``make_executor`` returns an executor with one
    worker. All calls are on the loop.
    """

    def __init__(self, make_executor: Callable[[], Executor]) -> None:
        self._make_executor = make_executor
        self._loop = asyncio.get_running_loop()
        self._idle: list[Executor] = []
        self._busy: set[Executor] = set()
        self._waiting: deque[_Turn] = deque()
        self._grown_at = 0.0
        self._overdue: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<ViewTurns busy={len(self._busy)} waiting={len(self._waiting)}>"

    @property
    def threads(self) -> int:
        """How many threads there are."""
        return len(self._idle) + len(self._busy)

    async def run(
        self,
        work: Callable[..., T],
        *arguments: Any,
        is_awaited: Callable[[], bool] = lambda: False,
    ) -> T:
        """Run ``work`` on a thread and return its result.

        While ``is_awaited`` returns True it goes before work of other groups that is not awaited.
        A cancelled caller does not end work that has begun.
        """
        thread = await self._thread(is_awaited)
        running = self._loop.run_in_executor(thread, work, *arguments)
        # Work that has begun goes on when its caller is cancelled: only its end frees the thread.
        running.add_done_callback(lambda _: self._ended(thread, running))
        return await asyncio.shield(running)

    def close(self) -> None:
        """End the threads. The caller MUST have awaited all work."""
        if self._overdue is not None:
            self._overdue.cancel()
        for executor in (*self._idle, *self._busy):
            executor.shutdown(wait=True)
        self._idle.clear()
        self._busy.clear()

    # Inside -----------------------------------------------------------------------------------

    async def _thread(self, is_awaited: Callable[[], bool]) -> Executor:
        if not self._idle and not self._busy:
            self._idle.append(self._make_executor())
        if self._idle:
            thread = self._idle.pop()
            self._busy.add(thread)
            return thread
        turn = _Turn(self._loop.create_future(), self._loop.time(), is_awaited)
        self._waiting.append(turn)
        self._watch()
        try:
            return await turn.thread
        except asyncio.CancelledError:
            if turn.thread.cancelled():
                self._waiting.remove(turn)
            else:
                self._free(turn.thread.result())
            raise

    def _ended(self, thread: Executor, running: asyncio.Future[Any]) -> None:
        if not running.cancelled():
            running.exception()  # Mark it as retrieved: the caller may have been cancelled.
        self._free(thread)

    def _free(self, thread: Executor) -> None:
        turn = self._next_turn()
        if turn is not None:
            turn.thread.set_result(thread)
            return
        self._busy.discard(thread)
        if self._idle:
            thread.shutdown(wait=False)
        else:
            self._idle.append(thread)

    def _next_turn(self) -> _Turn | None:
        """Take the first turn that is awaited off the queue, else the first."""
        if not self._waiting:
            return None
        turn = next((each for each in self._waiting if each.is_awaited()), self._waiting[0])
        self._waiting.remove(turn)
        return turn

    def _watch(self) -> None:
        """See to it that the turn that has waited for longest gets a thread of its own in time."""
        if self._overdue is None and self._waiting:
            self._overdue = self._loop.call_at(self._due_at, self._look)

    @property
    def _due_at(self) -> float:
        """When the first of those that wait gets a thread; the next ones may yet share it."""
        return max(self._waiting[0].since, self._grown_at) + VIEW_TURN_WAIT_MS / 1000

    def _look(self) -> None:
        self._overdue = None
        now = self._loop.time()
        if self._waiting and self._due_at <= now:
            self._grown_at = now
            thread = self._make_executor()
            self._busy.add(thread)
            self._free(thread)
        self._watch()
