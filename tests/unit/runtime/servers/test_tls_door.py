"""Handshakes at a listener: how many at a time, how long, and what garbage does to others."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from nextgen.kernel.limits.inbound import TLS_HANDSHAKES_MAX
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.security.tls import TlsStore, client_context
from nextgen.runtime.servers.tls_door import TlsDoor
from nextgen.tasks.timeouts import timeout
from tests.support.certificates import Certificates

PATIENCE_S = 30.0
HANDSHAKES_MAX = 8
NEVER_MS = 1_000_000


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest):
    """Both loops: production has the second one, whose transports differ."""
    with asyncio.Runner(loop_factory=request.param) as made:
        yield made


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


class Echo(asyncio.Protocol):
    def connection_made(self, transport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Site:
    def __init__(self, door: TlsDoor, port: int, ca_file: Path) -> None:
        self.door = door
        self.port = port
        self.ca_file = ca_file
        self.open: list[asyncio.StreamWriter] = []

    async def client(self, context: ssl.SSLContext | None = None):
        """Connect with TLS; the streams."""
        return await self._connected(
            ssl=context or client_context(self.ca_file), server_hostname="localhost"
        )

    async def silent(self):
        """Connect and shake no hands; the streams."""
        return await self._connected()

    async def echo(self, text: bytes) -> bytes:
        reader, writer = await self.client()
        writer.write(text)
        return await reader.readexactly(len(text))

    async def until(self, handshakes: int) -> None:
        async with timeout(PATIENCE_S):
            while len(self.door) != handshakes:
                await asyncio.sleep(0.002)

    async def _connected(self, **more):
        async with timeout(PATIENCE_S):
            streams = await asyncio.open_connection("127.0.0.1", self.port, **more)
        self.open.append(streams[1])
        return streams


@asynccontextmanager
async def site(
    made: Certificates,
    verify: ssl.VerifyMode = ssl.CERT_OPTIONAL,
    *,
    handshake_ms_max: int = NEVER_MS,
) -> AsyncIterator[Site]:
    store = TlsStore(made.files(NodeRole.BROKER, "b"))
    door = TlsDoor(
        lambda: store.server_context(verify),
        Echo,
        handshakes_max=HANDSHAKES_MAX,
        handshake_ms_max=handshake_ms_max,
    )
    server = await asyncio.get_running_loop().create_server(door, "127.0.0.1", 0)
    serving = Site(door, server.sockets[0].getsockname()[1], made.ca_file)
    try:
        yield serving
    finally:
        server.close()
        door.close()
        for writer in serving.open:
            writer.transport.abort()
        await asyncio.gather(*(w.wait_closed() for w in serving.open), return_exceptions=True)
        await serving.until(0)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Return once the connection is closed: whether no more than an alert of TLS came before."""
    try:
        async with timeout(PATIENCE_S):
            return len(await reader.read()) < 100
    except OSError:
        return True


def test_what_a_client_sends_behind_its_handshake_arrives(runner: asyncio.Runner, made):
    async def story() -> None:
        async with site(made) as serving:
            assert await serving.echo(b"hello" * 10_000) == b"hello" * 10_000

    runner.run(story())


def test_so_many_handshakes_at_a_time_and_one_more_drops_the_oldest(runner: asyncio.Runner, made):
    async def story() -> None:
        async with site(made) as serving:
            silent = [await serving.silent() for _ in range(HANDSHAKES_MAX)]
            await serving.until(HANDSHAKES_MAX)

            assert await serving.echo(b"served") == b"served"
            assert await is_closed(silent[0][0])
            await serving.until(HANDSHAKES_MAX - 1)
            assert not any(reader.at_eof() for reader, _ in silent[1:])

    runner.run(story())


class Below(asyncio.Transport):
    """A transport that only remembers whether it was aborted."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


async def test_tls_handshakes_max_at_one_time_and_one_more_drops_the_oldest(made):
    store = TlsStore(made.files(NodeRole.BROKER, "b"))
    door = TlsDoor(lambda: store.server_context(ssl.CERT_OPTIONAL), Echo)
    below = [Below() for _ in range(TLS_HANDSHAKES_MAX)]
    for one in below:
        door().connection_made(one)
    assert len(door) == TLS_HANDSHAKES_MAX
    assert not any(one.is_aborted for one in below)

    door().connection_made(Below())

    assert [one.is_aborted for one in below] == [True, *[False] * (TLS_HANDSHAKES_MAX - 1)]
    assert len(door) == TLS_HANDSHAKES_MAX
    door.close()
    assert all(one.is_aborted for one in below)
    assert len(door) == 0


async def test_a_connection_that_is_dropped_before_it_is_made_ends_when_it_is(made):
    store = TlsStore(made.files(NodeRole.BROKER, "b"))
    door = TlsDoor(lambda: store.server_context(ssl.CERT_OPTIONAL), Echo, handshakes_max=1)
    first, below = door(), Below()
    second = door()

    first.connection_made(below)

    assert below.is_aborted
    assert not second.is_closing()
    door.close()


def test_ten_times_as_many_half_open_handshakes_keep_nobody_out(runner: asyncio.Runner, made):
    async def story() -> None:
        async with site(made) as serving:
            for _ in range(10):
                for _ in range(HANDSHAKES_MAX):
                    await serving.silent()
                assert await serving.echo(b"served") == b"served"
            assert len(serving.door) <= HANDSHAKES_MAX

    runner.run(story())


def test_a_handshake_that_takes_too_long_is_dropped(runner: asyncio.Runner, made):
    async def story() -> None:
        async with site(made, handshake_ms_max=50) as serving:
            reader, writer = await serving.silent()
            writer.write(b"\x16\x03\x01")  # The beginning of a hello.

            assert await is_closed(reader)
            await serving.until(0)

    runner.run(story())


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 600, b"\x16\x03\x01\xff\xff" + b"x" * 70_000],
    ids=["http", "zeros", "huge record"],
)
def test_garbage_ends_its_own_connection_only(runner: asyncio.Runner, made, garbage: bytes):
    async def story() -> None:
        async with site(made) as serving:
            reader, writer = await serving.silent()
            writer.write(garbage)

            assert await is_closed(reader)
            await serving.until(0)
            assert await serving.echo(b"served") == b"served"

    runner.run(story())


def test_old_versions_of_tls_are_refused(runner: asyncio.Runner, made):
    async def story() -> None:
        async with site(made) as serving:
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
            old.set_ciphers("ALL:@SECLEVEL=0")
            # The library warns of a version that nobody should use: neither do we.
            with pytest.warns(DeprecationWarning, match="TLSv1_1"):
                old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises(OSError, match=r".*"):
                await serving.client(old)

    runner.run(story())


def test_a_stranger_without_a_certificate_or_with_a_wrong_one_gets_nothing(
    runner: asyncio.Runner, made, tmp_path: Path
):
    others = Certificates(tmp_path / "others")
    expired = made.files(NodeRole.SHARD_NODE, "old", expired=True)
    foreign = others.files(NodeRole.SHARD_NODE, "n")

    async def story() -> None:
        async with site(made, ssl.CERT_REQUIRED) as serving:
            for files in (None, expired, foreign):
                context = client_context(made.ca_file)
                if files is not None:
                    context.load_cert_chain(files.cert_file, files.key_file)
                try:
                    reader, writer = await serving.client(context)
                    writer.write(b"let me in")
                except OSError:
                    continue
                assert await is_closed(reader)

    runner.run(story())
