"""Pauses between attempts: each twice as long as the one before, up to a limit."""

from __future__ import annotations

from nextgen.kernel.limits.scalable import (
    SESSION_RETRY_MS_MAX,
    SESSION_RETRY_MS_MIN,
)


class Backoff:
    """The pauses of one sequence of attempts. ``reset`` it after a success."""

    def __init__(
        self, first_ms: int = SESSION_RETRY_MS_MIN, last_ms: int = SESSION_RETRY_MS_MAX
    ) -> None:
        self._first_ms = first_ms
        self._last_ms = last_ms
        self._next_ms = first_ms

    def next_ms(self) -> int:
        """Return the pause before the next attempt."""
        pause_ms, self._next_ms = self._next_ms, min(2 * self._next_ms, self._last_ms)
        return pause_ms

    def reset(self) -> None:
        self._next_ms = self._first_ms
