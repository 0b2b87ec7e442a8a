"""Every bound of the embedded broker that no other test reaches, at it and one beyond."""

from __future__ import annotations

import asyncio

from brokers.domain.holding import Assignment, TopicMetadata
from brokers.ports.ledger import Fenced
from brokers.service.topics.open_units import UnitLocks
from nextgen.kernel.limits.pulsar import (
    CONSUMER_NAME_BYTES_MAX,
    HANDLES_PER_CONNECTION_MAX,
    PRODUCERS_PER_TOPIC_MAX,
    SUBSCRIPTIONS_PER_TOPIC_MAX,
    TOPIC_FAILURES_REMEMBERED_MAX,
    TOPICS_OPENING_MAX,
    TOPICS_RELOCATING_MAX,
)
from nextgen.kernel.routing.names import parse_topic
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle, until


async def test_a_topic_has_so_many_producers_and_no_more(world: BrokerWorld):
    clients = [world.broker().client() for _ in range(2)]
    asked = [
        (client, client.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=number))
        for client in clients
        for number in range(PRODUCERS_PER_TOPIC_MAX // 2)
    ]
    await until(lambda: all(len(client.look()) > len(asked) // 2 for client in clients))

    beyond = await world.broker().client().producer()

    assert len(world.broker().topics.get(TOPIC).producers) == PRODUCERS_PER_TOPIC_MAX
    assert beyond.error == pulsar.ProducerBusy
    assert all(not client.got(pulsar.BaseCommand.ERROR) for client in clients)


async def test_a_topic_has_so_many_subscriptions_and_no_more(world: BrokerWorld):
    client = world.broker().client()
    for number in range(SUBSCRIPTIONS_PER_TOPIC_MAX):
        client.start(
            pulsar.BaseCommand.SUBSCRIBE,
            topic=TOPIC,
            subscription=f"s{number}",
            subType=0,
            consumer_id=number,
        )
    await client.until_got(pulsar.BaseCommand.SUCCESS, SUBSCRIPTIONS_PER_TOPIC_MAX)

    beyond = await client.subscribe("one more", consumer_id=-1 % 2**32)
    known = await world.broker().client().subscribe("s0", consumer_id=1)

    assert beyond.error == pulsar.NotAllowedError
    assert known.error == pulsar.ConsumerBusy, "it is there"


async def test_a_connection_has_so_many_handles_and_no_more(world: BrokerWorld):
    client = world.broker().client()
    producing, consuming = client.connection.producing, client.connection.consuming
    await client.producer()
    await client.subscribe()
    # As many again as there may be, without the minutes that it takes to ask for each.
    (producer,), (consumer,) = producing._handles.values(), consuming._handles.values()
    for number in range(1, HANDLES_PER_CONNECTION_MAX - 1):
        producing._handles[number] = producer
        consuming._handles[number] = consumer

    last_producer = await client.producer(producer_id=HANDLES_PER_CONNECTION_MAX)
    beyond = await client.producer(producer_id=HANDLES_PER_CONNECTION_MAX + 1)
    last_consumer = await client.subscribe("s", consumer_id=HANDLES_PER_CONNECTION_MAX)
    consumer_beyond = await client.subscribe("t", consumer_id=HANDLES_PER_CONNECTION_MAX + 1)

    assert last_producer.producer_ready
    assert beyond.error == pulsar.NotAllowedError
    assert isinstance(last_consumer, pulsar.CommandSuccess)
    assert consumer_beyond.error == pulsar.NotAllowedError


async def test_a_consumers_name_has_a_limit(world: BrokerWorld):
    client = world.broker().client()

    refused = await client.subscribe(consumer_name="n" * (CONSUMER_NAME_BYTES_MAX + 1))
    fits = await client.subscribe(consumer_name="n" * CONSUMER_NAME_BYTES_MAX)

    assert refused.error == pulsar.NotAllowedError
    assert isinstance(fits, pulsar.CommandSuccess)


async def test_so_many_topics_open_at_a_time_and_no_more(world: BrokerWorld):
    store = world.broker().store
    store.released.clear()
    client = world.broker().client()
    for number in range(TOPICS_OPENING_MAX + 1):
        client.start(pulsar.BaseCommand.PRODUCER, topic=f"{TOPIC}-{number}", producer_id=number)
    await settle()
    assert store.opened == TOPICS_OPENING_MAX

    store.released.set()
    await client.until_got(pulsar.BaseCommand.PRODUCER_SUCCESS, TOPICS_OPENING_MAX + 1)
    assert store.opened == TOPICS_OPENING_MAX + 1


async def test_so_many_topics_are_located_at_a_time_and_no_more(world: BrokerWorld):
    client = world.broker().client()
    for number in range(TOPICS_RELOCATING_MAX + 1):
        await client.producer(f"{TOPIC}-{number}", producer_id=number)
    world.directory.asked.clear()
    world.directory.released.clear()

    world.broker().begin_session()
    await settle()
    assert len(world.directory.asked) == TOPICS_RELOCATING_MAX

    world.directory.released.set()
    await until(lambda: len(world.directory.asked) == TOPICS_RELOCATING_MAX + 1)


async def test_so_many_failures_are_remembered_and_no_more(world: BrokerWorld):
    broker = world.broker()
    topics = broker.topics
    for number in range(TOPIC_FAILURES_REMEMBERED_MAX + 1):
        name = f"{TOPIC}-{number}"
        topic = TopicMetadata(f"id-{number}", name, 0, {}, 1)
        topics._failed_to_open(name, Assignment(topic, "", name, 1, 1), Fenced())

    assert len(topics._fenced) == TOPIC_FAILURES_REMEMBERED_MAX
    assert ("id-0", "") not in topics._fenced


async def test_a_unit_is_locked_for_one_at_a_time_and_then_forgotten():
    locks = UnitLocks()
    order: list[str] = []

    async def hold(who: str) -> None:
        async with locks.held(("x", "")):
            order.append(f"{who} in")
            await asyncio.sleep(0)
            order.append(f"{who} out")

    async with locks.held(("y", "")):
        await asyncio.gather(hold("a"), hold("b"))
        assert len(locks) == 1

    assert order == ["a in", "a out", "b in", "b out"]
    assert len(locks) == 0


async def test_a_caller_that_gives_up_waiting_for_a_unit_leaves_it_to_others(world: BrokerWorld):
    locks = UnitLocks()
    waiting: asyncio.Task[None]

    async def hold() -> None:
        async with locks.held(("x", "")):
            return

    async with locks.held(("x", "")):
        waiting = asyncio.create_task(hold())
        await settle()
        waiting.cancel()
        await settle()
    await asyncio.gather(waiting, return_exceptions=True)

    assert len(locks) == 0
    await hold()


def client_of(world: BrokerWorld) -> FakeClient:
    return world.broker().client()


async def test_a_partition_is_a_topic_of_its_own(world: BrokerWorld):
    names = [f"{TOPIC}-partition-{number}" for number in range(2)]
    world.directory.topics.update(names)
    for number, name in enumerate(names):
        await client_of(world).producer(name, producer_id=number)

    units = {topic.unit.unit for topic in world.broker().topics}

    assert units == {"p0", "p1"}
    assert {parse_topic(topic.unit.name).partition for topic in world.broker().topics} == {0, 1}
