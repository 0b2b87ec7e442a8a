"""The threads that write the journals of one process.

    loop: submit ──▶ due ──▶ a thread: write, sync ──▶ finished ──▶ loop: callbacks, all together

One thread writes whatever is due, group after group, for as long as the disk is quick: each
further thread that is awake takes the interpreter's lock from the event loop. More threads take
part when even the quickest of the last works took ``SLOW_WORK_MS``, or when work has waited for
``LATE_MS``, so that neither a slow disk nor one hung sync keeps other groups waiting. They take
part for ``SLOW_DISK_S`` longer, and then rest.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

from nextgen.kernel.limits.cluster import JOURNAL_THREADS_MAX
from nextgen.tasks.threads import start_thread

LATE_MS = 20
"""Waiting time of work after which the disk counts as slow: many syncs of a good disk, and more
than a busy event loop keeps the thread from running."""

SLOW_WORK_MS = 2.0
"""Time of one work on a slow disk. Single works take long on a quick one too, while the event loop
is busy: the quickest of ``_WORKS_TIMED`` counts."""

_WORKS_TIMED = 16

SLOW_DISK_S = 10.0
"""How long a disk counts as slow after it made work wait."""


class WriterPool:
    """See the module. Its runners are one for each journal; all are used on one event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Guards what follows, for a few instructions only.
        self._due: deque[tuple[float, PooledRunner]] = deque()
        self._resting: list[threading.Lock] = []  # One for each idle thread; released to wake it.
        self._threads: list[threading.Thread] = []
        self._slow_until = 0.0
        self._times_s: deque[float] = deque(maxlen=_WORKS_TIMED)
        self._is_ending = False
        self._users = 0
        # Used on the loop only, but for appending to ``_finished``.
        self._finished: deque[Callable[[], None]] = deque()
        self._is_delivery_due = False
        self._late_timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def runner(self) -> PooledRunner:
        """Return the runner of one more journal."""
        return PooledRunner(self)

    @property
    def thread_count(self) -> int:
        return len(self._threads)

    @property
    def is_idle(self) -> bool:
        """True while no thread works."""
        return len(self._resting) == len(self._threads)

    @property
    def is_disk_slow(self) -> bool:
        """True while journals are written by as many threads as have work."""
        return time.monotonic() < self._slow_until

    # For its runners --------------------------------------------------------------------------

    def join(self) -> None:
        """Count one more journal that submits work. Called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._users += 1

    def leave(self) -> None:
        """Take back a ``join``. Without journals there are no threads."""
        self._users -= 1
        if self._users:
            return
        if self._late_timer is not None:
            self._late_timer.cancel()
            self._late_timer = None
        with self._lock:
            self._is_ending = True
            resting, self._resting = self._resting, []
        for wake in resting:
            wake.release()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._is_ending = False

    def submit(self, runner: PooledRunner) -> None:
        """Let a thread run the next work of ``runner``. Called on the event loop."""
        with self._lock:
            self._due.append((time.monotonic(), runner))
            # Otherwise the thread that is awake takes it next.
            may_wake = self._resting and (self.is_idle or self.is_disk_slow)
            wake = self._resting.pop() if may_wake else None
        if wake is not None:
            wake.release()
        elif not self._threads:
            self._start_thread()
        elif self._late_timer is None:
            self._watch_for_late_work()

    def post(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the event loop, together with all others that are posted before it
        looks."""
        # Without a loop no callback is registered; after the loop ended none can be called.
        if self._loop is None or self._loop.is_closed():
            return
        self._finished.append(callback)
        if not self._is_delivery_due:
            self._is_delivery_due = True
            self._loop.call_soon_threadsafe(self._deliver)

    # Inside -----------------------------------------------------------------------------------

    def _deliver(self) -> None:
        self._is_delivery_due = False  # First: what is appended from now on calls again.
        while self._finished:
            callback = self._finished.popleft()
            try:
                callback()
            except BaseException:
                # The other callbacks are not affected: they run in the loop's next round.
                assert self._loop is not None, "a callback was posted"
                self._loop.call_soon(self._deliver)
                raise

    def _watch_for_late_work(self) -> None:
        assert self._loop is not None, "work was submitted"
        self._late_timer = self._loop.call_later(LATE_MS / 1_000, self._help_if_late)

    def _help_if_late(self) -> None:
        """Wake or start threads for what has waited too long."""
        self._late_timer = None
        now = time.monotonic()
        with self._lock:
            late = sum(1 for since, _ in self._due if now - since >= LATE_MS / 1_000)
            if late:
                self._slow_until = now + SLOW_DISK_S
            woken = [self._resting.pop() for _ in range(min(late, len(self._resting)))]
            is_more_due = bool(self._due)
        for wake in woken:
            wake.release()
        for _ in range(min(late - len(woken), JOURNAL_THREADS_MAX - len(self._threads))):
            self._start_thread()
        if is_more_due:
            self._watch_for_late_work()

    def _note_time(self, seconds: float) -> None:
        self._times_s.append(seconds)
        if min(self._times_s) >= SLOW_WORK_MS / 1_000:
            self._slow_until = time.monotonic() + SLOW_DISK_S

    def _start_thread(self) -> None:
        self._threads.append(start_thread("journal", self._work))

    def _work(self) -> None:
        wake = threading.Lock()
        wake.acquire()
        while True:
            runner, began = None, time.monotonic()
            with self._lock:
                if self._due:
                    _, runner = self._due.popleft()
                elif self._is_ending:
                    return
                else:
                    self._resting.append(wake)
            if runner is None:
                wake.acquire()
            else:
                runner.run_next()
                self._note_time(time.monotonic() - began)


class PooledRunner:
    """The ``Runner`` of one journal whose work is done by the threads of a pool."""

    def __init__(self, pool: WriterPool) -> None:
        self._pool = pool
        self._works: deque[Callable[[], None]] = deque()
        self._running = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def submit(self, work: Callable[[], None]) -> None:
        if self._closed:
            return
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._pool.join()
        self._works.append(work)
        self._pool.submit(self)

    def run_next(self) -> None:
        """Run what was submitted first. Called on threads of the pool, once for each submit."""
        # Taken out under the lock: two threads run the works of a journal in their order.
        with self._running:
            if not self._closed:
                self._works.popleft()()

    def post(self, callback: Callable[[], None]) -> None:
        self._pool.post(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        # Without a loop the caller blocks in ``sync`` and tries again itself.
        if self._loop is not None and not self._loop.is_closed():
            self._timer = self._loop.call_later(delay_ms / 1_000, callback)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        with self._running:
            pass  # What runs ends first, and nothing starts any more.
        if self._loop is not None:
            self._pool.leave()
