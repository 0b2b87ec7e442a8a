"""Whose role a gRPC call has that proves it by a certificate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from nextgen.client.transport.caller import caller
from nextgen.client.transport.channel import open_channel
from nextgen.client.transport.client_gate import ClientGate
from nextgen.kernel.errors import Unauthenticated
from nextgen.kernel.limits.inbound import CLIENT_CERTIFICATES_KEPT_MAX
from nextgen.runtime.security.authentication import grpc_certificate
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.authentication.certificate_provider import CertificateProvider
from nextgen.runtime.security.authentication.grpc_certificate import certificate_of
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.security.process_tls import (
    CallerTls,
    NodeTls,
    tls_in_use,
    tls_of_files,
    use_tls,
)
from nextgen.runtime.servers.grpc_server import new_server
from tests.support.callers.role_proofs import token_of, token_provider
from tests.support.certificates import CLUSTER, Certificates

LOOKUP = "/nextgen.v1.DiscoveryService/Lookup"
WATCH = "/nextgen.v1.DiscoveryService/WatchTopics"
DEADLINE_S = 30


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Certificates]:
    before = tls_in_use()
    yield Certificates(tmp_path)
    use_tls(before)


async def whose(_request: bytes, _context: object) -> bytes:
    return caller().name.encode()


async def whose_stream(_request: bytes, context) -> None:
    await context.write(caller().name.encode())
    await asyncio.sleep(DEADLINE_S)


class Site:
    def __init__(self, server: NodeTls, port: int, client_port: int) -> None:
        self._server = server
        self.endpoint = f"localhost:{port}"
        self.for_clients = f"localhost:{client_port}"

    @asynccontextmanager
    async def channel(self, tls: NodeTls | CallerTls, endpoint: str = ""):
        use_tls(tls)
        async with open_channel(endpoint or self.endpoint) as channel:
            # The server, of the same process here, looks at what this process uses.
            use_tls(self._server)
            yield channel

    async def role(self, tls: NodeTls | CallerTls, endpoint: str = "", **metadata: str) -> str:
        async with self.channel(tls, endpoint) as channel:
            call = channel.unary_unary(LOOKUP)
            answer = await call(b"x", metadata=tuple(metadata.items()), timeout=DEADLINE_S)
            return bytes(answer).decode()


@asynccontextmanager
async def served(made: Certificates, *, takes_certificates: bool = True) -> AsyncIterator[Site]:
    providers = [token_provider(), *([CertificateProvider()] if takes_certificates else [])]
    server = new_server([], interceptors=[ClientGate(Authenticator(providers), CLUSTER)])
    handlers = {
        "Lookup": grpc.unary_unary_rpc_method_handler(whose),
        "WatchTopics": grpc.unary_stream_rpc_method_handler(whose_stream),
    }
    service = grpc.method_handlers_generic_handler("nextgen.v1.DiscoveryService", handlers)
    server.server.add_generic_rpc_handlers((service,))
    tls = tls_of_files(made.files(NodeRole.DISCOVERY, "discovery-1", replace=True))
    client_port = server.add_client_port("127.0.0.1", 0, "clients of a test", tls.store)
    port = await server.start("127.0.0.1", 0, "a test", tls=tls.store)
    try:
        yield Site(tls, port, client_port)
    finally:
        await server.stop(0)


def client(made: Certificates, name: str) -> CallerTls:
    return CallerTls(made.ca_file, made.client(name))


async def test_a_certificate_names_the_role_and_a_token_beside_it_goes_first(made) -> None:
    ada = client(made, "ada")
    async with served(made) as site:
        assert await site.role(ada) == "ada"
        bearer = f"Bearer {token_of('bob').decode()}"
        assert await site.role(ada, authorization=bearer) == "bob"
        async with site.channel(ada) as channel:
            stream = channel.unary_stream(WATCH)(b"x", timeout=DEADLINE_S)
            assert await stream.read() == b"ada"


async def refused(site: Site, tls: CallerTls, endpoint: str = "", **metadata: str) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await site.role(tls, endpoint, **metadata)
    assert refusal.value.code() is grpc.StatusCode.UNAUTHENTICATED
    return refusal.value.details()


async def test_a_certificate_proves_nothing_where_it_is_not_taken_or_not_asked_for(made) -> None:
    ada = client(made, "ada")
    async with served(made, takes_certificates=False) as site:
        assert "proves its role here by one of: token" in await refused(site, ada)
    async with served(made) as site:
        assert "proves its role" in await refused(site, ada, site.for_clients)
        async with site.channel(ada, site.for_clients) as channel:
            stream = channel.unary_stream(WATCH)(b"x", timeout=DEADLINE_S)
            assert await stream.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_wrong_token_is_not_made_good_by_a_certificate(made) -> None:
    async with served(made) as site:
        details = await refused(site, client(made, "ada"), authorization="Bearer garbage")
        assert "three parts" in details


async def test_an_operator_is_no_role(made) -> None:
    async with served(made) as site:
        assert await site.role(made.node(NodeRole.OPERATOR, "me")) == ""


def context_with(pem: bytes) -> SimpleNamespace:
    return SimpleNamespace(auth_context=lambda: {"x509_pem_cert": [pem]})


def test_client_certificates_kept_max(made) -> None:
    pem = made.client("ada").cert_file.read_bytes()
    # The same certificate behind other bytes that PEM ignores: a file each would take long.
    pems = [b"%d\n%s" % (n, pem) for n in range(CLIENT_CERTIFICATES_KEPT_MAX + 1)]
    parsed = grpc_certificate._parsed
    parsed.cache_clear()
    for one in (*pems[:-1], *pems[:-1]):
        assert certificate_of(context_with(one))["subject"] == ((("commonName", "ada"),),)
    assert parsed.cache_info().hits == parsed.cache_info().misses == CLIENT_CERTIFICATES_KEPT_MAX

    certificate_of(context_with(pems[-1]))

    assert parsed.cache_info().currsize == CLIENT_CERTIFICATES_KEPT_MAX


def test_a_certificate_that_cannot_be_parsed_is_refused() -> None:
    assert certificate_of(SimpleNamespace(auth_context=dict)) is None
    with pytest.raises(Unauthenticated, match="cannot be parsed"):
        certificate_of(context_with(b"garbage"))
