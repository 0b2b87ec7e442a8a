import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from nextgen.kernel.errors import RefusesToStart
from nextgen.kernel.limits.pulsar import HTTP_BODY_BYTES_MAX
from nextgen.runtime.servers.probes import Probes

Fetch = Callable[[str], Awaitable[tuple[int, str]]]


class SwitchableReadiness:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def __call__(self) -> tuple[bool, list[str]]:
        return not self.reasons, self.reasons


@pytest.fixture
def readiness() -> SwitchableReadiness:
    return SwitchableReadiness()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def fetch(
    readiness: SwitchableReadiness, registry: CollectorRegistry
) -> AsyncIterator[Fetch]:
    probes = Probes(readiness, registry)
    port = await probes.start("127.0.0.1", 0)

    async with aiohttp.ClientSession() as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                return response.status, await response.text()

        yield get
    await probes.stop()


async def test_a_process_is_live(fetch: Fetch) -> None:
    assert await fetch("/livez") == (200, '{"live": true}')


async def test_readiness_is_asked_each_time(fetch: Fetch, readiness: SwitchableReadiness) -> None:
    assert await fetch("/readyz") == (200, '{"ready": true, "reasons": []}')

    readiness.reasons = ["shard 3 has no leader"]
    assert await fetch("/readyz") == (
        503,
        '{"ready": false, "reasons": ["shard 3 has no leader"]}',
    )


async def test_metrics_are_those_of_the_registry(fetch: Fetch, registry: CollectorRegistry) -> None:
    Counter("commits", "Commits.", registry=registry).inc(3)

    status, page = await fetch("/metrics")

    assert status == 200
    assert "commits_total 3.0" in page.splitlines()


async def test_there_are_no_other_pages(fetch: Fetch) -> None:
    assert (await fetch("/"))[0] == 404


async def test_a_taken_port_is_named(readiness: SwitchableReadiness) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        probes = Probes(readiness)

        with pytest.raises(RefusesToStart, match=rf"127\.0\.0\.1:{port}.*health probes"):
            await probes.start("127.0.0.1", port)
        await probes.stop()


async def test_the_port_is_free_after_stop(readiness: SwitchableReadiness) -> None:
    first, second = Probes(readiness), Probes(readiness)
    port = await first.start("127.0.0.1", 0)
    await first.stop()
    await first.stop()

    assert await second.start("127.0.0.1", port) == port == second.port
    await second.stop()


async def test_what_is_no_request_gets_400_and_leaves_no_trace(
    readiness: SwitchableReadiness, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    probes = Probes(readiness, registry)
    port = await probes.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    writer.write(b"GET /livez HTTP/9.9\r\n\r\n")
    line = await reader.readline()
    writer.close()
    await probes.stop()

    assert b" 400 " in line
    assert [record for record in caplog.records if record.name.startswith("aiohttp")] == []


async def test_what_a_process_adds_is_served_beside_the_probes(
    readiness: SwitchableReadiness, registry: CollectorRegistry
) -> None:
    async def greet(request: web.Request) -> web.Response:
        return web.json_response({"greeted": request.match_info["who"]})

    probes = Probes(readiness, registry, routes=[web.get("/greet/{who}", greet)])
    port = await probes.start("127.0.0.1", 0)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/greet/you") as response:
            assert await response.json() == {"greeted": "you"}
        async with session.get(f"http://127.0.0.1:{port}/livez") as response:
            assert response.status == 200
    await probes.stop()


async def test_http_body_bytes_max_are_read_and_one_more_refused(
    readiness: SwitchableReadiness, registry: CollectorRegistry
) -> None:
    async def measure(request: web.Request) -> web.Response:
        return web.json_response(len(await request.read()))

    probes = Probes(readiness, registry, routes=[web.post("/measure", measure)])
    port = await probes.start("127.0.0.1", 0)
    url = f"http://127.0.0.1:{port}/measure"
    async with aiohttp.ClientSession() as session:
        async with session.post(url, data=b"x" * HTTP_BODY_BYTES_MAX) as response:
            assert (response.status, await response.json()) == (200, HTTP_BODY_BYTES_MAX)
        async with session.post(url, data=b"x" * (HTTP_BODY_BYTES_MAX + 1)) as response:
            assert response.status == 413
    await probes.stop()
