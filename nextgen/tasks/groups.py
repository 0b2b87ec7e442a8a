"""``asyncio.TaskGroup`` as Python 3.13 mended it, on every supported Python.

A group cancels the task that waits for it when a member fails. Before 3.13 it does not take that
request back if the task was waiting at the end of the block, so the task's ``cancelling()`` count
grows by one with each failed group; and a cancellation from elsewhere that arrives while the group
is ending is lost.
"""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType

from nextgen.tasks.cancellation import cancel_requests

if sys.version_info >= (3, 13):
    TaskGroup = asyncio.TaskGroup
else:

    class TaskGroup(asyncio.TaskGroup):
        """A group that leaves its task's ``cancelling()`` count as it found it.

        If the task was cancelled from elsewhere while members failed, the block raises their
        errors, and the next ``await`` raises ``CancelledError``.
        """

        async def __aenter__(self) -> TaskGroup:
            self._cancel_requests = cancel_requests()
            await super().__aenter__()
            return self

        async def __aexit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            traceback: TracebackType | None,
        ) -> None:
            taken_back = self._has_cancelled_parent()
            try:
                await super().__aexit__(kind, error, traceback)
            except BaseExceptionGroup:
                self._take_back(taken_back)
                if cancel_requests() > self._cancel_requests:
                    self._cancel_again()
                raise

        def _has_cancelled_parent(self) -> bool:
            has_cancelled: bool = self._parent_cancel_requested  # type: ignore[attr-defined]
            return has_cancelled

        def _take_back(self, taken_back: bool) -> None:
            if self._has_cancelled_parent() and not taken_back:
                self._parent().uncancel()

        def _cancel_again(self) -> None:
            self._parent().uncancel()
            self._parent().cancel()

        @staticmethod
        def _parent() -> asyncio.Task[object]:
            parent = asyncio.current_task()
            assert parent is not None
            return parent
