"""Several gRPC servers on one port, so that no connection's calls wait behind all others.

    connection ──▶ one of the servers, by the kernel's hash ──▶ its line of calls ┐
                                                                                 ├─▶ one event loop
    connection ──▶ another ────────────────────────────────▶ its line of calls ──┘

A server of gRPC takes one call, and the next one some rounds of the loop later: its calls stand in
one line, whosever they are. Servers take theirs independently of each other, so that each line has
its turn in every round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from nextgen.kernel.limits.inbound import GRPC_LINE_CONNECTIONS_MIN

if TYPE_CHECKING:
    import grpc.aio


def lines_within(lines_max: int, connections_max: int) -> int:
    """Return how many lines a server with so many connections has, ``lines_max`` at most.

    The kernel divides connections by chance. A line with room for few would be full while others
    are empty.
    """
    return max(1, min(lines_max, connections_max // GRPC_LINE_CONNECTIONS_MIN))


class AcceptLines:
    """Has the methods of ``grpc.aio.Server`` that we use; each reaches all servers."""

    def __init__(self, new_server: Callable[[], grpc.aio.Server], count: int) -> None:
        """``new_server`` MUST set ``grpc.so_reuseport`` if ``count`` is more than 1."""
        self._servers = [new_server() for _ in range(count)]

    def __len__(self) -> int:
        return len(self._servers)

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        for server in self._servers:
            server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service_name: str, handlers: Any) -> None:
        for server in self._servers:
            # Not in its stubs.
            server.add_registered_method_handlers(service_name, handlers)  # type: ignore[attr-defined]

    def add_insecure_port(self, address: str) -> int:
        """Listen on ``address`` and return its port, the same for all if it is 0 here."""
        first, *others = self._servers
        port = first.add_insecure_port(address)
        host = address.rpartition(":")[0]
        for server in others:
            server.add_insecure_port(f"{host}:{port}")
        return port

    def add_tls_port(
        self, address: str, new_credentials: Callable[[], grpc.ServerCredentials]
    ) -> int:
        """As ``add_insecure_port``, over TLS. Each server has credentials of its own: those that
        follow files remember what the server was given last."""
        first, *others = self._servers
        port = first.add_secure_port(address, new_credentials())
        host = address.rpartition(":")[0]
        for server in others:
            server.add_secure_port(f"{host}:{port}", new_credentials())
        return port

    async def start(self) -> None:
        for server in self._servers:
            await server.start()

    async def stop(self, grace: float | None) -> None:
        await asyncio.gather(*(server.stop(grace) for server in self._servers))
