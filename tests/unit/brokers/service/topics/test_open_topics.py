"""The door to topics: who is served, who is sent where, and what ends an ownership."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from brokers.domain.position import ledger_id_of
from brokers.ports.ledger import Fenced, LedgerDamaged, StorageFailed
from nextgen.kernel.errors import Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.routing.names import parse_topic
from nextgen.tasks.timeouts import timeout
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, settle, topic_id_of, until

CLOSE_PRODUCER = pulsar.BaseCommand.CLOSE_PRODUCER
CLOSE_CONSUMER = pulsar.BaseCommand.CLOSE_CONSUMER


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    world.broker("a")
    world.broker("b")
    yield world
    await world.stop()


def urls(closed: list[Any]) -> list[str]:
    return [each.assignedBrokerServiceUrl for each in closed]


# The door ------------------------------------------------------------------------------------


async def test_what_was_assigned_is_served_without_asking(world: BrokerWorld):
    world.assign(TOPIC, "a")

    success = await world.broker("a").client().producer()

    assert success.producer_ready
    assert world.directory.asked == []


async def test_what_was_not_assigned_is_asked_for_and_may_be_assigned_by_that(world: BrokerWorld):
    world.directory.assigns_to = "b"

    success = await world.broker("b").client().producer()

    assert success.producer_ready
    assert world.directory.asked == [TOPIC]


async def test_a_client_that_comes_to_the_wrong_broker_is_sent_away(world: BrokerWorld):
    world.assign(TOPIC, "a")
    client = world.broker("b").client()

    producer = await client.producer()
    consumer = await client.subscribe()

    for refused in (producer, consumer):
        assert refused.error == pulsar.ServiceNotReady
        assert "broker a at pulsar://a:6650" in refused.message
    assert len(world.broker("b").topics) == 0
    assert world.broker("b").store.opened == 0
    assert not client.transport.is_closed


async def test_what_has_not_arrived_in_this_session_is_not_served(world: BrokerWorld):
    """The controller's answer is of a session that has ended since."""
    world.assign(TOPIC, "a")
    world.broker("a").begin_session()

    refused = await world.broker("a").client().producer()

    assert refused.error == pulsar.ServiceNotReady
    assert world.broker("a").store.opened == 0


async def test_a_topic_that_may_not_be_created_is_not_found(world: BrokerWorld):
    world.directory.allows_creation = False

    refused = await world.broker("a").client().producer()

    assert refused.error == pulsar.TopicNotFound


async def test_a_broker_that_cannot_ask_serves_open_topics_only(world: BrokerWorld):
    world.assign(TOPIC, "a")
    client = world.broker("a").client()
    await client.producer()
    world.directory.error = Unavailable("no leader")
    world.broker("a").begin_session()

    served = await client.producer(producer_id=1)
    refused = await client.producer(f"{TOPIC}-2", producer_id=2)

    assert served.producer_ready
    assert refused.error == pulsar.ServiceNotReady


async def test_a_broker_that_cannot_ask_serves_no_fenced_topic(world: BrokerWorld):
    world.assign(TOPIC, "a")
    client = world.broker("a").client()
    await client.producer()
    world.directory.error = Unavailable("no leader")
    world.broker("a").begin_session()
    await world.broker("b").store.open(topic_id_of(TOPIC), "", 2, topic_name=TOPIC)
    client.send(0)
    await client.until_got(CLOSE_PRODUCER)

    refused = await client.producer()

    assert refused.error == pulsar.ServiceNotReady
    assert not client.got(pulsar.BaseCommand.SEND_RECEIPT)


async def test_many_first_users_open_a_topic_once(world: BrokerWorld):
    world.broker("a").store.released.clear()
    clients = [world.broker("a").client() for _ in range(50)]
    asked = [
        client.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0) for client in clients
    ]
    await settle()

    world.broker("a").store.released.set()
    for client, request_id in zip(clients, asked, strict=True):
        assert (await client.answer(request_id)).producer_ready

    assert world.broker("a").store.opened == 1
    assert world.directory.asked == [TOPIC]


async def test_one_that_gives_up_does_not_take_the_others_with_it(world: BrokerWorld):
    world.broker("a").store.released.clear()
    gone, staying = world.broker("a").client(), world.broker("a").client()
    gone.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0)
    asked = staying.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0)
    await settle()

    gone.leave()
    await settle()
    world.broker("a").store.released.set()

    assert (await staying.answer(asked)).producer_ready
    assert len(world.broker("a").topics.get(TOPIC).producers) == 1


# Storage says no -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageFailed("no space left"), pulsar.PersistenceError),
        (LedgerDamaged("1-0.entries at 17"), pulsar.PersistenceError),
        (Fenced("epoch 9"), pulsar.ServiceNotReady),
    ],
)
async def test_a_topic_that_storage_does_not_open_is_refused(
    world: BrokerWorld, error: Exception, code: int
):
    world.broker("a").store.error = error
    client = world.broker("a").client()

    refused = await client.producer()

    assert refused.error == code
    assert len(world.broker("a").topics) == 0


async def test_a_topic_opens_once_storage_lets_it(world: BrokerWorld):
    broker = world.broker("a")
    broker.store.error = StorageFailed("no space left")
    client = broker.client()
    await client.producer()
    assert broker.topics.errors == {TOPIC: "no space left"}

    broker.store.error = None

    assert (await client.producer()).producer_ready
    assert broker.topics.errors == {}


async def test_an_epoch_that_was_fenced_is_not_tried_again(world: BrokerWorld):
    broker = world.broker("a")
    broker.store.error = Fenced("epoch 9")
    client = broker.client()
    await client.producer()
    broker.store.error = None

    assert (await client.producer()).error == pulsar.ServiceNotReady
    assert broker.store.opened == 1
    world.assign(TOPIC, "a")
    assert (await client.producer()).producer_ready


async def test_an_owner_whose_epoch_was_used_before_gets_a_higher_one_and_serves(
    world: BrokerWorld,
):
    """A shard was restored from a backup, and gives epoch 1 again of a unit that was at 9."""
    topic_id = topic_id_of(TOPIC)
    await world.broker("b").store.open(topic_id, "", 9, topic_name=TOPIC)
    world.assign(TOPIC, "a")
    client = world.broker("a").client()

    refused = await client.producer()
    await settle()
    served = await client.producer()

    assert refused.error == pulsar.ServiceNotReady
    assert world.directory.raised == [(TOPIC, 1, 9)]
    assert served.producer_ready
    topic = world.broker("a").topics.get(TOPIC)
    assert topic is not None
    assert topic.unit.epoch == 10


async def test_an_owner_whose_very_epoch_another_process_has_gets_the_next_one(world: BrokerWorld):
    topic_id = topic_id_of(TOPIC)
    await world.broker("b").store.open(topic_id, "", 1, topic_name=TOPIC)
    world.assign(TOPIC, "a")
    client = world.broker("a").client()

    await client.producer()
    await settle()

    assert world.directory.raised == [(TOPIC, 1, 1)]
    assert (await client.producer()).producer_ready


async def test_a_higher_epoch_is_asked_for_once_a_second_until_there_is_one(world: BrokerWorld):
    topic_id = topic_id_of(TOPIC)
    await world.broker("b").store.open(topic_id, "", 9, topic_name=TOPIC)
    world.assign(TOPIC, "a")
    world.directory.error = Unavailable("no leader")
    client = world.broker("a").client()

    for _ in range(5):
        assert (await client.producer()).error == pulsar.ServiceNotReady
        await settle()

    assert len(world.directory.raised) == 1
    assert world.broker("a").store.opened == 1


async def test_an_owner_that_was_fenced_while_it_served_and_is_the_owner_still_gets_a_higher_epoch(
    world: BrokerWorld,
):
    """1. A serves in epoch 1. 2. An owner of a lost history opens in epoch 7. 3. A is fenced, and
    the shard knows of nobody else."""
    topic_id = topic_id_of(TOPIC)
    world.assign(TOPIC, "a")
    client = world.broker("a").client()
    await client.producer()
    await world.broker("b").store.open(topic_id, "", 7, topic_name=TOPIC)
    client.send(0)
    await client.until_got(CLOSE_PRODUCER)

    await client.producer()
    await settle()

    assert world.directory.raised == [(TOPIC, 1, 7)]
    assert (await client.producer()).producer_ready


async def test_an_owner_that_was_replaced_asks_for_no_higher_epoch(world: BrokerWorld):
    world.assign(TOPIC, "a")
    client = world.broker("a").client()
    await client.producer()
    world.move(TOPIC, "b")
    await world.broker("b").client().producer()
    await settle()

    await client.producer()
    await settle()

    assert world.directory.raised == []


async def test_an_owner_that_was_replaced_while_it_opened_asks_for_no_higher_epoch(
    world: BrokerWorld,
):
    broker = world.broker("a")
    world.assign(TOPIC, "a")
    broker.store.released.clear()
    opening = asyncio.ensure_future(broker.client().producer())
    await until(lambda: broker.store.opened == 1)
    world.move(TOPIC, "b")
    await world.broker("b").client().producer()

    broker.store.released.set()
    refused = await opening
    await settle()

    assert refused.error == pulsar.ServiceNotReady
    assert world.directory.raised == []


async def test_the_reason_for_no_higher_epoch_is_given(world: BrokerWorld):
    topic_id = topic_id_of(TOPIC)
    await world.broker("b").store.open(topic_id, "", 9, topic_name=TOPIC)
    world.assign(TOPIC, "a")
    world.directory.error = Refused(RejectionCode.LIMIT_EXCEEDED, "taken for damage")

    await world.broker("a").client().producer()
    await settle()

    assert world.broker("a").topics.errors == {TOPIC: "taken for damage"}


async def test_a_fenced_owner_sends_its_clients_to_look_the_topic_up(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()
    await client.subscribe()

    # The next owner opens while the old one has not been told.
    world.assign(TOPIC, "b")
    await world.broker("b").client().producer()
    client.send(0)

    assert urls(await client.until_got(CLOSE_PRODUCER)) == [""]
    assert urls(await client.until_got(CLOSE_CONSUMER)) == [""]
    await settle()
    assert not client.got(pulsar.BaseCommand.SEND_RECEIPT)
    assert not client.got(pulsar.BaseCommand.SEND_ERROR)
    assert world.broker("a").topics.get(TOPIC) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [("cursor/sub", b"?"), ("cursor/sub", b"\x91\x63"), ("schema/0", b"?"), ("schema/x", b"")],
)
async def test_a_topic_whose_small_facts_cannot_be_read_is_not_opened(
    world: BrokerWorld, key: str, value: bytes
):
    client = world.broker("a").client()
    await client.producer()
    await world.broker("a").ledger().put_state(key, value)
    await world.broker("a").topics.close_topic(world.broker("a").topics.get(TOPIC))

    refused = await client.producer()

    assert refused.error == pulsar.PersistenceError
    assert TOPIC in world.broker("a").topics.errors
    assert len(world.broker("a").topics) == 0


async def test_an_owner_with_consumers_only_notices_a_later_owner(world: BrokerWorld):
    client = world.broker("a").client()
    await client.subscribe()
    world.directory.error = Unavailable("no leader")
    world.broker("a").begin_session()
    await settle()
    moody = world.broker("a").ledger()
    later = world.disk.units[topic_id_of(TOPIC), ""]
    later.claims[9] = object()
    assert not moody.is_fenced

    world.broker("a").topics.relocate_strays()

    assert urls(await client.until_got(CLOSE_CONSUMER)) == [""]


# Release -------------------------------------------------------------------------------------


async def test_a_topic_that_moves_takes_its_clients_along(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer(producer_name="p")
    await client.subscribe()
    client.send(0)
    await client.receipts(1)

    world.move(TOPIC, "b")

    assert urls(await client.until_got(CLOSE_PRODUCER)) == ["pulsar://b:6650"]
    assert urls(await client.until_got(CLOSE_CONSUMER)) == ["pulsar://b:6650"]
    await until(lambda: world.broker("a").topics.get(TOPIC) is None)
    moved = world.broker("b").client()
    assert (await moved.producer(producer_name="p")).last_sequence_id == 0
    moved.send(1)
    assert await moved.receipts(1) == [(1, ledger_id_of(2, 0), 0)]


async def test_what_is_under_way_at_a_move_is_answered_first(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()
    ledger = world.broker("a").ledger()
    ledger.is_holding = True
    client.send(0)

    world.move(TOPIC, "b")
    await settle()
    client.send(1)
    await settle()
    assert not client.got(CLOSE_PRODUCER)
    ledger.release()
    await client.until_got(CLOSE_PRODUCER)

    # What came behind the beginning of the move is dropped: the client sends it again.
    assert client.kinds[-2:] == ["SEND_RECEIPT", "CLOSE_PRODUCER"]
    assert len(ledger.appended) == 1


async def test_a_client_that_comes_during_a_move_is_sent_away(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()
    ledger = world.broker("a").ledger()
    ledger.is_holding = True
    client.send(0)
    world.move(TOPIC, "b")
    await settle()

    refused = await world.broker("a").client().producer()

    assert refused.error == pulsar.ServiceNotReady
    ledger.release()


async def test_a_topic_that_is_released_while_it_opens_is_not_served(world: BrokerWorld):
    world.assign(TOPIC, "a")
    world.broker("a").store.released.clear()
    client = world.broker("a").client()
    asked = client.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0)
    await settle()

    world.move(TOPIC, "b")
    world.broker("a").store.released.set()

    assert (await client.answer(asked)).error == pulsar.ServiceNotReady
    assert len(world.broker("a").topics) == 0


async def test_a_deleted_topic_closes_its_clients_without_an_address(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()

    world.release(TOPIC, "a", 1)

    assert urls(await client.until_got(CLOSE_PRODUCER)) == [""]


async def test_a_release_of_an_earlier_epoch_changes_nothing(world: BrokerWorld):
    world.assign(TOPIC, "a")
    world.assign(TOPIC, "a")
    client = world.broker("a").client()
    await client.producer()

    world.release(TOPIC, "a", 1, "b")
    await settle()

    assert not client.got(CLOSE_PRODUCER)
    assert world.broker("a").topics.get(TOPIC) is not None


async def test_the_same_topic_in_a_later_epoch_is_opened_anew(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer(producer_name="p")
    client.send(0)
    await client.receipts(1)

    world.assign(TOPIC, "a")

    assert urls(await client.until_got(CLOSE_PRODUCER)) == ["pulsar://a:6650"]
    assert (await client.producer(producer_name="p")).last_sequence_id == 0
    client.send(1)
    assert (await client.receipts(2))[1] == (1, ledger_id_of(2, 0), 0)


# Sessions ------------------------------------------------------------------------------------


async def test_a_lost_session_ends_nothing(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()
    world.directory.error = Unavailable("no leader")

    world.broker("a").begin_session()
    await settle()
    client.send(0)

    assert len(await client.receipts(1)) == 1
    assert not client.got(CLOSE_PRODUCER)


async def test_a_new_session_takes_clients_to_where_their_topic_is(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()
    world.directory.owners[TOPIC] = ("b", 2)

    world.broker("a").begin_session()

    assert urls(await client.until_got(CLOSE_PRODUCER)) == ["pulsar://b:6650"]


async def test_a_new_session_may_be_assigned_what_is_open(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()
    world.directory.owners[TOPIC] = ("", 1)
    world.directory.assigns_to = "a"

    world.broker("a").begin_session()

    assert urls(await client.until_got(CLOSE_PRODUCER)) == ["pulsar://a:6650"]
    assert (await client.producer()).producer_ready


async def test_a_new_session_closes_topics_without_clients(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()
    client.leave()
    await settle()

    world.broker("a").begin_session()
    asked = len(world.directory.asked)
    await until(lambda: world.broker("a").topics.get(TOPIC) is None)

    assert len(world.directory.asked) == asked


async def test_what_could_not_be_asked_for_is_asked_for_again(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()
    world.directory.error = Unavailable("no leader")
    world.broker("a").begin_session()
    await settle()
    world.directory.error = None
    world.directory.owners[TOPIC] = ("b", 2)

    world.broker("a").topics.relocate_strays()

    assert urls(await client.until_got(CLOSE_PRODUCER)) == ["pulsar://b:6650"]


async def test_a_topic_that_is_gone_at_a_new_session_is_closed(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()
    world.directory.topics.clear()

    world.broker("a").begin_session()

    assert urls(await client.until_got(CLOSE_PRODUCER)) == [""]


# The end -------------------------------------------------------------------------------------


async def test_a_broker_that_stops_closes_its_clients_and_serves_no_others(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()
    await client.subscribe()

    await world.broker("a").topics.close()

    assert urls(client.got(CLOSE_PRODUCER)) == [""]
    assert urls(client.got(CLOSE_CONSUMER)) == [""]
    assert (await client.producer()).error == pulsar.ServiceNotReady


async def test_a_stuck_disk_does_not_keep_a_topic_from_being_closed(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()
    world.broker("a").ledger().is_holding = True
    client.send(0)

    world.move(TOPIC, "b")
    async with timeout(30):
        while not client.got(CLOSE_PRODUCER):
            await asyncio.sleep(0.02)

    assert not client.got(pulsar.BaseCommand.SEND_RECEIPT)


async def test_only_open_names_are_known(world: BrokerWorld):
    topics = world.broker("a").topics
    await topics.open(parse_topic(TOPIC), create=True)

    assert len(topics) == 1
    assert [topic.unit.name for topic in topics] == [TOPIC]
    assert topics.get(f"{TOPIC}-2") is None
