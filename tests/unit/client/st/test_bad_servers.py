"""Servers that break the protocol, break off or keep silent: clear errors, and nothing left."""

from __future__ import annotations

import asyncio
import time

import pytest

from nextgen.client import st
from nextgen.client.st.errors import (
    AlreadyClosed,
    ConnectionFailed,
    InvalidSettings,
    MalformedLayout,
    NotSupported,
    ServerRefused,
    TimedOut,
    TopicNotFound,
)
from nextgen.client.st.settings import ClientSettings, parse_address
from nextgen.kernel.limits.scalable import ST_LOOKUP_REDIRECTS_MAX
from nextgen.pulsar.frames import encode_command
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.unit.client.st.conftest import TOPIC
from tests.unit.client.st.fake_server import FakeConnection, FakeServer

Command = pulsar.BaseCommand
KINDS = ["create_producer", "queue_consumer", "stream_consumer", "reader"]


async def opened(client: st.PulsarClient, kind: str):
    if kind in ("queue_consumer", "stream_consumer"):
        return await getattr(client, kind)(TOPIC, "s", initial_position=st.InitialPosition.EARLIEST)
    return await getattr(client, kind)(TOPIC)


def overlapping(server: FakeServer) -> None:
    topic = server.create(TOPIC, 2)
    topic.dag.segments[0].hash_end = 0x9000


def with_unknown_state(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
    if command.type != Command.SCALABLE_TOPIC_LOOKUP:
        return False
    update = pulsar.CommandScalableTopicUpdate(
        session_id=command.scalableTopicLookup.session_id, resolved_topic_name=TOPIC
    )
    update.dag.epoch = 1
    update.dag.segments.add(
        segment_id=0, hash_start=0, hash_end=0xFFFF, state=0, created_at_epoch=0, created_at_ms=1
    )
    message = Command(type=Command.SCALABLE_TOPIC_UPDATE, scalableTopicUpdate=update)
    connection.send_raw(encode_command(message).replace(b"\x20\x00", b"\x20\x63"))
    return True


@pytest.mark.parametrize("kind", KINDS)
async def test_overlapping_segments_in_the_first_layout_fail_the_start(
    server: FakeServer, client: st.PulsarClient, kind: str
) -> None:
    overlapping(server)

    with pytest.raises(MalformedLayout, match="overlap"):
        await opened(client, kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_state_that_is_not_known_fails_the_start_and_not_the_connection(
    server: FakeServer, client: st.PulsarClient, kind: str
) -> None:
    server.answers = with_unknown_state
    with pytest.raises(MalformedLayout):
        await opened(client, kind)
    server.answers = lambda connection, command: False

    await opened(client, kind)
    assert server.count(Command.CONNECT) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_malformed_layout_later_keeps_the_last_good_one(
    server: FakeServer, client: st.PulsarClient, kind: str
) -> None:
    topic = server.create(TOPIC, 2)
    first = await opened(client, kind)
    topic.dag.epoch = 1
    topic.dag.segments[0].hash_end = 0x9000
    server.push(topic)
    await asyncio.sleep(0.02)

    assert first.layout.epoch == 0
    topic.dag.segments[0].hash_end = 0x7FFF
    server.push(topic)
    await asyncio.sleep(0.02)
    assert first.layout.epoch == 1


async def test_an_epoch_that_goes_back_changes_nothing(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    producer = await client.create_producer(TOPIC)
    server.split(topic, 0)
    await asyncio.sleep(0.02)
    old = pulsar.ScalableTopicDAG(epoch=0)
    old.segments.add().CopyFrom(topic.dag.segments[0])
    old.segments[0].state = pulsar.ACTIVE
    current, topic.dag = topic.dag, old
    server.push(topic)
    await asyncio.sleep(0.02)

    assert current.epoch == 1
    assert producer.layout is not None
    assert producer.layout.epoch == 1
    await producer.send(b"x")


async def test_a_controller_that_is_not_there_is_tried_again_until_it_is(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    topic.dag.controller_broker_url = "pulsar://127.0.0.1:1"
    opening = asyncio.ensure_future(client.stream_consumer(TOPIC, "s"))
    await asyncio.sleep(0.05)
    assert not opening.done()
    topic.dag.controller_broker_url = "no url at all"
    server.push(topic)
    await asyncio.sleep(0.15)
    assert not opening.done()
    topic.dag.controller_broker_url = server.url
    server.push(topic)

    assert (await opening).assigned


async def test_a_controller_that_never_takes_the_consumer_is_a_timeout(server: FakeServer) -> None:
    server.create(TOPIC)

    def refuse(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type == Command.SCALABLE_TOPIC_SUBSCRIBE:
            connection.refuse(
                command.scalableTopicSubscribe.request_id, pulsar.UnknownError, "not the leader"
            )
        return command.type == Command.SCALABLE_TOPIC_SUBSCRIBE

    server.answers = refuse
    async with st.PulsarClient(server.url, operation_timeout_ms=300) as client:
        with pytest.raises(TimedOut, match="no controller"):
            await client.stream_consumer(TOPIC, "s")


async def test_a_controller_that_refuses_for_good_is_not_asked_again(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)

    def refuse(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type == Command.SCALABLE_TOPIC_SUBSCRIBE:
            connection.refuse(command.scalableTopicSubscribe.request_id, pulsar.AuthorizationError)
        return command.type == Command.SCALABLE_TOPIC_SUBSCRIBE

    server.answers = refuse
    with pytest.raises(ServerRefused, match="AuthorizationError"):
        await client.stream_consumer(TOPIC, "s")
    assert server.count(Command.SCALABLE_TOPIC_SUBSCRIBE) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_without_scalable_topics_is_refused_at_once(kind: str) -> None:
    async with FakeServer(features=pulsar.FeatureFlags()) as server:
        async with st.PulsarClient(server.url) as client:
            with pytest.raises(NotSupported, match="scalable topics"):
                await opened(client, kind)
        assert server.count(Command.SCALABLE_TOPIC_LOOKUP) == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_closes_in_the_middle_of_a_frame_fails_the_start(
    server: FakeServer, client: st.PulsarClient, kind: str
) -> None:
    def break_off(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type == Command.SCALABLE_TOPIC_LOOKUP:
            connection.send_raw(b"\x00\x00\x01\x00\x00\x00")
            connection._transport.close()
        return command.type == Command.SCALABLE_TOPIC_LOOKUP

    server.answers = break_off
    with pytest.raises(ConnectionFailed):
        await opened(client, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("silent", [0, Command.CONNECT, Command.LOOKUP, 70])
async def test_a_server_that_accepts_and_never_answers_costs_the_operation_timeout(
    server: FakeServer, kind: str, silent: int
) -> None:
    server.create(TOPIC)
    server.answers = lambda connection, command: silent in (0, command.type)
    began = time.monotonic()
    async with st.PulsarClient(server.url, operation_timeout_ms=200) as client:
        with pytest.raises((TimedOut, ConnectionFailed)):
            await opened(client, kind)

    # Far less than any default: each of the few steps has the one time-out.
    assert time.monotonic() - began < 5


async def test_closing_costs_the_operation_timeout_when_the_server_keeps_silent(
    server: FakeServer,
) -> None:
    """What was not stored fails; nothing is left running, as the fixture checks."""
    server.create(TOPIC, 2)
    client = st.PulsarClient(server.url, operation_timeout_ms=200)
    producer = await client.create_producer(TOPIC, send_timeout_ms=0)
    await producer.send(b"0", key="k")
    # One of each kind; a queue and a stream cannot share a subscription's segments.
    reader = await client.reader(TOPIC)
    await client.queue_consumer(TOPIC, "queue")
    await client.stream_consumer(TOPIC, "stream")
    await reader.receive(3_000)
    server.answers = lambda connection, command: True
    waiting = producer.submit_nowait(b"1", key="k")
    receiving = asyncio.ensure_future(reader.receive())
    await asyncio.sleep(0.02)

    began = time.monotonic()
    await client.close()

    assert time.monotonic() - began < 5
    for each in (waiting, receiving):
        with pytest.raises(AlreadyClosed):
            await each
    with pytest.raises(AlreadyClosed):
        await client.create_producer(TOPIC)


@pytest.mark.parametrize("ends", ["close", "shutdown"])
async def test_closing_ends_though_the_server_reads_nothing_any_more(
    server: FakeServer, ends: str
) -> None:
    """More waits to be written than sockets hold, so the connection cannot be flushed."""
    server.create(TOPIC)
    client = st.PulsarClient(server.url, operation_timeout_ms=400)
    producer = await client.create_producer(TOPIC)
    await producer.send(b"0")
    (connection,) = server.connections
    connection._transport.pause_reading()
    futures = [producer.submit_nowait(bytes(4_000_000)) for _ in range(8)]
    await asyncio.sleep(0)
    began = time.monotonic()

    await getattr(client, ends)()

    # Flushing and writing have the operation's time-out each.
    assert time.monotonic() - began < 10
    for future in futures:
        with pytest.raises(AlreadyClosed):
            await future
    connection._transport.resume_reading()


async def test_a_silent_connection_is_given_up_and_another_one_is_opened(
    server: FakeServer,
) -> None:
    server.create(TOPIC)
    async with st.PulsarClient(server.url, keep_alive_ms=50) as client:
        producer = await client.create_producer(TOPIC)
        await producer.send(b"0")
        server.answers = lambda connection, command: command.type != Command.CONNECT
        future = producer.submit_nowait(b"1")
        for _ in range(200):
            if server.count(Command.CONNECT) > 1:
                break
            await asyncio.sleep(0.01)
        assert server.count(Command.CONNECT) > 1
        server.answers = lambda connection, command: False
        await future

    assert [body for _, _, body in server.stored()] == [b"0", b"1"]


async def test_pushes_that_nobody_waits_for_are_dropped(
    server: FakeServer, client: st.PulsarClient
) -> None:
    topic = server.create(TOPIC)
    producer = await client.create_producer(TOPIC)
    (connection,) = server.connections
    connection.send_layout(999, topic)
    connection.send_layout_error(999, pulsar.TopicNotFound)
    connection.send(
        Command(
            type=Command.SCALABLE_TOPIC_ASSIGNMENT_UPDATE,
            scalableTopicAssignmentUpdate=pulsar.CommandScalableTopicAssignmentUpdate(
                consumer_id=999, assignment=pulsar.ScalableConsumerAssignment(layout_epoch=1)
            ),
        )
    )
    connection.send(
        Command(
            type=Command.SEND_RECEIPT,
            send_receipt=pulsar.CommandSendReceipt(producer_id=999, sequence_id=1),
        )
    )
    # A command of a later release.
    connection.send_raw(b"\x00\x00\x00\x07\x00\x00\x00\x03\x08\xe7\x07")

    await producer.send(b"x")
    assert server.count(Command.CONNECT) == 1


async def test_what_is_no_pulsar_ends_the_connection_and_the_client_goes_on(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    producer = await client.create_producer(TOPIC)
    server.connections[0].send_raw(b"\xff\xff\xff\xffHTTP/1.1 400")

    await producer.send(b"x")
    assert server.count(Command.CONNECT) == 2


async def test_a_topic_of_10_000_segments_is_produced_to_and_does_not_stall_the_loop(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC, 10_000)
    producer = await client.create_producer(TOPIC)
    assert producer.layout is not None

    ids = await asyncio.gather(*(producer.send(b"x", key=f"k{number}") for number in range(200)))

    assert len(producer.layout.active) == 10_000
    assert len({each.segment for each in ids}) > 150


async def test_at_most_ST_LOOKUP_REDIRECTS_MAX_redirections_are_followed(
    server: FakeServer, client: st.PulsarClient
) -> None:
    def redirect(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type != Command.LOOKUP:
            return False
        if server.count(Command.LOOKUP) == ST_LOOKUP_REDIRECTS_MAX + 1 and is_last_connected:
            return False
        connection.send(
            Command(
                type=Command.LOOKUP_RESPONSE,
                lookupTopicResponse=pulsar.CommandLookupTopicResponse(
                    request_id=command.lookupTopic.request_id,
                    response=pulsar.CommandLookupTopicResponse.Redirect,
                    brokerServiceUrl=server.url,
                ),
            )
        )
        return True

    server.answers = redirect
    is_last_connected = True
    await client.create_producer(TOPIC)
    server.received.clear()
    is_last_connected = False
    with pytest.raises(ConnectionFailed, match="redirected"):
        await client.create_producer(TOPIC)
    assert server.count(Command.LOOKUP) == ST_LOOKUP_REDIRECTS_MAX + 1


async def test_the_next_address_is_tried_when_one_does_not_answer(server: FakeServer) -> None:
    url = f"pulsar://127.0.0.1:1,127.0.0.1:{server.port}"
    async with st.PulsarClient(url) as client:
        await client.create_producer(TOPIC)


async def test_no_server_is_a_clear_error() -> None:
    async with st.PulsarClient("pulsar://127.0.0.1:1") as client:
        with pytest.raises(ConnectionFailed, match="no Pulsar server"):
            await client.create_producer(TOPIC)


@pytest.mark.parametrize(
    "topic", ["", "a/b", "topic://a/b", "segment://a/b/c/0000-ffff-0", "x://a/b/c", "t-partition-0"]
)
async def test_a_name_that_cannot_be_watched_is_not_sent(
    server: FakeServer, client: st.PulsarClient, topic: str
) -> None:
    with pytest.raises(ServerRefused):
        await client.create_producer(topic)
    assert server.received == []


async def test_a_persistent_name_becomes_the_scalable_topic_that_the_server_names(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)

    producer = await client.create_producer("persistent://public/default/t")

    assert producer.topic == TOPIC


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("localhost:6650", {}),
        ("http://localhost:6650", {}),
        ("pulsar://", {}),
        ("pulsar://host:port", {}),
        ("pulsar://host/path", {}),
        ("pulsar://user@host", {}),
        ("pulsar://host", {"operation_timeout_ms": 0}),
        ("pulsar://host", {"memory_limit_bytes": -1}),
        ("pulsar://host", {"keep_alive_ms": 1.5}),
        ("pulsar://host", {"nonsense": 1}),
    ],
)
async def test_wrong_settings_are_refused(url: str, settings: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings):
        st.PulsarClient(url, **settings)  # type: ignore[arg-type]


async def test_what_the_java_client_has_and_this_one_not_is_refused() -> None:
    for name in ("transactions", "transaction_policy", "max_connection_idle_ms"):
        with pytest.raises(NotSupported, match=name):
            st.PulsarClient("pulsar://host", **{name: 1})  # type: ignore[arg-type]


def test_addresses_have_the_usual_ports_and_tls_has_a_context() -> None:
    settings = ClientSettings("pulsar+ssl://a,[::1]:7000").checked()

    assert [str(each) for each in settings.addresses()] == [
        "pulsar+ssl://a:6651",
        "pulsar+ssl://[::1]:7000",
    ]
    assert settings.tls is not None
    assert parse_address("pulsar://a").port == 6650
    with pytest.raises(InvalidSettings, match="pulsar\\+ssl"):
        ClientSettings("pulsar://a", tls=settings.tls).checked()


async def test_a_missing_topic_is_not_found_and_a_lost_server_is_not(server: FakeServer) -> None:
    async with st.PulsarClient(server.url) as client:
        with pytest.raises(TopicNotFound):
            await client.reader(TOPIC, create_if_missing=False)
