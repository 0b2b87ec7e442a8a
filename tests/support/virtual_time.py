"""An event loop whose clock jumps to the next timer: hours pass in seconds, the same each time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs callbacks like any loop, but never sleeps: time is what its timers say."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.now_s


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


def run_virtual(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run ``main`` on a loop of its own in virtual time; what it leaves behind is cancelled."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main())


class VirtualWorker(Executor):
    """One worker thread's stand-in: each call takes some virtual time, in order.

    Also a journal's ``Runner``. After ``kill`` nothing it was given ever ends.
    """

    def __init__(self, delay_ms: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay_ms = delay_ms
        self._free_at = self._loop.time()
        self._killed = False

    def kill(self) -> None:
        self._killed = True

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            if self._killed or not future.set_running_or_notify_cancel():
                return
            try:
                result = work(*arguments, **named)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._free_at = max(self._free_at, self._loop.time()) + self._delay_ms() / 1000
        self._loop.call_at(self._free_at, run)
        return future

    def post(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(lambda: None if self._killed else callback())

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._loop.call_later(delay_ms / 1000, lambda: None if self._killed else callback())

    def close(self) -> None:
        self._killed = True
