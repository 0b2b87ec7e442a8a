"""Single messages over HTTP: their bytes, and their metadata in headers."""

from __future__ import annotations

import json
import zlib
from typing import Any

import cramjam
import pytest

from discovery.adapters.resources.topic_catalogue import topic_routes
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.rest import REST_MESSAGE_HEADERS_BYTES_MAX
from nextgen.pulsar.payload import message_payload
from protos.nextgen.v1 import topic_admin_pb2 as admin_pb
from protos.nextgen.v1.broker_service_pb2 import MessagePosition
from protos.pulsar.PulsarApi_pb2 import CompressionType, EncryptionKeys, KeyValue, MessageMetadata
from tests.support.discovery.fake_owners import FakeOwners
from tests.support.discovery.fake_topics import FakeInventory
from tests.support.discovery.rest_server import serving

PLAIN = "/admin/v2/persistent/acme/orders/plain"
PEEK = f"{PLAIN}/subscription/s/position/2"


@pytest.fixture
def owners() -> FakeOwners:
    return FakeOwners()


@pytest.fixture
async def client(owners: FakeOwners):
    inventory: Any = FakeInventory()
    inventory.add("persistent://acme/orders/plain")
    inventory.add("persistent://acme/orders/parted", 2)
    inventory.add("non-persistent://acme/orders/plain")
    async with serving(topic_routes(owners, inventory, inventory, inventory)) as client:
        yield client


def entry(body: bytes = b"hello", **more: Any) -> admin_pb.StoredEntry:
    metadata = MessageMetadata(
        producer_name="p-1", sequence_id=7, publish_time=1_700_000_000_000, **more
    )
    payload = message_payload(metadata, body)
    return admin_pb.StoredEntry(
        position=MessagePosition(ledger_id=4, entry_id=9), payload=payload, message_count=1
    )


def headers_of(reply: Any) -> dict[str, str]:
    names = (name for name in reply.headers if name.startswith("X-Pulsar-"))
    return {name.removeprefix("X-Pulsar-"): reply.headers[name] for name in names}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PEEK, admin_pb.PeekMessageRequest(subscription="s", number=2)),
        (
            f"{PLAIN}/ledger/4/entry/9",
            admin_pb.GetMessageRequest(position=MessagePosition(ledger_id=4, entry_id=9)),
        ),
        (
            f"{PLAIN}/examinemessage?initialPosition=earliest&messagePosition=3",
            admin_pb.ExamineMessageRequest(number=3),
        ),
        (f"{PLAIN}/examinemessage", admin_pb.ExamineMessageRequest(from_latest=True, number=1)),
    ],
)
async def test_a_message_is_found_as_the_path_says(client, owners, path, expected):
    owners.answer = lambda _name, _request: entry(num_messages_in_batch=3, partition_key="k")

    reply = await client.call("GET", path, headers={"Accept": "application/json"})

    assert (reply.status, reply.body) == (200, b"hello")
    assert reply.headers["Content-Type"] == "application/octet-stream"
    assert [request for _, request in owners.calls] == [expected]
    assert headers_of(reply) == {
        "Message-ID": "4:9",
        "batch-size": "5",
        "num-batch-message": "3",
        "publish-time": "2023-11-14T22:13:20.000Z",
        "producer-name": "p-1",
        "sequence-id": "7",
        "Is-Encrypted": "false",
        "uncompressed-size": "0",
        "partition-key": "k",
        "partition-key-b64-encoded": "false",
    }


async def test_properties_are_headers_and_hostile_ones_are_harmless(client, owners):
    properties = [
        KeyValue(key="color", value="rot grün"),
        KeyValue(key="evil", value="a\r\nSet-Cookie: x"),
        KeyValue(key="a\r\nb", value="x"),
        KeyValue(key="with space", value="x"),
        KeyValue(key="ü", value="x"),
    ]
    owners.answer = lambda _name, _request: entry(properties=properties, event_time=2**63)

    reply = await client.call("GET", PEEK)

    headers = headers_of(reply)
    assert reply.status == 200
    assert {name for name in headers if name.startswith("PROPERTY")} == (
        {"PROPERTY", "PROPERTY-color", "PROPERTY-evil"}
    )
    assert json.loads(headers["PROPERTY"]) == {each.key: each.value for each in properties}
    assert headers["PROPERTY-evil"] == "a  Set-Cookie: x"
    assert headers["event-time"] == str(2**63)
    assert "Set-Cookie" not in reply.headers


@pytest.mark.parametrize("excess", [0, 1])
async def test_rest_message_headers_bytes_max_are_sent_and_beyond_it_properties_are_left_out(
    client, owners, excess
):
    owners.answer = lambda _name, _request: entry()
    before = headers_of(await client.call("GET", PEEK))
    sizes = [len(f"X-Pulsar-{name}") + len(value) for name, value in before.items()]
    room = REST_MESSAGE_HEADERS_BYTES_MAX - sum(sizes) - len("X-Pulsar-PROPERTY-k")
    properties = [KeyValue(key="k", value="x" * (room + excess))]
    owners.answer = lambda _name, _request: entry(properties=properties)

    reply = await client.call("GET", PEEK)

    assert ("PROPERTY-k" in headers_of(reply)) == (not excess)
    assert headers_of(reply).keys() >= before.keys()


@pytest.mark.parametrize(
    ("compression", "body"),
    [
        (CompressionType.ZLIB, zlib.compress(b"hello")),
        (CompressionType.LZ4, bytes(cramjam.lz4.compress_block(b"hello", store_size=False))),
        (CompressionType.ZSTD, bytes(cramjam.zstd.compress(b"hello"))),
        (CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(b"hello"))),
    ],
)
async def test_what_a_client_compressed_is_answered_as_it_was_before(
    client, owners, compression, body
):
    owners.answer = lambda _name, _request: entry(
        body, compression=compression, uncompressed_size=5
    )

    reply = await client.call("GET", PEEK)

    assert (reply.status, reply.body) == (200, b"hello")
    headers = headers_of(reply)
    assert (headers["batch-size"], headers["uncompressed-size"]) == ("5", "5")


@pytest.mark.parametrize(
    "compression",
    [CompressionType.LZ4, CompressionType.ZLIB, CompressionType.ZSTD, CompressionType.SNAPPY],
)
async def test_a_damaged_body_is_refused(client, owners, compression):
    owners.answer = lambda _name, _request: entry(
        b"???", compression=compression, uncompressed_size=5
    )

    assert (await client.call("GET", PEEK)).status == 422


async def test_an_encrypted_message_is_answered_as_it_is_stored(client, owners):
    body = zlib.compress(b"hello")
    owners.answer = lambda _name, _request: entry(
        body,
        compression=CompressionType.ZLIB,
        uncompressed_size=5,
        encryption_keys=[EncryptionKeys(key="k", value=b"v")],
    )

    reply = await client.call("GET", PEEK)

    assert (reply.status, reply.body) == (200, body)
    assert headers_of(reply)["Is-Encrypted"] == "true"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/admin/v2/persistent/acme/orders/none/ledger/1/entry/1", 404),
        ("/admin/v2/persistent/acme/orders/parted/ledger/1/entry/1", 405),
        ("/admin/v2/non-persistent/acme/orders/plain/ledger/1/entry/1", 405),
        (f"{PLAIN}/ledger/-1/entry/1", 412),
        (f"{PLAIN}/ledger/1/entry/9223372036854775808", 412),
        (f"{PLAIN}/examinemessage?initialPosition=middle", 412),
        (f"{PLAIN}/examinemessage?messagePosition=first", 412),
    ],
)
async def test_what_cannot_be_is_refused_before_a_broker_is_called(client, owners, path, code):
    assert (await client.call("GET", path)).status == code
    assert not owners.calls


async def test_a_message_that_is_not_there_is_404(client, owners):
    owners.answer = lambda _name, _request: Refused(RejectionCode.NOT_FOUND, "no such entry")

    assert (await client.call("GET", PEEK)).status == 404
