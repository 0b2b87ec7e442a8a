"""gRPC servers with the limits and timings of this project.

grpc takes a tenth of a second to import, so it is imported where it is used: a command line that
only prints its help does not pay for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from nextgen.kernel.limits.cluster import (
    CHANNEL_PING_INTERVAL_MS_MIN,
    GRPC_CALLS_WAITING_MAX,
    GRPC_CONNECTION_STREAMS_MAX,
    GRPC_MESSAGE_BYTES_MAX,
    GRPC_METADATA_BYTES_MAX,
)
from nextgen.kernel.limits.inbound import GRPC_HANDSHAKE_MS_MAX, GRPC_IDLE_MS_MAX
from nextgen.runtime.servers.accept_lines import AcceptLines, lines_within
from nextgen.runtime.servers.open_files import grpc_connections_max
from nextgen.runtime.servers.ports_check import assert_port_free, port_refusal

if TYPE_CHECKING:
    import grpc.aio

    from nextgen.runtime.security.tls import TlsStore

KEEPALIVE_TIME_MS = 10_000
"""Milliseconds of silence on a connection before a ping."""

KEEPALIVE_TIMEOUT_MS = 3_000
"""Milliseconds to wait for the answer before the connection is closed. A machine that lost power
sends no RST."""

OVERALL = ""
"""The health service's name for the server as a whole."""

Options = list[tuple[str, int]]


class HealthServicer(Protocol):
    """The used methods of grpc's asynchronous health servicer, which ships without types."""

    async def set(self, service: str, status: int) -> None: ...

    async def enter_graceful_shutdown(self) -> None: ...


class GrpcServer:
    """A gRPC server with health and reflection. Add servicers to ``server``, then ``start``.

    Every named service is NOT_SERVING until ``set_serving(True)``.
    """

    def __init__(
        self,
        server: grpc.aio.Server,
        health: HealthServicer,
        service_names: Sequence[str],
    ) -> None:
        self.server = server
        self._health = health
        self._service_names = tuple(service_names)
        self.port = 0
        self.client_port = 0
        """The port for callers without a certificate; 0 if there is none."""

    async def start(
        self, host: str, port: int, purpose: str, *, tls: TlsStore | None = None
    ) -> int:
        """Listen and return the bound port, which matters when ``port`` is 0.

        With ``tls`` every caller needs a certificate that its authorities issued.

        Raises:
            RefusesToStart: The port is taken; the message contains ``purpose``.
        """
        # gRPC reports a taken port as an untyped failure; this check names the reason.
        assert_port_free(host, port, purpose)
        try:
            self.port = self._listen(f"{_bracketed(host)}:{port}", tls)
        except RuntimeError as error:
            raise port_refusal(host, port, purpose, error) from error
        await self.set_serving(False)
        await self.server.start()
        return self.port

    def _listen(self, address: str, tls: TlsStore | None) -> int:
        if tls is None:
            return self.server.add_insecure_port(address)
        lines: Any = self.server  # See ``new_server``.
        port: int = lines.add_tls_port(address, partial(_credentials, tls))
        return port

    def add_client_port(self, host: str, port: int, purpose: str, tls: TlsStore) -> int:
        """Listen on one more port, over TLS, where no caller is asked for a certificate.

        It has the same services. To be called before ``start``. The bound port is returned.

        Raises:
            RefusesToStart: The port is taken; the message contains ``purpose``.
        """
        assert_port_free(host, port, purpose)
        lines: Any = self.server  # See ``new_server``.
        credentials = partial(_credentials, tls, are_callers_certified=False)
        try:
            self.client_port = lines.add_tls_port(f"{_bracketed(host)}:{port}", credentials)
        except RuntimeError as error:
            raise port_refusal(host, port, purpose, error) from error
        return self.client_port

    async def set_serving(self, is_serving: bool) -> None:
        """Set the health status: whether this process can do its work."""
        from grpc_health.v1.health_pb2 import HealthCheckResponse

        status = HealthCheckResponse.SERVING if is_serving else HealthCheckResponse.NOT_SERVING
        for name in (OVERALL, *self._service_names):
            await self._health.set(name, status)

    async def stop(self, grace_ms: int) -> None:
        """Refuse new calls at once and end those that run after ``grace_ms``."""
        await self._health.enter_graceful_shutdown()
        await self.server.stop(grace_ms / 1000)


def new_server(
    service_names: Sequence[str],
    *,
    interceptors: Sequence[grpc.aio.ServerInterceptor[Any, Any]] = (),
    concurrent_calls_max: int | None = None,
    connection_calls_max: int | None = None,
    connections_max: int | None = None,
    accept_lines_max: int = 1,
) -> GrpcServer:
    """Return a server that answers health checks and reflection for ``service_names``.

    The names are full (``nextgen.v1.ShardService``): ``DESCRIPTOR.full_name`` of each service.
    Calls beyond ``concurrent_calls_max`` are answered RESOURCE_EXHAUSTED. Those of one connection
    beyond ``connection_calls_max``, or else ``GRPC_CONNECTION_STREAMS_MAX``, wait at the client.
    Connections beyond ``connections_max``, or else what the process' open files allow, are closed.
    Calls wait to be taken in as many lines as ``accept_lines_max`` and ``connections_max`` allow:
    see ``AcceptLines``. The other bounds are divided among them, but for those of a connection.
    """
    import grpc.aio
    from grpc_health.v1 import health, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection

    connections_max = connections_max or grpc_connections_max()
    lines = lines_within(accept_lines_max, connections_max)
    options = _server_options(
        connection_calls_max or GRPC_CONNECTION_STREAMS_MAX, connections_max // lines, lines
    )

    def one() -> grpc.aio.Server:
        return grpc.aio.server(
            interceptors=list(interceptors),
            options=options,
            maximum_concurrent_rpcs=concurrent_calls_max and max(1, concurrent_calls_max // lines),
        )

    # It stands for the library's server wherever servicers are added.
    server: Any = AcceptLines(one, lines)
    servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]  # Not in its stubs.
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    names = (*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    return GrpcServer(server, servicer, service_names)


def _credentials(tls: TlsStore, *, are_callers_certified: bool = True) -> grpc.ServerCredentials:
    """Return credentials that follow the files: gRPC asks at each handshake.

    The library for Python asks callers for a certificate and requires it, or does not ask.
    """
    import grpc

    given = tls.material

    def configuration() -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration(
            [(given.key, given.cert)], root_certificates=given.ca
        )

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        present = tls.material
        if present is given:
            return None
        given = present
        return configuration()

    return grpc.dynamic_ssl_server_credentials(
        configuration(),
        changed,  # type: ignore[arg-type]  # None: nothing has changed. Its stubs do not say so.
        require_client_authentication=are_callers_certified,
    )


def _server_options(connection_calls_max: int, connections_max: int, lines: int) -> Options:
    return [
        ("grpc.max_allowed_incoming_connections", connections_max),
        ("grpc.server_handshake_timeout_ms", GRPC_HANDSHAKE_MS_MAX),
        ("grpc.max_connection_idle_ms", GRPC_IDLE_MS_MAX),
        ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
        ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
        # Both limits are set: the first alone is soft, and the library would refuse some headers of
        # up to a quarter more at random.
        ("grpc.max_metadata_size", GRPC_METADATA_BYTES_MAX + 1),
        ("grpc.absolute_max_metadata_size", GRPC_METADATA_BYTES_MAX + 1),
        ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Two processes on one port would share its connections in silence. With several lines the
        # port is looked at before, and the ports of HTTP and Pulsar are the process's alone.
        ("grpc.so_reuseport", int(lines > 1)),
        ("grpc.max_concurrent_streams", connection_calls_max),
        # It counts ended calls that are not freed yet, and so refuses calls within the limit.
        ("grpc.http.overload_protection", 0),
        # The library's defaults are 1,000 and 3,000; in between it cancels calls at random.
        ("grpc.server.max_pending_requests", GRPC_CALLS_WAITING_MAX),
        ("grpc.server.max_pending_requests_hard_limit", GRPC_CALLS_WAITING_MAX),
        ("grpc.http2.min_ping_interval_without_data_ms", CHANNEL_PING_INTERVAL_MS_MIN),
    ]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
