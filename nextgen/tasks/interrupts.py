"""``asyncio.run`` that no SIGINT can miss.

``asyncio.run`` lets a SIGINT cancel the main task in Python's own signal handler, which runs when
the main thread next executes Python code. A signal that arrives just before the event loop begins
to wait, or that the system delivers to another thread, does not end the wait: an idle program goes
on as if there had been no signal.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on an event loop of its own; the first SIGINT cancels it, at once.

    A second SIGINT interrupts whatever Python code runs. A thread other than the main one, and a
    program that ignores or handles SIGINT itself, get ``asyncio.run``.

    Raises:
        KeyboardInterrupt: A SIGINT ended ``work``.
    """
    if not _takes_interrupts():
        return asyncio.run(work)
    interrupted: list[bool] = []
    try:
        return asyncio.run(_interruptible(work, interrupted))
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise


def _takes_interrupts() -> bool:
    return (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


async def _interruptible(work: Coroutine[Any, Any, T], interrupted: list[bool]) -> T:
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    assert main is not None, "it runs on an event loop"

    def interrupt() -> None:
        interrupted.append(True)
        # From here on Python's own handler is in place.
        loop.remove_signal_handler(signal.SIGINT)
        main.cancel()

    # The loop has the signal written to a socket that it waits for.
    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        return await work
    finally:
        loop.remove_signal_handler(signal.SIGINT)
