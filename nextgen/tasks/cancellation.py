"""How often the running task was asked to end."""

from __future__ import annotations

import asyncio


def cancel_requests() -> int:
    """Return the number of requests to cancel the running task that nothing has taken back.

    A ``CancelledError`` that arrives while the number stays what it was is not addressed to this
    task: a future or a call that it awaits was cancelled.
    """
    task = asyncio.current_task()
    assert task is not None, "only a task can be cancelled"
    return task.cancelling()
