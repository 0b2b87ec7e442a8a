"""PRODUCER, SEND and CLOSE_PRODUCER, command by command."""

from __future__ import annotations

import asyncio

import pytest

from brokers.domain.position import ledger_id_of
from brokers.ports.ledger import StorageFailed
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.pulsar import (
    CONNECTION_PENDING_BYTES_MAX,
    LEDGER_PENDING_ENTRY_BYTES,
    LIVENESS_CHECK_MS,
    PRODUCER_NAME_BYTES_MAX,
    PULSAR_BATCH_MESSAGES_MAX,
)
from nextgen.pulsar.payload import open_payload
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, settle
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

LEDGER = ledger_id_of(1, 0)
DUPLICATE = -1


async def test_a_message_is_acknowledged_when_it_is_stored(world: BrokerWorld):
    client = world.broker().client()
    success = await client.producer(producer_name="p")

    client.send(0)
    client.send(1)

    assert (success.producer_name, success.last_sequence_id) == ("p", -1)
    assert success.producer_ready
    assert await client.receipts(2) == [(0, LEDGER, 0), (1, LEDGER, 1)]


async def test_nothing_is_acknowledged_before_it_is_stored(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()
    ledger = world.broker().ledger()
    ledger.is_holding = True

    client.send(0)
    await settle()
    assert not client.got(pulsar.BaseCommand.SEND_RECEIPT)

    ledger.release()
    assert await client.receipts(1) == [(0, LEDGER, 0)]


async def test_names_that_brokers_make_are_all_different(world: BrokerWorld):
    names = set()
    for broker_id in "ab":
        world.assign(f"{TOPIC}-{broker_id}", broker_id)
        client = world.broker(broker_id).client()
        for producer_id in range(3):
            success = await client.producer(f"{TOPIC}-{broker_id}", producer_id=producer_id)
            names.add(success.producer_name)

    assert len(names) == 6


async def test_payloads_are_stored_as_they_came(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()

    client.send(0, b"\x00compressed", with_compression=2, with_num_messages_in_batch=3)
    await client.receipts(1)

    (entry,) = world.broker().ledger().appended
    assert entry.payload.endswith(b"\x00compressed")
    assert entry.message_count == 3


async def test_a_wrong_checksum_is_an_error_and_the_connection_stays_open(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()

    client.send(0)
    good = world.broker().ledger().appended[0].payload
    client.send(1, payload=good[:-1] + b"?")
    client.send(2)

    assert [receipt[0] for receipt in await client.receipts(2)] == [0, 2]
    (error,) = client.got(pulsar.BaseCommand.SEND_ERROR)
    assert (error.sequence_id, error.error) == (1, pulsar.ChecksumError)
    assert not client.transport.is_closed


async def test_hash_stamps_are_stored_as_they_came(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()

    client.send(0, with_entry_hash_min=0, with_entry_hash_max=0xFFFF)
    await client.receipts(1)

    (entry,) = world.broker().ledger().appended
    metadata = open_payload(entry.payload).metadata
    assert (metadata.entry_hash_min, metadata.entry_hash_max) == (0, 0xFFFF)


@pytest.mark.parametrize(
    "stamp",
    [
        {"with_entry_hash_min": 2, "with_entry_hash_max": 1},
        {"with_entry_hash_min": 0, "with_entry_hash_max": 0x10000},
        {"with_entry_hash_min": 0},
        {"with_entry_hash_max": 0},
    ],
)
async def test_a_hash_stamp_that_is_none_is_an_error_and_the_connection_stays_open(
    world: BrokerWorld, stamp: dict[str, int]
):
    client = world.broker().client()
    await client.producer()

    client.send(0, **stamp)
    client.send(1)

    assert [receipt[0] for receipt in await client.receipts(1)] == [1]
    (error,) = client.got(pulsar.BaseCommand.SEND_ERROR)
    assert (error.sequence_id, error.error) == (0, pulsar.NotAllowedError)
    assert not client.transport.is_closed


async def test_a_duplicate_is_answered_behind_its_original(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_name="p")
    ledger = world.broker().ledger()
    ledger.is_holding = True

    client.send(0)
    client.send(0)
    client.send(1)
    await settle()
    assert not client.got(pulsar.BaseCommand.SEND_RECEIPT)

    ledger.release()
    assert await client.receipts(3) == [
        (0, LEDGER, 0),
        (0, DUPLICATE, DUPLICATE),
        (1, LEDGER, 1),
    ]
    client.send(1)
    assert (await client.receipts(4))[-1] == (1, DUPLICATE, DUPLICATE)


async def test_a_producer_that_comes_back_goes_on_where_it_was(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_name="p")
    client.send(0, highest_sequence_id=4, with_num_messages_in_batch=5)
    await client.receipts(1)
    client.leave()
    await settle()

    again = world.broker().client()
    success = await again.producer(producer_name="p")
    again.send(0, highest_sequence_id=4, with_num_messages_in_batch=5)
    again.send(5)

    assert success.last_sequence_id == 4
    assert await again.receipts(2) == [(0, DUPLICATE, DUPLICATE), (5, LEDGER, 1)]


@pytest.mark.parametrize("stored", [0, 2])
async def test_a_producer_that_numbers_on_while_messages_are_in_flight_loses_none(
    world: BrokerWorld, stored: int
):
    """Clients of C++ without a receipt number on behind what they are told, and send what they
    have under way with the ids that it had."""
    lost = world.broker().client()
    name = (await lost.producer()).producer_name
    for sequence_id in range(stored):
        lost.send(sequence_id, producer_name=name)
    lost.leave()
    await settle()

    client = world.broker().client()
    success = await client.producer(producer_name=name, user_provided_producer_name=False, epoch=1)
    for sequence_id in range(4):
        client.send(sequence_id, producer_name=name)
    numbered_on = [success.last_sequence_id + 1 + number for number in range(3)]
    for sequence_id in numbered_on:
        client.send(sequence_id, producer_name=name)

    assert await client.receipts(7) == [
        *((known, DUPLICATE, DUPLICATE) for known in range(stored)),
        *((sequence_id, LEDGER, sequence_id) for sequence_id in range(stored, 4)),
        *((sequence_id, LEDGER, 4 + place) for place, sequence_id in enumerate(numbered_on)),
    ]


async def test_a_producer_that_comes_back_waits_for_what_it_has_under_way(world: BrokerWorld):
    """Otherwise it would number new messages like those, and they would be taken for them."""
    client = world.broker().client()
    await client.producer(producer_name="p")
    ledger = world.broker().ledger()
    ledger.is_holding = True
    client.send(0)
    client.leave()
    await settle()

    again = world.broker().client()
    asked = again.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0, producer_name="p")
    await settle()
    assert "PRODUCER_SUCCESS" not in again.kinds

    ledger.release()
    assert (await again.answer(asked)).last_sequence_id == 0


async def test_the_chunks_of_a_message_are_no_duplicates_of_each_other(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_name="p")

    for chunk_id in (0, 1, 1, 2, 2):
        client.send(
            7,
            is_chunk=True,
            with_uuid="u",
            with_num_chunks_from_msg=3,
            with_chunk_id=chunk_id,
        )

    assert [receipt[2] for receipt in await client.receipts(5)] == [0, 1, -1, 2, -1]


async def test_chunks_that_an_earlier_owner_stored_are_not_stored_again(world: BrokerWorld):
    def send(client, chunk_id):
        client.send(
            7, with_uuid="u", with_num_chunks_from_msg=4, with_chunk_id=chunk_id, is_chunk=True
        )

    client = world.broker("a").client()
    await client.producer(producer_name="p")
    client.send(6)
    send(client, 0)
    send(client, 1)
    await client.receipts(3)
    other = world.broker("b").client()
    world.move(TOPIC, "b")
    await client.until_got(pulsar.BaseCommand.CLOSE_PRODUCER)

    await other.producer(producer_name="p")
    for chunk_id in (1, 2, 3):
        send(other, chunk_id)
    other.send(8)

    moved = ledger_id_of(2, 0)
    assert await other.receipts(4) == [
        (7, DUPLICATE, DUPLICATE),
        (7, moved, 0),
        (7, moved, 1),
        (8, moved, 2),
    ]


async def test_a_chunked_message_is_not_complete_before_its_last_chunk(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_name="p")
    client.send(6)
    client.send(7, with_uuid="u", with_num_chunks_from_msg=2, with_chunk_id=0, is_chunk=True)
    await client.receipts(2)
    client.leave()
    await settle()

    assert (await world.broker().client().producer(producer_name="p")).last_sequence_id == 6


async def test_pulsar_batch_messages_max_are_stored_as_one_batch(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()

    client.send(0, with_num_messages_in_batch=PULSAR_BATCH_MESSAGES_MAX)

    assert len(await client.receipts(1)) == 1


@pytest.mark.parametrize(
    "broken",
    [
        {"with_num_messages_in_batch": 0},
        {"with_num_messages_in_batch": -1},
        {"with_num_messages_in_batch": PULSAR_BATCH_MESSAGES_MAX + 1},
        {"with_num_chunks_from_msg": 2, "with_chunk_id": 2},
        {"with_num_chunks_from_msg": 2, "with_chunk_id": -1},
        {"payload": b""},
        {"payload": b"\x0e\x01\x00"},
    ],
)
async def test_what_no_client_sends_ends_the_connection(world: BrokerWorld, broken: dict):
    client, other = world.broker().client(), world.broker().client()
    await client.producer()
    await other.producer(producer_id=1)

    client.send(0, **broken)
    other.send(0, producer_id=1)

    assert client.transport.is_closed
    assert len(await other.receipts(1)) == 1


async def test_a_sequence_id_that_is_no_number_of_storage_ends_the_connection(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()

    client.send(2**63)

    assert client.transport.is_closed


async def test_a_send_of_an_unknown_producer_ends_the_connection(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()

    client.send(0, producer_id=5)

    assert client.transport.is_closed


async def test_a_send_before_its_producer_is_there_ends_the_connection(world: BrokerWorld):
    client = world.broker().client()
    world.broker().store.released.clear()
    client.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0)
    await settle()

    client.send(0)

    assert client.transport.is_closed
    world.broker().store.released.set()
    await settle()
    assert len(world.broker().topics.get(TOPIC).producers) == 0


async def test_a_send_behind_a_close_by_the_broker_is_dropped(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()
    world.broker("b")
    world.move(TOPIC, "b")
    await client.until_got(pulsar.BaseCommand.CLOSE_PRODUCER)

    client.send(0)
    await settle()

    assert not client.transport.is_closed
    assert not client.got(pulsar.BaseCommand.SEND_RECEIPT)


async def test_closing_a_producer_waits_for_what_it_has_sent(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_name="p")
    ledger = world.broker().ledger()
    ledger.is_holding = True
    client.send(0)

    asked = client.start(pulsar.BaseCommand.CLOSE_PRODUCER, producer_id=0)
    await settle()
    assert "SUCCESS" not in client.kinds

    ledger.release()
    await client.answer(asked)
    assert client.kinds[-2:] == ["SEND_RECEIPT", "SUCCESS"]
    assert len(world.broker().topics.get(TOPIC).producers) == 0
    assert (await client.producer(producer_name="p")).last_sequence_id == 0


async def test_closing_a_producer_that_is_not_there_succeeds(world: BrokerWorld):
    client = world.broker().client()

    assert isinstance(
        await client.request(pulsar.BaseCommand.CLOSE_PRODUCER, producer_id=9),
        pulsar.CommandSuccess,
    )


async def test_closing_a_producer_that_is_being_let_in_gives_it_up(world: BrokerWorld):
    client = world.broker().client()
    world.broker().store.released.clear()
    asked = client.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0)
    await settle()

    await client.request(pulsar.BaseCommand.CLOSE_PRODUCER, producer_id=0)
    world.broker().store.released.set()
    await settle()

    assert [kind for kind in client.kinds if kind != "SUCCESS"] == ["CONNECTED"]
    assert asked == 1
    assert len(world.broker().topics.get(TOPIC).producers) == 0


async def test_the_same_producer_gets_its_name_again(world: BrokerWorld):
    client = world.broker().client()
    first = await client.producer()

    again = await client.producer()

    assert (again.request_id, again.producer_name) == (2, first.producer_name)


async def test_a_producer_that_is_being_let_in_is_not_let_in_twice(world: BrokerWorld):
    client = world.broker().client()
    world.broker().store.released.clear()
    first = client.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0)

    refused = await client.producer()
    world.broker().store.released.set()

    assert refused.error == pulsar.ServiceNotReady
    assert (await client.answer(first)).producer_ready


async def test_a_name_that_is_taken_is_refused(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(producer_name="p")

    refused = await client.producer(producer_id=1, producer_name="p")

    assert refused.error == pulsar.ProducerBusy


async def test_a_name_of_a_client_that_is_there_is_refused(world: BrokerWorld):
    client, other = world.broker().client(), world.broker().client()
    await client.producer(producer_name="p")
    asked = other.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0, producer_name="p")
    await client.until_got(pulsar.BaseCommand.PING)

    client.send_raw(pulsar.BaseCommand(type=pulsar.BaseCommand.PONG, pong=pulsar.CommandPong()))

    assert (await other.answer(asked)).error == pulsar.ProducerBusy
    assert not client.transport.is_closed


@run_by(run_virtual)
async def test_the_producer_name_of_a_gone_client_is_free_again() -> None:
    world = BrokerWorld()
    silent, other = world.broker().client(), world.broker().client()
    await silent.producer(producer_name="p")
    asked = other.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0, producer_name="p")
    await silent.until_got(pulsar.BaseCommand.PING)
    await asyncio.sleep(LIVENESS_CHECK_MS / 1_000 + 1)

    assert (await other.answer(asked)).producer_name == "p"
    assert silent.transport.was_aborted
    await world.stop()


async def test_a_name_that_a_broker_made_goes_at_once_to_the_same_producer(world: BrokerWorld):
    """Only the producer that got the name can send it: its old connection is dead."""
    lost, client = world.broker().client(), world.broker().client()
    name = (await lost.producer()).producer_name

    success = await client.producer(producer_name=name, user_provided_producer_name=False, epoch=1)

    assert success.producer_name == name
    assert lost.got(pulsar.BaseCommand.CLOSE_PRODUCER)


async def test_an_exclusive_producer_is_alone_and_its_epoch_lasts(world: BrokerWorld):
    client = world.broker("a").client()
    first = await client.producer(producer_access_mode=pulsar.Exclusive)

    shared = await client.producer(producer_id=1)
    second = await client.producer(producer_id=1, producer_access_mode=pulsar.Exclusive)
    client.leave()
    await settle()
    world.broker("b")
    world.move(TOPIC, "b")
    moved = await world.broker("b").client().producer(producer_access_mode=pulsar.Exclusive)

    assert (first.topic_epoch, moved.topic_epoch) == (0, 1)
    assert (shared.error, second.error) == (pulsar.ProducerBusy, pulsar.ProducerFenced)


async def test_a_producer_that_waits_for_exclusive_access_is_answered_twice(world: BrokerWorld):
    client, other = world.broker().client(), world.broker().client()
    await client.producer(producer_access_mode=pulsar.Exclusive)
    asked = other.start(
        pulsar.BaseCommand.PRODUCER,
        topic=TOPIC,
        producer_id=0,
        producer_access_mode=pulsar.WaitForExclusive,
    )
    (queued,) = await other.until_got(pulsar.BaseCommand.PRODUCER_SUCCESS)

    client.leave()
    queued, ready = await other.until_got(pulsar.BaseCommand.PRODUCER_SUCCESS, 2)

    assert (queued.request_id, queued.producer_ready) == (asked, False)
    assert (ready.request_id, ready.producer_ready, ready.topic_epoch) == (asked, True, 1)
    assert ready.producer_name == queued.producer_name
    other.send(0)
    assert len(await other.receipts(1)) == 1


async def test_a_waiting_producer_that_leaves_is_out_of_the_queue(world: BrokerWorld):
    client, other = world.broker().client(), world.broker().client()
    await client.producer(producer_access_mode=pulsar.Exclusive)
    other.start(
        pulsar.BaseCommand.PRODUCER,
        topic=TOPIC,
        producer_id=0,
        producer_access_mode=pulsar.WaitForExclusive,
    )
    await other.until_got(pulsar.BaseCommand.PRODUCER_SUCCESS)
    other.leave()
    await settle()

    client.leave()
    await settle()

    assert (await world.broker().client().producer()).producer_ready


async def test_fencing_closes_all_other_producers_for_good(world: BrokerWorld):
    old, new = world.broker().client(), world.broker().client()
    first = await old.producer(producer_access_mode=pulsar.Exclusive)

    second = await new.producer(producer_access_mode=pulsar.ExclusiveWithFencing)
    await old.until_got(pulsar.BaseCommand.CLOSE_PRODUCER)
    back = await old.producer(
        producer_access_mode=pulsar.Exclusive, topic_epoch=first.topic_epoch, epoch=1
    )

    assert second.topic_epoch == 1
    assert back.error == pulsar.ProducerFenced


async def test_transactions_are_refused(world: BrokerWorld):
    client = world.broker().client()
    refused = await client.producer(txn_enabled=True)
    await client.producer(producer_id=1)

    client.send(0, producer_id=1, txnid_least_bits=1, txnid_most_bits=1)
    (error,) = await client.until_got(pulsar.BaseCommand.SEND_ERROR)

    assert refused.error == error.error == pulsar.NotAllowedError


async def test_an_initial_subscription_gets_the_first_message(world: BrokerWorld):
    client = world.broker().client()
    await client.producer(initial_subscription_name="early")
    client.send(0, b"first")
    await client.receipts(1)

    await client.subscribe("early")

    assert len(await client.until_got(pulsar.BaseCommand.MESSAGE)) == 1


async def test_names_have_limits(world: BrokerWorld):
    client = world.broker().client()

    fits = await client.producer(producer_id=1, producer_name="n" * PRODUCER_NAME_BYTES_MAX)
    long = await client.producer(producer_id=2, producer_name="n" * (PRODUCER_NAME_BYTES_MAX + 1))

    assert fits.producer_ready
    assert long.error == pulsar.NotAllowedError


@pytest.mark.parametrize("topic", ["persistent://x", "a/b/c/d/e", "persistent://t/n/x/y"])
async def test_a_topic_name_that_is_none_is_refused(world: BrokerWorld, topic: str):
    refused = await world.broker().client().producer(topic)

    assert refused.error == pulsar.InvalidTopicName


async def test_a_failing_disk_is_reported_and_the_topic_opened_again(world: BrokerWorld):
    client, other = world.broker().client(), world.broker().client()
    await client.producer(producer_name="p")
    await other.producer(producer_name="q")
    ledger = world.broker().ledger()
    ledger.failure = StorageFailed("no space left")

    client.send(0)
    (error,) = await client.until_got(pulsar.BaseCommand.SEND_ERROR)
    await other.until_got(pulsar.BaseCommand.CLOSE_PRODUCER)
    await settle()
    back = await client.producer(producer_name="p", epoch=1)
    client.send(0)

    assert (error.sequence_id, error.error) == (0, pulsar.PersistenceError)
    assert back.producer_ready
    assert await client.receipts(1) == [(0, LEDGER, 0)]


async def test_a_producer_that_cannot_be_stored_is_refused(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()
    world.broker().ledger().failure = StorageFailed("no space left")
    client.leave()
    await settle()

    refused = await world.broker().client().producer(producer_access_mode=pulsar.Exclusive)

    assert refused.error == pulsar.PersistenceError


async def test_a_connection_with_too_much_under_way_is_not_read(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()
    ledger = world.broker().ledger()
    ledger.is_holding = True
    megabyte = b"x" * 2**20

    sent = 0
    while not client.transport.is_reading_paused:
        client.send(sent, megabyte)
        sent += 1
    assert sent == 1 + CONNECTION_PENDING_BYTES_MAX // (2**20 + LEDGER_PENDING_ENTRY_BYTES)

    ledger.release()
    await client.receipts(sent)
    assert not client.transport.is_reading_paused


async def test_what_is_under_way_counts_though_it_is_small(world: BrokerWorld):
    """Each SEND takes memory until it is stored, whatever is in it."""
    client = world.broker().client()
    await client.producer()
    ledger = world.broker().ledger()
    ledger.is_holding = True

    for number in range(CONNECTION_PENDING_BYTES_MAX // LEDGER_PENDING_ENTRY_BYTES):
        client.send(number, b"")
    assert client.transport.is_reading_paused

    ledger.release()
    await settle()
    assert not client.transport.is_reading_paused


async def test_a_connection_waits_while_its_ledger_is_congested(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()
    ledger = world.broker().ledger()
    ledger.is_holding, ledger.congested = True, True

    client.send(0)
    assert client.transport.is_reading_paused

    # It is others' entries that congest it: nobody tells this connection when they are stored.
    ledger.release()
    await client.receipts(1)
    assert not client.transport.is_reading_paused


async def test_a_topic_that_cannot_be_located_is_not_ready(world: BrokerWorld):
    world.directory.error = Unavailable("no leader")

    refused = await world.broker().client().producer()

    assert refused.error == pulsar.ServiceNotReady


async def test_an_old_client_is_closed_where_a_newer_one_is_notified(world: BrokerWorld):
    old = world.broker("a").client(protocol_version=4)
    await old.producer()
    world.broker("b")

    world.move(TOPIC, "b")
    await settle()

    assert old.transport.is_closed
    assert not old.got(pulsar.BaseCommand.CLOSE_PRODUCER)
