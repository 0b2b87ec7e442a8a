"""Which clients' calls are admitted, over a connection as production has it."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from nextgen.client.transport import client_gate
from nextgen.client.transport.caller import OPERATOR, caller
from nextgen.client.transport.channel import open_channel, with_token
from nextgen.client.transport.client_gate import EXPIRED, ClientGate
from nextgen.client.transport.node_calls import CLIENT_CALLS, NODE_CALLS, OPEN_CALLS
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import Forbidden, RefusesToStart, Unauthenticated
from nextgen.kernel.governance.access import ANONYMOUS, Principal
from nextgen.runtime.security.authentication.authenticator import Authenticator
from nextgen.runtime.security.client_token import (
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    environment_with_token,
    token_in_use,
    use_token_file,
)
from nextgen.runtime.security.node_identity import NodeIdentity, NodeRole
from nextgen.runtime.servers.grpc_server import new_server
from tests.support.callers.role_proofs import PASSWORD, authenticator, token_of

LOOKUP = "/nextgen.v1.DiscoveryService/Lookup"
WATCH = "/nextgen.v1.DiscoveryService/WatchTopics"
SERVES = "/nextgen.v1.BrokerService/ServesStream"
GET = "/nextgen.v1.DiscoveryService/GetTenant"
WATCH_TENANTS = "/nextgen.v1.DiscoveryService/WatchTenants"
LOOKUP_STREAM = "/nextgen.v1.DiscoveryService/LookupStream"
STATUS = "/nextgen.v1.ShardService/GetNodeStatus"
DEADLINE_S = 30
LIFETIMES_S = 1, 5, 10
"""Of a proof, and up to a second more: a longer one where the one before was too short."""


async def _echo(request: bytes, _context: Any) -> bytes:
    return request


async def _watch(request: bytes, context: Any) -> None:
    await context.write(request)
    await asyncio.sleep(DEADLINE_S)


async def _each(requests: Any, _context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def _who(_request: bytes, _context: Any) -> bytes:
    return repr(caller()).encode()


async def _who_now(_request: bytes, context: Any) -> None:
    await context.write(repr(caller()).encode())


async def _who_each(requests: Any, _context: Any) -> AsyncIterator[bytes]:
    async for _ in requests:
        yield repr(caller()).encode()


@asynccontextmanager
async def served(checking: Authenticator | None, cluster_id: str = "") -> AsyncIterator[str]:
    server = new_server([], interceptors=[ClientGate(checking, cluster_id)])
    handlers = {
        GET: grpc.unary_unary_rpc_method_handler(_who),
        WATCH_TENANTS: grpc.unary_stream_rpc_method_handler(_who_now),
        LOOKUP_STREAM: grpc.stream_stream_rpc_method_handler(_who_each),
        LOOKUP: grpc.unary_unary_rpc_method_handler(_echo),
        WATCH: grpc.unary_stream_rpc_method_handler(_watch),
        SERVES: grpc.stream_stream_rpc_method_handler(_each),
        STATUS: grpc.unary_unary_rpc_method_handler(_echo),
    }
    by_service: dict[str, dict[str, Any]] = {}
    for path, handler in handlers.items():
        _, service, method = path.split("/")
        by_service.setdefault(service, {})[method] = handler
    server.server.add_generic_rpc_handlers(
        tuple(grpc.method_handlers_generic_handler(*one) for one in by_service.items())
    )
    port = await server.start("127.0.0.1", 0, "a test")
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def bearer(token: bytes) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token.decode()}"),)


async def called(endpoint: str, method: str, metadata: Any = ()) -> bytes:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        try:
            return await channel.unary_unary(method)(b"x", metadata=metadata, timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            raise error_of_rpc(error) from error


async def test_a_client_is_admitted_with_a_token_or_a_password() -> None:
    basic = base64.b64encode(f"ada:{PASSWORD}".encode()).decode()
    async with served(authenticator()) as endpoint:
        assert await called(endpoint, LOOKUP, bearer(token_of("ada"))) == b"x"
        assert await called(endpoint, LOOKUP, (("authorization", f"Basic {basic}"),)) == b"x"


async def callers(endpoint: str, metadata: Any) -> list[str]:
    """Return who the servers of three kinds of calls take their caller for."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        unary = await channel.unary_unary(GET)(b"x", metadata=metadata, timeout=DEADLINE_S)
        watch = channel.unary_stream(WATCH_TENANTS)(b"x", metadata=metadata, timeout=DEADLINE_S)
        stream = channel.stream_stream(LOOKUP_STREAM)(metadata=metadata, timeout=DEADLINE_S)
        await stream.write(b"x")
        found = [unary, await watch.read(), await stream.read()]
        await stream.done_writing()
        return [each.decode() for each in found]


async def test_whoever_serves_a_call_knows_whose_it_is() -> None:
    checking = authenticator(proxy_roles=frozenset({"proxy"}))
    behind = (*bearer(token_of("proxy")), ("x-original-principal", "ada"))
    lasting = bearer(token_of("ada", lasts_s=60))
    async with served(checking) as endpoint:
        assert await callers(endpoint, bearer(token_of("ada"))) == [repr(Principal("ada"))] * 3
        assert await callers(endpoint, lasting) == [repr(Principal("ada"))] * 3
        assert await callers(endpoint, behind) == [repr(Principal("ada", "proxy"))] * 3
    async with served(None) as endpoint:
        assert await callers(endpoint, ()) == [repr(ANONYMOUS)] * 3


async def test_a_proxy_names_its_client_and_nobody_else_names_one() -> None:
    checking = authenticator(proxy_roles=frozenset({"proxy"}))
    async with served(checking) as endpoint:
        with pytest.raises(Forbidden, match="has to name"):
            await called(endpoint, GET, bearer(token_of("proxy")))
        named = (*bearer(token_of("ada")), ("x-original-principal", "root"))
        with pytest.raises(Forbidden, match="cannot act for another"):
            await called(endpoint, GET, named)


def shown_by(monkeypatch: pytest.MonkeyPatch, holder: NodeIdentity | None) -> None:
    """Let every caller of a test have this certificate."""
    monkeypatch.setattr(client_gate, "tls_in_use", lambda: object())
    monkeypatch.setattr(client_gate, "caller_of", lambda _context: holder)


async def test_an_operator_needs_no_proof_but_its_certificate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown_by(monkeypatch, NodeIdentity("c", NodeRole.OPERATOR, "ada"))
    async with served(authenticator(), "c") as endpoint:
        assert await callers(endpoint, ()) == [repr(OPERATOR)] * 3
        assert await callers(endpoint, bearer(token_of("bob"))) == [repr(OPERATOR)] * 3


@pytest.mark.parametrize(
    "holder",
    [
        None,
        NodeIdentity("c", NodeRole.BROKER, "broker-1"),
        NodeIdentity("other", NodeRole.OPERATOR, "ada"),
        NodeIdentity("c", NodeRole.OPERATOR, "stolen"),
    ],
    ids=["none", "broker", "another cluster", "excluded"],
)
async def test_another_certificate_is_no_proof_of_a_role(
    monkeypatch: pytest.MonkeyPatch, holder: NodeIdentity | None
) -> None:
    shown_by(monkeypatch, holder)
    monkeypatch.setattr(client_gate, "excluded", lambda: frozenset({"stolen"}))
    async with served(authenticator(), "c") as endpoint:
        with pytest.raises(Unauthenticated):
            await called(endpoint, GET)
        assert await callers(endpoint, bearer(token_of("bob"))) == [repr(Principal("bob"))] * 3


async def test_a_client_without_a_valid_proof_is_refused_and_told_why() -> None:
    async with served(authenticator()) as endpoint:
        for metadata, why in (
            ((), "proves its role"),
            (bearer(token_of("ada", lasts_s=-5)), "expired"),
            ((("authorization", "Digest x"),), "neither"),
        ):
            with pytest.raises(Unauthenticated, match=why):
                await called(endpoint, LOOKUP, metadata)


async def test_calls_between_processes_are_left_to_their_own_gate() -> None:
    async with served(authenticator()) as endpoint:
        assert await called(endpoint, STATUS) == b"x"
    async with served(None) as endpoint:
        assert await called(endpoint, LOOKUP) == b"x"


async def test_a_stream_ends_when_the_proof_expires_that_it_began_with() -> None:
    async with (
        served(authenticator()) as endpoint,
        grpc.aio.insecure_channel(endpoint) as channel,
    ):
        await channel.channel_ready()
        for lives_s in LIFETIMES_S:
            metadata = bearer(token_of("ada", exp=int(time.time()) + 1 + lives_s))
            watch = channel.unary_stream(WATCH)(b"x", metadata=metadata, timeout=DEADLINE_S)
            try:
                assert await watch.read() == b"x"
            except grpc.aio.AioRpcError:
                continue  # The machine stood still for longer than the proof holds.
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await watch.read()
            assert ended.value.details() == EXPIRED
            return
    raise AssertionError("each stream ended before its first answer")


async def test_a_stream_of_answers_gives_none_after_the_expiry() -> None:
    clock = [100.0]
    checking = authenticator(clock=lambda: clock[0])
    async with served(checking) as endpoint, grpc.aio.insecure_channel(endpoint) as channel:
        metadata = bearer(token_of("ada", exp=4_000_000_000))
        stream = channel.stream_stream(SERVES)(metadata=metadata, timeout=DEADLINE_S)
        await stream.write(b"1")
        assert await stream.read() == b"1"
        clock[0] = 4_000_000_000.0
        await stream.write(b"2")
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
        assert ended.value.details() == EXPIRED


def test_calls_of_clients_are_open_and_not_between_processes() -> None:
    assert CLIENT_CALLS < OPEN_CALLS
    assert not CLIENT_CALLS & NODE_CALLS


async def test_a_channel_of_this_process_carries_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_bytes(token_of("ada") + b"\n")
    async with served(authenticator()) as endpoint:
        with pytest.raises(Unauthenticated):
            await called(endpoint, LOOKUP)
        monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(file))
        async with open_channel(endpoint) as channel:
            assert await channel.unary_unary(LOOKUP)(b"x", timeout=DEADLINE_S) == b"x"
            watch = channel.unary_stream(WATCH)(b"x", metadata=None, timeout=DEADLINE_S)
            assert await watch.read() == b"x"
            watch.cancel()
            assert await channel.unary_unary(STATUS)(b"x", timeout=DEADLINE_S) == b"x"


def test_a_token_is_found_in_the_environment_then_in_the_local_cluster(tmp_path: Path) -> None:
    file, local = tmp_path / "token", tmp_path / "local"
    file.write_text("a.b.c\n")
    local.write_text("d.e.f")
    use_token_file(local)
    try:
        assert token_in_use({TOKEN_VARIABLE: "x.y.z", TOKEN_FILE_VARIABLE: str(file)}) == "x.y.z"
        assert token_in_use({TOKEN_FILE_VARIABLE: str(file)}) == "a.b.c"
        assert token_in_use({}) == "d.e.f"
        assert environment_with_token({"PATH": "/"})[TOKEN_FILE_VARIABLE] == str(local)
    finally:
        use_token_file(None)
    assert token_in_use({}) == ""
    channel = object()
    assert with_token(channel) is channel  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", b"a b", b"a\r\nb: c", b"\xff", b"x" * 20_000])
def test_a_file_without_a_token_is_named_and_not_shown(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(RefusesToStart, match="holds no token") as refused:
        token_in_use({TOKEN_FILE_VARIABLE: str(file)})
    assert "b: c" not in str(refused.value)
    with pytest.raises(RefusesToStart, match="cannot be read"):
        token_in_use({TOKEN_FILE_VARIABLE: str(tmp_path / "absent")})
