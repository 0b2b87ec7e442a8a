"""A call that TLS refuses says so at once; everything else that may pass is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from nextgen.client.discovery.nodes import DiscoveryNodes
from nextgen.kernel.errors import ConnectionLost, MetadataError, Unavailable
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.security.process_tls import CallerTls, tls_in_use, use_tls
from nextgen.runtime.security.tls_refusal import TlsRefused, tls_refusal
from protos.nextgen.v1.discovery_service_pb2 import GetPositionsRequest, GetPositionsResponse
from tests.support.certificates import Certificates

TIMEOUT_MS = 60_000
"""Far more than a refusal takes, and all of it would pass if the call were repeated."""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Certificates]:
    before = tls_in_use()
    yield Certificates(tmp_path / "blue")
    use_tls(before)


@asynccontextmanager
async def port(made: Certificates | None, *, wants_certificate: bool = False) -> AsyncIterator[str]:
    """Serve nothing, with TLS if there are certificates."""
    server = grpc.aio.server()
    if made is None:
        number = server.add_insecure_port("127.0.0.1:0")
    else:
        files = made.files(NodeRole.DISCOVERY, "discovery-1", replace=True)
        pair = (files.key_file.read_bytes(), files.cert_file.read_bytes())
        ca = made.ca_file.read_bytes() if wants_certificate else None
        number = server.add_secure_port(
            "127.0.0.1:0", grpc.ssl_server_credentials([pair], ca, wants_certificate)
        )
    await server.start()
    try:
        yield f"127.0.0.1:{number}"
    finally:
        await server.stop(None)


async def refusal_of(*endpoints: str) -> str:
    nodes = DiscoveryNodes(endpoints, in_order=True)
    try:
        with pytest.raises(TlsRefused) as refused:
            await nodes.call(
                "GetPositions", GetPositionsRequest(), GetPositionsResponse, timeout_ms=TIMEOUT_MS
            )
    finally:
        await nodes.close()
    return str(refused.value)


async def test_an_authority_that_is_not_trusted_is_named_at_once(
    made: Certificates, tmp_path: Path
) -> None:
    foreign = Certificates(tmp_path / "red", "red")
    use_tls(CallerTls(foreign.ca_file))

    async with port(made) as endpoint:
        said = await refusal_of(endpoint)

    assert said.startswith(f"{endpoint} has a certificate that is not trusted here: ")
    assert "issuer certificate" in said or "self-signed" in said or "self signed" in said


async def test_tls_to_a_port_without_it_is_named_at_once(made: Certificates) -> None:
    use_tls(CallerTls(made.ca_file))

    async with port(None) as endpoint:
        assert await refusal_of(endpoint) == f"{endpoint} has no TLS, and this process has"


@pytest.mark.parametrize("wants_certificate", [False, True])
async def test_a_port_with_tls_is_named_at_once_to_a_process_without(
    made: Certificates, *, wants_certificate: bool
) -> None:
    use_tls(None)

    async with port(made, wants_certificate=wants_certificate) as endpoint:
        said = await refusal_of(endpoint)

    assert said == f"{endpoint} has TLS, and this process has none: see NEXTGEN_TLS_CA_FILE"


async def test_a_certificate_that_is_missing_is_named_at_once(made: Certificates) -> None:
    use_tls(CallerTls(made.ca_file))

    async with port(made, wants_certificate=True) as endpoint:
        said = await refusal_of(endpoint)

    assert said.startswith(f"{endpoint} refuses the certificate of this process, or that it has")


async def test_a_node_that_can_be_called_is_called_though_the_first_refuses(
    made: Certificates,
) -> None:
    """The second one answers: it does not serve this, which is final."""
    use_tls(CallerTls(made.ca_file))

    async with port(None) as refusing, port(made) as serving:
        nodes = DiscoveryNodes([refusing, serving], in_order=True)
        with pytest.raises(Exception, match="UNIMPLEMENTED"):
            await nodes.call(
                "GetPositions", GetPositionsRequest(), GetPositionsResponse, timeout_ms=TIMEOUT_MS
            )
        await nodes.close()


async def test_every_node_that_refuses_is_asked(made: Certificates) -> None:
    use_tls(CallerTls(made.ca_file))

    async with port(None) as first, port(None) as second:
        assert second in await refusal_of(first, second)


@pytest.mark.parametrize("has_tls", [False, True])
async def test_a_port_that_hangs_up_without_tls_does_not_refuse(
    made: Certificates, *, has_tls: bool
) -> None:
    """It is what a process does that is just stopping."""
    use_tls(CallerTls(made.ca_file) if has_tls else None)

    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        endpoint = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await tls_refusal(endpoint, f"ipv4:{endpoint}: Socket closed") is None


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("shard 1 has no leader"),
        Unavailable("failed to connect to all addresses; ipv4:1: Connection refused"),
        ConnectionLost("Socket closed"),
    ],
)
async def test_errors_of_other_kinds_are_tried_again(
    made: Certificates, error: MetadataError
) -> None:
    """Whatever the port would say, if it were dialled."""
    use_tls(None)

    class Failing(DiscoveryNodes):
        attempts = 0

        async def call_at(self, *_given: object, **_named: object) -> Any:
            self.attempts += 1
            raise error

    async with port(made) as endpoint:
        nodes = Failing([endpoint])
        with pytest.raises(type(error)):
            await nodes.call(
                "GetPositions", GetPositionsRequest(), GetPositionsResponse, timeout_ms=500
            )
        assert nodes.attempts > 1
