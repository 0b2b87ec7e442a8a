"""Turns: one run at a time for each object, with numbers of attempts that grow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from nextgen.kernel.events.generations import term_number
from nextgen.kernel.limits.cluster import DELETION_ATTEMPTS_PER_TERM_MAX


@dataclass(slots=True)
class _Turn:
    """A lock, and the number of runs that hold or await it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Turns:
    """The turns of one leader's term."""

    def __init__(self, term: int) -> None:
        self._term = term
        self._attempts = 0
        self._last = 0
        self._turns: dict[Hashable, _Turn] = {}

    @asynccontextmanager
    async def of(self, key: Hashable) -> AsyncIterator[None]:
        """Hold the turn of ``key``, after those that asked for it before."""
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

    def is_taken(self, key: Hashable) -> bool:
        """Return whether a run holds or awaits the turn of ``key``."""
        return key in self._turns

    def next_attempt(self) -> int:
        """Return a number above that of every earlier attempt, earlier terms included."""
        self._attempts += 1
        assert self._attempts < DELETION_ATTEMPTS_PER_TERM_MAX, "attempts ran out of numbers"
        own = term_number(self._term) * DELETION_ATTEMPTS_PER_TERM_MAX + self._attempts
        self._last = max(own, self._last + 1)
        return self._last

    def exceed(self, attempt: int) -> None:
        """Let the next attempt have a higher number than ``attempt``: one of the shard that the
        object came from, whose terms may be higher."""
        self._last = max(self._last, attempt)
