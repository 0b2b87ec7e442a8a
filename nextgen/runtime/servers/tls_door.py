"""Bounds TLS handshakes at a listener: how many at a time, and how long each may take.

asyncio's own TLS listeners accept any number of connections that never finish their handshake. The
door stands before them: it knows each of them, and drops the oldest beyond the bound. The server
behind it sees connections only once their handshake is done.

    await loop.create_server(TlsDoor(context, factory), host, port)
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from typing import cast

from prometheus_client import Counter

from nextgen.kernel.limits.inbound import TLS_HANDSHAKE_MS_MAX, TLS_HANDSHAKES_MAX
from nextgen.tasks.background import start

_handshakes = Counter(
    "nextgen_tls_handshakes", "TLS handshakes at asyncio's listeners, by outcome.", ["outcome"]
)
for _outcome in ("done", "failed", "dropped"):
    _handshakes.labels(_outcome)  # Exported as 0 before the first.


class TlsDoor:
    """Makes protocols for ``create_server``. Owned by one event loop.

    ``context`` is called for each handshake, so that changed certificates are used. ``factory``
    makes the protocol of a connection, which hears of it once its handshake is done.
    """

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        factory: Callable[[], asyncio.Protocol],
        *,
        handshakes_max: int = TLS_HANDSHAKES_MAX,
        handshake_ms_max: int = TLS_HANDSHAKE_MS_MAX,
    ) -> None:
        self._context = context
        self._factory = factory
        self._handshakes_max = handshakes_max
        self._handshake_s_max = handshake_ms_max / 1_000
        # In the order of their arrival: a dict, because a set has no order.
        self._handshakes: dict[asyncio.Task[None], None] = {}

    def __repr__(self) -> str:
        return f"<TlsDoor handshakes={len(self)}>"

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of one new connection."""
        return _Arrival(self)

    def __len__(self) -> int:
        """Return how many handshakes are not done."""
        return len(self._handshakes)

    def close(self) -> None:
        """Drop the connections whose handshake is not done."""
        for task in list(self._handshakes):
            task.cancel()

    def arrived(self, connection: socket.socket) -> None:
        """Begin the handshake of a new connection."""
        if len(self._handshakes) >= self._handshakes_max:
            # The oldest, not this one: a client needs a round trip, silence lasts until its end.
            oldest = next(iter(self._handshakes))
            del self._handshakes[oldest]
            oldest.cancel()
            _handshakes.labels("dropped").inc()
        task = start("tls_handshake", self._shake_hands(connection))
        self._handshakes[task] = None
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _shake_hands(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                self._factory,
                connection,
                ssl=self._context(),
                ssl_handshake_timeout=self._handshake_s_max,
            )
        except OSError:  # So are a time-out, and every error of TLS.
            _handshakes.labels("failed").inc()
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise
        else:
            _handshakes.labels("done").inc()


class _Arrival(asyncio.Protocol):
    """A connection before its handshake."""

    def __init__(self, door: TlsDoor) -> None:
        self._door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transport would read what belongs to the handshake, and uvloop's does not pause here:
        # the socket goes on under another number, and this transport ends before it reads.
        try:
            number = os.dup(transport.get_extra_info("socket").fileno())
        except OSError:  # This process may open no further file.
            number = -1
        # A cast: what uvloop hands over does not derive from asyncio's class.
        cast(asyncio.Transport, transport).abort()
        if number >= 0:
            self._door.arrived(socket.socket(fileno=number))
