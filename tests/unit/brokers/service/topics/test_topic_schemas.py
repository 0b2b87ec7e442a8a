"""Schemas of a topic as operators handle them: added, listed, checked, deleted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from brokers.adapters.broker_service import topic_schemas
from brokers.domain.schemas.schema import version_bytes
from brokers.ports.ledger import StorageFailed
from nextgen.kernel.errors import InvalidRequest, ProposalLost, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.pulsar import SCHEMA_BYTES_MAX
from protos.nextgen.v1 import policies_pb2
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.topic_admin_calls import Admin
from tests.support.brokers.world import TOPIC, BrokerWorld

AVRO = pulsar.Schema.Avro
NEEDS_MORE = b'{"type":"record","name":"Order","fields":[{"name":"new","type":"long"}]}'


def record(*fields: str) -> bytes:
    rows = [{"name": name, "type": "string", "default": ""} for name in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": rows}).encode()


def schema(data: bytes, kind: int = AVRO) -> wire.TopicSchema:
    return wire.TopicSchema(name="plain", kind=kind, data=data, properties={"k": "v"})


async def add(admin: Admin, data: bytes) -> int:
    answer = await admin.call("AddSchema", wire.AddSchemaRequest(schema=schema(data)))
    assert isinstance(answer.version, int)
    return answer.version


async def check(admin: Admin, data: bytes, *, is_find_only: bool = False) -> Any:
    request = wire.CheckSchemaRequest(schema=schema(data), is_find_only=is_find_only)
    return await admin.call("CheckSchema", request)


async def delete(admin: Admin, *, is_forced: bool = False) -> int:
    request = wire.DeleteSchemaRequest(is_forced=is_forced)
    following = (await admin.call("DeleteSchema", request)).next_version
    assert isinstance(following, int)
    return following


async def listed(admin: Admin, first: int = 0) -> list[tuple[int, bytes]]:
    answer = await admin.call("ListSchemas", wire.ListSchemasRequest(first_version=first))
    assert not answer.has_more
    return [(each.version, each.schema.data) for each in answer.versions]


async def of_clients(world: BrokerWorld, version: int | None = None) -> Any:
    """Return the answer to GET_SCHEMA of a client."""
    given = {} if version is None else {"schema_version": version_bytes(version)}
    client = world.broker(world.directory.owners[TOPIC][0]).client()
    return await client.request(pulsar.BaseCommand.GET_SCHEMA, topic=TOPIC, **given)


def move(world: BrokerWorld) -> None:
    """Move the topic to another broker, which reads what is stored."""
    world.broker("b")
    world.move(TOPIC, "b")


async def test_added_schemas_are_numbered_listed_and_the_same_again_is_no_other(admin):
    assert [await add(admin, data) for data in (record("a"), record("a", "b"))] == [0, 1]
    assert await add(admin, record("a")) == 0

    assert await listed(admin) == [(0, record("a")), (1, record("a", "b"))]
    assert await listed(admin, 1) == [(1, record("a", "b"))]
    assert await listed(admin, 2) == []


async def test_an_added_schema_is_what_clients_read(world, admin):
    await add(admin, record("a"))

    found = await of_clients(world)

    assert (found.schema.schema_data, found.schema_version) == (record("a"), version_bytes(0))
    assert [(each.key, each.value) for each in found.schema.properties] == [("k", "v")]


async def test_an_incompatible_schema_is_refused_and_an_invalid_one_is_invalid(admin):
    await add(admin, record("a"))

    refused = await admin.refusal("AddSchema", wire.AddSchemaRequest(schema=schema(NEEDS_MORE)))
    no_schema = await admin.refusal("AddSchema", wire.AddSchemaRequest(schema=schema(b"{")))
    no_kind = wire.AddSchemaRequest(schema=schema(b"", kind=99))

    assert isinstance(refused, Refused)
    assert refused.code == RejectionCode.NOT_ALLOWED
    assert isinstance(no_schema, InvalidRequest)
    assert isinstance(await admin.refusal("AddSchema", no_kind), InvalidRequest)
    assert await listed(admin) == [(0, record("a"))]


async def test_schema_bytes_max_are_taken_of_an_operator_and_one_more_refused(admin):
    def sized(size: int) -> wire.AddSchemaRequest:
        given = wire.TopicSchema(kind=pulsar.Schema.String, data=b"x" * size)
        stored = pulsar.Schema(name="", type=pulsar.Schema.String, schema_data=given.data)
        given.data = given.data[: size - stored.ByteSize()]
        return wire.AddSchemaRequest(schema=given)

    refused = await admin.refusal("AddSchema", sized(SCHEMA_BYTES_MAX + 1))
    fits = await admin.call("AddSchema", sized(SCHEMA_BYTES_MAX))

    assert (type(refused), str(SCHEMA_BYTES_MAX) in str(refused)) == (InvalidRequest, True)
    assert fits.version == 0


async def test_a_check_says_whether_a_schema_may_follow_and_changes_nothing(admin):
    await add(admin, record("a"))

    present = await check(admin, record("a"))
    following = await check(admin, record("a", "b"))
    refused = await check(admin, NEEDS_MORE)

    assert (present.version, present.is_compatible) == (0, True)
    assert (following.HasField("version"), following.is_compatible) == (False, True)
    assert (refused.is_compatible, "not compatible" in refused.obstacle) == (False, True)
    assert present.strategy == policies_pb2.SCHEMA_COMPATIBILITY_FULL
    assert await listed(admin) == [(0, record("a"))]


async def test_a_version_is_found_without_a_comparison(admin):
    await add(admin, record("a"))

    assert (await check(admin, record("a"), is_find_only=True)).version == 0
    absent = await check(admin, b"no schema at all", is_find_only=True)
    assert not absent.HasField("version")


@pytest.mark.parametrize("is_moved", [False, True])
async def test_deleted_versions_are_read_by_number_only_and_numbers_go_on(world, admin, is_moved):
    await add(admin, record("a"))
    await add(admin, record("a", "b"))

    assert await delete(admin) == 2
    if is_moved:
        move(world)
    latest, by_number = await of_clients(world), await of_clients(world, 1)

    assert await listed(admin) == []
    assert latest.error_code == pulsar.TopicNotFound
    assert by_number.schema.schema_data == record("a", "b")
    assert not (await check(admin, record("a"), is_find_only=True)).HasField("version")
    # Nothing is compared with what is deleted, and its number is not given again.
    assert await add(admin, NEEDS_MORE) == 2
    assert await listed(admin) == [(2, NEEDS_MORE)]


@pytest.mark.parametrize("is_moved", [False, True])
async def test_versions_deleted_by_force_are_gone_and_numbers_go_on(world, admin, is_moved):
    await add(admin, record("a"))

    assert await delete(admin, is_forced=True) == 1
    if is_moved:
        move(world)

    assert (await of_clients(world, 0)).error_code == pulsar.TopicNotFound
    assert await delete(admin, is_forced=True) == 1
    assert await add(admin, record("a")) == 1


async def test_a_repeated_deletion_by_force_removes_what_an_ordinary_one_kept(world, admin):
    await add(admin, record("a"))
    await delete(admin)

    assert await delete(admin, is_forced=True) == 1
    assert (await of_clients(world, 0)).error_code == pulsar.TopicNotFound


async def test_a_connected_producer_goes_on_behind_a_deletion(world, admin):
    client = world.broker(world.directory.owners[TOPIC][0]).client()
    given = pulsar.Schema(name="Order", type=AVRO, schema_data=record("a"))
    await client.producer(producer_id=1, schema=given)

    await delete(admin)
    client.send(0, producer_id=1)
    await client.receipts(1)
    again = await client.producer(producer_id=2, schema=given)

    assert again.schema_version == version_bytes(1)


async def test_an_operator_adds_a_schema_where_clients_may_not(world, admin):
    await add(admin, record("a"))
    world.broker().topics.get(TOPIC).schemas.accepts_new = False

    assert await add(admin, record("a", "b")) == 1


async def test_a_listing_ends_where_an_answer_is_full(admin, monkeypatch):
    for fields in ("a",), ("a", "b"), ("a", "b", "c"):
        await add(admin, record(*fields))
    monkeypatch.setattr(topic_schemas, "TOPIC_ADMIN_PAYLOAD_BYTES_MAX", 1)

    answers = [
        await admin.call("ListSchemas", wire.ListSchemasRequest(first_version=first))
        for first in range(4)
    ]

    versions = [[each.version for each in answer.versions] for answer in answers]
    assert versions == [[0], [1], [2], []]
    assert [answer.has_more for answer in answers] == [True, True, False, False]


async def test_a_deletion_that_storage_fails_is_indefinite(world, admin):
    await add(admin, record("a"))
    world.broker().ledger().failure = StorageFailed("no space left")

    error = await admin.refusal("DeleteSchema", wire.DeleteSchemaRequest())

    assert isinstance(error, ProposalLost)
    assert "no space left" in str(error)
