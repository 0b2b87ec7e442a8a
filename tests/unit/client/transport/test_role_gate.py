"""gRPC over TLS: servers check the role of their callers, callers the role of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from nextgen.client.transport.channel import close_channel, open_channel, wait_connected
from nextgen.client.transport.node_calls import NODE_CALLS, callers_of
from nextgen.client.transport.role_gate import (
    RoleGate,
    check_caller,
    check_role,
    roles_of_kind,
)
from nextgen.kernel.errors import Unauthenticated, Unavailable
from nextgen.runtime.security.exclusions import excluded, set_excluded
from nextgen.runtime.security.node_identity import NodeRole
from nextgen.runtime.security.process_tls import CallerTls, NodeTls, tls_in_use, use_tls
from nextgen.runtime.servers.grpc_server import new_server
from nextgen.tasks.timeouts import timeout
from tests.support.certificates import CLUSTER, Certificates

PATIENCE_S = 30.0
WATCH = "/nextgen.v1.ShardService/Watch"
LEASE = "/nextgen.v1.ClusterService/LeaseCapacity"
OPEN = "/nextgen.v1.BrokerService/Serves"
UNLISTED = "/nextgen.v1.NewService/Method"


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certs")


@pytest.fixture(autouse=True)
def restored():
    tls, names = tls_in_use(), excluded()
    yield
    use_tls(tls)
    set_excluded(names)


class Site:
    """A shard node that answers every method by its name, and what reached it."""

    def __init__(self, port: int, seen: list[str]) -> None:
        self.endpoint = f"127.0.0.1:{port}"
        self.seen = seen

    async def ask(
        self, tls: NodeTls | CallerTls | None, method: str = WATCH, serves: NodeRole | None = None
    ) -> bytes:
        """Call a method as somebody; the answer."""
        async with self.channel(tls, serves) as channel:
            return bytes(await question(channel, method).read())

    @asynccontextmanager
    async def channel(
        self, tls: NodeTls | CallerTls | None, serves: NodeRole | None = None
    ) -> AsyncIterator[grpc.aio.Channel]:
        use_tls(tls)
        channel = open_channel(self.endpoint, serves)
        try:
            await wait_connected(channel, self.endpoint, timeout_ms=int(PATIENCE_S * 1_000))
            yield channel
        finally:
            await close_channel(channel)


def question(channel: grpc.aio.Channel, method: str) -> Any:
    """Begin a call with one request, which goes with its headers. A request behind them may find
    the call ended by a refusal, and grpc.aio then reports INTERNAL in its place."""
    return channel.unary_stream(method)(b"question", timeout=PATIENCE_S)


class Answers(grpc.GenericRpcHandler):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def service(self, details):
        async def answer(requests, context):
            async for request in requests:
                self.seen.append(details.method)
                yield b"answer to " + request
                if request == b"and wait":
                    await asyncio.Event().wait()

        return grpc.stream_stream_rpc_method_handler(answer)


@asynccontextmanager
async def shard_node(certificates: Certificates) -> AsyncIterator[Site]:
    server = new_server([], interceptors=[RoleGate(CLUSTER)])
    answers = Answers()
    server.server.add_generic_rpc_handlers((answers,))
    tls = certificates.node(NodeRole.SHARD_NODE, "shard-node-1")
    port = await server.start("127.0.0.1", 0, "a test", tls=tls.store)
    try:
        yield Site(port, answers.seen)
    finally:
        await server.stop(0)


async def test_a_member_is_answered(made: Certificates) -> None:
    async with shard_node(made) as node:
        broker = made.node(NodeRole.BROKER, "broker-1")

        assert await node.ask(broker, WATCH, NodeRole.SHARD_NODE) == b"answer to question"


@pytest.mark.parametrize(
    ("role", "method"),
    [
        (NodeRole.BROKER, LEASE),
        (NodeRole.DISCOVERY, "/nextgen.v1.BrokerSessionService/Connect"),
        (NodeRole.SHARD_NODE, "/nextgen.v1.ClusterService/SetQuotas"),
        (NodeRole.OPERATOR, UNLISTED),
    ],
)
async def test_a_role_gets_no_further_than_its_own_calls(
    made: Certificates, role: NodeRole, method: str
) -> None:
    async with shard_node(made) as node:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await node.ask(made.node(role, "somebody"), method)

        assert refusal.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert node.seen == [], "the request was not handed on"


async def test_a_caller_without_identity_gets_open_calls_only(made: Certificates) -> None:
    async with shard_node(made) as node:
        files = made.client("app")
        credentials = grpc.ssl_channel_credentials(
            *(f.read_bytes() for f in (files.ca_file, files.key_file, files.cert_file))
        )
        async with grpc.aio.secure_channel(node.endpoint, credentials) as channel:
            assert await question(channel, OPEN).read() == b"answer to question"

            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await question(channel, WATCH).read()
            assert refusal.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_strangers_are_refused_before_any_call(made: Certificates, tmp_path: Path) -> None:
    others = Certificates(tmp_path / "others")
    foreign = made.trusting(others.files(NodeRole.BROKER, "broker-1"))
    expired = made.node(NodeRole.BROKER, "broker-9", expired=True)
    async with shard_node(made) as node:
        for stranger in (None, foreign, expired):
            with pytest.raises((Unavailable, grpc.aio.AioRpcError)):
                await node.ask(stranger)

        assert node.seen == []
        assert await node.ask(made.node(NodeRole.BROKER, "broker-1")) == b"answer to question"


async def test_a_caller_sends_nothing_to_a_process_of_another_role_or_authority(
    made: Certificates, tmp_path: Path
) -> None:
    broker = made.node(NodeRole.BROKER, "broker-1")
    others = Certificates(tmp_path / "others")
    async with shard_node(made) as node, shard_node(others) as impostor:
        with pytest.raises(Unavailable):
            await node.ask(broker, WATCH, NodeRole.CLUSTER_MANAGER)
        with pytest.raises(Unavailable):
            await impostor.ask(broker, WATCH)

        assert node.seen == impostor.seen == []


async def test_a_renewed_certificate_is_served_without_a_restart(made: Certificates) -> None:
    """The old certificate ends with its connections: new ones are made with the new one."""
    async with shard_node(made) as node:
        operator = made.node(NodeRole.OPERATOR, "me")
        assert await node.ask(operator) == b"answer to question"
        made.authority.renew("shard-node-1")
        made.authority.renew("me")

        assert await node.ask(operator) == b"answer to question"


async def test_an_excluded_node_is_cut_off_and_others_are_not(made: Certificates) -> None:
    lost, other = made.node(NodeRole.BROKER, "lost"), made.node(NodeRole.BROKER, "other")
    async with (
        shard_node(made) as node,
        node.channel(lost) as of_lost,
        node.channel(other) as of_other,
    ):
        streams = [channel.stream_stream(WATCH)() for channel in (of_lost, of_other)]
        for stream in streams:
            await stream.write(b"and wait")
            assert await stream.read() == b"answer to and wait"

        set_excluded(["lost"])

        async with timeout(PATIENCE_S):
            assert await streams[0].code() is grpc.StatusCode.UNAUTHENTICATED
        assert not streams[1].done()
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await node.ask(lost)
        assert refusal.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert await node.ask(other) == b"answer to question"


class Context:
    def __init__(self, uri: str) -> None:
        self._uri = uri

    def auth_context(self):
        if not self._uri:
            return {}
        return {"transport_security_type": [b"ssl"], "peer_uri": [self._uri.encode()]}


def test_a_hello_is_believed_from_the_node_itself_its_workers_and_operators(
    made: Certificates,
) -> None:
    kinds = roles_of_kind("client")
    use_tls(made.node(NodeRole.CLUSTER_MANAGER, "m-1"))
    of_node = Context("pulsar-nextgen://blue/discovery/d-1")
    check_caller(of_node, kinds, "d-1")
    check_caller(of_node, kinds, "d-1.w2")
    check_caller(Context("pulsar-nextgen://blue/operator/me"), kinds, "anything")

    for uri, node_id in (
        ("pulsar-nextgen://blue/discovery/d-1", "d-2"),
        ("pulsar-nextgen://blue/broker/d-1", "d-1"),
        ("https://example", "d-1"),
    ):
        with pytest.raises(Unauthenticated):
            check_caller(Context(uri), kinds, node_id)
    with pytest.raises(Unauthenticated):
        check_caller(of_node, roles_of_kind("shard"), "d-1")
    with pytest.raises(Unauthenticated):
        check_caller(of_node, roles_of_kind("king"), "d-1")

    use_tls(None)
    check_caller(Context(""), kinds, "d-1")  # Without certificates there is nothing to compare.


def test_what_only_nodes_of_one_role_may_ask_is_refused_to_all_others(made: Certificates) -> None:
    use_tls(made.node(NodeRole.SHARD_NODE, "s-1"))
    check_role(Context("pulsar-nextgen://blue/shard-node/s-2"), NodeRole.SHARD_NODE)
    for uri in ("pulsar-nextgen://blue/discovery/d-1", "pulsar-nextgen://blue/operator/me", ""):
        with pytest.raises(Unauthenticated):
            check_role(Context(uri), NodeRole.SHARD_NODE)

    use_tls(None)
    check_role(Context(""), NodeRole.SHARD_NODE)


def test_operators_may_call_whatever_nodes_may_but_the_sessions_of_nodes() -> None:
    closed = {method for method in NODE_CALLS if NodeRole.OPERATOR not in callers_of(method)}

    assert closed == {LEASE, "/nextgen.v1.BrokerSessionService/Connect"}
    assert callers_of(UNLISTED) == frozenset()


@asynccontextmanager
async def discovery_node(certificates: Certificates) -> AsyncIterator[tuple[Site, Site]]:
    """A server for callers with a certificate, and its other port for clients without."""
    server = new_server([], interceptors=[RoleGate(CLUSTER)])
    answers = Answers()
    server.server.add_generic_rpc_handlers((answers,))
    tls = certificates.node(NodeRole.DISCOVERY, "discovery-1")
    client_port = server.add_client_port("0.0.0.0", 0, "clients of a test", tls.store)
    port = await server.start("0.0.0.0", 0, "a test", tls=tls.store)
    try:
        yield Site(port, answers.seen), Site(client_port, answers.seen)
    finally:
        await server.stop(0)


LOOKUPS = "/nextgen.v1.DiscoveryService/LookupStream"


async def test_a_client_without_a_certificate_has_a_port_of_its_own(made: Certificates) -> None:
    nobody = CallerTls(made.ca_file)
    async with discovery_node(made) as (for_members, for_clients):
        assert await for_clients.ask(nobody, LOOKUPS) == b"answer to question"
        with pytest.raises(Unavailable):
            await for_members.ask(nobody, LOOKUPS)


async def test_the_port_of_clients_is_for_their_calls_whatever_certificate_they_have(
    made: Certificates,
) -> None:
    async with discovery_node(made) as (for_members, for_clients):
        member = made.node(NodeRole.BROKER, "broker-1")
        assert await for_members.ask(member, WATCH) == b"answer to question"
        for caller in (member, CallerTls(made.ca_file)):
            for_clients.seen.clear()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await for_clients.ask(caller, WATCH)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert for_clients.seen == []


async def test_a_client_sends_nothing_to_another_host_or_authority(
    made: Certificates, tmp_path: Path
) -> None:
    others = Certificates(tmp_path / "others")
    async with discovery_node(made) as (_, for_clients):
        with pytest.raises(Unavailable):
            await for_clients.ask(CallerTls(others.ca_file), LOOKUPS)
        # An address of this machine that its certificate does not name.
        for_clients.endpoint = for_clients.endpoint.replace("127.0.0.1", "127.0.0.2")
        with pytest.raises(Unavailable):
            await for_clients.ask(CallerTls(made.ca_file), LOOKUPS)
        assert for_clients.seen == []


async def test_a_client_with_a_certificate_of_its_own_uses_the_port_of_members(
    made: Certificates,
) -> None:
    client = CallerTls(made.ca_file, made.client("ada"))
    async with discovery_node(made) as (for_members, _):
        assert await for_members.ask(client, LOOKUPS) == b"answer to question"
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await for_members.ask(client, WATCH)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


class Aborted(Exception):
    """What gRPC raises in a handler that aborts."""


class SendingContext(Context):
    """A call's context whose aborts are noted."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.codes: list[grpc.StatusCode] = []

    def peer(self) -> str:
        return "a test"

    async def abort(self, code: grpc.StatusCode, *_: object, **__: object) -> None:
        self.codes.append(code)
        raise Aborted


async def sent_by_grpc(gate: RoleGate, context: SendingContext, is_sent: asyncio.Event) -> None:
    """Iterate a stream of one answer as gRPC does, whose sending takes until ``is_sent``."""

    class Details:
        method = WATCH
        invocation_metadata = ()

    async def handler_of(details: Details):
        return Answers().service(details)

    async def requests():
        yield b"and wait"

    handler = await gate.intercept_service(handler_of, Details())
    async for _ in handler.stream_stream(requests(), context):
        await is_sent.wait()


async def test_a_call_that_sends_while_its_caller_is_excluded_ends_with_a_status() -> None:
    context, is_sent = SendingContext(f"pulsar-nextgen://{CLUSTER}/broker/lost"), asyncio.Event()
    call = asyncio.create_task(sent_by_grpc(RoleGate(CLUSTER), context, is_sent))
    await asyncio.sleep(0.01)

    set_excluded(["lost"])
    is_sent.set()

    with pytest.raises(Aborted):
        await call
    assert context.codes == [grpc.StatusCode.UNAUTHENTICATED]


async def test_a_call_whose_excluded_caller_reads_nothing_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nextgen.client.transport.open_calls.SENDING_S_MAX", 0.01)
    context = SendingContext(f"pulsar-nextgen://{CLUSTER}/broker/lost")
    call = asyncio.create_task(sent_by_grpc(RoleGate(CLUSTER), context, asyncio.Event()))
    await asyncio.sleep(0.01)

    set_excluded(["lost"])

    with pytest.raises(asyncio.CancelledError):
        await call
