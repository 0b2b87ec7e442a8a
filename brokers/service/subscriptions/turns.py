"""The turns in which subscriptions send, so that many of them share one event loop evenly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Turns:
    """Calls ``run`` soon after one or more requests for it.

    ``run`` returns whether there is more to do at once; if so it gets another turn, behind
    everything else that is ready to run. ``next_due_at_ms`` returns the time of the next turn
    without a further request; one timer waits for it, if there is such a time.
    """

    def __init__(
        self,
        run: Callable[[], bool],
        next_due_at_ms: Callable[[], int | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._run = run
        self._next_due_at_ms = next_due_at_ms
        self._now_ms = now_ms
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms: int | None = None
        self._is_closed = False

    def ask(self) -> None:
        """Request a turn."""
        if self._soon is None and not self._is_closed:
            self._soon = asyncio.get_running_loop().call_soon(self._turn)

    def close(self) -> None:
        """Cancel all further turns."""
        self._is_closed = True
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        self._soon = self._timer = None

    def _turn(self) -> None:
        self._soon = None
        if self._run():
            self.ask()
        self._set_timer(self._next_due_at_ms())

    def _set_timer(self, due_at_ms: int | None) -> None:
        if self._timer is not None:
            if due_at_ms == self._timer_at_ms:
                return
            self._timer.cancel()
            self._timer = None
        if due_at_ms is not None and not self._is_closed:
            delay_ms = max(0, due_at_ms - self._now_ms())
            self._timer_at_ms = due_at_ms
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1_000, self._due)

    def _due(self) -> None:
        self._timer = None
        self.ask()
