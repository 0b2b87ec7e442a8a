"""Reserves a range of ports for one process, so that concurrent starts of clusters do not collide.

A free port may be taken a moment later: a starting cluster listens on its ports a second after it
chose them, and another process may have chosen the same ones by then.
"""

from __future__ import annotations

import atexit
import socket
from types import TracebackType

_HOST = "127.0.0.1"

PORTS_PER_RANGE = 1_000
"""Room for the clusters of one process: fourteen processes with four ports each are 56."""

FREE_PORT_FIRST = 18_000
FREE_PORT_LAST = 31_000
"""Below the range that Linux takes outgoing ports from, so a restarted node gets its port back."""

RANGES_MAX = (FREE_PORT_LAST - FREE_PORT_FIRST) // PORTS_PER_RANGE
"""Processes with a range of their own at most; further ones share all ports."""


class PortRange:
    """A range of ports on this machine that no other ``PortRange`` has, until ``close``.

    Its first port, which is not part of ``ports``, is kept open as the mark that the range is
    taken: the kernel closes it when the process ends.
    """

    def __init__(self) -> None:
        self._sign: socket.socket | None = None
        self.ports = range(FREE_PORT_FIRST, FREE_PORT_LAST)
        for first in range(FREE_PORT_FIRST, FREE_PORT_LAST, PORTS_PER_RANGE):
            sign = socket.socket()
            try:
                sign.bind((_HOST, first))
            except OSError:
                sign.close()
                continue
            self._sign = sign
            self.ports = range(first + 1, first + PORTS_PER_RANGE)
            return

    def __enter__(self) -> PortRange:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_exclusive(self) -> bool:
        """Whether ``ports`` belong to this object alone, because a range was free."""
        return self._sign is not None

    def close(self) -> None:
        """Release the range."""
        if self._sign is not None:
            self._sign.close()
            self._sign = None


_own: list[PortRange] = []


def own_ports() -> range:
    """Return the ports of this process, which are released when it ends.

    The same at every call, unless every range is taken: then all ports, and a further attempt at
    the next call.
    """
    if not _own:
        found = PortRange()
        if not found.is_exclusive:
            return found.ports
        _own.append(found)
        atexit.register(found.close)
    return _own[0].ports
