"""The number of pending requests to cancel the running task."""

from __future__ import annotations

import asyncio


def cancel_requests() -> int:
    """Return the number of requests to cancel the running task that were not withdrawn.

    A ``CancelledError`` without a new request is not addressed to this task: a future or a call
    that it awaits was cancelled.
    """
    task = asyncio.current_task()
    assert task is not None, "only a task can be cancelled"
    return task.cancelling()
