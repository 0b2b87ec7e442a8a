"""Bounds on connections before CONNECT and on incomplete frames, for all clients of a server.

Both are cheap for a client to keep open and of no use yet. So their number, bytes and age are
bounded for all clients of a process together. Beyond a bound, the connection that has held most for
longest is dropped first.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from nextgen.kernel.limits.inbound import (
    CONNECTIONS_BEFORE_CONNECT_MAX,
    FRAME_BYTES_PER_S_MIN,
    FRAME_MS_MAX,
    UNFINISHED_FRAMES_BYTES_MAX,
    UNFINISHED_FRAMES_CHECK_MS,
)

_KEPT_EIGHTHS = 7
"""Eighths of the byte limit to which it is reduced when it is exceeded: one search for the
costliest frames frees an eighth of the limit, however small the frames are."""


class Sender(Protocol):
    """A connection as its ``InboundBudget`` sees it."""

    unfinished_bytes: int
    """Bytes of the incomplete frame, as the budget counts them. Only the budget changes it."""

    frame_began_at: float
    """When that frame began, by the loop's clock. 0 until the budget sees a frame begin."""

    @property
    def needed_bytes(self) -> int:
        """Return the size of that frame, or the bytes needed to know it."""

    @property
    def is_read(self) -> bool:
        """Return whether the server reads from the client: if not, the delay is the server's."""

    def abort(self, reason: str) -> None: ...


class InboundBudget:
    """Counts these connections and drops those beyond the limits. Owned by one event loop."""

    def __init__(
        self,
        *,
        unfinished_bytes_max: int = UNFINISHED_FRAMES_BYTES_MAX,
        before_connect_max: int = CONNECTIONS_BEFORE_CONNECT_MAX,
        frame_ms_max: int = FRAME_MS_MAX,
        frame_bytes_per_s_min: int = FRAME_BYTES_PER_S_MIN,
    ) -> None:
        self._unfinished_bytes_max = unfinished_bytes_max
        self._before_connect_max = before_connect_max
        self._frame_ms_max = frame_ms_max
        self._frame_bytes_per_s_min = frame_bytes_per_s_min
        # Dictionaries for their order: the oldest comes first.
        self._before_connect: dict[Sender, None] = {}
        self._unfinished: dict[Sender, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.unfinished_bytes = 0
        """Bytes of all incomplete frames."""
        self.dropped_connections = 0
        """Connections that were closed for their bytes, their age, or a missing CONNECT."""

    def opened(self, connection: Sender) -> None:
        """Note a new connection. If too many have not sent CONNECT, the oldest is dropped."""
        self._before_connect[connection] = None
        if len(self._before_connect) > self._before_connect_max:
            oldest = next(iter(self._before_connect))
            del self._before_connect[oldest]
            self._drop(oldest, "too many connections without CONNECT, and this was the oldest")

    def introduced(self, connection: Sender) -> None:
        """Note that the client has sent its CONNECT."""
        self._before_connect.pop(connection, None)

    def hold(self, connection: Sender, unfinished_bytes: int) -> None:
        """Note a read, after which ``unfinished_bytes`` of an incomplete frame are kept."""
        self.unfinished_bytes += unfinished_bytes - connection.unfinished_bytes
        connection.unfinished_bytes = unfinished_bytes
        if not unfinished_bytes:
            self._unfinished.pop(connection, None)
            connection.frame_began_at = 0.0
            return
        self._unfinished[connection] = None
        if not connection.frame_began_at:
            connection.frame_began_at = _now()
        if self._timer is None:
            self._arm()
        if self.unfinished_bytes > self._unfinished_bytes_max:
            self._make_room()

    def closed(self, connection: Sender) -> None:
        """Note that the connection is closed, and release its bytes."""
        self._before_connect.pop(connection, None)
        self.hold(connection, 0)

    def close(self) -> None:
        """Stop the timer. Frames that remain have no time limit any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _make_room(self) -> None:
        now = _now()
        costliest = sorted(
            self._unfinished,
            key=lambda each: each.unfinished_bytes * (now - each.frame_began_at + 1e-3),
        )
        kept_bytes = self._unfinished_bytes_max * _KEPT_EIGHTHS // 8
        while self.unfinished_bytes > kept_bytes:
            connection = costliest.pop()
            self.hold(connection, 0)
            self._drop(connection, "incomplete frames take too much memory, and this one the most")

    def _drop(self, connection: Sender, reason: str) -> None:
        self.dropped_connections += 1
        connection.abort(reason)

    def _arm(self) -> None:
        delay_s = UNFINISHED_FRAMES_CHECK_MS / 1_000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._check)

    def _check(self) -> None:
        self._timer = None
        now = _now()
        for connection in list(self._unfinished):
            if not connection.is_read:
                # The delay is the server's: the frame's time starts again.
                connection.frame_began_at = now
                continue
            allowed_s = connection.needed_bytes / self._frame_bytes_per_s_min
            allowed_s += self._frame_ms_max / 1_000
            if now - connection.frame_began_at >= allowed_s:
                self.hold(connection, 0)
                self._drop(connection, f"a frame was not complete after {allowed_s:.0f} s")
        if self._unfinished:
            self._arm()


def _now() -> float:
    return asyncio.get_running_loop().time()
