"""The Admin REST of a cluster that asks who one is, and by TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from nextgen.migration import admin_rest
from nextgen.migration.admin_rest import AdminAccess, AdminRest
from nextgen.migration.records import SourceFailed
from nextgen.runtime.security.tls import client_context, peer_common_name
from tests.support.scalable_client.certificates import Authority, Certificate

TOKEN = "header.role-of-an-admin.signature"
PATH = "namespaces/acme/orders"
T = TypeVar("T")


class Broker:
    """Lets in who has the token; others get 401 and what they sent."""

    def __init__(self, *, asks_for_a_token: bool = True) -> None:
        self.asks_for_a_token = asks_for_a_token
        self.status = 200
        self.redirects_to = ""
        self.asked = 0
        self.roles: list[str] = []
        """What the certificates of those who asked say: Pulsar takes it for the role."""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        given = request.headers.get("Authorization", "")
        if request.transport is not None:
            certificate = request.transport.get_extra_info("peercert")
            self.roles.append(peer_common_name(certificate))
        if self.asks_for_a_token and given != f"Bearer {TOKEN}":
            return web.json_response({"reason": f"not {given}"}, status=401)
        if self.redirects_to:
            return web.Response(status=307, headers={"Location": self.redirects_to})
        if self.status == 403:
            return web.json_response({"reason": f"{given} is no superuser"}, status=403)
        return web.json_response({"method": request.method})


@asynccontextmanager
async def served(broker: Broker, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve a broker; yield its URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", broker.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"{'http' if tls is None else 'https'}://{host}:{port}"
    finally:
        await runner.cleanup()


@contextmanager
def alerting(tls: ssl.SSLContext) -> Iterator[str]:
    """Serve by TLS in a thread; yield the URL. A server of asyncio hangs up without its alert."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@asynccontextmanager
async def resetting_once(url: str) -> AsyncIterator[str]:
    """Stand before ``url`` and reset the first connection, as a kernel does if its process hangs up
    on a request that it has not read. Yield the URL."""
    connections = 0

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
            return
        behind = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        await asyncio.gather(passed_on(reader, behind[1]), passed_on(behind[0], writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
    writer.close()


async def asked(url: str, access: AdminAccess, work: Callable[[AdminRest], Awaitable[T]]) -> T:
    rest = AdminRest(url, access)
    try:
        return await work(rest)
    finally:
        await rest.close()
        # The loop closes connections by TLS a moment later.
        await asyncio.sleep(0)


async def refusal(url: str, access: AdminAccess) -> str:
    with pytest.raises(SourceFailed) as raised:
        await asked(url, access, lambda rest: rest.get(PATH))
    return str(raised.value)


class Secured:
    """A cluster whose brokers demand a certificate of its authority, and ask for no token."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        broker = self.authority.signed("broker", "IP:127.0.0.1")
        self.serving = self.authority.serving(broker, needs_client=True)

    def access(self, own: Certificate | None) -> AdminAccess:
        """Return the access of a command with a certificate, or without one."""
        pair = None if own is None else (own.certificate, own.key)
        context = client_context(self.authority.own.certificate, pair)
        return AdminAccess(tls=context, is_certified=own is not None)


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    return Secured(tmp_path)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_rest, "PAUSE_S", 0.0)


async def test_who_has_the_token_is_let_in() -> None:
    async with served(Broker()) as url:
        access = AdminAccess(TOKEN)

        assert await asked(url, access, lambda rest: rest.get(PATH)) == {"method": "GET"}
        assert await asked(url, access, lambda rest: rest.change("PUT", PATH))


@pytest.mark.parametrize(
    ("token", "why"),
    [("", "Pulsar asks for a token for GET"), ("stolen", "the token is not accepted for GET")],
)
async def test_a_refusal_says_what_is_missing_at_once_and_repeats_no_token(
    token: str, why: str
) -> None:
    broker = Broker()
    async with served(broker) as url:
        text = await refusal(url, AdminAccess(token))

    assert text.startswith(why)
    assert "HTTP 401" in text
    assert "stolen" not in text
    assert broker.asked == 1


async def test_what_a_role_is_not_permitted_to_is_named() -> None:
    broker = Broker()
    broker.status = 403
    async with served(broker) as url:
        text = await refusal(url, AdminAccess(TOKEN))

    assert text.startswith(f"the role is not permitted to GET {url}/admin/v2/{PATH} (HTTP 403")
    assert "... is no superuser" in text
    assert TOKEN not in text
    assert broker.asked == 1


def test_a_token_is_not_shown() -> None:
    assert TOKEN not in repr(AdminAccess(TOKEN))


async def test_another_broker_gets_the_token_too() -> None:
    first = Broker()
    async with served(Broker()) as other, served(first) as url:
        first.redirects_to = f"{other}/admin/v2/{PATH}?authoritative=true"

        changed = await asked(url, AdminAccess(TOKEN), lambda rest: rest.change("DELETE", PATH))

    assert changed
    assert first.asked == 1


async def test_redirects_end() -> None:
    broker = Broker()
    async with served(broker) as url:
        broker.redirects_to = "/admin/v2/elsewhere"

        assert "again and again" in await refusal(url, AdminAccess(TOKEN))


async def test_a_token_never_leaves_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    serving = authority.serving(authority.signed("broker", "IP:127.0.0.1"))
    plain, secure = Broker(), Broker()
    async with served(plain) as elsewhere, served(secure, serving) as url:
        secure.redirects_to = elsewhere
        access = AdminAccess(TOKEN, client_context(authority.own.certificate))

        assert "which is not followed" in await refusal(url, access)
    assert plain.asked == 0


async def test_an_authority_is_trusted_where_it_is_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    serving = authority.serving(authority.signed("broker", "IP:127.0.0.1"))
    async with served(Broker(), serving) as url:
        access = AdminAccess(TOKEN, client_context(authority.own.certificate))
        assert await asked(url, access, lambda rest: rest.get(PATH)) == {"method": "GET"}

        text = await refusal(url, AdminAccess(TOKEN))
    assert text.startswith(f"the certificate of {url}/admin/v2/{PATH} is not trusted: ")


async def test_who_has_a_certificate_of_the_cluster_is_let_in(secured: Secured) -> None:
    broker = Broker(asks_for_a_token=False)
    access = secured.access(secured.authority.signed("operator"))
    async with served(broker, secured.serving) as url:
        assert await asked(url, access, lambda rest: rest.get(PATH)) == {"method": "GET"}
        assert await asked(url, access, lambda rest: rest.change("PUT", PATH))

    assert broker.roles == ["operator", "operator"]


async def test_other_brokers_get_the_certificate_by_tls_only(secured: Secured) -> None:
    first, other, plain = (Broker(asks_for_a_token=False) for _ in range(3))
    access = secured.access(secured.authority.signed("operator"))
    async with (
        served(other, secured.serving) as elsewhere,
        served(plain) as by_http,
        served(first, secured.serving) as url,
    ):
        first.redirects_to = f"{elsewhere}/admin/v2/{PATH}"
        assert await asked(url, access, lambda rest: rest.get(PATH)) == {"method": "GET"}
        first.redirects_to = f"{by_http}/admin/v2/{PATH}"
        assert "which is not followed" in await refusal(url, access)

    assert other.roles == ["operator"]
    assert plain.asked == 0


@pytest.mark.parametrize(
    ("is_certified", "why"),
    [(False, "without a certificate: "), (True, "with this certificate: ")],
)
async def test_a_broker_that_takes_no_such_certificate_is_named_with_its_reason(
    secured: Secured, tmp_path: Path, is_certified: bool, why: str
) -> None:
    folder = tmp_path / "stranger"
    folder.mkdir()
    stranger = Authority(folder).signed("operator") if is_certified else None
    with alerting(secured.serving) as url:
        text = await refusal(url, secured.access(stranger))

    assert text.startswith(f"{url}/admin/v2/{PATH} refuses a connection {why}")
    assert text.partition(why)[2]


async def test_an_alert_that_is_lost_with_the_request_is_asked_for(secured: Secured) -> None:
    with alerting(secured.serving) as behind:
        async with resetting_once(behind) as url:
            text = await refusal(url, secured.access(None))

    why = "refuses a connection without a certificate: "
    assert text.startswith(f"{url}/admin/v2/{PATH} {why}")
    assert text.partition(why)[2]


async def test_a_role_that_a_certificate_does_not_prove_is_named(secured: Secured) -> None:
    access = secured.access(secured.authority.signed("operator"))
    async with served(Broker(), secured.serving) as url:
        text = await refusal(url, access)

    assert text.startswith("the certificate is not accepted for GET")
