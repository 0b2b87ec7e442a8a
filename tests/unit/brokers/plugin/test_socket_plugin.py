"""The socket to a plug-in, which a server of the test plays."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from brokers.adapters.plugin import peer_user
from brokers.adapters.plugin.messages import PROTOCOL, encode
from brokers.adapters.plugin.socket_plugin import SocketPluginDialer
from brokers.ports.plugin import LookupRequest, PluginConnection, PluginFault, PluginLost
from brokers.service.sidecar.plugin_faults import PluginFaults
from nextgen.kernel.limits.stream import PLUGIN_LINE_BYTES_MAX, PLUGIN_UNSENT_BYTES_MAX
from nextgen.tasks.timeouts import timeout

STRANGER = 65_534
HELLO = encode(
    "hello",
    protocol=PROTOCOL,
    broker="b1:8080",
    urls="pulsar://b1:6650",
    web="http://b1:8080",
    plugin="0.1.0",
    built_for="5.0.0-M1",
    version="5.0.0-M1",
)


def dialer(path: Path, faults: PluginFaults | None = None) -> SocketPluginDialer:
    return SocketPluginDialer(
        path, node_id="broker-1", cluster_id="c", faults=faults or PluginFaults(lambda: 0)
    )


class Broker:
    """Greets each sidecar with the next of ``greetings``, and keeps the connections."""

    def __init__(self, *greetings: bytes) -> None:
        self._greetings = list(greetings)
        self._writers: list[asyncio.StreamWriter] = []
        self.connected: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
            asyncio.Queue()
        )

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._greetings.pop(0) if self._greetings else HELLO)
        self._writers.append(writer)
        self.connected.put_nowait((reader, writer))

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self.accept, path)
        try:
            yield
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            await server.wait_closed()


@pytest.fixture
def path() -> Iterator[Path]:
    """A short path: that of a socket has 107 bytes at most."""
    with TemporaryDirectory(dir="/tmp") as directory:
        yield Path(directory) / "sidecar.sock"


@asynccontextmanager
async def connected(
    path: Path, *greetings: bytes
) -> AsyncIterator[tuple[PluginConnection, asyncio.StreamReader, asyncio.StreamWriter]]:
    broker = Broker(*greetings)
    async with broker.listening(path):
        async with timeout(10):
            plugin = await dialer(path).connect()
        while not broker.connected.empty():
            reader, writer = broker.connected.get_nowait()
        try:
            yield plugin, reader, writer
        finally:
            plugin.close()
            await asyncio.sleep(0)


async def test_both_sides_greet_and_messages_go_both_ways(path: Path) -> None:
    async with connected(path) as (plugin, reader, writer):
        writer.write(encode("lookup", number=7, topic="persistent://a/b/c"))
        plugin.session("s-1", 3, 3_000)
        plugin.list_open(1, "a/b")
        plugin.close_foreign(2, ("persistent://a/b/c",))

        assert plugin.greeting.urls == "pulsar://b1:6650"
        assert await plugin.receive() == LookupRequest(7, "persistent://a/b/c")
        told = [json.loads(await reader.readline()) for _ in range(4)]
        assert told == [
            {"kind": "hello", "protocol": PROTOCOL, "sidecar": "broker-1", "cluster": "c"},
            {"kind": "session", "id": "s-1", "epoch": 3, "ttl_ms": 3_000},
            {"kind": "list_open", "number": 1, "namespace": "a/b"},
            {"kind": "close_foreign", "number": 2, "topics": ["persistent://a/b/c"]},
        ]


async def test_a_sidecar_waits_while_another_one_commands_the_broker(path: Path) -> None:
    busy, faults = encode("busy", sidecar="broker-7"), PluginFaults(lambda: 0)
    async with Broker(busy, busy).listening(path), timeout(10):
        plugin = await dialer(path, faults).connect()
        assert plugin.greeting.broker == "b1:8080"
        plugin.close()

    assert faults.counts == {PluginFault.SECOND_SIDECAR: 2}


async def test_a_sidecar_waits_until_its_broker_runs(path: Path) -> None:
    faults = PluginFaults(lambda: 0)
    dialing = asyncio.create_task(dialer(path, faults).connect())
    await asyncio.sleep(0)
    async with Broker().listening(path), timeout(10):
        plugin = await dialing
        assert plugin.greeting.version == "5.0.0-M1"
        plugin.close()

    assert set(faults.counts) == {PluginFault.UNREACHABLE}


async def test_a_listener_of_another_user_is_told_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = iter([STRANGER])
    monkeypatch.setattr(peer_user, "user_of_peer", lambda _socket: next(users, os.geteuid()))
    # It says nothing: what it had sent could hide in an error what it was sent.
    broker, faults = Broker(b"", HELLO), PluginFaults(lambda: 0)
    async with broker.listening(path), timeout(10):
        plugin = await dialer(path, faults).connect()
        refused, _writer = broker.connected.get_nowait()
        assert await refused.read() == b""
        plugin.close()

    assert faults.counts == {PluginFault.OTHER_USER: 1}


async def test_the_end_of_the_broker_ends_the_connection(path: Path) -> None:
    async with connected(path) as (plugin, _reader, writer):
        writer.transport.abort()
        with pytest.raises(PluginLost):
            await plugin.receive()


@pytest.mark.parametrize(("over", "is_lost"), [(0, False), (1, True)])
async def test_plugin_line_bytes_max(path: Path, over: int, is_lost: bool) -> None:
    start = b'{"kind":"alive","padding":"'
    end = b'"}\n'
    padding = b"x" * (PLUGIN_LINE_BYTES_MAX + over - len(start) - len(end))
    async with connected(path) as (plugin, _reader, writer):
        writer.write(start + padding + end)
        if is_lost:
            with pytest.raises(PluginLost, match="above") as raised:
                await plugin.receive()
            assert raised.value.fault is PluginFault.OVERSIZED
        else:
            await plugin.receive()


async def test_plugin_unsent_bytes_max(path: Path) -> None:
    """A plug-in that does not read is lost, or steps would be missing when it reads again."""
    message = "x" * 1_000_000
    async with connected(path) as (plugin, _reader, _writer):
        for number in range(PLUGIN_UNSENT_BYTES_MAX // 1_000_000 + 2):
            plugin.refused(number, "CODE", message, is_final=True)
        with pytest.raises(PluginLost):
            await plugin.receive()
