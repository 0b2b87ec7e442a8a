"""What clients can do to a topic at the worst moment, and with the worst numbers."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from brokers.domain.position import ledger_id_of
from brokers.ports.ledger import LedgerDamaged, StorageFailed
from nextgen.kernel.limits.pulsar import (
    LIVENESS_CHECK_MS,
    SCHEMA_BYTES_MAX,
    STICKY_RANGES_MAX,
    SUBSCRIPTION_PROPERTIES_BYTES_MAX,
    TOPIC_DRAIN_MS_MAX,
)
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle, until
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

LEDGER = ledger_id_of(1, 0)
EARLIEST = {"initialPosition": pulsar.CommandSubscribe.Earliest}
SHARED = pulsar.CommandSubscribe.Shared
KEY_SHARED = pulsar.CommandSubscribe.Key_Shared
INT32_MAX = 2**31 - 1


async def with_messages(world: BrokerWorld, count: int, **subscribing: object) -> FakeClient:
    """A client that has sent so many messages and received them."""
    client = world.broker().client()
    await client.producer(producer_name="p")
    await client.subscribe(**subscribing)
    for number in range(count):
        client.send(number)
    await client.until_got(pulsar.BaseCommand.MESSAGE, count)
    return client


# Sequence ids ------------------------------------------------------------------------------------


async def test_a_client_that_numbers_its_sends_and_not_its_messages_loses_none(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_name="p")

    for number in range(4):
        client.send(number, with_num_messages_in_batch=100 - number)
    receipts = await client.receipts(4)
    client.send(3, with_num_messages_in_batch=97)

    assert receipts == [(number, LEDGER, number) for number in range(4)]
    assert (await client.receipts(5))[4] == (3, -1, -1)


async def test_a_topics_epoch_cannot_be_driven_to_its_end(world: BrokerWorld):
    client = world.broker().client()
    exclusive = {"producer_access_mode": pulsar.Exclusive}

    refused = await client.producer(topic_epoch=2**64 - 1, **exclusive)
    granted = await client.producer(**exclusive)

    assert refused.error == pulsar.NotAllowedError
    assert granted.topic_epoch == 0


# Numbers in acknowledgements and seeks -----------------------------------------------------------


@pytest.mark.parametrize("batch_size", [-1, -(2**31), INT32_MAX])
async def test_a_batch_size_that_is_none_does_no_harm(world: BrokerWorld, batch_size: int):
    client = await with_messages(world, 1)
    (message,) = client.got(pulsar.BaseCommand.MESSAGE)
    message.message_id.ack_set.append(1)
    message.message_id.batch_size = batch_size

    answer = await client.answer(client.ack(message))

    assert not answer.HasField("error")
    assert client.connection.is_open


@pytest.mark.parametrize("entry_id", [2**63, 2**64 - 1, 2**64 - 2, 2**63 - 1])
@pytest.mark.parametrize("ledger_id", [LEDGER, 0, 2**63, 2**64 - 2])
async def test_a_seek_to_any_number_is_answered(world: BrokerWorld, ledger_id: int, entry_id: int):
    client = await with_messages(world, 1)

    answer = await client.request(
        pulsar.BaseCommand.SEEK,
        consumer_id=0,
        message_id=pulsar.MessageIdData(ledgerId=ledger_id, entryId=entry_id),
    )

    assert isinstance(answer, pulsar.CommandSuccess)
    assert isinstance(await client.subscribe(), pulsar.CommandSuccess)


@pytest.mark.parametrize("time_ms", [0, 2**63, 2**64 - 1])
async def test_a_seek_to_any_time_is_answered(world: BrokerWorld, time_ms: int):
    client = await with_messages(world, 1)

    answer = await client.request(
        pulsar.BaseCommand.SEEK, consumer_id=0, message_publish_time=time_ms
    )

    assert isinstance(answer, pulsar.CommandSuccess)


@pytest.mark.parametrize("deliver_at_ms", [-(2**63), -1, 1])
async def test_a_time_that_is_past_delays_nothing(world: BrokerWorld, deliver_at_ms: int):
    client = world.broker().client()
    await client.producer()
    await client.subscribe(kind=SHARED)

    client.send(0, with_deliver_at_time=deliver_at_ms)

    await client.until_got(pulsar.BaseCommand.MESSAGE)


async def test_a_time_that_never_comes_delays_one_message_only(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()
    await client.subscribe(kind=SHARED)

    client.send(0, with_deliver_at_time=2**63 - 1)
    client.send(1)

    (message,) = await client.until_got(pulsar.BaseCommand.MESSAGE)
    assert message.message_id.entryId == 1


# What is kept of a client ------------------------------------------------------------------------


def key_values(size: int) -> list[pulsar.KeyValue]:
    return [pulsar.KeyValue(key="k", value="v" * (size - 1))]


async def test_the_properties_of_a_subscription_have_a_limit(world: BrokerWorld):
    client = world.broker().client()
    most = SUBSCRIPTION_PROPERTIES_BYTES_MAX

    fits = await client.subscribe(subscription_properties=key_values(most))
    refused = await client.subscribe(
        "s2", consumer_id=2, subscription_properties=key_values(most + 1)
    )

    assert isinstance(fits, pulsar.CommandSuccess)
    assert refused.error == pulsar.NotAllowedError


@pytest.mark.parametrize("kind", [SHARED, pulsar.CommandSubscribe.Key_Shared])
async def test_key_ranges_are_counted_before_they_are_kept(world: BrokerWorld, kind: int):
    client = world.broker().client()
    ranges = [pulsar.IntRange(start=n, end=n) for n in range(STICKY_RANGES_MAX + 1)]
    meta = pulsar.KeySharedMeta(keySharedMode=pulsar.STICKY, hashRanges=ranges)

    refused = await client.subscribe(kind=kind, keySharedMeta=meta)
    del meta.hashRanges[0]
    fits = await client.subscribe(kind=kind, keySharedMeta=meta)

    assert refused.error == pulsar.NotAllowedError
    assert isinstance(fits, pulsar.CommandSuccess)


async def test_consumers_that_state_the_same_entry_buckets_share_a_segment(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()
    same, other = entry_buckets(2), entry_buckets(3)

    for consumer_id in (1, 2):
        joined = await client.subscribe(
            consumer_id=consumer_id, kind=KEY_SHARED, keySharedMeta=same
        )
        assert isinstance(joined, pulsar.CommandSuccess)
    stale = await client.subscribe(consumer_id=3, kind=KEY_SHARED, keySharedMeta=other)
    client.send(0, with_entry_hash_min=0, with_entry_hash_max=9)
    client.send(1, with_entry_hash_min=0x8000, with_entry_hash_max=0x9000)

    assert stale.error == pulsar.ConsumerAssignError
    assert "stale layout" in stale.message
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 2)
    assert sorted(each.consumer_id for each in messages) == [1, 2]


async def test_sticky_ranges_max_entry_buckets_are_taken_and_one_more_is_refused(
    world: BrokerWorld,
):
    client = world.broker().client()

    refused = await client.subscribe(
        kind=KEY_SHARED, keySharedMeta=entry_buckets(STICKY_RANGES_MAX + 1)
    )
    fits = await client.subscribe(kind=KEY_SHARED, keySharedMeta=entry_buckets(STICKY_RANGES_MAX))

    assert refused.error == pulsar.NotAllowedError
    assert isinstance(fits, pulsar.CommandSuccess)


@pytest.mark.parametrize(
    "wrong", [{"keySharedMode": pulsar.AUTO_SPLIT}, {"allowOutOfOrderDelivery": True}]
)
async def test_entry_buckets_are_sticky_and_in_order(world: BrokerWorld, wrong: dict[str, Any]):
    client = world.broker().client()
    meta = entry_buckets(2)
    for field, value in wrong.items():
        setattr(meta, field, value)

    refused = await client.subscribe(kind=KEY_SHARED, keySharedMeta=meta)

    assert refused.error == pulsar.NotAllowedError


def entry_buckets(count: int) -> pulsar.KeySharedMeta:
    starts = [number * 65_536 // count for number in range(count + 1)]
    return pulsar.KeySharedMeta(
        keySharedMode=pulsar.STICKY,
        entryBucketDispatch=True,
        hashRanges=[pulsar.IntRange(start=start, end=end - 1) for start, end in pairwise(starts)],
    )


@pytest.mark.parametrize("ranges", [[], [(5, 1)], [(-1, 4)], [(0, 2**16)], [(0, 5), (5, 9)]])
async def test_key_ranges_that_are_none_are_refused_and_leave_nothing(
    world: BrokerWorld, ranges: list[tuple[int, int]]
):
    client = world.broker().client()
    meta = pulsar.KeySharedMeta(
        keySharedMode=pulsar.STICKY,
        hashRanges=[pulsar.IntRange(start=start, end=end) for start, end in ranges],
    )

    refused = await client.subscribe(
        kind=pulsar.CommandSubscribe.Key_Shared, keySharedMeta=meta, durable=False
    )

    assert refused.error == pulsar.ConsumerAssignError
    assert world.broker().topics.get(TOPIC).subscriptions == {}


async def test_a_schemas_properties_count_as_its_data_does(world: BrokerWorld):
    client = world.broker().client()
    schema = pulsar.Schema(
        name="s",
        schema_data=b"",
        type=pulsar.Schema.String,
        properties=key_values(SCHEMA_BYTES_MAX),
    )

    refused = await client.producer(schema=schema)

    assert refused.error == pulsar.IncompatibleSchema


async def test_a_reader_that_gives_up_while_it_is_let_in_leaves_nothing(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()
    reader = world.broker().client()
    reader.start(
        pulsar.BaseCommand.SUBSCRIBE,
        topic=TOPIC,
        subscription="reader",
        subType=0,
        consumer_id=0,
        durable=False,
    )
    for _ in range(2):
        await asyncio.sleep(0)

    reader.leave()
    await settle()

    assert world.broker().topics.get(TOPIC).subscriptions == {}


# A topic that goes -------------------------------------------------------------------------------


async def test_a_subscription_that_is_being_stored_while_its_topic_goes_is_answered(
    world: BrokerWorld,
):
    client = world.broker("a").client()
    await client.producer()
    ledger = world.broker("a").ledger()
    ledger.hold_facts()
    asked = client.start(
        pulsar.BaseCommand.SUBSCRIBE, topic=TOPIC, subscription="sub", subType=0, consumer_id=0
    )
    await settle()

    world.broker("b")
    world.move(TOPIC, "b")

    assert (await client.answer(asked)).error == pulsar.ServiceNotReady
    ledger.release_facts()


@run_by(run_virtual)
async def test_consumers_wait_for_their_cursors_once_and_not_for_long_when_their_topic_goes() -> (
    None
):
    world = BrokerWorld()
    client = world.broker("a").client()
    await client.subscribe("s0", consumer_id=0)
    await client.subscribe("s1", consumer_id=1)
    await client.producer()
    client.send(0)
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 2)
    ledger = world.broker("a").ledger()
    ledger.hold_facts()
    for message in messages:
        client.ack(message, consumer_id=message.consumer_id)
    await settle()

    world.broker("b")
    world.move(TOPIC, "b")
    await settle()
    assert not client.got(pulsar.BaseCommand.CLOSE_CONSUMER)
    await asyncio.sleep(TOPIC_DRAIN_MS_MAX / 1000)

    await client.until_got(pulsar.BaseCommand.CLOSE_CONSUMER, 2)
    ledger.release_facts()
    await world.stop()


@run_by(run_virtual)
async def test_a_producer_whose_predecessor_is_asked_for_while_the_topic_goes_is_sent_away() -> (
    None
):
    world = BrokerWorld()
    first = world.broker("a").client()
    await first.producer(producer_name="p")
    second = world.broker("a").client()
    asked = second.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0, producer_name="p")
    await first.until_got(pulsar.BaseCommand.PING)
    world.broker("b")
    world.move(TOPIC, "b")
    await asyncio.sleep(LIVENESS_CHECK_MS / 1000 + 1)

    assert (await second.answer(asked)).error == pulsar.ServiceNotReady
    await world.stop()


@run_by(run_virtual)
async def test_a_client_that_lives_is_not_dropped_because_one_who_asked_for_its_name_has_gone() -> (
    None
):
    world = BrokerWorld()
    holder, *others = (world.broker().client() for _ in range(3))
    await holder.producer(producer_name="p")
    for other in others:
        other.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0, producer_name="p")
    await settle()
    others[0].leave()
    await settle()

    holder.send_raw(holder.command(pulsar.BaseCommand.PONG))
    await asyncio.sleep(LIVENESS_CHECK_MS / 1000 + 1)

    assert holder.connection.is_open
    assert [each.error for each in others[1].got(pulsar.BaseCommand.ERROR)] == [pulsar.ProducerBusy]
    await world.stop()


async def test_unsubscribing_by_force_ends_the_others_though_who_asked_has_gone(
    world: BrokerWorld,
):
    client = await with_messages(world, 1, kind=SHARED)
    other = world.broker().client()
    await other.subscribe(kind=SHARED)
    ledger = world.broker().ledger()
    ledger.hold_facts()

    client.start(pulsar.BaseCommand.UNSUBSCRIBE, consumer_id=0, force=True)
    await settle()
    client.leave()
    await settle()
    ledger.release_facts()

    await other.until_got(pulsar.BaseCommand.CLOSE_CONSUMER)


# Storage -----------------------------------------------------------------------------------------


async def test_a_topic_with_consumers_only_is_opened_anew_when_storage_has_failed(
    world: BrokerWorld,
):
    client = await with_messages(world, 1)
    client.send_raw(client.command(pulsar.BaseCommand.CLOSE_PRODUCER, producer_id=0, request_id=99))
    await settle()
    broken = world.broker().ledger()
    broken.failure = StorageFailed("no space left on device")
    (message,) = client.got(pulsar.BaseCommand.MESSAGE)

    refused = await client.answer(client.ack(message))
    await client.until_got(pulsar.BaseCommand.CLOSE_CONSUMER)
    await settle()
    again = await client.subscribe()
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 2)
    stored = await client.answer(client.ack(messages[1]))

    assert refused.error == pulsar.PersistenceError
    assert isinstance(again, pulsar.CommandSuccess)
    assert not stored.HasField("error")
    assert world.broker().ledger() is not broken


async def test_an_unencodable_cursor_is_logged_and_the_next_one_stored(
    world: BrokerWorld,
):
    client = await with_messages(world, 2)
    messages = client.got(pulsar.BaseCommand.MESSAGE)
    ledger = world.broker().ledger()

    ledger.refusal = ValueError("too long")
    refused = await client.answer(client.ack(messages[0]))
    ledger.refusal = None
    stored = await client.answer(client.ack(messages[1]))

    assert refused.error == pulsar.PersistenceError
    assert not stored.HasField("error")


@pytest.mark.parametrize("question", ["last message", "seek"])
async def test_damage_stops_a_topic_whichever_reader_finds_it(world: BrokerWorld, question: str):
    client = await with_messages(world, 1)
    other = world.broker().client()
    await other.producer("persistent://public/default/other")
    world.broker().ledger().read_error = LedgerDamaged("0-0.entries: no valid record at byte 7")

    if question == "seek":
        kind, fields = pulsar.BaseCommand.SEEK, {"message_publish_time": 1}
    else:
        kind, fields = pulsar.BaseCommand.GET_LAST_MESSAGE_ID, {}
    refused = await client.request(kind, consumer_id=0, **fields)
    await until(lambda: world.broker().topics.get(TOPIC) is None)
    producer = await client.producer(producer_id=1)

    assert refused.error == pulsar.PersistenceError
    assert "byte 7" in refused.message
    assert producer.error == pulsar.PersistenceError
    assert "byte 7" in producer.message
    other.send(0)
    assert await other.receipts(1)
