"""Schemas at a broker: stored, numbered, compared, answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from brokers.domain.schemas import compatibility
from brokers.domain.schemas.schema import version_bytes
from brokers.ports.ledger import StorageFailed
from brokers.service.topics import schemas as schemas_module
from nextgen.kernel.governance.policies import SchemaCompatibility
from nextgen.kernel.limits.pulsar import SCHEMA_BYTES_MAX, SCHEMA_VERSIONS_MAX
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, settle

STRING = pulsar.Schema(name="String", type=pulsar.Schema.String, schema_data=b"")


def record(*fields: str, kind: int = pulsar.Schema.Avro) -> pulsar.Schema:
    content = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": "string", "default": ""} for name in fields],
    }
    return pulsar.Schema(name="Order", type=kind, schema_data=json.dumps(content).encode())


NEEDS_MORE = pulsar.Schema(
    name="Order",
    type=pulsar.Schema.Avro,
    schema_data=b'{"type":"record","name":"Order","fields":[{"name":"new","type":"long"}]}',
)


async def schema_of(world: BrokerWorld, version: bytes | None = None) -> Any:
    given = {} if version is None else {"schema_version": version}
    client = world.broker().client()
    return await client.request(pulsar.BaseCommand.GET_SCHEMA, topic=TOPIC, **given)


async def test_the_first_schema_is_version_0_and_the_same_again_is_no_other(world: BrokerWorld):
    client = world.broker().client()

    first = await client.producer(producer_id=1, schema=record("a"))
    second = await client.producer(producer_id=2, schema=record("a", "b"))
    again = await client.producer(producer_id=3, schema=record("a"))

    assert first.schema_version == again.schema_version == version_bytes(0)
    assert second.schema_version == version_bytes(1)


async def test_a_producer_without_a_schema_has_no_version(world: BrokerWorld):
    client = world.broker().client()
    none = pulsar.Schema(name="", type=0, schema_data=b"")

    await client.producer(producer_id=1, schema=STRING)
    without = await client.producer(producer_id=2)
    with_none = await client.producer(producer_id=3, schema=none)

    assert without.producer_ready
    assert not without.HasField("schema_version")
    assert not with_none.HasField("schema_version")


async def test_schemas_are_answered_by_version_and_the_latest_without_one(world: BrokerWorld):
    client = world.broker().client()
    labelled = record("a")
    labelled.properties.add(key="k", value="v")
    await client.producer(producer_id=1, schema=labelled)
    await client.producer(producer_id=2, schema=record("a", "b"))

    first = await schema_of(world, version_bytes(0))
    latest = await schema_of(world)
    missing = await schema_of(world, version_bytes(2))

    assert first.schema == labelled
    assert (latest.schema_version, latest.schema.schema_data) == (
        version_bytes(1),
        record("a", "b").schema_data,
    )
    assert missing.error_code == pulsar.TopicNotFound


async def test_a_topic_without_a_schema_says_that_it_has_none(world: BrokerWorld):
    await world.broker().client().producer()

    assert (await schema_of(world)).error_code == pulsar.TopicNotFound


async def test_a_schema_that_does_not_go_with_the_latest_is_refused(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_id=1, schema=record("a"))

    other = await client.producer(producer_id=2, schema=NEEDS_MORE)
    string = await client.producer(producer_id=3, schema=STRING)

    assert other.error == string.error == pulsar.IncompatibleSchema
    assert "new" in other.message
    assert (await schema_of(world)).schema_version == version_bytes(0)


async def test_schemas_survive_a_change_of_owner(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer(schema=record("a"))
    world.broker("b")
    world.move(TOPIC, "b")
    await client.until_got(pulsar.BaseCommand.CLOSE_PRODUCER)

    moved = await world.broker("b").client().producer(schema=record("a"))
    next_one = await world.broker("b").client().producer(schema=record("a", "b"))

    assert (moved.schema_version, next_one.schema_version) == (version_bytes(0), version_bytes(1))


async def test_a_schema_may_be_registered_without_a_producer(world: BrokerWorld):
    client = world.broker().client()

    created = await client.request(
        pulsar.BaseCommand.GET_OR_CREATE_SCHEMA, topic=TOPIC, schema=record("a")
    )
    refused = await client.request(
        pulsar.BaseCommand.GET_OR_CREATE_SCHEMA, topic=TOPIC, schema=NEEDS_MORE
    )
    nowhere = await client.request(
        pulsar.BaseCommand.GET_OR_CREATE_SCHEMA, topic="a/b/c/d/e", schema=STRING
    )

    assert created.schema_version == version_bytes(0)
    assert refused.error_code == pulsar.IncompatibleSchema
    assert nowhere.error_code == pulsar.InvalidTopicName


async def test_two_that_bring_the_same_schema_at_once_get_one_version(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_id=9)
    asked = [
        client.start(
            pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=number, schema=record("a")
        )
        for number in range(2)
    ]

    versions = {(await client.answer(request)).schema_version for request in asked}

    assert versions == {version_bytes(0)}
    assert len(world.broker().topics.get(TOPIC).schemas) == 1


async def test_a_schema_that_cannot_be_stored_is_refused(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_id=9)
    world.broker().ledger().failure = StorageFailed("no space left")

    refused = await client.producer(schema=record("a"))

    assert refused.error == pulsar.PersistenceError


async def test_the_first_consumer_of_an_untouched_topic_says_what_its_schema_is(
    world: BrokerWorld,
):
    client = world.broker().client()

    await client.subscribe(schema=record("a"))

    assert (await schema_of(world)).schema.schema_data == record("a").schema_data


async def test_a_consumer_must_be_able_to_read_what_producers_write(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_id=1, schema=record("a"))

    fits = await client.subscribe("s1", consumer_id=1, schema=record("a", "b"))
    refused = await client.subscribe("s2", consumer_id=2, schema=NEEDS_MORE)
    any_schema = await client.subscribe(
        "s3",
        consumer_id=3,
        schema=pulsar.Schema(name="", type=pulsar.Schema.AutoConsume, schema_data=b""),
    )

    assert isinstance(fits, pulsar.CommandSuccess)
    assert refused.error == pulsar.IncompatibleSchema
    assert isinstance(any_schema, pulsar.CommandSuccess)
    assert len(world.broker().topics.get(TOPIC).schemas) == 1


async def test_a_consumer_with_a_schema_is_refused_where_messages_have_none(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_id=1)
    client.send(0, producer_id=1)
    await client.receipts(1)

    refused = await client.subscribe(schema=STRING)

    assert refused.error == pulsar.IncompatibleSchema


async def test_a_schema_has_a_limit(world: BrokerWorld):
    client = world.broker().client()

    def sized(size: int) -> pulsar.Schema:
        schema = pulsar.Schema(name="", type=pulsar.Schema.String, schema_data=b"x" * size)
        schema.schema_data = schema.schema_data[: size - schema.ByteSize()]
        assert schema.ByteSize() == size
        return schema

    refused = await client.producer(producer_id=1, schema=sized(SCHEMA_BYTES_MAX + 1))
    fits = await client.producer(producer_id=1, schema=sized(SCHEMA_BYTES_MAX))

    assert refused.error == pulsar.IncompatibleSchema
    assert fits.schema_version == version_bytes(0)


async def test_the_number_of_versions_has_a_limit(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_id=1)
    schemas = world.broker().topics.get(TOPIC).schemas
    for number in range(SCHEMA_VERSIONS_MAX):
        success = await client.producer(producer_id=2, schema=record(f"f{number}"))
        assert success.schema_version == version_bytes(number)
        await client.request(pulsar.BaseCommand.CLOSE_PRODUCER, producer_id=2)
        client.commands.clear()

    refused = await client.producer(producer_id=2, schema=record("more"))
    known = await client.producer(producer_id=3, schema=record("f0"))

    assert refused.error == pulsar.IncompatibleSchema
    assert known.schema_version == version_bytes(0)
    assert len(schemas) == SCHEMA_VERSIONS_MAX


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("one_less", [0, 1])
async def test_schema_versions_bytes_max_are_kept_of_all_versions_and_one_byte_more_refused(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch, one_less: int, is_reopened: bool
):
    client = world.broker().client()
    await client.producer(producer_id=1, schema=record("f0"))
    topic = world.broker().topics.get(TOPIC)
    stored_bytes = sum(
        len(value) for key, value in topic.ledger.state.items() if key.startswith("schema/")
    )
    if is_reopened:
        topic.schemas = schemas_module.TopicSchemas(TOPIC, topic.ledger, topic.policy)
    second = record("f1")
    room_bytes = 2 * stored_bytes - one_less
    monkeypatch.setattr(schemas_module, "SCHEMA_VERSIONS_BYTES_MAX", room_bytes)

    answer = await client.producer(producer_id=2, schema=second)
    known = await client.producer(producer_id=3, schema=record("f0"))

    assert known.schema_version == version_bytes(0)
    if one_less:
        assert answer.error == pulsar.IncompatibleSchema
        assert f"{room_bytes + 1} bytes together" in answer.message
    else:
        assert answer.schema_version == version_bytes(1)


@pytest.mark.parametrize("is_consumer", [False, True])
async def test_a_schema_is_refused_whose_comparisons_take_too_long_together(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch, is_consumer: bool
):
    """Each of them alone is within its limit."""
    client = world.broker().client()
    await client.producer(producer_id=1, schema=record("a"))
    schemas = world.broker().topics.get(TOPIC).schemas
    for number in range(2, 6):
        await client.producer(producer_id=number, schema=record("a", f"f{number}"))
    monkeypatch.setattr(compatibility, "SCHEMA_CHECK_STEPS_MAX", 12)

    async def bring() -> Any:
        if is_consumer:
            return await client.subscribe(consumer_id=1, schema=record("a", "more"))
        return await client.producer(producer_id=8, schema=record("a", "more"))

    schemas.strategy = SchemaCompatibility.FULL_TRANSITIVE
    refused = await bring()
    schemas.strategy = SchemaCompatibility.FULL
    taken = await bring()

    assert refused.error == pulsar.IncompatibleSchema
    assert "with all versions of the topic takes too long" in refused.message
    assert isinstance(taken, pulsar.CommandSuccess | pulsar.CommandProducerSuccess)


async def test_a_version_being_stored_is_answered_once_stored(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_id=9)
    asked = client.start(
        pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0, schema=record("a")
    )
    assert "schema/0" not in world.broker().ledger().inner._unit.state

    await client.answer(asked)
    await settle()

    assert "schema/0" in world.broker().ledger().inner._unit.state
