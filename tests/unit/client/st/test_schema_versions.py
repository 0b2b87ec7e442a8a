"""Consumers of messages that were written with several versions of a schema."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from nextgen.client import st
from nextgen.client.st import schemas
from nextgen.client.st.consuming import schema_versions
from nextgen.client.st.consuming.schema_versions import SchemaVersions
from nextgen.client.st.domain.backoff import Backoff
from nextgen.client.st.errors import SchemaMismatch
from nextgen.kernel.limits.scalable import ST_SCHEMA_ATTEMPTS_MAX, ST_SCHEMA_VERSIONS_MAX
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.unit.client.st.conftest import TOPIC
from tests.unit.client.st.fake_server import FakeConnection, FakeServer

Command = pulsar.BaseCommand
EARLIEST = st.InitialPosition.EARLIEST


@dataclass
class Older:
    number: int


@dataclass
class Order:
    number: int
    note: str = "none"


async def send_both(client: st.PulsarClient) -> None:
    """Send an older and a newer message, twice."""
    older = await client.create_producer(TOPIC, schema=schemas.avro(Older))
    newer = await client.create_producer(TOPIC, schema=schemas.avro(Order))
    for number in range(2):
        await older.send(Older(number), key="k")
        await newer.send(Order(number, "x"), key="k")


async def queue(client: st.PulsarClient, kind: type[Any]) -> st.QueueConsumer[Any]:
    return await client.queue_consumer(
        TOPIC, "q", schema=schemas.avro(kind), initial_position=EARLIEST
    )


async def consumers(client: st.PulsarClient, kind: type[Any]) -> list[Any]:
    """One of each kind, from the beginning on."""
    schema = schemas.avro(kind)
    return [
        await queue(client, kind),
        await client.stream_consumer(TOPIC, "s", schema=schema, initial_position=EARLIEST),
        await client.reader(TOPIC, schema=schema),
    ]


async def test_each_message_is_read_by_the_version_that_it_was_written_with(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    await send_both(client)

    for consumer in await consumers(client, Order):
        found = [(await consumer.receive(3_000)).value for _ in range(4)]
        assert found == [Order(0), Order(0, "x"), Order(1), Order(1, "x")]
        await consumer.close()
    # Each consumer fetched both versions once.
    assert server.count(Command.GET_SCHEMA) == 6

    for consumer in await consumers(client, Older):
        found = [(await consumer.receive(3_000)).value for _ in range(4)]
        assert found == [Older(0), Older(0), Older(1), Older(1)]


async def test_messages_wait_for_their_version_in_order_and_come_once(
    server: FakeServer, client: st.PulsarClient
) -> None:
    """1. The answer about a version does not come. 2. The connection breaks. 3. On the next one
    the broker answers: each message comes once, the end of the sealed segment last."""
    topic = server.create(TOPIC)
    await send_both(client)
    server.seal(topic, 0)
    silent = True
    server.answers = lambda connection, command: silent and command.type == Command.GET_SCHEMA
    reader = await client.reader(TOPIC, schema=schemas.avro(Order))
    while not server.count(Command.GET_SCHEMA):
        await asyncio.sleep(0.01)
    assert reader.receive_nowait() is None

    silent = False
    for connection in list(server.connections):
        connection.abort()

    assert [(await reader.receive(3_000)).value.number for _ in range(4)] == [0, 0, 1, 1]
    assert not await reader.has_message_available()


async def test_a_known_version_waits_behind_an_unknown_one(
    server: FakeServer, client: st.PulsarClient
) -> None:
    server.create(TOPIC)
    older = await client.create_producer(TOPIC, schema=schemas.avro(Older))
    newer = await client.create_producer(TOPIC, schema=schemas.avro(Order))
    await older.send(Older(1))
    consumer = await queue(client, Older)
    assert (await consumer.receive(3_000)).value == Older(1)
    asked: list[tuple[FakeConnection, pulsar.BaseCommand]] = []

    def keeps(connection: FakeConnection, command: pulsar.BaseCommand) -> bool:
        if command.type == Command.GET_SCHEMA:
            asked.append((connection, command))
        return command.type == Command.GET_SCHEMA

    server.answers = keeps
    await newer.send(Order(2))
    await older.send(Older(3))
    while not asked:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    assert consumer.receive_nowait() is None

    server.answers = lambda connection, command: False
    connection, command = asked[0]
    connection.handle(command, b"")
    assert [(await consumer.receive(3_000)).value for _ in range(2)] == [Older(2), Older(3)]


async def test_a_version_that_is_lost_is_an_error_of_its_messages_only(
    server: FakeServer, client: st.PulsarClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_versions, "Backoff", lambda: Backoff(1, 1))
    server.create(TOPIC)
    await send_both(client)
    (segment,) = server.segments.values()
    segment.schemas[0].type = pulsar.Schema.Json
    del segment.schemas[1]
    consumer = await queue(client, Older)

    for reason in ("kind 2, not 4", "is lost"):
        message = await consumer.receive(3_000)
        with pytest.raises(SchemaMismatch, match=reason):
            _ = message.value
    assert server.count(Command.GET_SCHEMA) == ST_SCHEMA_ATTEMPTS_MAX + 1


@pytest.mark.parametrize("failures", [ST_SCHEMA_ATTEMPTS_MAX - 1, ST_SCHEMA_ATTEMPTS_MAX])
async def test_after_ST_SCHEMA_ATTEMPTS_MAX_answers_not_found_a_version_is_lost(
    server: FakeServer,
    client: st.PulsarClient,
    monkeypatch: pytest.MonkeyPatch,
    failures: int,
) -> None:
    monkeypatch.setattr(schema_versions, "Backoff", lambda: Backoff(1, 1))
    server.create(TOPIC)
    producer = await client.create_producer(TOPIC, schema=schemas.avro(Order))
    await producer.send(Order(1))
    left = failures

    def refuses(connection: Any, command: Any) -> bool:
        nonlocal left
        if command.type != Command.GET_SCHEMA or not left:
            return False
        left -= 1
        connection.refuse(command.getSchema.request_id, pulsar.TopicNotFound)
        return True

    server.answers = refuses
    consumer = await queue(client, Older)
    message = await consumer.receive(3_000)

    if failures < ST_SCHEMA_ATTEMPTS_MAX:
        assert message.value == Older(1)
    else:
        with pytest.raises(SchemaMismatch, match="is lost"):
            _ = message.value


def test_ST_SCHEMA_VERSIONS_MAX_versions_are_kept_and_the_one_used_last_is_among_them() -> None:
    versions = SchemaVersions(schemas.avro(Order), timeout_ms=1)
    written = pulsar.Schema(
        name="", type=pulsar.Schema.Avro, schema_data=schemas.avro(Order).definition
    )
    for number in range(ST_SCHEMA_VERSIONS_MAX):
        versions._keep(("segment", b"%d" % number), written)
    assert versions.of("segment", b"0") is not None

    for number in range(ST_SCHEMA_VERSIONS_MAX, ST_SCHEMA_VERSIONS_MAX + 1):
        versions._keep(("segment", b"%d" % number), written)

    assert len(versions) == ST_SCHEMA_VERSIONS_MAX
    assert versions.of("segment", b"0") is not None
    assert versions.of("segment", b"1") is None
