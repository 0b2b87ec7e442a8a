"""The scalable-topics client against a stock broker of the 5.0 milestone, from Maven Central."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchmarks.support.stock.standalone import NoPeer, StockBroker
from nextgen.client import st
from nextgen.client.st.errors import ConnectionFailed, ServerRefused
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.callers.foreign_client import SHORT_LIVED, require_tools, unavailable
from tests.support.processes.free_ports import free_ports
from tests.support.scalable_client.certificates import Authority
from tests.support.scalable_client.checks import CHECKS, Check
from tests.support.scalable_client.servers import JAVA_MIN, Server, newest_java

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

VERSION = "5.0.0-M1"
HEAP = "600m"
SECRET = b"0123456789abcdef0123456789abcdef"
TOKEN_SECONDS = 6


@dataclass
class Stock:
    """The broker as ``CHECKS`` see it, and its address with TLS, where clients need certificates.

    Tokens are for those who have one: without one a client is anonymous.
    """

    server: Server
    tls_url: str
    authority: Authority


def token(subject: str, *, secret: bytes = SECRET) -> str:
    """Return a token that a broker takes for ``TOKEN_SECONDS``."""
    parts = [
        base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=")
        for each in ({"alg": "HS256"}, {"sub": subject, "exp": int(time.time()) + TOKEN_SECONDS})
    ]
    signature = hmac.digest(secret, b".".join(parts), hashlib.sha256)
    return b".".join((*parts, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()


def secured(authority: Authority, port: int) -> dict[str, str]:
    """Return the settings of a broker with TLS and tokens."""
    own = authority.signed("broker", "IP:127.0.0.1")
    return {
        "brokerServicePortTls": str(port),
        "tlsCertificateFilePath": str(own.certificate),
        "tlsKeyFilePath": str(own.key),
        "tlsTrustCertsFilePath": str(authority.own.certificate),
        "tlsRequireTrustedClientCertOnConnect": "true",
        "authenticationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication"
        ".AuthenticationProviderToken",
        "tokenSecretKey": f"data:;base64,{base64.b64encode(SECRET).decode()}",
        "anonymousUserRole": "anonymous",
        "authenticationRefreshCheckSeconds": "1",
    }


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    require_tools("mvn", "java")
    java = newest_java()
    if java is None:
        pytest.skip(f"a stock broker of 5.0 needs Java {JAVA_MIN}")
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    (tls_port,) = free_ports(1)
    broker = StockBroker(
        tmp_path_factory.mktemp("stock"),
        version=VERSION,
        java=java,
        heap=HEAP,
        flags=SHORT_LIVED,
        settings=secured(authority, tls_port),
    )
    with asyncio.Runner() as runner:
        try:
            runner.run(broker.__aenter__())
        except NoPeer as reason:
            unavailable(str(reason))
        try:
            yield Stock(
                Server(f"pulsar://127.0.0.1:{broker.port}", f"http://{broker.http}"),
                f"pulsar+ssl://127.0.0.1:{tls_port}",
                authority,
            )
        finally:
            runner.run(broker.__aexit__())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_client_keeps_its_promises_on_a_stock_broker(stock: Stock, check: Check) -> None:
    await check(stock.server, f"stock-{check.__name__}")


async def test_certificates_and_tokens_of_both_sides_on_a_stock_broker(stock: Stock) -> None:
    """A token lasts ``TOKEN_SECONDS``: the broker wants another one on the same connection."""
    topic = await stock.server.create("secured")
    tls = stock.authority.trusting(stock.authority.signed("client"))
    made: list[str] = []

    def fresh() -> str:
        made.append(token("tester"))
        return made[-1]

    async with st.PulsarClient(stock.tls_url, tls=tls, token=fresh) as client:
        producer = await client.create_producer(topic)
        consumer = await client.queue_consumer(
            topic, "s", initial_position=st.InitialPosition.EARLIEST
        )
        connections = len(made)
        async with timeout(60):
            while len(made) == connections:
                await producer.send(b"x")
                await consumer.acknowledge(await consumer.receive(30_000))
                await asyncio.sleep(0.1)
        assert len(client._pool) == connections

    forged = token("tester", secret=SECRET[::-1])
    async with st.PulsarClient(stock.tls_url, tls=tls, token=forged) as client:
        with pytest.raises(ServerRefused) as refusal:
            await client.create_producer(topic)
        assert refusal.value.code == pulsar.AuthenticationError

    for untrusted in (None, stock.authority.trusting()):
        async with st.PulsarClient(stock.tls_url, tls=untrusted) as client:
            with pytest.raises(ConnectionFailed):
                await client.create_producer(topic)
