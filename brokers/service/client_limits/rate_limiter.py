"""A rate that several callers share. They charge what has passed, and wait in turn for room.

    take ──▶ room left            ▶ go on
         ──▶ none ──▶ wait ──(tokens for RATE_SLICE_MS)──▶ called, the longest waiting first

A caller is called when there may be room, and looks again: others may have been faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from brokers.domain.token_bucket import TokenBucket
from nextgen.kernel.governance.client_limits import Rate
from nextgen.kernel.limits.inbound import RATE_SLICE_MS

Waiter = Callable[[], None]

_SLICE_S = RATE_SLICE_MS / 1_000
_GAP_S = 0.001
"""Between two wake-ups. What a woken connection has already sent is charged before the next."""

_WOKEN_PART = 16
"""One of so many waiters is woken at a time: each may charge all that one read of it brings."""

_NO_EXTRA = (0.0, 0.0)
_UNBOUNDED = float("inf")


class RateLimiter:
    """Messages and bytes in a period. ``published`` returns what a relative rate adds to both, per
    second. ``on_wait`` is called with each caller that begins to wait."""

    def __init__(
        self,
        rate: Rate,
        *,
        published: Callable[[], tuple[float, float]] = lambda: _NO_EXTRA,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        assert rate, "a rate that bounds nothing needs no limiter"
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._published = published
        self._on_wait = on_wait
        self._waiters: dict[Waiter, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._messages: TokenBucket | None = None
        self._bytes: TokenBucket | None = None
        self._message_bytes = 0.0
        """Size of the messages charged last; 0: none were."""
        self._is_closed = False
        self.rate = rate
        self._apply(rate)

    def __repr__(self) -> str:
        return f"<RateLimiter {self._messages} {self._bytes} waiting={len(self._waiters)}>"

    @property
    def waiting(self) -> int:
        """Number of callers that wait."""
        return len(self._waiters)

    def change(self, rate: Rate) -> None:
        """Continue at another rate, with the debts that there are."""
        if rate != self.rate:
            self.rate = rate
            self._apply(rate)
            if self._timer is not None:
                self._arm()

    def take(self, messages: int, size_bytes: int) -> bool:
        """Charge what has passed; return whether there is still room."""
        if self._is_closed:
            return True
        if self.rate.is_relative:
            self._fill()
        now_s = self._time()
        has_room = self._messages is None or self._messages.spend(messages, now_s)
        if self._bytes is not None:
            self._message_bytes = size_bytes / (messages or 1)
            has_room = self._bytes.spend(size_bytes, now_s) and has_room
        return has_room

    def room(self) -> float:
        """Return how many messages may pass now, of the size of those that passed last."""
        if self._is_closed:
            return _UNBOUNDED
        self._fill()
        room = _UNBOUNDED
        if self._messages is not None:
            room = self._messages.tokens
        if self._bytes is not None:
            left = self._bytes.tokens
            room = min(room, left / self._message_bytes if self._message_bytes else min(left, 1.0))
        return max(0.0, room)

    def wait(self, waiter: Waiter) -> None:
        """Call ``waiter`` once, in its turn, when there may be room. One that waits already keeps
        its place."""
        if waiter not in self._waiters:
            self._waiters[waiter] = None
            self._on_wait()
        if self._timer is None:
            self._arm()

    def forget(self, waiter: Waiter) -> None:
        """Call ``waiter`` no more."""
        self._waiters.pop(waiter, None)

    def close(self) -> None:
        """Bound nothing any more, and call all that wait."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter()

    def _apply(self, rate: Rate) -> None:
        self._messages = self._bucket(self._messages, rate.messages)
        self._bytes = self._bucket(self._bytes, rate.size_bytes)

    def _bucket(self, bucket: TokenBucket | None, amount: int) -> TokenBucket | None:
        if not amount:
            return None
        if bucket is None:
            return TokenBucket(amount, self.rate.period_seconds, self._loop.time())
        bucket.change(amount, self.rate.period_seconds, self._loop.time())
        return bucket

    def _fill(self) -> None:
        now_s = self._time()
        messages, size_bytes = self._published() if self.rate.is_relative else _NO_EXTRA
        if self._messages is not None:
            self._messages.fill(now_s, messages)
        if self._bytes is not None:
            self._bytes.fill(now_s, size_bytes)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fill()
        messages, size_bytes = self._published() if self.rate.is_relative else _NO_EXTRA
        delay_s = _GAP_S
        if self._messages is not None:
            delay_s = max(delay_s, self._messages.wait_s(_SLICE_S, messages))
        if self._bytes is not None:
            delay_s = max(delay_s, self._bytes.wait_s(_SLICE_S, size_bytes))
        self._timer = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self.room() > 0:
            for waiter in list(self._waiters)[: max(1, len(self._waiters) // _WOKEN_PART)]:
                self._waiters.pop(waiter, None)
                waiter()
        if self._waiters and self._timer is None and not self._is_closed:
            self._arm()
