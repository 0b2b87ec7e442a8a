"""Keeps what one subscription sends within rates: its own, its topic's, its tenant's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brokers.service.client_limits.rate_limiter import RateLimiter
from nextgen.kernel.limits.pulsar import DISPATCH_BYTES_MAX


class Pacing:
    """``ask`` requests a turn of the subscription."""

    __slots__ = ("_ask", "_limiters")

    def __init__(self, limiters: Sequence[RateLimiter], ask: Callable[[], None]) -> None:
        self._limiters = tuple(limiters)
        self._ask = ask

    def messages_max(self) -> int:
        """Return the number of messages that a turn may send. After 0, ``ask`` will be called."""
        room: float = DISPATCH_BYTES_MAX
        for limiter in self._limiters:
            left = limiter.room()
            if not left:
                limiter.wait(self._ask)
                return 0
            room = min(room, left)
        return max(1, int(room))

    def sent(self, messages: int, size_bytes: int) -> None:
        """Charge what a turn has sent."""
        for limiter in self._limiters:
            limiter.take(messages, size_bytes)

    def close(self) -> None:
        """Ask for no more turns."""
        for limiter in self._limiters:
            limiter.forget(self._ask)
