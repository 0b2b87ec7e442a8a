"""An event loop whose clock jumps to the next timer: hours pass in seconds, the same each time."""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextvars import Context, copy_context
from typing import Any, TypeVar

from tests.support.sim_process import PROCESS, SimProcess

T = TypeVar("T")

_TIMER_S_MIN = 1e-6
"""The least that a timer waits, longer than what an event loop takes for at once."""


class _ProcessHandle(asyncio.Handle):
    """A callback that runs only while its process does."""

    __slots__ = ("process",)
    process: SimProcess | None

    def _run(self) -> None:
        if _may_run(self, self.process):
            super()._run()
            if self.process is not None:
                self.process.stepped()


class _ProcessTimer(asyncio.TimerHandle):
    """The same, at a time."""

    __slots__ = ("process",)
    process: SimProcess | None

    def _run(self) -> None:
        if _may_run(self, self.process):
            super()._run()
            if self.process is not None:
                self.process.stepped()

    def when(self) -> float:
        process = PROCESS.get()
        return super().when() + (process.clock_ahead_s if process else 0.0)


def _may_run(handle: asyncio.Handle, process: SimProcess | None) -> bool:
    if process is None or process.may_run:
        return True
    loop: Any = handle._loop  # type: ignore[attr-defined]
    process.hold(lambda: loop._ready.append(handle))
    return False


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs callbacks like any loop, but never sleeps: time is what its timers say.

    Callbacks belong to the process of their context, see ``SimProcess``.
    """

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self.now_s = 1_000.0
        self.processes: list[SimProcess] = []
        super().__init__(selector or _JumpingSelector(self))

    def time(self) -> float:
        process = PROCESS.get()
        return self.now_s + process.clock_ahead_s if process else self.now_s

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()
        if context is None:
            context = copy_context()
        handle = _ProcessHandle(callback, args, self, context)
        handle.process = context.get(PROCESS)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()
        caller = PROCESS.get()
        if context is None:
            context = copy_context()
        at_s = when - caller.clock_ahead_s if caller else when
        if when > self.time():
            # Not due by its caller's clock, but for rounding by the loop's: set again and again
            # at once, it would let no time pass.
            at_s = max(at_s, self.now_s + _TIMER_S_MIN)
        timer = _ProcessTimer(at_s, callback, args, self, context)
        timer.process = context.get(PROCESS)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def leap(self, process: SimProcess, seconds: float) -> None:
        """Set the clock of ``process`` ahead, as after a suspend: its timers are due earlier."""
        process.clock_ahead_s += seconds
        for timer in self._scheduled:
            if timer.process is process:
                timer._when -= seconds
        heapq.heapify(self._scheduled)


class IsolatedLoop(VirtualTimeLoop):
    """One that knows no sockets and no threads: nothing outside can change what happens."""

    def __init__(self) -> None:
        super().__init__(_BlindSelector(self))

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen again"
            self._loop.now_s += max(0.0, timeout)
        return ready


class _BlindSelector(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing will ever happen again"
        if timeout > 0:
            self._loop.now_s += timeout
        return ()


def run_virtual(
    main: Callable[[], Coroutine[Any, Any, T]], *, loop: type[VirtualTimeLoop] = VirtualTimeLoop
) -> T:
    """Run ``main`` on a loop of its own in virtual time; what it leaves behind is cancelled."""

    async def watched() -> T:
        try:
            return await main()
        finally:
            running: Any = asyncio.get_running_loop()
            for process in running.processes:
                process.release()

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(watched())


def pytest_asyncio_loop_factories() -> dict[str, type[VirtualTimeLoop]]:
    """Give a folder's asynchronous tests virtual time: a hook, for its ``conftest.py``.

    For tests of what knows no socket and no thread: no timer of theirs is due before everything
    has happened that can happen without it, however long the machine takes for that.
    """
    return {"virtual": VirtualTimeLoop}


class VirtualWorker(Executor):
    """One worker thread's stand-in: each call takes some virtual time, in order.

    Also a journal's ``Runner``. After ``kill`` nothing it was given ever ends.
    """

    def __init__(self, delay_ms: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay_ms = delay_ms
        self._context = copy_context()  # The thread belongs to the process that made it.
        self._free_at = self._loop.time()
        self._killed = False

    def kill(self) -> None:
        self._killed = True

    def hang(self, until_s: float) -> None:
        """Begin nothing that is submitted from now on before the loop's time ``until_s``."""
        self._free_at = max(self._free_at, until_s)

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            if self._killed or not future.set_running_or_notify_cancel():
                return
            try:
                result = work(*arguments, **named)
            except Exception as error:
                future.set_exception(error)
            except BaseException:
                if not self._killed:  # A power cut in the middle of the work ends it here.
                    raise
            else:
                future.set_result(result)

        now = self._loop.time()
        self._free_at = max(self._free_at, now) + self._delay_ms() / 1000
        self._loop.call_at(self._free_at, run, context=self._context.copy())
        return future

    def post(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(
            lambda: None if self._killed else callback(), context=self._context.copy()
        )

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._loop.call_later(
            delay_ms / 1000,
            lambda: None if self._killed else callback(),
            context=self._context.copy(),
        )

    def close(self) -> None:
        self._killed = True
