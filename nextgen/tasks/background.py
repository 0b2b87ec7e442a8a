"""Background tasks. None of them may end unnoticed.

    keep("name", work)      runs as long as its owner; after a failure it is started again
    start("name", work())   does one thing; a failure is reported, and its owner may react
    join(work())            is awaited by its caller, which gets its error

``cancel_and_wait(*tasks)`` ends any of them.

A failure of the first two is logged with the name and counted in ``failures``, whose sum is the
metric ``nextgen_task_failures_total``. Names are literals and unique in the project.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import structlog

from nextgen.kernel.limits.cluster import TASK_RESTART_MS_MAX, TASK_RESTART_MS_MIN

T = TypeVar("T")
OnFailure = Callable[[BaseException], object]

KEPT = "kept:"
"""Prefix of the name of a task of ``keep``."""

failures: Counter[str] = Counter()
"""Number of tasks of this process that ended by an error, by name."""

_logger = structlog.get_logger(__name__)


def keep(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    """Carry out ``work`` until it returns or the task that this returns is cancelled.

    If it raises, or is cancelled otherwise, it is called again: after ``TASK_RESTART_MS_MIN``, then
    after twice as long each time. ``work`` must be able to begin again from any state that an
    attempt left.
    """
    return asyncio.get_running_loop().create_task(_keep(name, work), name=f"keeper:{name}")


def start(
    name: str,
    work: Coroutine[Any, Any, T],
    holder: set[asyncio.Task[T]] | None = None,
    *,
    on_failure: OnFailure | None = None,
    expected: type[Exception] | tuple[type[Exception], ...] = (),
) -> asyncio.Task[T]:
    """Carry out ``work`` once. ``holder`` has the task until it is done.

    Without a holder the caller keeps the task, or the garbage collector may end it. ``on_failure``
    is called with the error that ended it, but not for a cancellation of the task; ``expected``
    errors are neither logged nor counted.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    if holder is not None:
        holder.add(task)
        task.add_done_callback(holder.discard)

    def look(done: asyncio.Task[T]) -> None:
        error = _error_of(done)
        if error is None:
            return
        if not isinstance(error, expected):
            report(name, error)
        if on_failure is not None:
            on_failure(error)

    task.add_done_callback(look)
    return task


def join(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Carry out ``work`` beside its caller, which MUST await the task: only the awaiter sees its
    error."""
    return asyncio.get_running_loop().create_task(work)


async def cancel_and_wait(*tasks: asyncio.Future[Any]) -> None:
    """Cancel ``tasks`` and return once all have ended. How they ended is reported by themselves."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def report(name: str, error: BaseException) -> None:
    """Log and count a failure of the task or thread ``name``."""
    failures[name] += 1
    _logger.error("a background task failed", task=name, error=repr(error), exc_info=error)


async def _keep(name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = asyncio.get_running_loop()
    keeper = asyncio.current_task()
    assert keeper is not None
    pause_ms = TASK_RESTART_MS_MIN
    while True:
        began_at, requests = loop.time(), keeper.cancelling()
        # Its own task, so that cancelling the work is distinguished from cancelling its keeper.
        attempt = loop.create_task(work(), name=KEPT + name)
        try:
            await attempt
        except asyncio.CancelledError as error:
            if keeper.cancelling() > requests or not attempt.done():
                raise
            failure: BaseException = error
        except Exception as error:
            failure = error
        else:
            return
        if keeper.cancelling() > requests:
            raise asyncio.CancelledError from failure
        report(name, failure)
        if (loop.time() - began_at) * 1_000 > TASK_RESTART_MS_MAX:
            pause_ms = TASK_RESTART_MS_MIN
        await asyncio.sleep(pause_ms / 1_000)
        pause_ms = min(2 * pause_ms, TASK_RESTART_MS_MAX)


def _error_of(task: asyncio.Task[Any]) -> BaseException | None:
    """Return the error that ended ``task``, None for a result or a requested cancellation."""
    if not task.cancelled():
        return task.exception()
    return None if task.cancelling() else asyncio.CancelledError("cancelled by another task")
