"""An event loop whose clock jumps to the next timer: hours pass in seconds, the same each time."""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from concurrent.futures._base import PENDING
from contextvars import Context, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

from tests.support.simulated.process import PROCESS, SimProcess

T = TypeVar("T")

_TIMER_S_MIN = 1e-6
"""The least that a timer waits, longer than what an event loop takes for at once."""

_MANY_TIMERS = 100
"""From this many on, cancelled timers are dropped once they outnumber the others."""

ROUNDS_AT_ONE_INSTANT_MAX = 100_000
"""Rounds of callbacks in which no time passes: more are a loop without end. A seed makes 25."""

ROUNDS_MAX = 5_000_000
"""Rounds of callbacks of a run and of what it leaves behind: more would never end. The longest
seeds make 180,000."""

_JUMP_S_MAX = 24 * 3600.0
"""The most that time passes at once, as in asyncio's own loops."""


class _ProcessHandle(asyncio.Handle):
    """A callback that runs only while its process does."""

    __slots__ = ("process",)
    process: SimProcess | None

    def __init__(self, callback: Callable[..., Any], given: Any, loop: Any, context: Context):
        # All that asyncio's own does outside its debug mode, at a third of the cost.
        self._callback = callback
        self._args = given
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._repr = self._source_traceback = None
        self.process = context.get(PROCESS)

    def _run(self) -> None:
        if _may_run(self, self.process):
            super()._run()
            if self.process is not None:
                self.process.stepped()


class _ProcessTimer(asyncio.TimerHandle):
    """The same, at a time."""

    __slots__ = ("process",)
    process: SimProcess | None

    def __init__(
        self, when: float, callback: Callable[..., Any], given: Any, loop: Any, context: Context
    ):
        self._when = when
        self._callback = callback
        self._args = given
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._scheduled = True
        self._repr = self._source_traceback = None
        self.process = context.get(PROCESS)

    def _run(self) -> None:
        if _may_run(self, self.process):
            super()._run()
            if self.process is not None:
                self.process.stepped()

    def cancel(self) -> None:
        # All that asyncio's own does outside its debug mode. Most timers are cancelled.
        if not self._cancelled:
            self._cancelled = True
            if self._scheduled:
                self._loop._timer_cancelled_count += 1
            self._callback = self._args = None

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
        self._clocks_differ = False
        """True once a clock has leapt; until then the time is the same for every caller."""
        super().__init__(selector or _JumpingSelector(self))

    def time(self) -> float:
        if not self._clocks_differ:
            return self.now_s
        process = PROCESS.get()
        return self.now_s + process.clock_ahead_s if process else self.now_s

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            self._check_closed()
        if context is None:
            context = copy_context()
        handle = _ProcessHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:
            self._check_closed()
        ahead_s = 0.0
        if self._clocks_differ:
            caller = PROCESS.get()
            ahead_s = 0.0 if caller is None else caller.clock_ahead_s
        at_s = when - ahead_s
        if when > self.now_s + ahead_s:
            # Not due by its caller's clock, but for rounding by the loop's: set again and again
            # at once, it would let no time pass.
            at_s = max(at_s, self.now_s + _TIMER_S_MIN)
        if context is None:
            context = copy_context()
        timer = _ProcessTimer(at_s, callback, args, self, context)
        self._push(timer)
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _push(self, timer: _ProcessTimer) -> None:
        heappush(self._scheduled, timer)

    def leap(self, process: SimProcess, seconds: float) -> None:
        """Set the clock of ``process`` ahead, as after a suspend: its timers are due earlier."""
        self._clocks_differ = True
        process.clock_ahead_s += seconds
        for timer in self._timers():
            if timer.process is process:
                timer._when -= seconds
        self._order_timers()

    def _timers(self) -> list[_ProcessTimer]:
        return self._scheduled

    def _order_timers(self) -> None:
        heapify(self._scheduled)


class IsolatedLoop(VirtualTimeLoop):
    """One that knows no sockets and no threads: nothing outside can change what happens."""

    _scheduled: list[tuple[float, int, _ProcessTimer]]
    """A heap, as in asyncio's own loops. Timers of one instant run in the order in which they
    were set, and tuples of numbers are compared without a call."""

    def __init__(self) -> None:
        self._timer_serials = itertools.count()
        self.rounds = 0
        self._instant_s = 0.0
        self._rounds_before = 0
        super().__init__(_BlindSelector(self))

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _run_once(self) -> None:
        """Run callbacks until the loop is to stop, in the order of asyncio's own loops.

        Those look at sockets before each round of callbacks. A simulation makes a hundred
        thousand rounds, most of one callback, and has no sockets.
        """
        ready, resolution_s = self._ready, self._clock_resolution
        while True:
            timers = self._scheduled
            if not ready or (timers and timers[0][0] < self.now_s + resolution_s):
                self._move_time_on()
            self._count_round()
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                process = handle.process
                if process is not None and not process.may_run:
                    process.hold(partial(ready.append, handle))
                    continue
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._report(handle, error)
                if process is not None:
                    process.stepped()
            if self._stopping:
                return

    def _count_round(self) -> None:
        """Count one round, and break the run if it would never end.

        An error in a callback is only reported, and the callbacks behind it go on: this is
        outside of them all, so that it ends a run and the cancellation of its tasks, too.
        """
        self.rounds += 1
        if self.now_s != self._instant_s:
            self._instant_s, self._rounds_before = self.now_s, self.rounds
        assert self.rounds - self._rounds_before <= ROUNDS_AT_ONE_INSTANT_MAX, "time stands still"
        assert self.rounds <= ROUNDS_MAX, "the run would never end"

    def _move_time_on(self) -> None:
        """Go to the next timer if nothing else is to do; have the timers that are due run."""
        timers = self._scheduled
        cancelled = self._timer_cancelled_count
        if cancelled and len(timers) > _MANY_TIMERS and cancelled / len(timers) > 0.5:
            timers = self._drop_cancelled()
        while timers and timers[0][2]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(timers)[2]._scheduled = False
        if not self._ready and not self._stopping:
            assert timers, "nothing will ever happen again"
            self.now_s += min(max(0.0, timers[0][0] - self.now_s), _JUMP_S_MAX)
        end_s = self.now_s + self._clock_resolution
        while timers and timers[0][0] < end_s:
            timer = heappop(timers)[2]
            timer._scheduled = False
            self._ready.append(timer)

    def _drop_cancelled(self) -> list[tuple[float, int, _ProcessTimer]]:
        for _, _, timer in self._scheduled:
            timer._scheduled = not timer._cancelled
        timers = self._scheduled = [each for each in self._scheduled if each[2]._scheduled]
        heapify(timers)
        self._timer_cancelled_count = 0
        return timers

    def _push(self, timer: _ProcessTimer) -> None:
        heappush(self._scheduled, (timer._when, next(self._timer_serials), timer))

    def _timers(self) -> list[_ProcessTimer]:
        return [timer for _, _, timer in self._scheduled]

    def _order_timers(self) -> None:
        self._scheduled = [(timer._when, serial, timer) for _, serial, timer in self._scheduled]
        heapify(self._scheduled)

    def _report(self, handle: asyncio.Handle, error: BaseException) -> None:
        self.call_exception_handler(
            {"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle}
        )


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
    """Run ``main`` on a loop of its own in virtual time, and cancel the tasks that it leaves."""

    async def watched() -> T:
        # Looked up before: a run that breaks leaves this coroutine to the garbage collector.
        running: Any = asyncio.get_running_loop()
        try:
            return await main()
        finally:
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


class _NoLock:
    """The condition of a future that only one thread knows."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None: ...


class _UnlockedFuture(Future[Any]):
    """What ``Future`` has but for its locks, which would be most of what a virtual thread costs."""

    def __init__(self) -> None:
        self._condition = _NoLock()
        self._state = PENDING
        self._result = self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []


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

    def hang(self, seconds: float) -> None:
        """Begin nothing that is submitted from now on before ``seconds`` have passed."""
        self._free_at = max(self._free_at, self._now + seconds)

    @property
    def busy_s(self) -> float:
        """Return for how long it is busy with what was submitted, or hangs."""
        return max(0.0, self._free_at - self._now)

    @property
    def _now(self) -> float:
        """By the clock of its process."""
        return self._context.copy().run(self._loop.time)

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = _UnlockedFuture()

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
