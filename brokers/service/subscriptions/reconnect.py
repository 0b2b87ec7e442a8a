"""Keeps a subscription that is not durable alive while a seek has disconnected its consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nextgen.kernel.limits.pulsar import SEEK_RECONNECT_MS_MAX


class ReconnectWait:
    """One subscription's wait for its consumers, of at most ``SEEK_RECONNECT_MS_MAX``."""

    def __init__(self, on_over: Callable[[], None]) -> None:
        self._on_over = on_over
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        return self._timer is not None

    def begin(self) -> None:
        """Wait from now on; call ``on_over`` if nothing ends the wait."""
        self.end()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SEEK_RECONNECT_MS_MAX / 1_000, self._over)

    def end(self) -> None:
        """End the wait, if there is one: a consumer is back, or the subscription is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._timer = None
        self._on_over()
