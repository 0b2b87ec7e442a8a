"""A broker's part of a handover: it gets ready, holds clients while it takes over, lets go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from brokers.domain.holding import Assignment, Moving, Prepare, Release, TopicMetadata
from brokers.domain.position import ledger_id_of
from brokers.service.topics import open_topics as topics
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, settle, topic_id_of, until

CLOSE_PRODUCER = pulsar.BaseCommand.CLOSE_PRODUCER
CLOSE_CONSUMER = pulsar.BaseCommand.CLOSE_CONSUMER
MESSAGE = pulsar.BaseCommand.MESSAGE
TO_B = "pulsar://b:6650"


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    world.broker("a")
    world.broker("b")
    yield world
    await world.stop()


def assignment(epoch: int) -> Assignment:
    topic = TopicMetadata(topic_id_of(TOPIC), TOPIC, 0, {}, 1)
    return Assignment(topic, "", TOPIC, epoch, 1)


def going(epoch: int) -> Release:
    return Release(topic_id_of(TOPIC), "", TOPIC, epoch, "b", epoch + 1, "", TO_B)


def urls(closed: list[Any]) -> list[str]:
    return [each.assignedBrokerServiceUrl for each in closed]


async def test_a_broker_that_gets_ready_opens_nothing_and_serves_nothing(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()

    world.broker("b").deliver(Prepare(assignment(2)))
    await settle()

    assert world.broker("b").store.opened == 0
    assert world.broker("b").agent.session.holding.assigned(TOPIC) is None
    assert (await world.broker("b").client().producer()).error == pulsar.ServiceNotReady
    client.send(0)
    assert len(await client.receipts(1)) == 1


async def test_only_so_much_is_read_ahead_at_a_time(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(topics, "PREPARED_UNITS_MAX", 2)
    may_read = asyncio.Event()
    read: list[str] = []

    async def prepare(topic_id: str, _unit: str) -> None:
        read.append(topic_id)
        await may_read.wait()

    monkeypatch.setattr(world.broker("b").store, "prepare", prepare, raising=False)
    for _ in range(3):
        world.broker("b").deliver(Prepare(assignment(2)))
    await settle()
    assert len(read) == 1, "one after the other"
    may_read.set()
    await settle()
    world.broker("b").deliver(Prepare(assignment(2)))
    await settle()

    assert read == [topic_id_of(TOPIC)] * 3


async def test_what_is_about_to_go_is_served_on(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()

    world.broker("a").deliver(Moving(going(1)))
    await settle()
    client.send(0)

    assert len(await client.receipts(1)) == 1
    assert (await world.broker("a").client().producer(producer_name="q")).producer_ready
    assert not client.got(CLOSE_PRODUCER)


async def test_a_fenced_owner_whose_unit_moves_redirects_its_clients(world: BrokerWorld):
    """The target's first client came before the source was sent its release."""
    client = world.broker("a").client()
    await client.producer(producer_name="p")
    await client.subscribe()
    world.broker("a").deliver(Moving(going(1)))
    world.assign(TOPIC, "b")

    newcomer = world.broker("b").client()
    assert (await newcomer.producer(producer_name="q")).producer_ready
    client.send(0)

    assert urls(await client.until_got(CLOSE_PRODUCER)) == [TO_B]
    assert urls(await client.until_got(CLOSE_CONSUMER)) == [TO_B]
    moved = world.broker("b").client()
    await moved.producer(producer_name="p")
    moved.send(0)
    assert await moved.receipts(1) == [(0, ledger_id_of(2, 0), 0)]


@pytest.mark.parametrize("epoch", [0, 2])
async def test_a_word_of_another_epoch_sends_nobody_anywhere(world: BrokerWorld, epoch: int):
    client = world.broker("a").client()
    await client.producer()
    world.broker("a").deliver(Moving(going(epoch)))
    world.assign(TOPIC, "b")

    await world.broker("b").client().producer(producer_name="q")
    client.send(0)

    assert urls(await client.until_got(CLOSE_PRODUCER)) == [""]


async def test_a_unit_that_is_to_be_taken_over_is_open_when_its_first_client_comes(
    world: BrokerWorld,
):
    world.assign(TOPIC, "b")
    assert world.broker("b").topics.get(TOPIC) is None

    world.broker("b").deliver(replace(assignment(1), take_over=True))

    await until(lambda: world.broker("b").topics.get(TOPIC) is not None)
    assert (await world.broker("b").client().producer()).producer_ready
    assert world.broker("b").store.opened == 1
    assert world.directory.asked == []


async def test_clients_that_come_while_it_takes_over_wait_for_it(world: BrokerWorld):
    world.assign(TOPIC, "b")
    world.broker("b").store.released.clear()
    client = world.broker("b").client()
    asked = [
        client.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=0),
        client.start(
            pulsar.BaseCommand.SUBSCRIBE,
            topic=TOPIC,
            subscription="s",
            subType=pulsar.CommandSubscribe.Exclusive,
            consumer_id=0,
        ),
    ]
    await settle()

    # The word to take over comes in the middle, and is no other assignment.
    world.broker("b").deliver(replace(assignment(1), take_over=True))
    await settle()
    world.broker("b").store.released.set()

    assert (await client.answer(asked[0])).producer_ready
    assert isinstance(await client.answer(asked[1]), pulsar.CommandSuccess)
    assert world.broker("b").store.opened == 1


async def test_the_word_to_take_over_may_come_again_and_closes_nobody(world: BrokerWorld):
    world.assign(TOPIC, "b")
    client = world.broker("b").client()
    await client.producer()

    world.broker("b").deliver(replace(assignment(1), take_over=True))
    await settle()
    client.send(0)

    assert len(await client.receipts(1)) == 1
    assert not client.got(CLOSE_PRODUCER)


async def test_what_was_acknowledged_does_not_come_again_at_the_next_owner(world: BrokerWorld):
    client = world.broker("a").client()
    await client.subscribe()
    await client.producer()
    for number in range(3):
        client.send(number)
    messages = await client.until_got(MESSAGE, 3)
    for message in messages[:2]:
        client.ack(message)

    world.move(TOPIC, "b")
    await client.until_got(CLOSE_CONSUMER)
    moved = world.broker("b").client()
    await moved.subscribe()

    (again,) = await moved.until_got(MESSAGE)
    assert again.message_id.entryId == 2


async def test_a_released_epoch_is_ended_and_not_opened_again(world: BrokerWorld):
    client = world.broker("a").client()
    await client.producer()

    world.release(TOPIC, "a", 1)
    await until(lambda: world.broker("a").topics.get(TOPIC) is None)
    # A broker that was told wrong, or late, does not begin to serve it anew in this epoch.
    world.broker("a").begin_session()
    world.broker("a").deliver(assignment(1))

    assert (await world.broker("a").client().producer()).error == pulsar.ServiceNotReady
    world.assign(TOPIC, "a")
    assert (await world.broker("a").client().producer()).producer_ready


async def test_a_deletion_while_it_takes_over_ends_that(world: BrokerWorld):
    world.assign(TOPIC, "b")
    world.broker("b").store.released.clear()
    world.broker("b").deliver(replace(assignment(1), take_over=True))
    await settle()

    world.release(TOPIC, "b", 1)
    world.broker("b").store.released.set()
    await settle()

    assert world.broker("b").topics.get(TOPIC) is None
