"""Bounds the number of HTTP connections, and the time that one may last without a request.

The HTTP library keeps every connection that sends nothing, or an incomplete request. The gate
stands between it and the sockets: it counts connections, per address and in all, and closes those
that take too long. Beyond a bound it closes the one that has been longest without a request, so
that a flood of idle connections does not keep a scrape of the metrics out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import cast

from aiohttp import web

from nextgen.kernel.limits.inbound import (
    HTTP_ANSWER_MS_MAX,
    HTTP_CHECK_MS,
    HTTP_CONNECTIONS_PER_ADDRESS_MAX,
    HTTP_IDLE_MS_MAX,
    HTTP_REQUEST_MS_MAX,
)
from nextgen.runtime.servers.open_files import http_connections_max

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


PROGRESS: web.RequestKey[Callable[[], None]] = web.RequestKey("note_progress")
"""Key of a request's progress callback. A route MUST call it whenever it has sent a part of a long
answer: that restarts the time for the answer."""


class HttpGate:
    """Admits clients. Owned by one event loop.

    application = web.Application(middlewares=[gate.middleware])
    gate.handlers = runner.server
    await loop.create_server(gate, host, port)
    """

    def __init__(
        self,
        *,
        connections_max: int | None = None,
        per_address_max: int = HTTP_CONNECTIONS_PER_ADDRESS_MAX,
        idle_ms_max: int = HTTP_IDLE_MS_MAX,
        request_ms_max: int = HTTP_REQUEST_MS_MAX,
        answer_ms_max: int = HTTP_ANSWER_MS_MAX,
    ) -> None:
        self._connections_max = connections_max or http_connections_max()
        self._per_address_max = min(per_address_max, self._connections_max)
        self.idle_s_max = idle_ms_max / 1_000
        self.request_s_max = request_ms_max / 1_000
        self.answer_s_max = answer_ms_max / 1_000
        self.handlers: Callable[[], asyncio.Protocol] | None = None
        """Makes the HTTP protocol of one connection. Set before the first client."""
        self._clients: dict[asyncio.Protocol, GuardedClient] = {}
        self._per_address: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of one new connection."""
        assert self.handlers is not None, "the application comes first"
        return GuardedClient(self, self.handlers())

    def __len__(self) -> int:
        return len(self._clients)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note that a client has made its request, and when it is answered."""
        client = self._clients.get(cast(asyncio.Protocol, request.protocol))
        if client is None:  # It is gone already.
            return await handler(request)
        client.begin_answer()
        request[PROGRESS] = client.begin_answer
        try:
            return await handler(request)
        finally:
            client.end_answer()

    def admits(self, client: GuardedClient) -> bool:
        """Count a new connection; return False if there is no room and no other can be closed."""
        address = client.address
        if self._per_address[address] >= self._per_address_max:
            if not self._make_room(address):
                return False
        elif len(self._clients) >= self._connections_max and not self._make_room(None):
            return False
        self._clients[client.handler] = client
        self._per_address[address] += 1
        if self._timer is None:
            self._arm()
        return True

    def forget(self, client: GuardedClient) -> None:
        """Stop counting a connection that is closed, or about to be."""
        if self._clients.pop(client.handler, None) is not None:
            self._per_address[client.address] -= 1
            if not self._per_address[client.address]:
                del self._per_address[client.address]

    def close(self) -> None:
        """Stop the timer: remaining connections have no time limit any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _make_room(self, address: str | None) -> bool:
        """Drop the client that has been longest without a request, of ``address`` if given."""
        waiting = [
            client
            for client in self._clients.values()
            if not client.is_answered and address in (None, client.address)
        ]
        if not waiting:
            return False
        min(waiting, key=lambda client: client.progress_at).drop()
        return True

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HTTP_CHECK_MS / 1_000, self._check)

    def _check(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for client in list(self._clients.values()):
            if now >= client.ends_at():
                client.drop()
        if self._clients:
            self._arm()


class GuardedClient(asyncio.Protocol):
    """One connection: forwards to the HTTP protocol, and notes when it last made progress."""

    def __init__(self, gate: HttpGate, handler: asyncio.Protocol) -> None:
        self._gate = gate
        self.handler = handler
        self.address = ""
        self.is_answered = False
        """Whether a request is being answered at the moment."""
        self.progress_at = 0.0
        """When it connected, made its last request, or got its last answer."""
        self._heard_at: float | None = None
        self._transport: asyncio.Transport | None = None

    def ends_at(self) -> float:
        """Return when the connection is dropped unless it makes progress before."""
        if self.is_answered or (self._transport and self._transport.get_write_buffer_size()):
            return self.progress_at + self._gate.answer_s_max
        if self._heard_at is not None:
            return self._heard_at + self._gate.request_s_max
        return self.progress_at + self._gate.idle_s_max

    def begin_answer(self) -> None:
        self.is_answered = True
        self.progress_at = _now()

    def end_answer(self) -> None:
        self.is_answered = False
        self.progress_at = _now()
        self._heard_at = None

    def drop(self) -> None:
        """Close the connection at once, and stop counting it."""
        self._gate.forget(self)
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = self._transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self.progress_at = _now()
        if not self._gate.admits(self):
            self._transport.abort()
            self._transport = None
            return
        self.handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if self._heard_at is None and not self.is_answered:
            self._heard_at = _now()
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._transport is None else self.handler.eof_received()

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        was_admitted = self._transport is not None
        self._transport = None
        self._gate.forget(self)
        if was_admitted:
            self.handler.connection_lost(error)


def _now() -> float:
    return asyncio.get_running_loop().time()
