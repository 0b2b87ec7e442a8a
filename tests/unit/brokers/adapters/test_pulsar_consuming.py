"""SUBSCRIBE and what follows it, command by command. Dispatch has tests of its own."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.domain.position import ledger_id_of
from brokers.ports.ledger import LedgerDamaged, StorageFailed
from nextgen.kernel.limits.pulsar import (
    CONSUMER_PERMITS_MAX,
    SUBSCRIPTION_NAME_BYTES_MAX,
    VOLATILE_BYTES_MAX,
)
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle

LEDGER = ledger_id_of(1, 0)
EARLIEST = {"initialPosition": pulsar.CommandSubscribe.Earliest}
VOLATILE = "non-persistent://public/default/ticks"


async def produced(world: BrokerWorld, count: int, topic: str = TOPIC) -> FakeClient:
    """A client that has sent so many messages."""
    client = world.broker().client()
    await client.producer(topic, producer_id=99, producer_name="p")
    for number in range(count):
        client.send(number, b"%d" % number, producer_id=99)
    await client.receipts(count)
    return client


def places(messages: list[Any]) -> list[tuple[int, int]]:
    return [(each.message_id.ledgerId, each.message_id.entryId) for each in messages]


async def test_a_consumer_gets_what_is_stored_and_what_comes(world: BrokerWorld):
    client = await produced(world, 2)

    success = await client.subscribe(**EARLIEST)
    await client.until_got(pulsar.BaseCommand.MESSAGE, 2)
    client.send(2, producer_id=99)
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 3)

    assert isinstance(success, pulsar.CommandSuccess)
    assert places(messages) == [(LEDGER, 0), (LEDGER, 1), (LEDGER, 2)]
    assert {each.consumer_id for each in messages} == {0}


async def test_payloads_come_back_as_they_went(world: BrokerWorld):
    client = await produced(world, 1)
    await client.subscribe(**EARLIEST)
    await client.until_got(pulsar.BaseCommand.MESSAGE)

    sent = world.broker().ledger().appended[0].payload

    assert b"".join(client.transport.writes).count(sent) == 1


async def test_nothing_is_sent_that_was_not_asked_for(world: BrokerWorld):
    client = await produced(world, 5)
    await client.subscribe(permits=2, **EARLIEST)
    await settle()
    assert len(client.got(pulsar.BaseCommand.MESSAGE)) == 2

    client.send_raw(client.command(pulsar.BaseCommand.FLOW, consumer_id=0, messagePermits=1))
    await settle()
    assert len(client.got(pulsar.BaseCommand.MESSAGE)) == 3


async def test_a_flow_beyond_all_measure_ends_the_connection(world: BrokerWorld):
    client = world.broker().client()
    await client.subscribe(permits=CONSUMER_PERMITS_MAX)
    assert not client.transport.is_closed

    client.send_raw(client.command(pulsar.BaseCommand.FLOW, consumer_id=0, messagePermits=1))

    assert client.transport.is_closed


async def test_flow_ack_and_redelivery_of_an_unknown_consumer_are_ignored(world: BrokerWorld):
    client = world.broker().client()

    client.send_raw(client.command(pulsar.BaseCommand.FLOW, consumer_id=3, messagePermits=1))
    client.send_raw(
        client.command(pulsar.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=3)
    )
    client.send_raw(client.command(pulsar.BaseCommand.ACK, consumer_id=3, ack_type=0))

    assert not client.transport.is_closed
    assert client.kinds == ["CONNECTED"]


async def test_an_ack_is_answered_when_it_is_durable(world: BrokerWorld):
    client = await produced(world, 1)
    await client.subscribe(**EARLIEST)
    (message,) = await client.until_got(pulsar.BaseCommand.MESSAGE)

    asked = client.ack(message)
    answer = await client.answer(asked)

    assert not answer.HasField("error")
    assert answer.consumer_id == 0
    stored = world.broker().ledger().inner._unit.state["cursor/sub"]
    client.leave()
    await settle()
    again = world.broker().client()
    await again.subscribe()
    await settle()
    assert not again.got(pulsar.BaseCommand.MESSAGE)
    assert stored == world.broker().ledger().inner._unit.state["cursor/sub"]


async def test_an_ack_that_cannot_be_stored_says_so(world: BrokerWorld):
    client = await produced(world, 1)
    await client.subscribe(**EARLIEST)
    (message,) = await client.until_got(pulsar.BaseCommand.MESSAGE)
    world.broker().ledger().failure = StorageFailed("no space left")

    answer = await client.answer(client.ack(message))

    assert answer.error == pulsar.PersistenceError


async def test_a_cumulative_ack_of_shared_consumers_is_refused(world: BrokerWorld):
    client = await produced(world, 1)
    await client.subscribe(kind=pulsar.CommandSubscribe.Shared, **EARLIEST)
    (message,) = await client.until_got(pulsar.BaseCommand.MESSAGE)

    answer = await client.answer(client.ack(message, is_cumulative=True))

    assert answer.error == pulsar.NotAllowedError


async def test_an_ack_in_a_transaction_is_refused(world: BrokerWorld):
    client = await produced(world, 1)
    await client.subscribe(**EARLIEST)
    (message,) = await client.until_got(pulsar.BaseCommand.MESSAGE)

    answer = await client.request(
        pulsar.BaseCommand.ACK,
        consumer_id=0,
        ack_type=0,
        message_id=[message.message_id],
        txnid_least_bits=1,
        txnid_most_bits=2,
    )

    assert (answer.error, answer.txnid_most_bits) == (pulsar.NotAllowedError, 2)


async def test_what_is_not_acknowledged_is_sent_again_when_asked_for(world: BrokerWorld):
    client = await produced(world, 2)
    await client.subscribe(kind=pulsar.CommandSubscribe.Shared, **EARLIEST)
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 2)

    client.send_raw(
        client.command(
            pulsar.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
            consumer_id=0,
            message_ids=[messages[1].message_id],
        )
    )
    again = await client.until_got(pulsar.BaseCommand.MESSAGE, 3)

    assert places(again)[2] == (LEDGER, 1)
    assert again[2].redelivery_count == 1


async def test_a_second_exclusive_consumer_is_refused(world: BrokerWorld):
    client, other = world.broker().client(), world.broker().client()
    await client.subscribe()

    refused = await other.subscribe()

    assert refused.error == pulsar.ConsumerBusy


async def test_the_same_consumer_again_succeeds_again(world: BrokerWorld):
    client = world.broker().client()
    await client.subscribe()

    again = await client.subscribe()

    assert (type(again), again.request_id) == (pulsar.CommandSuccess, 2)


async def test_a_consumer_that_is_being_connected_is_not_connected_twice(world: BrokerWorld):
    client = world.broker().client()
    world.broker().store.released.clear()
    first = client.start(
        pulsar.BaseCommand.SUBSCRIBE, topic=TOPIC, subscription="s", subType=0, consumer_id=0
    )

    refused = await client.subscribe()
    world.broker().store.released.set()

    assert refused.error == pulsar.ServiceNotReady
    assert isinstance(await client.answer(first), pulsar.CommandSuccess)


async def test_a_consumer_that_gives_up_while_it_is_connected_leaves_nothing(world: BrokerWorld):
    client = world.broker().client()
    world.broker().store.released.clear()
    client.start(
        pulsar.BaseCommand.SUBSCRIBE, topic=TOPIC, subscription="s", subType=0, consumer_id=0
    )
    await settle()

    await client.request(pulsar.BaseCommand.CLOSE_CONSUMER, consumer_id=0)
    world.broker().store.released.set()
    await settle()

    assert client.kinds == ["CONNECTED", "SUCCESS"]
    assert world.broker().topics.get(TOPIC).consumers == 0


async def test_a_closed_consumer_makes_room_for_another(world: BrokerWorld):
    client = world.broker().client()
    await client.subscribe()

    closed = await client.request(pulsar.BaseCommand.CLOSE_CONSUMER, consumer_id=0)
    unknown = await client.request(pulsar.BaseCommand.CLOSE_CONSUMER, consumer_id=7)

    assert isinstance(closed, pulsar.CommandSuccess)
    assert isinstance(unknown, pulsar.CommandSuccess)
    assert isinstance(await world.broker().client().subscribe(), pulsar.CommandSuccess)


async def test_a_failover_consumer_learns_behind_the_answer_whether_it_is_active(
    world: BrokerWorld,
):
    client = world.broker().client()
    await client.subscribe(kind=pulsar.CommandSubscribe.Failover)
    await settle()

    assert client.kinds == ["CONNECTED", "SUCCESS", "ACTIVE_CONSUMER_CHANGE"]
    assert client.got(pulsar.BaseCommand.ACTIVE_CONSUMER_CHANGE)[0].is_active


async def test_an_old_client_is_not_notified_of_the_active_consumer(world: BrokerWorld):
    client = world.broker().client(protocol_version=11)
    await client.subscribe(kind=pulsar.CommandSubscribe.Failover)
    await settle()

    assert client.kinds == ["CONNECTED", "SUCCESS"]


async def test_a_reader_begins_where_it_says_and_leaves_nothing(world: BrokerWorld):
    client = await produced(world, 4)

    await client.subscribe(
        "reader",
        durable=False,
        start_message_id=pulsar.MessageIdData(ledgerId=LEDGER, entryId=2),
    )
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 2)
    await client.request(pulsar.BaseCommand.CLOSE_CONSUMER, consumer_id=0)

    assert places(messages) == [(LEDGER, 2), (LEDGER, 3)]
    assert world.broker().topics.get(TOPIC).subscriptions == {}
    assert world.broker().ledger().state == {}


async def test_a_subscription_is_durable_or_not(world: BrokerWorld):
    client = world.broker().client()
    await client.subscribe("s", kind=pulsar.CommandSubscribe.Shared)

    refused = await client.subscribe(
        "s", consumer_id=1, kind=pulsar.CommandSubscribe.Shared, durable=False
    )

    assert refused.error == pulsar.NotAllowedError


async def test_the_last_message_is_answered_with_its_batch_index(world: BrokerWorld):
    client = world.broker().client()
    await client.subscribe()

    async def last() -> Any:
        return await client.request(pulsar.BaseCommand.GET_LAST_MESSAGE_ID, consumer_id=0)

    empty = await last()
    await client.producer(producer_id=1)
    client.send(0, producer_id=1)
    await client.receipts(1)
    single = await last()
    client.send(1, producer_id=1, with_num_messages_in_batch=3)
    await client.receipts(2)
    batch = await last()

    nowhere = 2**64 - 1
    assert (empty.last_message_id.ledgerId, empty.last_message_id.entryId) == (nowhere, nowhere)
    assert single.last_message_id == pulsar.MessageIdData(
        ledgerId=LEDGER, entryId=0, partition=-1, batch_index=-1
    )
    assert batch.last_message_id == pulsar.MessageIdData(
        ledgerId=LEDGER, entryId=1, partition=-1, batch_index=2
    )
    assert batch.consumer_mark_delete_position.ledgerId == nowhere


async def test_messages_of_a_partition_say_which(world: BrokerWorld):
    topic = f"{TOPIC}-partition-3"
    world.directory.topics.add(topic)
    client = await produced(world, 1, topic)

    await client.subscribe(topic=topic, **EARLIEST)
    (message,) = await client.until_got(pulsar.BaseCommand.MESSAGE)
    last = await client.request(pulsar.BaseCommand.GET_LAST_MESSAGE_ID, consumer_id=0)

    assert message.message_id.partition == last.last_message_id.partition == 3


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (pulsar.BaseCommand.UNSUBSCRIBE, {}),
        (pulsar.BaseCommand.SEEK, {"message_publish_time": 1}),
        (pulsar.BaseCommand.GET_LAST_MESSAGE_ID, {}),
    ],
)
async def test_a_question_about_an_unknown_consumer_is_refused(
    world: BrokerWorld, kind: int, fields: dict[str, Any]
):
    refused = await world.broker().client().request(kind, consumer_id=5, **fields)

    assert refused.error == pulsar.MetadataError


async def test_an_unsubscribed_subscription_is_gone(world: BrokerWorld):
    client = await produced(world, 1)
    await client.subscribe(**EARLIEST)

    await client.request(pulsar.BaseCommand.UNSUBSCRIBE, consumer_id=0)

    assert world.broker().ledger().inner._unit.state == {}
    assert not client.got(pulsar.BaseCommand.CLOSE_CONSUMER)
    await client.subscribe()
    await settle()
    assert len(client.got(pulsar.BaseCommand.MESSAGE)) <= 1, "it began at the end"


async def test_an_id_that_is_used_again_while_its_subscription_is_deleted_stays(
    world: BrokerWorld,
):
    client = world.broker().client()
    await client.subscribe()

    client.start(pulsar.BaseCommand.UNSUBSCRIBE, consumer_id=0)
    client.start(pulsar.BaseCommand.CLOSE_CONSUMER, consumer_id=0)
    await client.subscribe("other")
    await settle()
    client.leave()
    await settle()

    assert world.broker().topics.get(TOPIC).consumers == 0


async def test_a_subscription_with_other_consumers_is_not_deleted(world: BrokerWorld):
    client = world.broker().client()
    await client.subscribe(kind=pulsar.CommandSubscribe.Shared)
    await client.subscribe(consumer_id=1, kind=pulsar.CommandSubscribe.Shared)

    refused = await client.request(pulsar.BaseCommand.UNSUBSCRIBE, consumer_id=0)

    assert refused.error == pulsar.MetadataError
    assert "sub" in world.broker().topics.get(TOPIC).subscriptions


async def test_a_seek_closes_the_consumer_and_then_succeeds(world: BrokerWorld):
    client = await produced(world, 3)
    await client.subscribe(**EARLIEST)
    await client.until_got(pulsar.BaseCommand.MESSAGE, 3)

    await client.request(
        pulsar.BaseCommand.SEEK,
        consumer_id=0,
        message_id=pulsar.MessageIdData(ledgerId=LEDGER, entryId=1),
    )
    assert client.kinds[-2:] == ["CLOSE_CONSUMER", "SUCCESS"]
    await client.subscribe()
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 5)

    assert places(messages)[3:] == [(LEDGER, 1), (LEDGER, 2)]


async def test_a_seek_to_a_time_goes_to_what_was_published_then(world: BrokerWorld):
    client = await produced(world, 2)
    world.wall_clock_ms += 60_000
    client.send(2, producer_id=99)
    await client.receipts(3)
    await client.subscribe()

    await client.request(
        pulsar.BaseCommand.SEEK, consumer_id=0, message_publish_time=world.wall_clock_ms - 1_000
    )
    await client.subscribe()
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE)

    assert places(messages) == [(LEDGER, 2)]


async def test_a_consumer_is_told_how_it_is_doing(world: BrokerWorld):
    client = await produced(world, 2)
    await client.subscribe(
        kind=pulsar.CommandSubscribe.Shared, permits=10, consumer_name="c", **EARLIEST
    )
    await client.until_got(pulsar.BaseCommand.MESSAGE, 2)

    stats = await client.request(pulsar.BaseCommand.CONSUMER_STATS, consumer_id=0)
    unknown = await client.request(pulsar.BaseCommand.CONSUMER_STATS, consumer_id=4)

    assert (stats.consumerName, stats.availablePermits) == ("c", 8)
    assert (stats.unackedMessages, stats.msgBacklog, stats.type) == (2, 2, "Shared")
    assert unknown.error_code == pulsar.ConsumerNotFound


async def test_a_client_that_does_not_read_gets_no_more_until_it_does(world: BrokerWorld):
    producer = world.broker().client()
    await producer.producer()
    client = world.broker().client()
    await client.subscribe()
    client.transport.is_read = False

    for number in range(40):
        producer.send(number, b"x" * 2**20)
        await producer.receipts(number + 1)
    await settle()
    sent = len(client.got(pulsar.BaseCommand.MESSAGE))
    assert sent < 40
    assert not client.transport.was_aborted

    client.transport.is_read = True
    client.transport.drain()
    assert len(await client.until_got(pulsar.BaseCommand.MESSAGE, 40)) == 40


@pytest.mark.parametrize(
    "name", ["", "n" * (SUBSCRIPTION_NAME_BYTES_MAX + 1)], ids=["none", "too long"]
)
async def test_subscription_names_have_limits(world: BrokerWorld, name: str):
    client = world.broker().client()

    refused = await client.subscribe(name)

    assert refused.error == pulsar.NotAllowedError
    longest = await client.subscribe("n" * SUBSCRIPTION_NAME_BYTES_MAX)
    assert isinstance(longest, pulsar.CommandSuccess)


async def test_a_topic_that_is_not_there_is_created_only_if_the_client_allows(world: BrokerWorld):
    client = world.broker().client()

    refused = await client.subscribe(force_topic_creation=False)

    assert refused.error == pulsar.TopicNotFound
    assert isinstance(await client.subscribe(), pulsar.CommandSuccess)


async def test_what_is_not_persistent_goes_to_who_is_there(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(VOLATILE, producer_id=1, producer_name="p")
    client.send(0, producer_id=1)
    await client.receipts(1)
    await client.subscribe(topic=VOLATILE, **EARLIEST)
    client.send(1, b"here", producer_id=1)
    client.send(1, b"here", producer_id=1)

    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 2)

    assert [entry for _, entry in places(messages)] == [1, 2], "nothing is told apart"
    assert await client.receipts(3) == [(0, 0, 0), (1, 0, 0), (1, 0, 0)]
    client.leave()
    await settle()
    assert world.broker().topics.get(VOLATILE).subscriptions == {}
    assert world.disk.units == {}


async def test_what_is_not_persistent_has_a_limit_and_ends_with_the_topic(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(VOLATILE, producer_id=1, producer_name="p")
    quarter = b"x" * (VOLATILE_BYTES_MAX // 4 - 1_000)
    kept = []
    for number in range(5):
        client.send(number, quarter, producer_id=1)
        await client.receipts(number + 1)
        kept.append(world.broker().ledger(VOLATILE).entry_count)

    await world.broker().topics.close_topic(world.broker().topics.get(VOLATILE))

    assert kept == [1, 2, 3, 4, 4]
    assert world.broker().volatile._shared.units == {}


async def test_volatile_bytes_total_max_are_kept_and_of_more_the_newest_entry(
    world: BrokerWorld,
):
    """Beyond it a topic keeps its newest entry only, which consumers that keep up have had."""
    client = world.broker().client()
    volatile = world.broker().volatile
    names = [f"{VOLATILE}-{number}" for number in range(3)]
    for number, name in enumerate(names):
        await client.producer(name, producer_id=number, producer_name="p")
    size = len(b"x" * 1_000)
    volatile.total_bytes_max = 8 * size

    for sequence_id in range(3):
        for number in range(3):
            client.send(sequence_id, b"x" * size, producer_id=number)
    await client.receipts(9)
    counts = [world.broker().ledger(name).entry_count for name in names]
    for name in names:
        await world.broker().topics.close_topic(world.broker().topics.get(name))

    assert counts == [3, 3, 1]
    assert volatile._shared.byte_count == 0


async def test_damage_stops_the_topic_and_says_where(world: BrokerWorld):
    client = await produced(world, 1)
    ledger = world.broker().ledger()
    ledger.inner.read_recent = lambda *_, **__: None

    async def damaged(*_: Any, **__: Any) -> Any:
        raise LedgerDamaged("checksum of 1048576:0")

    ledger.inner.read = damaged
    await client.subscribe(**EARLIEST)
    await client.until_got(pulsar.BaseCommand.CLOSE_CONSUMER)
    await client.until_got(pulsar.BaseCommand.CLOSE_PRODUCER)
    await settle()

    refused = await client.producer()

    assert refused.error == pulsar.PersistenceError
    assert "checksum of 1048576:0" in refused.message
