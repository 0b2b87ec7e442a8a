"""Keeps what one subscription sends within rates: its own, its topic's, its tenant's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brokers.service.client_limits.rate_limiter import RateLimiter
from nextgen.kernel.limits.pulsar import DISPATCH_BYTES_MAX

_PLENTY = 100_000
"""With room for so many messages, rates are not looked at before each turn, only charged behind."""

_UNCHECKED_TURNS = 16


class Pacing:
    """``ask`` requests a turn of the subscription."""

    __slots__ = ("_ask", "_limiters", "_unchecked_turns")

    def __init__(self, limiters: Sequence[RateLimiter], ask: Callable[[], None]) -> None:
        self._limiters = tuple(limiters)
        self._ask = ask
        self._unchecked_turns = 0

    def messages_max(self) -> int:
        """Return the number of messages that a turn may send. After 0, ``ask`` will be called."""
        if self._unchecked_turns:
            self._unchecked_turns -= 1
            return DISPATCH_BYTES_MAX
        room: float = DISPATCH_BYTES_MAX
        for limiter in self._limiters:
            left = limiter.room()
            if not left:
                limiter.wait(self._ask)
                return 0
            room = min(room, left)
        if room >= _PLENTY:
            self._unchecked_turns = _UNCHECKED_TURNS
        return max(1, int(room))

    def sent(self, messages: int, size_bytes: int) -> None:
        """Charge what a turn has sent."""
        for limiter in self._limiters:
            limiter.take(messages, size_bytes)

    def close(self) -> None:
        """Ask for no more turns."""
        for limiter in self._limiters:
            limiter.forget(self._ask)
