"""What gRPC does, over sockets and in the simulation: the simulated one must not be kinder."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest

from nextgen.tasks.timeouts import timeout
from tests.support.cluster_simulation.network import Network
from tests.support.cluster_simulation.outside_world import collect_garbage, simulated_world
from tests.support.cluster_simulation.process import SimulatedProcess
from tests.support.cluster_simulation.virtual_loop import SimulatedLoop

SERVICE = "/test.Echo/"

GONE = ("talk was cancelled", "the client said no more")
"""Either is how a handler may learn that its client has gone."""


@dataclass
class Echo:
    """A servicer, and what it lived through."""

    seen: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, what: str) -> None:
        self.seen.append(what)
        self.changed.set()

    async def until(self, *any_of: str) -> None:
        async with timeout(30):
            while not set(any_of) & set(self.seen):
                self.changed.clear()
                await self.changed.wait()

    def handlers(self) -> Any:
        table = {
            "One": grpc.unary_unary_rpc_method_handler(self.one),
            "Refuse": grpc.unary_unary_rpc_method_handler(self.refuse),
            "Hang": grpc.unary_unary_rpc_method_handler(self.hang),
            "Break": grpc.unary_unary_rpc_method_handler(self.broken),
            "Count": grpc.unary_stream_rpc_method_handler(self.count),
            "Talk": grpc.stream_stream_rpc_method_handler(self.talk),
            "Flood": grpc.stream_stream_rpc_method_handler(self.flood),
        }
        return grpc.method_handlers_generic_handler("test.Echo", table)

    async def one(self, request: bytes, _context: Any) -> bytes:
        return request * 2

    async def refuse(self, _request: bytes, context: Any) -> bytes:
        await context.abort(
            grpc.StatusCode.NOT_FOUND, "no such thing", trailing_metadata=(("why", "because"),)
        )
        raise AssertionError("unreachable")

    async def hang(self, _request: bytes, _context: Any) -> bytes:
        self.note("hang began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.note("hang was cancelled")
            raise
        return b""

    async def broken(self, _request: bytes, _context: Any) -> bytes:
        raise KeyError("a mistake")

    async def count(self, request: bytes, _context: Any) -> AsyncIterator[bytes]:
        for number in range(int(request)):
            yield str(number).encode()

    async def talk(self, requests: AsyncIterator[bytes], context: Any) -> None:
        try:
            async for request in requests:
                await context.write(request.upper())
            self.note("the client said no more")
        except asyncio.CancelledError:
            self.note("talk was cancelled")
            raise

    async def flood(self, _requests: AsyncIterator[bytes], context: Any) -> None:
        """Write until flow control blocks: ten windows must not fit."""
        for number in range(10):
            try:
                async with timeout(0.5):
                    await context.write(bytes(8 * 1024 * 1024))
            except TimeoutError:
                self.note(f"waits after {number}")
                await asyncio.Event().wait()
        self.note("all was taken")


@dataclass
class World:
    """A server that runs, and how to reach it."""

    echo: Echo
    server: Any
    endpoint: str
    silent_endpoint: str
    """Connections to it are made, and nobody accepts them."""
    open: Callable[[str], grpc.aio.Channel]
    end_silence: Callable[[], None]
    """The process at the silent endpoint dies."""


Scenario = Callable[[World], Awaitable[None]]


def over_sockets(scenario: Scenario) -> None:
    async def main() -> None:
        echo = Echo()
        server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        server.add_generic_rpc_handlers((echo.handlers(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            silent_endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
            opened = grpc.aio.insecure_channel
            world = World(echo, server, f"127.0.0.1:{port}", silent_endpoint, opened, silent.close)
            try:
                await scenario(world)
            finally:
                await server.stop(0)

    asyncio.run(main())


def simulated(scenario: Scenario) -> None:
    loop = SimulatedLoop(collect_garbage)

    async def main() -> None:
        chance = random.Random(1)
        network = Network(loop, chance)
        loop.set_exception_handler(lambda _loop, _found: None)  # A handler breaks on purpose.
        names = ("client", "host", "silent")
        client, host, silent = (SimulatedProcess(loop, chance, name) for name in names)

        async def serve(echo: Echo, endpoint: str) -> Any:
            server = grpc.aio.server()
            server.add_generic_rpc_handlers((echo.handlers(),))
            server.add_insecure_port(endpoint)
            await server.start()
            return server

        def open_channel(endpoint: str) -> grpc.aio.Channel:
            return client.run(grpc.aio.insecure_channel, endpoint)

        def end_silence() -> None:
            silent.kill()
            network.died(silent, with_machine=False)

        with simulated_world(loop, network, 1):
            echo = Echo()
            server = await host.ask(lambda: serve(echo, "host:7000"))
            await silent.ask(lambda: serve(echo, "silent:7000"))
            silent.freeze()
            world = World(echo, server, "host:7000", "silent:7000", open_channel, end_silence)
            try:
                await client.ask(lambda: scenario(world))  # type: ignore[arg-type,return-value]
            finally:
                network.is_over = True
                for process in (client, host, silent):
                    process.bury()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


TRANSPORTS = pytest.mark.parametrize("run", [over_sockets, simulated])


def unary(channel: grpc.aio.Channel, method: str) -> Any:
    return channel.unary_unary(SERVICE + method)


async def failure_of(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


@TRANSPORTS
def test_one_request_gets_its_answer(run: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        channel = world.open(world.endpoint)
        assert await unary(channel, "One")(b"ab") == b"abab"
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        await channel.close(None)

    run(scenario)


@TRANSPORTS
def test_an_abort_carries_code_details_and_metadata(run: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        channel = world.open(world.endpoint)
        error = await failure_of(unary(channel, "Refuse")(b""))
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert error.details() == "no such thing"
        assert ("why", "because") in tuple(error.trailing_metadata())
        await channel.close(None)

    run(scenario)


@TRANSPORTS
@pytest.mark.parametrize(
    ("method", "code"),
    [("Nothing", grpc.StatusCode.UNIMPLEMENTED), ("Break", grpc.StatusCode.UNKNOWN)],
)
def test_mistakes_have_their_codes(
    run: Callable[[Scenario], None], method: str, code: grpc.StatusCode
) -> None:
    async def scenario(world: World) -> None:
        channel = world.open(world.endpoint)
        assert (await failure_of(unary(channel, method)(b""))).code() is code
        await channel.close(None)

    run(scenario)


@TRANSPORTS
def test_a_deadline_ends_the_call_on_both_sides(run: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        channel = world.open(world.endpoint)
        await unary(channel, "One")(b"")  # It is connected: the server hears of the next in time.
        while "hang began" not in world.echo.seen:  # Unless all stood still until it was over.
            error = await failure_of(unary(channel, "Hang")(b"", timeout=3))
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await world.echo.until("hang was cancelled")
        await channel.close(None)

    run(scenario)


@TRANSPORTS
def test_a_deadline_ends_a_call_whose_channel_connects(run: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        channel = world.open(world.silent_endpoint)
        # A cancellation would end the call, too: nobody may cancel it.
        calling = asyncio.ensure_future(failure_of(unary(channel, "One")(b"", timeout=0.3)))
        done, _ = await asyncio.wait({calling}, timeout=20)
        assert done
        error = await calling
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await channel.close(None)

    run(scenario)


@TRANSPORTS
def test_a_process_that_dies_before_it_accepts_is_unavailable(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(world: World) -> None:
        channel = world.open(world.silent_endpoint)
        call = unary(channel, "One")(b"", timeout=30)
        await asyncio.sleep(0.3)
        world.end_silence()
        calling = asyncio.ensure_future(failure_of(call))
        done, _ = await asyncio.wait({calling}, timeout=20)
        assert done
        error = await calling
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        await channel.close(None)

    run(scenario)


@TRANSPORTS
def test_nobody_at_the_port_is_unavailable_at_once(run: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        await world.server.stop(0)
        channel = world.open(world.endpoint)
        error = await failure_of(unary(channel, "One")(b"", timeout=30))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert (error.details() or "").startswith("failed to connect to all addresses")
        await channel.close(None)

    run(scenario)


@TRANSPORTS
def test_a_stream_of_answers_ends_by_itself(run: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        channel = world.open(world.endpoint)
        call = channel.unary_stream(SERVICE + "Count")(b"3")
        assert [answer async for answer in call] == [b"0", b"1", b"2"]
        assert await call.code() is grpc.StatusCode.OK
        await channel.close(None)

    run(scenario)


@TRANSPORTS
def test_a_conversation_ends_when_the_client_has_said_all(run: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        channel = world.open(world.endpoint)
        call = channel.stream_stream(SERVICE + "Talk")()
        for word in (b"one", b"two"):
            await call.write(word)
            assert await call.read() == word.upper()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        assert "the client said no more" in world.echo.seen
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(b"three")
        await channel.close(None)

    run(scenario)


@TRANSPORTS
def test_a_cancelled_read_ends_the_call(run: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        channel = world.open(world.endpoint)
        call = channel.stream_stream(SERVICE + "Talk")()
        await call.write(b"one")
        await call.read()
        reading = asyncio.ensure_future(call.read())
        await asyncio.sleep(0.05)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        assert call.cancelled()
        await world.echo.until(*GONE)
        await channel.close(None)

    run(scenario)


@TRANSPORTS
def test_closing_the_channel_ends_its_calls(run: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        channel = world.open(world.endpoint)
        call = channel.stream_stream(SERVICE + "Talk")()
        await call.write(b"one")
        await call.read()
        await channel.close(None)
        assert await call.code() is grpc.StatusCode.CANCELLED
        await world.echo.until(*GONE)

    run(scenario)


@TRANSPORTS
def test_a_server_that_stops_ends_its_calls(run: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        channel = world.open(world.endpoint)
        call = channel.stream_stream(SERVICE + "Talk")()
        await call.write(b"one")
        await call.read()
        await world.server.stop(0)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        await channel.close(None)

    run(scenario)


@TRANSPORTS
def test_a_client_that_reads_nothing_makes_the_server_wait(run: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        channel = world.open(world.endpoint)
        call = channel.stream_stream(SERVICE + "Flood")()
        await call.write(b"begin")
        async with timeout(30):
            while not world.echo.seen:
                await asyncio.sleep(0.1)
        assert world.echo.seen[0].startswith("waits after")
        call.cancel()
        await channel.close(None)

    run(scenario)
