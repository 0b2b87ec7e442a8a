"""Server and client connection over loopback, on both kinds of loop where it may matter."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    Overloaded,
    RefusesToStart,
    Unavailable,
)
from nextgen.kernel.limits.pulsar import PULSAR_WRITE_BUFFER_BYTES_MAX
from nextgen.pulsar import client as clients
from nextgen.pulsar.client import PulsarClientConnection
from nextgen.pulsar.connection import PulsarConnection
from nextgen.pulsar.frames import encode_command
from nextgen.pulsar.greeting import Greeting
from nextgen.pulsar.inbound import InboundBudget
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.pulsar.server import PulsarServer
from nextgen.tasks.timeouts import timeout
from protos.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandConnect,
    CommandPartitionedTopicMetadataResponse,
    CommandPing,
    CommandSuccess,
)
from tests.support.pulsar.frames import connect_frame, lookup_command, partitions_command

GREETING = Greeting()
PAGE = bytes(64 * 1024)


class AnsweringConnection(PulsarConnection):
    """Answers PARTITIONED_METADATA; to LOOKUP it says as much as the topic's name asks for."""

    __slots__ = ()

    def handle(self, command: BaseCommand, payload: bytes) -> None:
        if command.type == BaseCommand.PARTITIONED_METADATA:
            asked = command.partitionMetadata
            self.send_command(
                BaseCommand(
                    type=BaseCommand.PARTITIONED_METADATA_RESPONSE,
                    partitionMetadataResponse=CommandPartitionedTopicMetadataResponse(
                        request_id=asked.request_id,
                        partitions=len(asked.topic),
                        response=CommandPartitionedTopicMetadataResponse.Success,
                    ),
                )
            )
        elif command.type == BaseCommand.LOOKUP and command.lookupTopic.topic == "ping me":
            self.send_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
            close = CommandCloseProducer(producer_id=4, request_id=2**64 - 1)
            self.send_command(BaseCommand(type=BaseCommand.CLOSE_PRODUCER, close_producer=close))
        elif command.type == BaseCommand.LOOKUP and command.lookupTopic.topic == "nonsense":
            self.send(b"\0\0\0\x01")
        elif command.type == BaseCommand.LOOKUP and command.lookupTopic.topic == "much":
            for _ in range(PULSAR_WRITE_BUFFER_BYTES_MAX // len(PAGE) + 200):
                self.send(PAGE)


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[PulsarServer]:
    server = PulsarServer(lambda keep_alive: AnsweringConnection(keep_alive, GREETING), **options)
    await server.start("127.0.0.1", 0, "a test")
    try:
        yield server
    finally:
        await server.stop(grace_ms=1_000)


async def opened(server: PulsarServer, **options: object) -> PulsarClientConnection:
    return await PulsarClientConnection.open("127.0.0.1", server.port, timeout_ms=30_000, **options)  # type: ignore[arg-type]


async def requests_are_answered_by_their_ids() -> None:
    async with serving() as server, await opened(server) as client:
        assert client.server.protocol_version == 21
        answers = await asyncio.gather(
            *(client.request(partitions_command("x" * n, n + 1)) for n in range(100))
        )
        assert [answer.partitionMetadataResponse.partitions for answer in answers] == list(
            range(100)
        )
        assert server.connection_count == 1


async def a_client_that_never_reads_is_dropped() -> None:
    async with serving() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as silent:
            silent.sendall(connect_frame() + encode_command(lookup_command("much")))
            async with timeout(30), await opened(server) as other:
                while server.connection_count > 1:
                    await other.request(partitions_command("alive"))


@pytest.mark.parametrize(
    "main", [requests_are_answered_by_their_ids, a_client_that_never_reads_is_dropped]
)
@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_on_every_loop(
    main: Callable[[], object], loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())  # type: ignore[arg-type]


# Server --------------------------------------------------------------------------------------


async def test_pulsar_connections_max_are_served_and_one_more_is_closed() -> None:
    async with serving(connections_max=2) as server:
        first, second = await opened(server), await opened(server)
        with pytest.raises(Unavailable):
            await opened(server)
        assert (server.connection_count, server.refused_connections) == (2, 1)

        first.close()
        await first.closed
        async with await opened(server) as third:
            await third.request(partitions_command("x"))
        second.close()


async def test_a_taken_port_is_refused_with_a_sentence() -> None:
    async with serving() as server:
        other = PulsarServer(lambda keep_alive: AnsweringConnection(keep_alive, GREETING))
        with pytest.raises(RefusesToStart, match=f"{server.port}, needed for Pulsar"):
            await other.start("127.0.0.1", server.port, "Pulsar clients")
        with pytest.raises(RefusesToStart):
            await other.start("127.0.0.1", server.port, "Pulsar clients", reuse_port=True)
        await other.stop(0)


async def test_several_servers_share_a_port_when_all_of_them_say_so() -> None:
    def factory(keep_alive: KeepAlive) -> PulsarConnection:
        return AnsweringConnection(keep_alive, GREETING)

    one, two = PulsarServer(factory), PulsarServer(factory)
    port = await one.start("127.0.0.1", 0, "a test", reuse_port=True)
    assert await two.start("127.0.0.1", port, "a test", reuse_port=True) == port

    opened_clients = [await opened(one) for _ in range(40)]
    assert one.connection_count + two.connection_count == 40
    assert min(one.connection_count, two.connection_count) > 0

    await one.stop(1_000)
    await two.stop(1_000)
    for client in opened_clients:
        await client.closed


async def test_a_stop_closes_every_client_and_takes_no_other() -> None:
    async with serving() as server:
        client = await opened(server)
        await server.stop(grace_ms=1_000)
        await client.closed
        assert server.connection_count == 0
        with pytest.raises(Unavailable):
            await opened(server)


async def test_a_stop_drops_those_who_do_not_read() -> None:
    async with serving() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            silent.sendall(connect_frame())
            async with timeout(30):
                while not server.connection_count:
                    await asyncio.sleep(0.01)
            (connection,) = server.connections()
            connection.send(bytes(16 * 1024 * 1024))
            await asyncio.sleep(0)
            await server.stop(grace_ms=100)
        assert server.connection_count == 0


# Client ----------------------------------------------------------------------------------------


async def test_what_answers_no_request_is_pushed_and_a_ping_is_answered() -> None:
    pushed: list[BaseCommand] = []
    async with (
        serving() as server,
        await opened(server, on_push=lambda made, _: pushed.append(made)) as client,
    ):
        with pytest.raises(DeadlineExceeded):
            await client.request(lookup_command("ping me"), timeout_ms=50)
        await client.request(partitions_command("x", 9))

    assert [made.close_producer.producer_id for made in pushed] == [4]


async def test_a_request_without_id_gets_one() -> None:
    made = partitions_command("x")
    made.partitionMetadata.ClearField("request_id")
    async with serving() as server, await opened(server) as client:
        await client.request(made)
    assert made.partitionMetadata.request_id == 1


async def test_a_command_without_request_id_is_no_request() -> None:
    async with serving() as server, await opened(server) as client:
        with pytest.raises(ValueError, match="PING has no request id"):
            await client.request(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))


async def test_requests_fail_when_the_server_goes() -> None:
    async with serving() as server:
        client = await opened(server)
        waiting = asyncio.create_task(client.request(lookup_command("no answer")))
        await client.request(partitions_command("x", 9))
        await server.stop(1_000)
        with pytest.raises(ConnectionLost):
            await waiting
        with pytest.raises(ConnectionLost):
            await client.request(partitions_command("x"))


async def test_a_server_that_talks_nonsense_is_left() -> None:
    async with serving() as server:
        client = await opened(server)
        with pytest.raises(ConnectionLost, match="no Pulsar"):
            await client.request(lookup_command("nonsense"))
        await client.closed


async def test_a_refused_greeting_is_reported() -> None:
    connect = CommandConnect(client_version="x", proxy_to_broker_url="pulsar://b:1")
    async with serving() as server:
        with pytest.raises(Unavailable, match="no proxy"):
            await opened(server, connect=connect)


async def test_a_port_where_nobody_listens_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        await PulsarClientConnection.open("127.0.0.1", 1)


async def test_requests_up_to_the_limit_wait_and_one_more_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "PULSAR_REQUESTS_IN_FLIGHT_MAX", 2)
    async with serving() as server, await opened(server) as client:
        waiting = [
            asyncio.create_task(client.request(lookup_command("no answer", request_id)))
            for request_id in (1, 2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await client.request(partitions_command("x", 3))
        client.close()
        for task in waiting:
            with pytest.raises(ConnectionLost):
                await task


async def test_success_carries_the_id_of_what_it_answers() -> None:
    success = BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=3))
    found: list[BaseCommand] = []
    async with serving() as server:
        client = await opened(server, on_push=lambda made, _: found.append(made))
        waiting = asyncio.create_task(client.request(lookup_command("no answer", 3)))
        await asyncio.sleep(0)
        client.data_received(encode_command(success) * 2)
        assert await waiting == success
        client.close()
    assert found == [success]


# Clients that never finish what they begin ----------------------------------------------------


async def half_frame(port: int, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and send ``size`` bytes of a frame that has 10,000 more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(connect_frame())
    await reader.read(1_000)
    writer.write(struct.pack(">II", size + 10_000 - 4, 10) + bytes(size - 8))
    await writer.drain()
    return reader, writer


async def test_a_client_that_sends_a_frame_byte_by_byte_is_dropped_and_its_neighbour_served() -> (
    None
):
    inbound = InboundBudget(frame_ms_max=300, frame_bytes_per_s_min=1_000_000_000)
    async with serving(inbound=inbound) as server:
        neighbour = await PulsarClientConnection.open("127.0.0.1", server.port, timeout_ms=30_000)
        _, slow = await half_frame(server.port, 100_000)

        async with timeout(60):
            while server.connection_count > 1:
                slow.write(b"x")
                asked = partitions_command("abc", request_id=neighbour.next_request_id())
                await neighbour.request(asked, timeout_ms=30_000)
                await asyncio.sleep(0.05)

        assert inbound.unfinished_bytes == 0
        slow.transport.abort()
        neighbour.close()


async def test_half_frames_take_no_more_memory_than_their_budget() -> None:
    inbound = InboundBudget(unfinished_bytes_max=4_000_000)
    async with serving(inbound=inbound) as server:
        clients = [await half_frame(server.port, 1_000_000) for _ in range(12)]

        async with timeout(60):
            while server.connection_count > 4:
                await asyncio.sleep(0.01)

        assert 0 < inbound.unfinished_bytes <= 4_000_000
        for _, writer in clients:
            writer.transport.abort()
