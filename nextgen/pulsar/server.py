"""A port where Pulsar clients connect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

from nextgen.kernel.limits.pulsar import PULSAR_CONNECTIONS_MAX, PULSAR_KEEP_ALIVE_MS
from nextgen.pulsar.connection import PulsarConnection
from nextgen.pulsar.inbound import InboundBudget
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.runtime.security.process_tls import ClientTls
from nextgen.runtime.servers.open_files import pulsar_connections_max
from nextgen.runtime.servers.ports_check import assert_port_free, port_refusal
from nextgen.runtime.servers.tls_door import TlsDoor
from nextgen.tasks.timeouts import timeout

BACKLOG = 1_024
"""Connections the kernel completes before they are accepted: a fleet may reconnect at once."""


class PulsarServer:
    """Listens, and makes a connection of ``factory`` for each client.

    Clients beyond ``connections_max`` are closed at once and can try another address. The bound is
    lower if the process may not have so many files open.
    """

    def __init__(
        self,
        factory: Callable[[KeepAlive], PulsarConnection],
        *,
        connections_max: int = PULSAR_CONNECTIONS_MAX,
        keep_alive_ms: int = PULSAR_KEEP_ALIVE_MS,
        inbound: InboundBudget | None = None,
    ) -> None:
        self._factory = factory
        self._connections_max = connections_max
        self._keep_alive = KeepAlive(interval_ms=keep_alive_ms, inbound=inbound)
        self._servers: list[asyncio.Server] = []
        self._door: TlsDoor | None = None
        self._is_stopping = False
        self.port = 0
        """The bound port without TLS; 0 if there is none."""
        self.tls_port = 0
        """The bound port with TLS; 0 if there is none."""
        self.refused_connections = 0
        """Clients closed because of ``connections_max``."""

    @property
    def connection_count(self) -> int:
        return len(self._keep_alive)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of clients' incomplete frames."""
        return self._keep_alive.inbound.unfinished_bytes

    @property
    def dropped_connections(self) -> int:
        """Clients closed for incomplete frames, or because too many had sent no CONNECT."""
        return self._keep_alive.inbound.dropped_connections

    def connections(self) -> Iterator[PulsarConnection]:
        """Iterate over the connections, before their handshake too."""
        return (cast(PulsarConnection, connection) for connection in self._keep_alive)

    async def start(self, host: str, port: int, purpose: str, *, reuse_port: bool = False) -> int:
        """Listen and return the bound port, which matters when ``port`` is 0.

        ``reuse_port`` lets several processes share it; the kernel deals connections out.

        Raises:
            RefusesToStart: The port is taken; the message contains ``purpose``.
        """
        self.port = await self._listen(self._new_connection, host, port, purpose, reuse_port)
        return self.port

    async def start_tls(
        self, host: str, port: int, purpose: str, tls: ClientTls, *, reuse_port: bool = False
    ) -> int:
        """Listen for ``pulsar+ssl``, beside the plain port or alone; else as ``start``."""
        self._door = TlsDoor(tls.server_context, self._new_connection)
        self.tls_port = await self._listen(self._door, host, port, purpose, reuse_port)
        return self.tls_port

    async def _listen(
        self,
        factory: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        purpose: str,
        reuse_port: bool,
    ) -> int:
        # Read here: the process raises its limit of open files after its parts are made.
        self._connections_max = pulsar_connections_max(self._connections_max)
        if not reuse_port:
            assert_port_free(host, port, purpose)
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                factory, host, port, backlog=BACKLOG, reuse_port=reuse_port or None
            )
        except OSError as error:
            raise port_refusal(host, port, purpose, error) from error
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def stop(self, grace_ms: int) -> None:
        """Accept no new clients, close the connections, and drop after ``grace_ms`` what remains.

        Subclasses notify their clients before they call this.
        """
        self._is_stopping = True
        for server in self._servers:
            server.close()
        if self._door is not None:
            self._door.close()
        for connection in self.connections():
            connection.close_after_flush()
        try:
            async with timeout(grace_ms / 1000):
                await self._keep_alive.wait_until_empty()
        except TimeoutError:
            for connection in self.connections():
                connection.abort("the server stops")
            await self._keep_alive.wait_until_empty()
        self._keep_alive.close()

    def _new_connection(self) -> asyncio.Protocol:
        if self._is_stopping:
            return _Refusal()
        if len(self._keep_alive) >= self._connections_max:
            self.refused_connections += 1
            return _Refusal()
        return self._factory(self._keep_alive)


class _Refusal(asyncio.Protocol):
    """The connection of a client beyond ``connections_max``."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
