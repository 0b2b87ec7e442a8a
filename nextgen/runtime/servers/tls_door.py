"""Bounds TLS handshakes at a listener: how many at a time, and how long each may take.

asyncio's own TLS listeners accept any number of connections that never finish their handshake. The
door knows each of them, and drops the oldest beyond the bound. The server behind it sees
connections only once their handshake is done.

    await loop.create_server(TlsDoor(context, factory), host, port)
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from prometheus_client import Counter

from nextgen.kernel.limits.inbound import TLS_HANDSHAKE_MS_MAX, TLS_HANDSHAKES_MAX
from nextgen.runtime.servers.tls_connection import TlsConnection

_handshakes = Counter(
    "nextgen_tls_handshakes", "TLS handshakes at asyncio's listeners, by outcome.", ["outcome"]
)
for _outcome in ("done", "failed", "late", "dropped"):
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
        self._handshakes: dict[TlsConnection, asyncio.TimerHandle] = {}

    def __repr__(self) -> str:
        return f"<TlsDoor handshakes={len(self)}>"

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of one new connection."""
        if len(self._handshakes) >= self._handshakes_max:
            # The oldest, not this one: a client needs a round trip, silence lasts until its end.
            self._drop(next(iter(self._handshakes)), "dropped")
        connection = TlsConnection(self._context(), self._factory, self._shaken)
        loop = asyncio.get_running_loop()
        self._handshakes[connection] = loop.call_later(
            self._handshake_s_max, self._drop, connection, "late"
        )
        return connection

    def __len__(self) -> int:
        """Return how many handshakes are not done."""
        return len(self._handshakes)

    def close(self) -> None:
        """Drop the connections whose handshake is not done."""
        for connection in list(self._handshakes):
            self._drop(connection, "dropped")

    def _drop(self, connection: TlsConnection, outcome: str) -> None:
        self._handshakes.pop(connection).cancel()
        _handshakes.labels(outcome).inc()
        connection.abort()

    def _shaken(self, connection: TlsConnection, is_done: bool) -> None:
        timer = self._handshakes.pop(connection, None)
        if timer is not None:  # Else it is dropped and counted.
            timer.cancel()
            _handshakes.labels("done" if is_done else "failed").inc()
