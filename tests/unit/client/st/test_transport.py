"""Connections: TLS, tokens, listeners, proxies, and how many there are."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nextgen.client import st
from nextgen.client.st.errors import ConnectionFailed, InvalidSettings, NotSupported, ServerRefused
from nextgen.kernel.limits.scalable import ST_CONNECTIONS_PER_BROKER_MAX
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.scalable_client.certificates import Authority
from tests.unit.client.st.conftest import TOPIC
from tests.unit.client.st.fake_server import FakeConnection, FakeServer

Command = pulsar.BaseCommand


async def check(client: st.PulsarClient) -> None:
    """Send a message and receive it as a queue and as a stream."""
    async with client:
        producer = await client.create_producer(TOPIC)
        await producer.send(b"x", key="k")
        settings: Any = {"initial_position": st.InitialPosition.EARLIEST}
        queue = await client.queue_consumer(TOPIC, "q", **settings)
        assert (await queue.receive(3_000)).data == b"x"
        stream = await client.stream_consumer(TOPIC, "s", **settings)
        assert (await stream.receive(3_000)).data == b"x"


async def until(server: FakeServer, kind: int, count: int) -> None:
    async with timeout(3):
        while server.count(kind) < count:
            await asyncio.sleep(0.01)


# TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def tls_server(context: ssl.SSLContext) -> AsyncIterator[FakeServer]:
    # The loop reports each handshake that fails, which is what these tests are about.
    asyncio.get_running_loop().set_exception_handler(lambda loop, problem: None)
    async with FakeServer(tls=context) as server:
        server.create(TOPIC)
        yield server


async def test_everything_goes_over_tls_with_a_trusted_certificate(authority: Authority) -> None:
    own = authority.signed("server", "IP:127.0.0.1")
    async with tls_server(authority.serving(own)) as server:
        await check(st.PulsarClient(server.url, tls=authority.trusting()))


@pytest.mark.parametrize("subjects", [("DNS:elsewhere.example",), ()])
async def test_a_certificate_for_another_host_is_refused(
    authority: Authority, subjects: tuple[str, ...]
) -> None:
    own = authority.signed("elsewhere", *subjects)
    async with tls_server(authority.serving(own)) as server:
        async with st.PulsarClient(server.url, tls=authority.trusting()) as client:
            with pytest.raises(ConnectionFailed, match="certificate verify failed"):
                await client.create_producer(TOPIC)
        assert server.received == []

        lenient = authority.trusting()
        lenient.check_hostname = False
        await check(st.PulsarClient(server.url, tls=lenient))


async def test_a_certificate_of_an_unknown_authority_is_refused(
    authority: Authority, tmp_path: Path
) -> None:
    own = authority.signed("server", "IP:127.0.0.1")
    async with tls_server(authority.serving(own)) as server:
        for tls in (None, Authority(tmp_path, "other").trusting()):
            async with st.PulsarClient(server.url, tls=tls) as client:
                with pytest.raises(ConnectionFailed, match="certificate verify failed"):
                    await client.create_producer(TOPIC)
        assert server.received == []


async def test_a_server_may_want_a_certificate_of_the_client(authority: Authority) -> None:
    own = authority.signed("server", "IP:127.0.0.1")
    client_own = authority.signed("client")
    async with tls_server(authority.serving(own, needs_client=True)) as server:
        async with st.PulsarClient(server.url, tls=authority.trusting()) as client:
            with pytest.raises(ConnectionFailed):
                await client.create_producer(TOPIC)
        assert server.received == []

        await check(st.PulsarClient(server.url, tls=authority.trusting(client_own)))


async def test_a_server_cannot_lead_a_client_away_from_tls(authority: Authority) -> None:
    """It names a broker and a controller without TLS: the client does not go there."""
    own = authority.signed("server", "IP:127.0.0.1")
    async with FakeServer() as plain, tls_server(authority.serving(own)) as server:

        def leads_away(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
            if command.type != Command.LOOKUP:
                return False
            answer = pulsar.CommandLookupTopicResponse(
                request_id=command.lookupTopic.request_id,
                response=pulsar.CommandLookupTopicResponse.Connect,
                brokerServiceUrl=plain.url,
                brokerServiceUrlTls=plain.url,
            )
            connection.send(Command(type=Command.LOOKUP_RESPONSE, lookupTopicResponse=answer))
            return True

        server.answers = leads_away
        async with st.PulsarClient(server.url, tls=authority.trusting(), token="t") as client:
            with pytest.raises(ConnectionFailed, match="scheme"):
                await client.create_producer(TOPIC)
        assert plain.received == []


# Tokens ----------------------------------------------------------------------------------------


async def test_a_token_proves_who_the_client_is(server: FakeServer) -> None:
    server.create(TOPIC)
    server.tokens = {"right"}

    await check(st.PulsarClient(server.url, token="right"))
    await check(st.PulsarClient(server.url, token=lambda: "right"))
    for token in ("wrong", None):
        async with st.PulsarClient(server.url, token=token) as client:
            with pytest.raises(ServerRefused, match="who is this") as refusal:
                await client.create_producer(TOPIC)
            assert refusal.value.code == pulsar.AuthenticationError


async def test_a_challenge_is_answered_with_a_fresh_token(server: FakeServer) -> None:
    server.create(TOPIC)
    made: list[str] = []

    def fresh() -> str:
        made.append(f"token-{len(made)}")
        return made[-1]

    async with st.PulsarClient(server.url, token=fresh) as client:
        producer = await client.create_producer(TOPIC)
        (connection,) = server.connections
        challenge = pulsar.CommandAuthChallenge(
            challenge=pulsar.AuthData(auth_method_name="token", auth_data=b"PulsarAuthRefresh"),
            protocol_version=21,
        )
        connection.send(Command(type=Command.AUTH_CHALLENGE, authChallenge=challenge))
        await until(server, Command.AUTH_RESPONSE, 1)
        await producer.send(b"x")

    (answer,) = [each for each in server.received if each.type == Command.AUTH_RESPONSE]
    assert answer.authResponse.response.auth_method_name == "token"
    assert answer.authResponse.response.auth_data == b"token-1"
    assert made == ["token-0", "token-1"]


async def test_a_function_without_a_token_is_a_clear_error(server: FakeServer) -> None:
    """It fails before anything is opened, and at a challenge; what it fails with is named."""
    server.create(TOPIC)
    failing = True

    def make() -> Any:
        if failing:
            raise OSError("no vault")
        return "token"

    async with st.PulsarClient(server.url, token=make) as client:
        with pytest.raises(ConnectionFailed, match="no vault"):
            await client.create_producer(TOPIC)
        failing = False
        producer = await client.create_producer(TOPIC)
        failing = True
        (connection,) = server.connections
        connection.send(
            Command(type=Command.AUTH_CHALLENGE, authChallenge=pulsar.CommandAuthChallenge())
        )
        future = producer.submit_nowait(b"x")
        async with timeout(3):
            while server.connections:
                await asyncio.sleep(0.01)
        failing = False
        await future
    assert len(server.stored()) >= 1

    async with st.PulsarClient(server.url, token=lambda: 3) as client:  # type: ignore[arg-type, return-value]
        with pytest.raises(ConnectionFailed, match="returned a int"):
            await client.create_producer(TOPIC)


# Lookups, proxies, connections -----------------------------------------------------------------


async def test_lookups_name_the_listener(server: FakeServer) -> None:
    server.create(TOPIC)

    await check(st.PulsarClient(server.url, listener_name="outside"))

    lookups = [each.lookupTopic for each in server.received if each.type == Command.LOOKUP]
    assert {each.advertised_listener_name for each in lookups} == {"outside"}


async def test_a_broker_behind_a_proxy_is_reached_through_the_service_url(
    server: FakeServer,
) -> None:
    """Lookups name brokers that only the proxy reaches, and so do a controller and the broker that
    takes a producer over."""
    topic = server.create(TOPIC)
    topic.dag.controller_broker_url = "pulsar://controller.invalid:6650"

    def through_proxy(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type != Command.LOOKUP:
            return False
        answer = pulsar.CommandLookupTopicResponse(
            request_id=command.lookupTopic.request_id,
            response=pulsar.CommandLookupTopicResponse.Connect,
            brokerServiceUrl="pulsar://broker.invalid:6650",
            proxy_through_service_url=True,
        )
        connection.send(Command(type=Command.LOOKUP_RESPONSE, lookupTopicResponse=answer))
        return True

    server.answers = through_proxy
    await check(st.PulsarClient(server.url))
    targets = [
        each.connect.proxy_to_broker_url for each in server.received if each.type == Command.CONNECT
    ]
    assert targets == ["", "broker.invalid:6650", "controller.invalid:6650"]

    async with st.PulsarClient(server.url) as client:
        producer = await client.create_producer(TOPIC)
        await producer.send(b"y")
        (found,) = [each for each in server.connections if each.producers]
        (producer_id,) = found.producers
        found.producers.clear()
        found.send(
            Command(
                type=Command.CLOSE_PRODUCER,
                close_producer=pulsar.CommandCloseProducer(
                    producer_id=producer_id,
                    request_id=2**64 - 1,
                    assignedBrokerServiceUrl="pulsar://next.invalid:6650",
                ),
            )
        )
        await producer.send(b"z")
    last = [each for each in server.received if each.type == Command.CONNECT][-1]
    assert last.connect.proxy_to_broker_url == "next.invalid:6650"


async def test_segments_take_turns_on_the_connections_to_a_broker(server: FakeServer) -> None:
    server.create(TOPIC, 8)
    async with st.PulsarClient(server.url, connections_per_broker=3) as client:
        producer = await client.create_producer(TOPIC)
        await asyncio.gather(*(producer.send(b"x") for _ in range(16)))

        assert len(server.connections) == 3
        assert all(each.producers for each in server.connections)


async def test_at_most_ST_CONNECTIONS_PER_BROKER_MAX_connections_to_a_broker() -> None:
    most = ST_CONNECTIONS_PER_BROKER_MAX
    async with st.PulsarClient("pulsar://127.0.0.1:1", connections_per_broker=most):
        pass
    with pytest.raises(InvalidSettings, match="connections_per_broker"):
        st.PulsarClient(
            "pulsar://127.0.0.1:1", connections_per_broker=ST_CONNECTIONS_PER_BROKER_MAX + 1
        )


async def test_pings_go_both_ways(server: FakeServer) -> None:
    server.create(TOPIC)
    async with st.PulsarClient(server.url, keep_alive_ms=30) as client:
        producer = await client.create_producer(TOPIC)
        (connection,) = server.connections
        connection.send(Command(type=Command.PING, ping=pulsar.CommandPing()))
        await until(server, Command.PONG, 1)
        await until(server, Command.PING, 3)
        await producer.send(b"x")

    assert server.count(Command.CONNECT) == 1


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"listener_name": 3}, InvalidSettings),
        ({"token": b"bytes"}, InvalidSettings),
        ({"tls": True}, InvalidSettings),
        ({"connections_per_broker": 0}, InvalidSettings),
        ({"proxy": "pulsar+ssl://proxy:4443"}, NotSupported),
        ({"max_connection_idle_ms": 1}, NotSupported),
    ],
)
async def test_wrong_settings_of_connections_are_refused(
    settings: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        st.PulsarClient("pulsar+ssl://127.0.0.1:6651", **settings)
