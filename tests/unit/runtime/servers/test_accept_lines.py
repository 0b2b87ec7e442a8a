"""Several lines of calls on one port: which calls wait for which, and that all are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import median

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.discovery import DISCOVERY_CONNECTION_CALLS_MAX
from nextgen.kernel.limits.inbound import GRPC_ACCEPT_LINES_MAX, GRPC_LINE_CONNECTIONS_MIN
from nextgen.runtime.servers.accept_lines import lines_within
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from nextgen.tasks.background import cancel_and_wait

SERVICE = "nextgen.test.Count"
BUSY, QUIET = b"busy", b"quiet"
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


class Counting:
    """Answers with the number of busy calls that were answered before."""

    def __init__(self) -> None:
        self.busy = 0

    async def count(self, request: bytes, _context: object) -> bytes:
        await asyncio.sleep(0)
        self.busy += request == BUSY
        return str(self.busy).encode()


@asynccontextmanager
async def serving(lines: int) -> AsyncIterator[GrpcServer]:
    server = new_server(
        [SERVICE],
        connection_calls_max=DISCOVERY_CONNECTION_CALLS_MAX,
        connections_max=lines * GRPC_LINE_CONNECTIONS_MIN,
        accept_lines_max=lines,
    )
    handler = grpc.unary_unary_rpc_method_handler(Counting().count)
    server.server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Count": handler}),)
    )
    await server.start("127.0.0.1", 0, "a test")
    try:
        yield server
    finally:
        await server.stop(grace_ms=0)


def connection(server: GrpcServer) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=OWN_CONNECTION)


async def count(channel: grpc.aio.Channel, who: bytes) -> int:
    return int(await channel.unary_unary(f"/{SERVICE}/Count")(who, timeout=30))


async def waits_of_the_quiet(server: GrpcServer) -> list[int]:
    """Return how many busy calls were answered while one of each quiet connection waited."""

    async def keep_calling(channel: grpc.aio.Channel) -> None:
        while True:
            await count(channel, BUSY)

    waits = []
    async with connection(server) as busy:
        calls = [
            asyncio.create_task(keep_calling(busy))
            for _ in range(2 * DISCOVERY_CONNECTION_CALLS_MAX)
        ]
        for _ in range(8):
            async with connection(server) as quiet:
                before = await count(quiet, QUIET)
                waits.append(await count(quiet, QUIET) - before)
        await cancel_and_wait(*calls)
    return waits


async def test_a_quiet_connection_does_not_wait_behind_the_calls_of_a_busy_one() -> None:
    async with serving(lines=GRPC_ACCEPT_LINES_MAX) as server:
        # Not of all: by chance some share the line of the busy one.
        assert min(await waits_of_the_quiet(server)) < DISCOVERY_CONNECTION_CALLS_MAX // 2

    async with serving(lines=1) as server:
        # Not of all: on a busy machine a quiet call may come before the busy ones have begun.
        assert median(await waits_of_the_quiet(server)) > DISCOVERY_CONNECTION_CALLS_MAX // 2


async def test_every_line_serves_and_says_whether_it_is_healthy() -> None:
    async with serving(lines=4) as server:
        await server.set_serving(True)
        for _ in range(12):
            async with connection(server) as channel:
                request = health_pb2.HealthCheckRequest(service=SERVICE)
                reply = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=30)
                assert reply.status == health_pb2.HealthCheckResponse.SERVING
                assert await count(channel, QUIET) == 0


async def first_byte(reader: asyncio.StreamReader) -> bytes:
    """Return the beginning of the server's settings; nothing if it does not take the connection."""
    try:
        return await reader.read(1)
    except ConnectionError:
        return b""


async def test_lines_together_keep_no_more_connections_than_the_bound() -> None:
    wanted = 3 * GRPC_LINE_CONNECTIONS_MIN
    async with serving(lines=2) as server:
        clients = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(wanted)]
        taken = [await first_byte(reader) for reader, _writer in clients]
        for _reader, writer in clients:
            writer.transport.abort()

    assert GRPC_LINE_CONNECTIONS_MIN < sum(map(len, taken)) <= 2 * GRPC_LINE_CONNECTIONS_MIN


async def test_a_port_with_lines_is_not_shared_with_another_process() -> None:
    async with serving(lines=2) as server:
        another = new_server([SERVICE], connections_max=1_000, accept_lines_max=2)
        with pytest.raises(RefusesToStart):
            await another.start("127.0.0.1", server.port, "a test")


def test_grpc_accept_lines_max_are_made_and_with_room_for_one_more_not_more() -> None:
    enough = GRPC_ACCEPT_LINES_MAX * GRPC_LINE_CONNECTIONS_MIN

    assert lines_within(GRPC_ACCEPT_LINES_MAX, enough - 1) == GRPC_ACCEPT_LINES_MAX - 1
    assert lines_within(GRPC_ACCEPT_LINES_MAX, enough) == GRPC_ACCEPT_LINES_MAX
    assert lines_within(GRPC_ACCEPT_LINES_MAX, enough + GRPC_LINE_CONNECTIONS_MIN) == (
        GRPC_ACCEPT_LINES_MAX
    )
    assert lines_within(GRPC_ACCEPT_LINES_MAX, 1) == 1
