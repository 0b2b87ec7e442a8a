"""Shares the event loop between connections with long reads and all other work.

    a long read ─▶ is there time left in this turn? ─▶ a part of it is answered
                            │ no                              │ more is left
                            └────────▶ queue, first come first served ◀────┘

All connections together have the time of one turn; then ``DISCOVERY_ROUNDS_BETWEEN_TURNS`` rounds
of the loop belong to all other work. gRPC accepts one call after the other, each in two or three
rounds, so a call waits for the length of a round.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from nextgen.kernel.limits.discovery import DISCOVERY_ROUNDS_BETWEEN_TURNS, DISCOVERY_TURN_MS


class LoopTurns:
    """Owned by one event loop. ``clock`` and ``turn_s`` are in seconds."""

    def __init__(
        self, clock: Callable[[], float], turn_s: float = DISCOVERY_TURN_MS / 1_000
    ) -> None:
        self._clock = clock
        self._turn_s = turn_s
        self._waiting: deque[Callable[[], None]] = deque()
        self._ends_at = 0.0
        self._is_running = False
        """Whether a turn has begun, and the rounds behind it are not over."""

    def __repr__(self) -> str:
        return f"<LoopTurns waiting={len(self._waiting)}>"

    def has_time(self) -> bool:
        """Return whether more may be answered in this turn; begins it if none is running."""
        if not self._is_running:
            self._begin()
            return True
        return not self._waiting and self._clock() < self._ends_at

    def wait(self, go_on: Callable[[], None]) -> None:
        """Have ``go_on`` called in a later turn, behind all earlier callers."""
        self._waiting.append(go_on)
        if not self._is_running:
            self._begin()

    def _begin(self) -> None:
        self._is_running = True
        self._ends_at = self._clock() + self._turn_s
        asyncio.get_running_loop().call_soon(self._next, DISCOVERY_ROUNDS_BETWEEN_TURNS - 1)

    def _next(self, rounds_left: int) -> None:
        # A single connection waits for no other and for no rounds.
        if rounds_left and self._waiting:
            asyncio.get_running_loop().call_soon(self._next, rounds_left - 1)
            return
        self._is_running = False
        if not self._waiting:
            return
        self._begin()
        while self._waiting:
            self._waiting.popleft()()
            if self._clock() >= self._ends_at:
                return
