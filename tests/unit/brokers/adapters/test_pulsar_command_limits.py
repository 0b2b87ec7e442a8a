"""Legal commands that cost much: at the limit they are served, one beyond they are refused."""

from __future__ import annotations

from typing import Any

from brokers.domain.position import ledger_id_of
from nextgen.kernel.limits.pulsar import (
    ACK_IDS_MAX,
    ACK_SET_WORDS_MAX,
    ACK_WORDS_MAX,
    BROKER_LISTINGS_MAX,
    REDELIVER_IDS_MAX,
    SCHEMA_BYTES_MAX,
    SUBSCRIPTION_PROPERTIES_MAX,
)
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle

LEDGER = ledger_id_of(1, 0)
EARLIEST = {"initialPosition": pulsar.CommandSubscribe.Earliest}


async def consuming(world: BrokerWorld, count: int) -> FakeClient:
    """A Shared consumer that has so many messages, not acknowledged."""
    client = world.broker().client()
    await client.producer(producer_id=99, producer_name="p")
    for number in range(count):
        client.send(number, producer_id=99)
    await client.subscribe(kind=pulsar.CommandSubscribe.Shared, **EARLIEST)
    await client.until_got(pulsar.BaseCommand.MESSAGE, count)
    return client


def ids(count: int, words: int = 0) -> list[pulsar.MessageIdData]:
    return [
        pulsar.MessageIdData(ledgerId=LEDGER, entryId=number, ack_set=[1] * words)
        for number in range(count)
    ]


async def acknowledged(client: FakeClient, given: list[pulsar.MessageIdData]) -> Any:
    return await client.request(pulsar.BaseCommand.ACK, consumer_id=0, ack_type=0, message_id=given)


def partial_of(world: BrokerWorld) -> int:
    subscription = world.broker().topics.get(TOPIC).subscriptions["sub"]
    return len(subscription.cursor.partial)


async def test_ack_ids_max_are_taken_and_one_more_refused(world: BrokerWorld):
    client = await consuming(world, 1)

    refused = await acknowledged(client, ids(ACK_IDS_MAX + 1))
    backlog = world.broker().topics.get(TOPIC).subscriptions["sub"].backlog_entries
    taken = await acknowledged(client, ids(ACK_IDS_MAX))

    assert refused.error == pulsar.NotAllowedError
    assert str(ACK_IDS_MAX) in refused.message
    assert backlog == 1
    assert not taken.HasField("error")
    assert world.broker().topics.get(TOPIC).subscriptions["sub"].is_drained


async def test_an_ack_beyond_ack_ids_max_that_wants_no_answer_ends_the_connection(
    world: BrokerWorld,
):
    client = await consuming(world, 1)

    client.send_raw(
        client.command(
            pulsar.BaseCommand.ACK, consumer_id=0, ack_type=0, message_id=ids(ACK_IDS_MAX + 1)
        )
    )

    assert client.transport.is_closed


async def test_ack_set_words_max_are_taken_in_an_ack_and_one_more_refused(world: BrokerWorld):
    client = await consuming(world, 1)

    refused = await acknowledged(client, ids(1, ACK_SET_WORDS_MAX + 1))
    before = partial_of(world)
    taken = await acknowledged(client, ids(1, ACK_SET_WORDS_MAX))

    assert refused.error == pulsar.NotAllowedError
    assert before == 0
    assert not taken.HasField("error")
    assert partial_of(world) == 1


async def test_ack_words_max_are_taken_in_all_and_one_more_refused(world: BrokerWorld):
    whole, rest = divmod(ACK_WORDS_MAX, ACK_SET_WORDS_MAX)
    client = await consuming(world, whole + 1)
    full = ids(whole, ACK_SET_WORDS_MAX)

    refused = await acknowledged(client, [*full, *ids(whole + 1, rest + 1)[-1:]])
    before = partial_of(world)
    taken = await acknowledged(client, [*full, *ids(whole + 1, rest)[-1:]])

    assert refused.error == pulsar.NotAllowedError
    assert before == 0
    assert not taken.HasField("error")
    assert partial_of(world) == whole + 1


async def test_ack_set_words_max_are_taken_in_a_seek_and_one_more_refused(world: BrokerWorld):
    client = await consuming(world, 1)

    (beyond,) = ids(1, ACK_SET_WORDS_MAX + 1)
    refused = await client.request(pulsar.BaseCommand.SEEK, consumer_id=0, message_id=beyond)
    before = partial_of(world)
    (largest,) = ids(1, ACK_SET_WORDS_MAX)
    taken = await client.request(pulsar.BaseCommand.SEEK, consumer_id=0, message_id=largest)

    assert refused.error == pulsar.NotAllowedError
    assert before == 0
    assert isinstance(taken, pulsar.CommandSuccess)
    assert partial_of(world) == 1


async def test_redeliver_ids_max_are_taken_and_one_more_ends_the_connection(world: BrokerWorld):
    client = await consuming(world, 1)

    def redeliver(count: int) -> None:
        client.send_raw(
            client.command(
                pulsar.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
                consumer_id=0,
                message_ids=ids(count),
            )
        )

    redeliver(REDELIVER_IDS_MAX)
    await client.until_got(pulsar.BaseCommand.MESSAGE, 2)
    was_closed = client.transport.is_closed
    redeliver(REDELIVER_IDS_MAX + 1)
    await settle()

    assert not was_closed
    assert client.transport.is_closed


def properties(count: int) -> list[pulsar.KeyValue]:
    return [pulsar.KeyValue(key=f"k{number}", value="") for number in range(count)]


async def test_subscription_properties_max_are_taken_and_one_more_refused(world: BrokerWorld):
    client = world.broker().client()

    refused = await client.subscribe(
        subscription_properties=properties(SUBSCRIPTION_PROPERTIES_MAX + 1)
    )
    taken = await client.subscribe(subscription_properties=properties(SUBSCRIPTION_PROPERTIES_MAX))

    assert refused.error == pulsar.NotAllowedError
    assert isinstance(taken, pulsar.CommandSuccess)


def schema_of(size: int) -> pulsar.Schema:
    """A schema that takes so many bytes."""
    schema = pulsar.Schema(name="s", type=pulsar.Schema.String, schema_data=b"")
    while (missing := size - schema.ByteSize()) > 0:
        schema.schema_data += b"x" * max(1, missing - 2)
    assert schema.ByteSize() == size
    return schema


async def test_schema_bytes_max_is_taken_of_every_command_and_one_more_refused(
    world: BrokerWorld,
):
    client = world.broker().client()
    largest, beyond = schema_of(SCHEMA_BYTES_MAX), schema_of(SCHEMA_BYTES_MAX + 1)

    refused = [
        await client.producer(producer_id=1, schema=beyond),
        await client.subscribe(consumer_id=1, schema=beyond),
        await client.request(pulsar.BaseCommand.GET_OR_CREATE_SCHEMA, topic=TOPIC, schema=beyond),
    ]
    were_versions = TOPIC in world.directory.owners
    taken = [
        await client.producer(producer_id=2, schema=largest),
        await client.subscribe(consumer_id=2, schema=largest),
        await client.request(pulsar.BaseCommand.GET_OR_CREATE_SCHEMA, topic=TOPIC, schema=largest),
    ]

    assert [each.error for each in refused[:2]] == [pulsar.IncompatibleSchema] * 2
    assert refused[2].error_code == pulsar.IncompatibleSchema
    assert not were_versions
    assert isinstance(taken[0], pulsar.CommandProducerSuccess)
    assert isinstance(taken[1], pulsar.CommandSuccess)
    assert not taken[2].HasField("error_code")


async def test_broker_listings_max_are_under_way_and_one_more_is_refused_for_now(
    world: BrokerWorld,
):
    client = world.broker().client()
    world.directory.released.clear()

    def listing() -> int:
        return client.start(pulsar.BaseCommand.GET_TOPICS_OF_NAMESPACE, namespace="public/default")

    under_way = [listing() for _ in range(BROKER_LISTINGS_MAX)]
    refused = await client.answer(listing())
    world.directory.released.set()
    listed = [await client.answer(request_id) for request_id in under_way]
    again = await client.answer(listing())

    assert refused.error == pulsar.MetadataError
    assert all(isinstance(each, type(again)) for each in listed)
    assert not isinstance(again, pulsar.CommandError)


async def test_a_listing_that_its_client_does_not_wait_for_makes_room(world: BrokerWorld):
    broker = world.broker()
    impatient = broker.client()
    world.directory.released.clear()
    for _ in range(BROKER_LISTINGS_MAX):
        impatient.start(pulsar.BaseCommand.GET_TOPICS_OF_NAMESPACE, namespace="public/default")

    impatient.leave()
    await settle()
    world.directory.released.set()
    answer = await broker.client().request(
        pulsar.BaseCommand.GET_TOPICS_OF_NAMESPACE, namespace="public/default"
    )

    assert not isinstance(answer, pulsar.CommandError)
