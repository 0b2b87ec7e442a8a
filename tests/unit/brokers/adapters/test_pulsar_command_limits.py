"""Legal commands that cost much: at the limit they are served, one beyond they are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from brokers.domain.position import ledger_id_of
from nextgen.kernel.pulsar_limits import (
    ACK_IDS_MAX,
    ACK_SET_WORDS_MAX,
    ACK_WORDS_MAX,
    REDELIVER_IDS_MAX,
)
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.broker_world import TOPIC, BrokerWorld, FakeClient, settle

LEDGER = ledger_id_of(1, 0)
EARLIEST = {"initialPosition": pulsar.CommandSubscribe.Earliest}


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    yield world
    await world.stop()


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
    return len(subscription._cursor.partial)


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
