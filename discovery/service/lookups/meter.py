"""Reports each minute of this process's lookups to the cluster manager, which records it.

The Join stream has no acknowledgements, so reports are kept for a while and sent again after each
reconnect. The cluster manager records each minute of a process once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from discovery.domain.lookup_windows import LookupTally, LookupWindows
from nextgen.client.wire.lookup_windows import window_to_proto
from nextgen.kernel.governance.lookup_slo import LookupWindow
from nextgen.kernel.limits.placement import LOOKUP_WINDOWS_KEPT_MAX
from protos.nextgen.v1.cluster_service_pb2 import NodeMessage

_logger = structlog.get_logger(__name__)

FIRST_PROCESS = 1


def process_name(number: int, started_at_ms: int) -> str:
    """Return the name under which a process reports its windows: ``w2-1763800000``.

    A restarted process has another name, so that both halves of its minute count.
    """
    return f"w{number}-{started_at_ms // 1_000}"


class LookupMeter:
    """Owned by one event loop. ``send`` returns False for what it dropped."""

    def __init__(
        self,
        tally: LookupTally,
        *,
        node_id: str,
        number: int,
        send: Callable[[NodeMessage], bool],
        unix_ms: Callable[[], int],
    ) -> None:
        self._tally = tally
        self._send = send
        self._unix_ms = unix_ms
        self._windows = LookupWindows(node_id, process_name(number, unix_ms()), unix_ms())
        self._kept: deque[LookupWindow] = deque(maxlen=LOOKUP_WINDOWS_KEPT_MAX)
        self._timer: asyncio.TimerHandle | None = None
        self.good = 0
        """Windows of this process that kept the objective, since its start."""
        self.bad = 0

    def __repr__(self) -> str:
        return f"<LookupMeter good={self.good} bad={self.bad}>"

    def start(self) -> None:
        """Begin to report, at the end of each minute."""
        self._tick()

    def stop(self) -> None:
        """Report the present minute as it is, and end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._take(self._windows.finish(self._unix_ms(), self._tally))

    def connected(self) -> None:
        """Send the kept windows again: an earlier connection may have lost them."""
        for window in self._kept:
            self._send(_message(window))

    def _tick(self) -> None:
        self._take(self._windows.advance(self._unix_ms(), self._tally))
        wait_ms = max(1, self._windows.ends_at_ms - self._unix_ms())
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_ms / 1_000, self._tick)

    def _take(self, window: LookupWindow | None) -> None:
        if window is None:
            return
        why = window.why_bad
        self.good += not why
        self.bad += bool(why)
        if why:
            _logger.warning("a bad minute of lookups", began_at_ms=window.began_at_ms, why=why)
        self._kept.append(window)
        self._send(_message(window))


def _message(window: LookupWindow) -> NodeMessage:
    return NodeMessage(window=window_to_proto(window))
