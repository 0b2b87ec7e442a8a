"""What a protocol sees of its TLS transport, on both loops: bytes, pauses, limits and ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import uvloop

from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.security.tls import TlsStore, client_context
from nextgen.runtime.servers.tls_connection import TLS_RECORD_BYTES
from nextgen.runtime.servers.tls_door import TlsDoor
from nextgen.tasks.timeouts import timeout
from tests.support.certificates import Certificates

PATIENCE_S = 30.0


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest):
    """Both loops: production has the second one, whose transports differ."""
    with asyncio.Runner(loop_factory=request.param) as made:
        yield made


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


class Server(asyncio.Protocol):
    """Remembers what it learns of its connection."""

    def __init__(self, *, is_paused: bool = False) -> None:
        self.is_paused = is_paused
        self.got = b""
        self.pauses: list[bool] = []
        self.ends: list[str] = []

    def connection_made(self, transport) -> None:
        self.transport = transport
        if self.is_paused:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self.got += data

    def pause_writing(self) -> None:
        self.pauses.append(True)

    def resume_writing(self) -> None:
        self.pauses.append(False)

    def eof_received(self) -> bool:
        self.ends.append("eof")
        return True  # Ignored: TLS has no half-open connection.

    def connection_lost(self, error: Exception | None) -> None:
        self.ends.append("lost")


class Site:
    def __init__(self, port: int, context: ssl.SSLContext, made_servers: list[Server]) -> None:
        self.port = port
        self.context = context
        self.servers = made_servers
        self.clients: list[Client] = []

    def stranger(self) -> Client:
        """Return a client that has not begun its handshake."""
        self.clients.append(Client(self.port, self.context))
        return self.clients[-1]

    async def client(self) -> Client:
        """Return a client whose handshake is done."""
        client = self.stranger()
        await client.shake_hands()
        return client

    async def server(self, number: int = 0) -> Server:
        await until(lambda: len(self.servers) > number)
        return self.servers[number]


class Client:
    """One that sees single records, for it has OpenSSL and a socket and nothing in between."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self._in, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self.out, server_hostname="localhost")

    async def shake_hands(self) -> None:
        await self._until_done(self.tls.do_handshake)
        await self.send(self.out.read())

    async def send(self, cipher_text: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, cipher_text)

    def encrypted(self, text: bytes) -> bytes:
        self.tls.write(text)
        return self.out.read()

    async def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer if TLS ends before."""
        text = b""
        while len(text) < size:
            part = await self._until_done(partial(self.tls.read, size - len(text)))
            if not part:
                break
            text += part
        return text

    async def _until_done(self, step):
        loop = asyncio.get_running_loop()
        async with timeout(PATIENCE_S):
            while True:
                try:
                    return step()
                except ssl.SSLZeroReturnError:
                    return b""
                except ssl.SSLWantReadError:
                    if self.out.pending:
                        await self.send(self.out.read())
                    if not (cipher_text := await loop.sock_recv(self.socket, 65_536)):
                        raise EOFError from None
                    self._in.write(cipher_text)


@asynccontextmanager
async def site(made: Certificates, **of_server) -> AsyncIterator[Site]:
    store = TlsStore(made.files(NodeRole.BROKER, "b"))
    servers: list[Server] = []

    def new() -> Server:
        servers.append(Server(**of_server))
        return servers[-1]

    door = TlsDoor(lambda: store.server_context(ssl.CERT_OPTIONAL), new)
    listener = await asyncio.get_running_loop().create_server(door, "127.0.0.1", 0)
    serving = Site(listener.sockets[0].getsockname()[1], client_context(made.ca_file), servers)
    try:
        yield serving
    finally:
        listener.close()
        for client in serving.clients:
            client.socket.close()
        for server in servers:
            if "lost" not in server.ends:
                server.transport.abort()
        await until(lambda: all("lost" in server.ends for server in servers))


async def until(condition) -> None:
    async with timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("size", [1, TLS_RECORD_BYTES, TLS_RECORD_BYTES + 1, 1_000_000])
def test_bytes_of_any_number_arrive_in_both_directions(runner: asyncio.Runner, made, size: int):
    text = bytes(number % 251 for number in range(size))

    async def story() -> None:
        async with site(made) as serving:
            client = await serving.client()
            server = await serving.server()
            await client.send(client.encrypted(text))
            await until(lambda: len(server.got) == size)
            assert server.got == text
            server.transport.writelines([text[:100], b"", text[100:]])
            assert await client.read(size) == text

    runner.run(story())


def test_records_that_come_in_pieces_or_together_are_the_same(runner: asyncio.Runner, made):
    async def story() -> None:
        async with site(made) as serving:
            client = await serving.client()
            server = await serving.server()
            cipher_text = client.encrypted(b"one,") + client.encrypted(b"two,")
            for number in range(len(cipher_text)):
                await client.send(cipher_text[number : number + 1])
                await asyncio.sleep(0)
            await until(lambda: server.got == b"one,two,")
            await client.send(client.encrypted(b"three,") + client.encrypted(b"four"))
            await until(lambda: server.got == b"one,two,three,four")

    runner.run(story())


def test_text_sent_behind_the_handshake_waits_for_a_protocol_that_begins_paused(
    runner: asyncio.Runner, made
):
    async def story() -> None:
        async with site(made, is_paused=True) as serving:
            client = serving.stranger()
            await client._until_done(client.tls.do_handshake)
            # In one segment: what follows the handshake is read together with it.
            await client.send(client.out.read() + client.encrypted(b"early"))
            server = await serving.server()
            await asyncio.sleep(0.05)
            assert server.got == b""
            assert not server.transport.is_reading()

            server.transport.resume_reading()

            assert server.transport.is_reading()
            await until(lambda: server.got == b"early")
            server.transport.pause_reading()
            await client.send(client.encrypted(b", late"))
            await asyncio.sleep(0.05)
            assert server.got == b"early"
            server.transport.resume_reading()
            await until(lambda: server.got == b"early, late")

    runner.run(story())


def test_a_client_that_does_not_read_pauses_the_protocol_at_its_limit(runner: asyncio.Runner, made):
    async def story() -> None:
        async with site(made) as serving:
            client = await serving.client()
            server = await serving.server()
            server.transport.set_write_buffer_limits(high=100_000, low=1_000)
            assert server.transport.get_write_buffer_limits() == (1_000, 100_000)
            written = 0
            async with timeout(PATIENCE_S):
                while not server.pauses:
                    server.transport.write(b"x" * 50_000)
                    written += 50_000
                    await asyncio.sleep(0)
            assert server.pauses == [True]
            assert server.transport.get_write_buffer_size() > 100_000

            assert await client.read(written) == b"x" * written
            await until(lambda: server.pauses == [True, False])
            assert server.transport.get_write_buffer_size() == 0

    runner.run(story())


def test_a_close_sends_what_is_written_and_the_end(runner: asyncio.Runner, made):
    async def story() -> None:
        async with site(made) as serving:
            client = await serving.client()
            server = await serving.server()
            server.transport.write(b"y" * 8_000_000)
            server.transport.close()
            assert server.transport.is_closing()
            server.transport.write(b"too late")

            # Without TLS's own end this would raise: the connection could have been cut.
            assert await client.read(9_000_000) == b"y" * 8_000_000
            client.socket.close()
            await until(lambda: server.ends == ["lost"])

    runner.run(story())


def test_an_abort_drops_what_is_written(runner: asyncio.Runner, made):
    async def story() -> None:
        async with site(made) as serving:
            client = await serving.client()
            server = await serving.server()
            server.transport.write(b"z" * 20_000_000)
            server.transport.abort()
            with pytest.raises((EOFError, OSError), match=r".*"):
                await client.read(20_000_000)
            assert server.ends == ["lost"]

    runner.run(story())


@pytest.mark.parametrize("with_end", [True, False], ids=["TLS ends", "TCP ends"])
def test_an_end_by_the_client_ends_both_directions(runner: asyncio.Runner, made, with_end: bool):
    async def story() -> None:
        async with site(made) as serving:
            client = await serving.client()
            server = await serving.server()
            last = client.encrypted(b"last")
            if with_end:
                with pytest.raises(ssl.SSLWantReadError):
                    client.tls.unwrap()
            await client.send(last + client.out.read())
            if not with_end:
                client.socket.shutdown(socket.SHUT_WR)
            assert await client.read(1) == b""
            client.socket.close()
            await until(lambda: server.ends == ["eof", "lost"])
            assert server.got == b"last"

    runner.run(story())


def test_a_record_that_was_changed_ends_the_connection_and_is_not_delivered(
    runner: asyncio.Runner, made
):
    async def story() -> None:
        async with site(made) as serving:
            client = await serving.client()
            server = await serving.server()
            await client.send(client.encrypted(b"good"))
            await until(lambda: server.got == b"good")
            cipher_text = client.encrypted(b"changed on the way")
            await client.send(cipher_text[:-1] + bytes([cipher_text[-1] ^ 1]))
            with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
                await client.read(1)
            await until(lambda: server.ends == ["lost"])
            assert server.got == b"good"

    runner.run(story())


def test_a_protocol_learns_the_certificate_and_the_address_of_its_client(
    runner: asyncio.Runner, made
):
    files = made.client("ada")

    async def story() -> None:
        async with site(made) as serving:
            await serving.client()
            unknown = (await serving.server()).transport
            serving.context.load_cert_chain(files.cert_file, files.key_file)
            client = await serving.client()
            known = (await serving.server(1)).transport

            assert not unknown.get_extra_info("peercert")
            assert ("commonName", "ada") in [
                pair for part in known.get_extra_info("peercert")["subject"] for pair in part
            ]
            assert known.get_extra_info("peername") == client.socket.getsockname()
            assert known.get_extra_info("cipher") == client.tls.cipher()
            assert known.get_extra_info("sslcontext") is not None
            assert known.get_extra_info("nothing", "default") == "default"

    runner.run(story())
