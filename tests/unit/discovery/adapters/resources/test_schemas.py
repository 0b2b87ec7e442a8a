"""/admin/v2/schemas/{tenant}/{namespace}/{topic}: every case with its code."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest

from discovery.adapters.resources.schema_content import TYPE_NAMES, schema_content, schema_data
from discovery.adapters.resources.topic_catalogue import topic_routes
from nextgen.kernel.errors import InvalidRequest, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.rest import REST_SCHEMA_BODY_BYTES_MAX
from protos.nextgen.v1 import policies_pb2
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.pulsar.PulsarApi_pb2 import Schema
from tests.support.discovery.fake_owners import FakeOwners
from tests.support.discovery.fake_topics import FakeInventory
from tests.support.discovery.rest_server import RestClient, serving

BASE = "/admin/v2/schemas/acme/orders"
PLAIN = f"{BASE}/plain"
PARTED = f"{BASE}/parted"
PARTS = [f"persistent://acme/orders/parted-partition-{number}" for number in range(3)]
RECORD = '{"type":"record","name":"Order","fields":[]}'
AVRO = {"type": "AVRO", "schema": RECORD, "properties": {"k": "v"}}


@pytest.fixture
def owners() -> FakeOwners:
    return FakeOwners()


@pytest.fixture
async def client(owners: FakeOwners):
    inventory: Any = FakeInventory()
    inventory.add("persistent://acme/orders/plain")
    inventory.add("persistent://acme/orders/parted", 3)
    async with serving(topic_routes(owners, inventory, inventory, inventory)) as client:
        yield client


async def post(client: RestClient, path: str, body: Any = AVRO) -> tuple[int, Any]:
    reply = await client.call("POST", path, json=body)
    return reply.status, reply.json


async def test_a_posted_schema_is_answered_with_its_version_as_pulsar_nests_it(client, owners):
    owners.answer = lambda _name, _request: admin_pb.AddSchemaResponse(version=4)

    assert await post(client, f"{PLAIN}/schema") == (200, {"version": {"version": 4}})

    ((name, request),) = owners.calls
    assert name == "persistent://acme/orders/plain"
    assert request.schema == admin_pb.TopicSchema(
        name="plain", kind=Schema.Avro, data=RECORD.encode(), properties={"k": "v"}
    )


async def test_a_schema_is_posted_to_every_partition_and_deleted_from_each(client, owners):
    assert (await post(client, f"{PARTED}/schema"))[0] == 200
    posted = sorted(name for name, _ in owners.calls)
    owners.calls.clear()
    deleted = await client.call("DELETE", f"{PARTED}/schema")

    assert (posted, sorted(name for name, _ in owners.calls)) == (PARTS, PARTS)
    assert (deleted.status, deleted.json) == (200, {"version": 0})


@pytest.mark.parametrize(("query", "is_forced"), [("", False), ("?force=true", True)])
async def test_a_deletion_is_forced_only_if_the_query_says_so(client, owners, query, is_forced):
    owners.answer = lambda _name, _request: admin_pb.DeleteSchemaResponse(next_version=3)

    deleted = await client.call("DELETE", f"{PLAIN}/schema{query}")

    assert (deleted.status, deleted.json) == (200, {"version": 3})
    assert [request.is_forced for _, request in owners.calls] == [is_forced]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Refused(RejectionCode.NOT_ALLOWED, "it is not compatible"), 409),
        (InvalidRequest("it is no schema"), 422),
    ],
)
async def test_an_incompatible_schema_is_409_and_an_invalid_one_422(client, owners, error, status):
    owners.answer = lambda _name, _request: error

    code, answer = await post(client, f"{PLAIN}/schema")

    assert (code, answer) == (status, {"reason": str(error)})


@pytest.mark.parametrize("path", ["schema", "compatibility", "version"])
async def test_bodies_that_are_no_schema_are_refused(client, path):
    at = f"{PLAIN}/{path}"

    assert (await post(client, at, {"schema": RECORD}))[0] == 400
    assert (await post(client, at, {**AVRO, "type": "NOTHING"}))[0] == 400
    assert (await post(client, at, {**AVRO, "type": "AUTO_CONSUME"}))[0] == 400
    assert (await post(client, at, {**AVRO, "schema": {}}))[0] == 400
    assert (await post(client, at, {"type": "KEY_VALUE", "schema": '{"key": 1}'}))[0] == 422
    assert (await post(client, f"{BASE}/absent/{path}"))[0] == 404
    assert (await client.call("POST", at)).status == 400


async def test_rest_schema_body_bytes_max_are_read_and_one_more_refused(client, owners):
    frame = json.dumps(AVRO).encode()
    whole = frame + b" " * (REST_SCHEMA_BODY_BYTES_MAX - len(frame))
    headers = {"Content-Type": "application/json"}

    fits = await client.call("POST", f"{PLAIN}/schema", data=BytesIO(whole), headers=headers)
    more = await client.call("POST", f"{PLAIN}/schema", data=BytesIO(whole + b" "), headers=headers)

    assert (fits.status, more.status, len(owners.calls)) == (200, 413, 1)


@pytest.mark.parametrize("is_compatible", [True, False])
async def test_compatibility_is_answered_with_the_strategy(client, owners, is_compatible):
    owners.answer = lambda _name, _request: admin_pb.CheckSchemaResponse(
        is_compatible=is_compatible,
        strategy=policies_pb2.SCHEMA_COMPATIBILITY_FORWARD_TRANSITIVE,
    )

    assert await post(client, f"{PARTED}/compatibility") == (
        200,
        {"compatibility": is_compatible, "schemaCompatibilityStrategy": "FORWARD_TRANSITIVE"},
    )
    assert [(name, request.is_find_only) for name, request in owners.calls] == [(PARTS[0], False)]


@pytest.mark.parametrize(("found", "version"), [({"version": 0}, 0), ({}, -1)])
async def test_the_version_of_a_schema_is_minus_one_if_it_is_none(client, owners, found, version):
    owners.answer = lambda _name, _request: admin_pb.CheckSchemaResponse(**found)

    assert await post(client, f"{PLAIN}/version") == (200, {"version": version})
    assert [request.is_find_only for _, request in owners.calls] == [True]


async def test_all_versions_are_listed_over_several_answers_of_the_broker(client, owners):
    def page(_name: str, request: Any) -> Any:
        version = request.first_version
        schema = admin_pb.TopicSchema(kind=Schema.Bool, properties={"n": str(version)})
        row = admin_pb.SchemaVersion(version=version + 1, schema=schema)
        return admin_pb.ListSchemasResponse(versions=[row], has_more=version < 4)

    owners.answer = page

    listed = await client.call("GET", f"{PARTED}/schemas")

    assert listed.json == {
        "getSchemaResponses": [
            {
                "version": version + 1,
                "type": "BOOLEAN",
                "timestamp": 0,
                "data": "",
                "properties": {"n": str(version)},
            }
            for version in (0, 2, 4)
        ]
    }
    assert {name for name, _ in owners.calls} == {PARTS[0]}


async def test_a_topic_without_schemas_lists_none_and_an_absent_one_is_404(client):
    assert (await client.call("GET", f"{PLAIN}/schemas")).json == {"getSchemaResponses": []}
    assert (await client.call("GET", f"{BASE}/absent/schemas")).status == 404
    assert (await client.call("DELETE", f"{BASE}/absent/schema")).status == 404


# Content ----------------------------------------------------------------------------------------


def test_kinds_have_the_names_of_java():
    java = "NONE STRING JSON PROTOBUF AVRO BOOLEAN INT8 INT16 INT32 INT64 FLOAT DOUBLE DATE TIME"
    more = "TIMESTAMP KEY_VALUE INSTANT LOCAL_DATE LOCAL_TIME LOCAL_DATE_TIME PROTOBUF_NATIVE"

    assert [*TYPE_NAMES.values()] == [*java.split(), *more.split(), "AUTO_CONSUME", "EXTERNAL"]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (
            '{"key":{"type":"string"},"value":""}',
            b'\x00\x00\x00\x11{"type":"string"}\x00\x00\x00\x00',
        ),
        ('{"key":"","value":""}', b"\x00" * 8),
    ],
)
def test_a_pair_of_schemas_is_text_in_json_and_lengths_with_data_inside(text, data):
    assert schema_data(Schema.KeyValue, text) == data
    assert schema_content(0, Schema.KeyValue, data, {})["data"] == text


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x00\x00\x09abc", b"\xff" * 3, b"\x00\x00\x00\x01x" * 2]
)
def test_a_damaged_pair_is_shown_as_it_is(data):
    content = schema_content(0, Schema.KeyValue, data, {})

    assert content["data"] == data.decode("utf-8", "replace")
