"""Keeps a topic's producers within rates: the connections that publish are not read for a while.

Nothing is refused. Other producers and consumers on such a connection wait, too, as in Pulsar.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from brokers.service.client_limits.rate_limiter import RateLimiter, Waiter


class Publisher(Protocol):
    """A connection that publishes. It MUST call ``forget`` of each throttle when it is closed."""

    def hold_for_rate(self, throttle: PublishThrottle) -> None:
        """Read no further commands."""
        ...

    def release_for_rate(self, throttle: PublishThrottle) -> None:
        """Read on, unless something else holds the connection."""
        ...


class PublishThrottle:
    """The rates that one topic is published within: its own, and that of its tenant's topics."""

    __slots__ = ("_held", "limiters")

    def __init__(self, limiters: Sequence[RateLimiter]) -> None:
        self.limiters = tuple(limiters)
        self._held: dict[Publisher, tuple[RateLimiter, Waiter]] = {}

    def charge(self, publisher: Publisher, messages: int, size_bytes: int) -> None:
        """Charge what a connection has published, and hold the connection if that was too much."""
        has_room = True
        for limiter in self.limiters:
            if not limiter.take(messages, size_bytes):
                has_room = False
        if has_room:
            return
        if publisher not in self._held:
            self._hold_or_release(publisher, partial(self._look_again, publisher))
            if publisher in self._held:
                publisher.hold_for_rate(self)

    def forget(self, publisher: Publisher) -> None:
        """The connection is closed."""
        held = self._held.pop(publisher, None)
        if held is not None:
            limiter, waiter = held
            limiter.forget(waiter)

    def close(self) -> None:
        """Release all connections: other rates hold, or none."""
        for publisher in list(self._held):
            self.forget(publisher)
            publisher.release_for_rate(self)

    def _look_again(self, publisher: Publisher) -> None:
        held = self._held.pop(publisher, None)
        if held is not None:
            self._hold_or_release(publisher, held[1])
            if publisher not in self._held:
                publisher.release_for_rate(self)

    def _hold_or_release(self, publisher: Publisher, waiter: Waiter) -> None:
        """Wait for the first rate that has no room."""
        for limiter in self.limiters:
            if not limiter.room():
                self._held[publisher] = (limiter, waiter)
                limiter.wait(waiter)
                return
