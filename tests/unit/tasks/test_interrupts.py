"""A SIGINT ends a program on an event loop, whenever it arrives and whichever thread gets it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from nextgen.tasks.interrupts import run

LOST_AFTER_S = 2
"""The time after which a program that did not notice its interrupt goes on."""


@pytest.fixture
def _threads_take_turns_when_they_wait() -> Iterator[None]:
    """A thread that becomes ready runs when the one that runs begins to wait, and not before."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(LOST_AFTER_S)
    yield
    sys.setswitchinterval(before)


async def idle(ended: list[str]) -> None:
    """Wait for nothing but a SIGINT. A thread other than the loop's gets it, when the loop waits.

    The loop's wait is not interrupted, as it is not by a signal that arrives just before it.
    """
    is_idle = threading.Lock()
    is_idle.acquire()

    def signal_itself() -> None:
        with is_idle:
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Thread(target=signal_itself).start()
    loop = asyncio.get_running_loop()
    loop.call_soon(is_idle.release)
    # Anything that happens on the loop would let Python notice the signal.
    loop.call_later(LOST_AFTER_S, ended.append, "nothing woke the loop")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        ended.append("cancelled")
        raise


@pytest.mark.usefixtures("_threads_take_turns_when_they_wait")
def test_an_idle_loop_notices_a_signal_that_another_thread_got() -> None:
    """1. The loop begins to wait. 2. Another thread gets the signal. 3. The work is cancelled."""
    ended: list[str] = []

    with pytest.raises(KeyboardInterrupt):
        run(idle(ended))

    assert ended == ["cancelled"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_signal_interrupts_work_that_goes_on() -> None:
    async def stubborn() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(LOST_AFTER_S)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()

    with pytest.raises(KeyboardInterrupt):
        run(stubborn())


def test_what_the_work_returns_after_a_signal_is_returned() -> None:
    async def finishing() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(LOST_AFTER_S)
        except asyncio.CancelledError:
            return "whole"
        return "missed"

    assert run(finishing()) == "whole"


def test_a_cancellation_of_its_own_is_no_interrupt() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(cancelled())


def test_a_program_that_ignores_the_signal_goes_on() -> None:
    async def work() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0)
        return "done"

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run(work()) == "done"
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_than_the_main_one_may_run_it() -> None:
    async def work() -> str:
        return "done"

    async def main() -> str:
        return await asyncio.to_thread(lambda: run(work()))

    assert run(main()) == "done"
