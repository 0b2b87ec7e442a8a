from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from nextgen.kernel.limits.inbound import (
    HTTP_ANSWER_MS_MAX,
    HTTP_CHECK_MS,
    HTTP_CONNECTIONS_MAX,
    HTTP_CONNECTIONS_PER_ADDRESS_MAX,
    HTTP_IDLE_MS_MAX,
    HTTP_REQUEST_MS_MAX,
)
from nextgen.runtime.servers import http_gate
from nextgen.runtime.servers.http_gate import PROGRESS, GuardedClient, HttpGate
from nextgen.runtime.servers.probes import Probes
from nextgen.tasks.timeouts import timeout
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

CHECK_S = HTTP_CHECK_MS / 1_000
MANY = 10**6


class Speaker(asyncio.Protocol):
    """What speaks HTTP, without speaking it."""

    def __init__(self) -> None:
        self.heard = b""
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True


class Wire:
    """A transport that remembers whether it was closed."""

    def __init__(self, gate: HttpGate, address: str = "10.0.0.1") -> None:
        self.address = address
        self.is_closed = False
        self.unread_bytes = 0
        protocol = gate()
        assert isinstance(protocol, GuardedClient)
        self.client = protocol
        self.client.connection_made(self)  # type: ignore[arg-type]

    def get_extra_info(self, name: str) -> Any:
        return (self.address, 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.client.connection_lost, None)


def new_gate(**limits: int) -> HttpGate:
    gate = HttpGate(**limits)
    gate.handlers = Speaker
    return gate


def closed(wires: list[Wire]) -> list[int]:
    return [number for number, wire in enumerate(wires) if wire.is_closed]


# How many ------------------------------------------------------------------------------------


async def test_http_connections_max_are_kept_and_one_more_closes_the_longest_idle() -> None:
    gate = new_gate(connections_max=HTTP_CONNECTIONS_MAX, per_address_max=MANY)
    wires = [Wire(gate, f"10.0.0.{number}") for number in range(HTTP_CONNECTIONS_MAX)]
    assert closed(wires) == []
    wires[0].client.begin_answer()

    wires.append(Wire(gate, "10.9.9.9"))

    assert closed(wires) == [1]
    assert len(gate) == HTTP_CONNECTIONS_MAX
    gate.close()


async def test_http_connections_per_address_max_are_kept_and_one_more_closes_one_of_them() -> None:
    gate = new_gate(connections_max=MANY)
    others = [Wire(gate, "10.0.0.2") for _ in range(3)]
    wires = [Wire(gate) for _ in range(HTTP_CONNECTIONS_PER_ADDRESS_MAX)]
    assert closed(others + wires) == []

    wires.append(Wire(gate))

    assert closed(others) == []
    assert closed(wires) == [0]
    gate.close()


async def test_a_client_that_is_being_answered_does_not_make_room_for_others() -> None:
    gate = new_gate(connections_max=2, per_address_max=2)
    wires = [Wire(gate) for _ in range(2)]
    for wire in wires:
        wire.client.begin_answer()

    late = Wire(gate)

    assert (closed(wires), late.is_closed) == ([], True)
    late.client.data_received(b"GET")
    assert isinstance(late.client.handler, Speaker)
    assert late.client.handler.heard == b""
    wires[0].client.end_answer()
    assert not Wire(gate).is_closed
    gate.close()


async def test_the_room_of_a_closed_connection_is_given_to_the_next() -> None:
    gate = new_gate(connections_max=1, per_address_max=1)
    first = Wire(gate)
    first.abort()
    await asyncio.sleep(0)

    second = Wire(gate)

    assert (len(gate), second.is_closed) == (1, False)
    assert isinstance(first.client.handler, Speaker)
    assert first.client.handler.is_lost
    gate.close()


# How long ------------------------------------------------------------------------------------


def lives_for(allowed_ms: int, begin: Callable[[Wire], None]) -> None:
    """Check that a client that has done ``begin`` is closed after so long, and not before."""

    async def main() -> None:
        gate = new_gate()
        wire = Wire(gate)
        await asyncio.sleep(3)
        begin(wire)
        began_at = asyncio.get_running_loop().time()
        while not wire.is_closed:
            await asyncio.sleep(0.1)
            wire.client.data_received(b"x")
        took_s = asyncio.get_running_loop().time() - began_at
        assert allowed_ms / 1_000 - 0.1 <= took_s <= allowed_ms / 1_000 + CHECK_S + 0.2
        gate.close()

    run_virtual(main)


@run_by(run_virtual)
async def test_http_idle_ms_max_passes_before_a_client_without_a_request_is_closed() -> None:
    gate = new_gate()
    silent, answered = Wire(gate), Wire(gate)
    await asyncio.sleep(HTTP_IDLE_MS_MAX / 1_000 - 1)
    answered.client.data_received(b"GET / HTTP/1.1\r\n\r\n")
    answered.client.begin_answer()
    answered.client.end_answer()
    assert not silent.is_closed

    await asyncio.sleep(1 + CHECK_S)
    assert (silent.is_closed, answered.is_closed) == (True, False)

    await asyncio.sleep(HTTP_IDLE_MS_MAX / 1_000)
    assert answered.is_closed
    gate.close()


def test_http_request_ms_max_passes_before_a_request_byte_by_byte_is_closed() -> None:
    lives_for(HTTP_REQUEST_MS_MAX, lambda wire: wire.client.data_received(b"G"))


def test_http_answer_ms_max_passes_before_an_answer_that_takes_too_long_is_closed() -> None:
    lives_for(HTTP_ANSWER_MS_MAX, lambda wire: wire.client.begin_answer())


def test_http_answer_ms_max_passes_before_a_client_that_does_not_read_is_closed() -> None:
    def answer_unread(wire: Wire) -> None:
        wire.client.end_answer()
        wire.unread_bytes = 1

    lives_for(HTTP_ANSWER_MS_MAX, answer_unread)


# Over sockets --------------------------------------------------------------------------------


async def fetched(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, await response.text()


async def begun_request(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: ")
    await writer.drain()
    return reader, writer


async def test_half_requests_beyond_the_limit_are_closed_and_a_probe_is_answered() -> None:
    gate = HttpGate(per_address_max=4)
    probes = Probes(lambda: (True, []), CollectorRegistry(), gate=gate)
    port = await probes.start("127.0.0.1", 0)
    half = [await begun_request(port) for _ in range(20)]

    status, _ = await fetched(port, "/livez")
    assert status == 200
    async with timeout(60):
        for reader, _ in half[:16]:
            assert await reader.read() == b""
    assert len(gate) <= 4

    for _, writer in half:
        writer.transport.abort()
    await probes.stop()


async def test_progress_of_a_long_answer_begins_its_time_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1e9  # Far ahead of the loop's time, by which connections are closed.
    monkeypatch.setattr(http_gate, "_now", lambda: now_s)
    gate = HttpGate(answer_ms_max=1_000)

    async def long(request: web.Request) -> web.Response:
        nonlocal now_s
        (client,) = gate._clients.values()
        before = client.ends_at()
        now_s += 50
        request[PROGRESS]()
        return web.json_response(client.ends_at() - before)

    probes = Probes(
        lambda: (True, []), CollectorRegistry(), routes=[web.get("/long", long)], gate=gate
    )
    port = await probes.start("127.0.0.1", 0)

    assert await fetched(port, "/long") == (200, "50.0")
    await probes.stop()


async def test_a_half_request_is_closed_in_time_and_one_that_is_answered_is_not() -> None:
    answering, release = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        assert not answering.is_set(), "the client had to ask again"
        answering.set()
        await release.wait()
        return web.json_response("done")

    gate = HttpGate(request_ms_max=300, idle_ms_max=300)
    routes = [web.get("/slow", slow)]
    probes = Probes(lambda: (True, []), CollectorRegistry(), routes=routes, gate=gate)
    port = await probes.start("127.0.0.1", 0)

    async with timeout(60):
        asked = asyncio.create_task(fetched(port, "/slow"))
        await answering.wait()
        half = await begun_request(port)
        silent = await asyncio.open_connection("127.0.0.1", port)
        for reader, writer in (half, silent):
            assert await reader.read() == b""
            writer.close()
        release.set()
        assert await asked == (200, '"done"')
    await probes.stop()
    assert len(gate) == 0
