import asyncio
import re
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from nextgen.client.transport.channel import open_channel
from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.cluster import GRPC_MESSAGE_BYTES_MAX, GRPC_METADATA_BYTES_MAX
from nextgen.kernel.limits.discovery import DISCOVERY_CONNECTION_CALLS_MAX
from nextgen.runtime.servers import grpc_server
from nextgen.runtime.servers.grpc_server import GrpcServer, new_server

SERVICE = "nextgen.test.Echo"
DEADLINE_S = 30
CALLS_MAX = 2_000


UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


async def echo(request: bytes, _context: object) -> bytes:
    return request


async def swallow(_request: bytes, _context: object) -> bytes:
    return b""


async def produce(request: bytes, _context: object) -> bytes:
    return b"x" * int(request)


def handlers() -> grpc.GenericRpcHandler:
    methods = {"Echo": echo, "Swallow": swallow, "Produce": produce}
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()},
    )


@pytest.fixture
async def server() -> AsyncIterator[GrpcServer]:
    server = new_server([SERVICE])
    server.server.add_generic_rpc_handlers((handlers(),))
    await server.start("127.0.0.1", 0, "a test")
    yield server
    await server.stop(grace_ms=0)


@pytest.fixture
async def channel(server: GrpcServer) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel


async def call(channel: grpc.aio.Channel, method: str, request: bytes) -> bytes:
    reply = await channel.unary_unary(f"/{SERVICE}/{method}")(request, timeout=DEADLINE_S)
    return bytes(reply)


async def call_echo(channel: grpc.aio.Channel, size_bytes: int) -> int:
    return len(await call(channel, "Echo", b"x" * size_bytes))


async def start_bounded(answer: Callable[[bytes, object], Awaitable[bytes]]) -> GrpcServer:
    """Start a server with the bound of discovery, where ``answer`` answers Echo."""
    server = new_server([SERVICE], connection_calls_max=DISCOVERY_CONNECTION_CALLS_MAX)
    handler = grpc.unary_unary_rpc_method_handler(answer)
    server.server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Echo": handler}),)
    )
    await server.start("127.0.0.1", 0, "a test")
    return server


async def health_of(channel: grpc.aio.Channel, service: str) -> int:
    request = health_pb2.HealthCheckRequest(service=service)
    reply = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=DEADLINE_S)
    return int(reply.status)


async def test_a_message_may_be_as_large_as_the_limit(channel: grpc.aio.Channel) -> None:
    assert await call_echo(channel, GRPC_MESSAGE_BYTES_MAX) == GRPC_MESSAGE_BYTES_MAX


@pytest.mark.parametrize("method", ["Swallow", "Echo"])
async def test_a_request_beyond_the_limit_is_refused_and_disturbs_nobody(
    server: GrpcServer, channel: grpc.aio.Channel, method: str
) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=UNLIMITED) as rude:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call(rude, method, b"x" * (GRPC_MESSAGE_BYTES_MAX + 1))

    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await call_echo(channel, 1) == 1


async def test_an_answer_beyond_the_limit_is_not_sent(server: GrpcServer) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=UNLIMITED) as rude:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call(rude, "Produce", str(GRPC_MESSAGE_BYTES_MAX + 1).encode())

    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_channel_takes_no_answer_beyond_the_limit() -> None:
    rude = grpc.aio.server(options=UNLIMITED)
    rude.add_generic_rpc_handlers((handlers(),))
    port = rude.add_insecure_port("127.0.0.1:0")
    await rude.start()

    async with open_channel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call(channel, "Produce", str(GRPC_MESSAGE_BYTES_MAX + 1).encode())
    await rude.stop(None)

    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def refused_headers(channel: grpc.aio.Channel, padding_bytes: int) -> str:
    """Call with a header of so many bytes more; return why the call was refused, or nothing."""
    metadata = (("padding", "x" * padding_bytes),)
    try:
        await channel.unary_unary(f"/{SERVICE}/Echo")(b"", metadata=metadata)
    except grpc.aio.AioRpcError as refusal:
        return f"{refusal.code().name}: {refusal.details()}"
    return ""


async def test_grpc_metadata_bytes_max_are_taken_and_one_more_refused(
    channel: grpc.aio.Channel,
) -> None:
    # Given: the size that the server counts in a refused call, which has headers of its own.
    probe_bytes = GRPC_METADATA_BYTES_MAX - 100
    counted = re.search(r"\((\d+) vs", await refused_headers(channel, probe_bytes))
    assert counted is not None
    padding_bytes = probe_bytes + GRPC_METADATA_BYTES_MAX - int(counted[1])

    # When, then: often, because a soft limit refuses at random.
    for _ in range(5):
        assert await refused_headers(channel, padding_bytes) == ""
        refusal = await refused_headers(channel, padding_bytes + 1)
        assert refusal.startswith("RESOURCE_EXHAUSTED: received metadata size exceeds")


@pytest.mark.parametrize("service", ["", SERVICE])
async def test_health_follows_what_the_process_says(
    server: GrpcServer, channel: grpc.aio.Channel, service: str
) -> None:
    assert await health_of(channel, service) == health_pb2.HealthCheckResponse.NOT_SERVING

    await server.set_serving(True)
    assert await health_of(channel, service) == health_pb2.HealthCheckResponse.SERVING

    await server.set_serving(False)
    assert await health_of(channel, service) == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_reflection_lists_the_services(channel: grpc.aio.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")

    answers = stub.ServerReflectionInfo(iter([request]), timeout=DEADLINE_S)
    listed = [s.name async for answer in answers for s in answer.list_services_response.service]

    assert SERVICE in listed
    assert "grpc.health.v1.Health" in listed


async def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        server = new_server([])

        with pytest.raises(RefusesToStart, match=rf"127\.0\.0\.1:{port}, needed for lookups"):
            await server.start("127.0.0.1", port, "lookups")
        await server.stop(grace_ms=0)


async def test_two_servers_never_share_a_port(server: GrpcServer) -> None:
    second = new_server([])

    with pytest.raises(RefusesToStart, match="needed for a second server"):
        await second.start("127.0.0.1", server.port, "a second server")
    await second.stop(grace_ms=0)


async def test_calls_beyond_the_limit_are_refused() -> None:
    started, released = asyncio.Event(), asyncio.Event()

    async def hold(request: bytes, _context: object) -> bytes:
        started.set()
        await released.wait()
        return request

    server = new_server([SERVICE], concurrent_calls_max=1)
    handler = grpc.unary_unary_rpc_method_handler(hold)
    server.server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Echo": handler}),)
    )
    await server.start("127.0.0.1", 0, "a test")
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        first = asyncio.ensure_future(call_echo(channel, 3))
        await started.wait()
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await call_echo(channel, 3)
        released.set()

        assert await first == 3
    await server.stop(grace_ms=0)
    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_discovery_connection_calls_max_are_begun_and_one_more_waits_at_its_client() -> None:
    begun, released = 0, asyncio.Event()
    all_begun = asyncio.Event()

    async def hold(request: bytes, _context: object) -> bytes:
        nonlocal begun
        begun += 1
        if begun == DISCOVERY_CONNECTION_CALLS_MAX:
            all_begun.set()
        await released.wait()
        return request

    server = await start_bounded(hold)
    address = f"127.0.0.1:{server.port}"
    async with open_channel(address) as greedy, open_channel(address) as modest:
        calls = [
            asyncio.ensure_future(call_echo(greedy, 3))
            for _ in range(DISCOVERY_CONNECTION_CALLS_MAX + 1)
        ]
        await all_begun.wait()
        # Behind the one that waits at its client, and begun before it.
        other = asyncio.ensure_future(call_echo(modest, 3))
        while begun == DISCOVERY_CONNECTION_CALLS_MAX:
            await asyncio.sleep(0.001)
        assert begun == DISCOVERY_CONNECTION_CALLS_MAX + 1
        released.set()

        assert await other == 3
        assert await asyncio.gather(*calls) == [3] * len(calls)
    await server.stop(grace_ms=0)
    assert begun == DISCOVERY_CONNECTION_CALLS_MAX + 2


def outcomes(calls: list[grpc.Future]) -> Counter[grpc.StatusCode]:
    """Return how many ended in which way, once all have."""
    for one in calls:
        one.exception()
    return Counter(one.code() for one in calls)


@pytest.fixture
def calls_max(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many calls a connection of ``server`` may have, and how many may wait there.

    Fewer than in production, where gRPC ends what has waited for half a minute: a slow machine
    takes as long to send them. Between the library's own limits all the same.
    """
    monkeypatch.setattr(grpc_server, "GRPC_CONNECTION_STREAMS_MAX", CALLS_MAX)
    monkeypatch.setattr(grpc_server, "GRPC_CALLS_WAITING_MAX", CALLS_MAX)
    return CALLS_MAX


async def test_grpc_connection_streams_max_calls_of_a_connection_are_all_answered(
    calls_max: int, server: GrpcServer
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        method = channel.unary_unary(f"/{SERVICE}/Echo")
        # The server's loop stands still meanwhile: all of them wait there together.
        calls = [method.future(b"") for _ in range(calls_max)]

        ended = await asyncio.to_thread(outcomes, calls)

    assert ended == {grpc.StatusCode.OK: calls_max}


async def test_beyond_grpc_calls_waiting_max_calls_are_cut_off_and_no_others(
    calls_max: int, server: GrpcServer
) -> None:
    beyond = 10
    # Channels with arguments of their own share no connection, and no limit of one.
    options = [[("grpc.use_local_subchannel_pool", 1)]] * 2
    address = f"127.0.0.1:{server.port}"
    with (
        grpc.insecure_channel(address, options[0]) as first,
        grpc.insecure_channel(address, options[1]) as second,
    ):
        methods = [one.unary_unary(f"/{SERVICE}/Echo") for one in (first, second)]
        calls = [methods[number % 2].future(b"") for number in range(calls_max + beyond)]
        cut_off = threading.Event()
        for one in calls:
            one.add_done_callback(lambda _: cut_off.set())
        # On the server's loop on purpose: whatever ends before it goes on was not carried out.
        assert cut_off.wait(DEADLINE_S)

        ended = await asyncio.to_thread(outcomes, calls)

    assert set(ended) == {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}
    assert 1 <= ended[grpc.StatusCode.CANCELLED] <= beyond


async def test_a_channel_finds_a_server_that_came_back() -> None:
    """A client must not wait out gRPC's own back-off of up to two minutes."""
    first = new_server([])
    port = await first.start("127.0.0.1", 0, "a test")
    async with open_channel(f"127.0.0.1:{port}") as channel:
        await health_of(channel, "")
        await first.stop(grace_ms=0)
        with pytest.raises(grpc.aio.AioRpcError):
            await health_of(channel, "")

        second = new_server([])
        await second.start("127.0.0.1", port, "a test")
        request = health_pb2.HealthCheckRequest()
        stub = health_pb2_grpc.HealthStub(channel)
        reply = await stub.Check(request, timeout=DEADLINE_S, wait_for_ready=True)
        await second.stop(grace_ms=0)

    assert reply.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_client_with_many_calls_waits_and_none_is_refused() -> None:
    server = await start_bounded(echo)

    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        calls = [call_echo(channel, 3) for _ in range(20 * DISCOVERY_CONNECTION_CALLS_MAX)]
        answers = await asyncio.gather(*calls)

    assert answers == [3] * len(calls)
    await server.stop(grace_ms=0)
