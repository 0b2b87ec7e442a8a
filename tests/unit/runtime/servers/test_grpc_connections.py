"""How many connections a gRPC server keeps, and which it closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from nextgen.client.transport.channel import open_channel
from nextgen.runtime.servers import grpc_server
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server
from nextgen.tasks.timeouts import timeout

DEADLINE_S = 30

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def serving(connections_max: int | None = None) -> AsyncIterator[GrpcServer]:
    server = new_server([], connections_max=connections_max)
    await server.start("127.0.0.1", 0, "a test")
    try:
        yield server
    finally:
        await server.stop(grace_ms=0)


async def connect(server: GrpcServer) -> Connection:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def is_taken(connection: Connection) -> bool:
    """Return whether the server begins to speak HTTP/2; it closes what it does not take."""
    try:
        async with timeout(DEADLINE_S):
            return bool(await connection[0].read(1))
    except ConnectionError:
        return False


async def until_closed(connection: Connection) -> None:
    async with timeout(DEADLINE_S):
        try:
            while await connection[0].read(1_024):
                pass
        except ConnectionError:
            pass


async def is_answered(channel: grpc.aio.Channel) -> bool:
    request = health_pb2.HealthCheckRequest()
    await health_pb2_grpc.HealthStub(channel).Check(request, timeout=DEADLINE_S)
    return True


async def test_grpc_connections_max_of_a_server_are_kept_and_one_more_is_closed() -> None:
    async with serving(connections_max=3) as server:
        kept = []
        for _ in range(3):
            kept.append(await connect(server))
            assert await is_taken(kept[-1])

        one_more = await connect(server)

        assert not await is_taken(one_more)
        kept[0][1].close()
        async with timeout(DEADLINE_S):
            while not await is_taken(another := await connect(server)):
                another[1].close()
        for _reader, writer in (*kept, one_more, another):
            writer.close()


async def test_a_client_that_was_turned_away_gets_in_when_another_leaves() -> None:
    async with serving(connections_max=1) as server:
        first = await connect(server)
        assert await is_taken(first)

        async with open_channel(f"127.0.0.1:{server.port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await is_answered(channel)
            first[1].close()
            request = health_pb2.HealthCheckRequest()
            stub = health_pb2_grpc.HealthStub(channel)
            await stub.Check(request, timeout=DEADLINE_S, wait_for_ready=True)

    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_grpc_handshake_ms_max_passes_before_a_silent_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_server, "GRPC_HANDSHAKE_MS_MAX", 100)

    async with serving() as server:
        silent = await connect(server)

        await until_closed(silent)

        silent[1].close()


async def test_grpc_idle_ms_max_passes_before_a_connection_without_calls_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_server, "GRPC_IDLE_MS_MAX", 100)

    async with serving() as server, open_channel(f"127.0.0.1:{server.port}") as channel:
        await is_answered(channel)

        async with timeout(DEADLINE_S):
            while (state := channel.get_state()) is grpc.ChannelConnectivity.READY:
                await channel.wait_for_state_change(state)

        assert await is_answered(channel), "the next call opens another connection"
