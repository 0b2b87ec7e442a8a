"""Schemas that are asked for at discovery, and read at the brokers that serve the topics."""

import asyncio
import math
from collections.abc import AsyncIterator

import pytest

from nextgen.client.brokers import channels as broker_channels
from nextgen.client.brokers import schemas as broker_schemas
from nextgen.client.brokers.schemas import BrokerSchemas
from nextgen.client.wire.errors import abort
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Refused, Unavailable
from nextgen.pulsar.metadata_commands import StoredSchema
from nextgen.runtime.servers.grpc_server import new_server
from protos.nextgen.v1 import broker_service_pb2 as pb
from protos.nextgen.v1 import broker_service_pb2_grpc
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.integration.discovery.conftest import Site

TOPIC = "persistent://acme/orders/paid"
VERSION = (3).to_bytes(8, "big")


class FakeBroker(broker_service_pb2_grpc.BrokerServiceServicer):
    """Knows one schema."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self.error: MetadataError | None = None
        self.hangs = False
        self.endpoint = ""
        self._server = new_server([])
        broker_service_pb2_grpc.add_BrokerServiceServicer_to_server(self, self._server.server)

    async def start(self) -> None:
        self.endpoint = f"127.0.0.1:{await self._server.start('127.0.0.1', 0, 'a test')}"

    async def stop(self) -> None:
        await self._server.stop(grace_ms=0)

    async def GetSchema(self, request, context):
        self.asked.append((request.topic, request.version))
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            await abort(context, self.error)
        if request.version not in {b"", VERSION}:
            return pb.GetSchemaResponse(found=False)
        return pb.GetSchemaResponse(
            found=True, version=VERSION, name="paid", kind=4, data=b"{}", properties={"a": "b"}
        )


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    broker = FakeBroker()
    await broker.start()
    yield broker
    await broker.stop()


@pytest.fixture
async def schemas() -> AsyncIterator[BrokerSchemas]:
    schemas = BrokerSchemas()
    yield schemas
    await schemas.stop()


def assign(site: Site, broker: FakeBroker, topic: str = TOPIC) -> None:
    site.assign(topic)
    site.shard_of(topic).assignments[topic].broker_grpc = broker.endpoint


async def asked(site: Site, topic: str = TOPIC, **more) -> pulsar.CommandGetSchemaResponse:
    command = BaseCommand(
        type=BaseCommand.GET_SCHEMA, getSchema=pulsar.CommandGetSchema(topic=topic, **more)
    )
    async with await site.connect() as client:
        return (await client.request(command)).getSchemaResponse


async def test_a_schema_comes_from_the_broker_that_serves_the_topic(site, broker):
    assign(site, broker)

    response = await asked(site)

    assert broker.asked == [(TOPIC, b"")]
    assert response.schema_version == VERSION
    assert response.schema.type == pulsar.Schema.Avro
    assert response.schema.schema_data == b"{}"
    assert [(each.key, each.value) for each in response.schema.properties] == [("a", "b")]


async def test_a_version_that_is_not_there_is_a_topic_not_found(site, broker):
    assign(site, broker)

    assert (await asked(site, schema_version=VERSION)).schema.name == "paid"
    absent = await asked(site, schema_version=(4).to_bytes(8, "big"))
    assert absent.error_code == pulsar.TopicNotFound


async def test_of_a_topic_with_partitions_it_is_that_of_the_first(site, broker):
    assign(site, broker, f"{TOPIC}-partition-0")

    async def partitioned(request):
        response = site.server._answer_from_dictionaries(request)
        for answer in response.lookup.answers:
            if answer.topic == TOPIC:
                answer.rejection_code = "PARTITIONED"
        return response

    site.server.hook = partitioned

    assert (await asked(site)).schema.name == "paid"
    assert broker.asked == [(f"{TOPIC}-partition-0", b"")]


async def test_the_schema_of_a_topic_that_was_created_elsewhere_is_not_missed(site, broker):
    """1. This node knows that the topic is absent. 2. It is created through another one. 3. Before
    this node hears of it, a client requests the schema."""
    core, shard_id = site.node.core, site.shard_of(TOPIC).shard_id
    core.absent.created(shard_id, (), position=0)
    core.absent.renew(shard_id, math.inf)
    assert (await asked(site)).error_code == pulsar.TopicNotFound
    assert len(core.absent) == 1
    site.shard_of(TOPIC).watchers.clear()
    assign(site, broker)

    assert (await asked(site)).schema.name == "paid"


async def test_a_topic_that_does_not_exist_has_none(site):
    assert (await asked(site)).error_code == pulsar.TopicNotFound


async def test_a_broker_that_is_gone_is_trouble_that_passes(site, broker):
    assign(site, broker)
    await broker.stop()

    assert (await asked(site)).error_code == pulsar.MetadataError


async def test_what_a_broker_refuses_is_refused_with_its_reason(schemas, broker):
    broker.error = Refused("NOT_FOUND", "it is not served here")

    with pytest.raises(Refused, match="it is not served here"):
        await schemas.read(broker.endpoint, TOPIC, None)


async def test_a_broker_that_hangs_costs_a_deadline(schemas, broker, monkeypatch):
    broker.hangs = True

    with monkeypatch.context() as patched:
        patched.setattr(broker_schemas, "REQUEST_TIMEOUT_DEFAULT_MS", 100)
        with pytest.raises(DeadlineExceeded):
            await schemas.read(broker.endpoint, TOPIC, None)
    broker.hangs = False
    assert await schemas.read(broker.endpoint, TOPIC, VERSION) == StoredSchema(
        VERSION, "paid", 4, b"{}", {"a": "b"}
    )


async def test_a_broker_without_an_address_is_trouble_that_passes(schemas):
    with pytest.raises(Unavailable):
        await schemas.read("", TOPIC, None)


@pytest.mark.parametrize("channels_max", [1, 2, 3])
async def test_broker_channels_max_are_open_and_one_more_closes_the_least_used(
    schemas, broker, monkeypatch, channels_max
):
    monkeypatch.setattr(broker_channels, "BROKER_CHANNELS_MAX", channels_max)
    others = [FakeBroker() for _ in range(2)]
    for other in others:
        await other.start()

    for each in (broker, *others, broker):
        assert (await schemas.read(each.endpoint, TOPIC, None)) is not None
        assert len(schemas._channels) <= channels_max
    assert len(schemas._channels) == channels_max

    assert list(schemas._channels)[-1] == broker.endpoint
    for other in others:
        await other.stop()
