"""A topic that is renamed while clients use it: what they see at the brokers, and what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from brokers.adapters.broker_service.topic_statistics import topic_stats
from brokers.domain.holding import Release
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.routing.names import parse_topic
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import (
    TOPIC,
    BrokerWorld,
    FakeClient,
    Renamed,
    settle,
    topic_id_of,
    until,
)

NEW = "persistent://sales/settled/orders"
GRACE_MS = 60_000
CLOSE_PRODUCER = pulsar.BaseCommand.CLOSE_PRODUCER
CLOSE_CONSUMER = pulsar.BaseCommand.CLOSE_CONSUMER
MESSAGE = pulsar.BaseCommand.MESSAGE
STRING = pulsar.Schema(name="String", type=pulsar.Schema.String, schema_data=b"")


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    world.broker("a")
    world.broker("b")
    yield world
    await world.stop()


async def used(world: BrokerWorld) -> FakeClient:
    """Return a client that has produced and acknowledged one message by the first name."""
    client = world.broker("a").client()
    await client.producer(producer_name="p", user_provided_producer_name=True, schema=STRING)
    await client.subscribe(schema=STRING)
    client.send(0)
    (message,) = await client.until_got(MESSAGE)
    await client.answer(client.ack(message))
    return client


@pytest.mark.parametrize("name", [TOPIC, NEW])
@pytest.mark.parametrize("broker_id", ["a", "b"])
async def test_a_client_comes_back_by_either_name_to_the_same_topic(
    world: BrokerWorld, name: str, broker_id: str
) -> None:
    client = await used(world)

    world.rename(TOPIC, NEW, grace_ms=GRACE_MS)
    (closed,) = await client.until_got(CLOSE_PRODUCER)
    await client.until_got(CLOSE_CONSUMER)
    world.directory.assigns_to = broker_id
    later = world.broker(broker_id).client()
    ready = await later.producer(name, producer_name="p", user_provided_producer_name=True)
    await later.subscribe(topic=name)
    later.send(1)

    assert closed.assignedBrokerServiceUrl == ""
    assert ready.producer_ready
    assert len(await later.receipts(1)) == 1
    (topic,) = world.broker(broker_id).topics
    assert (topic.unit.name, topic.unit.topic_id) == (NEW, topic_id_of(TOPIC))
    assert topic.ledger.entry_count == 2
    (message,) = await later.until_got(MESSAGE)
    assert message.message_id.ledgerId == topic.ledger.last.ledger_id, "only the second is left"


async def test_a_schema_and_what_is_deduplicated_are_kept(world: BrokerWorld) -> None:
    world.policy = replace(world.policy, deduplicates=True)
    client = world.broker("c").client()
    world.directory.assigns_to = "c"
    await client.producer(producer_name="p", user_provided_producer_name=True, schema=STRING)
    client.send(7)
    await client.receipts(1)

    world.rename(TOPIC, NEW, grace_ms=GRACE_MS)
    await client.until_got(CLOSE_PRODUCER)
    later = world.broker("c").client()
    ready = await later.producer(NEW, producer_name="p", user_provided_producer_name=True)
    answer = await later.request(pulsar.BaseCommand.GET_SCHEMA, topic=TOPIC)

    assert ready.last_sequence_id == 7
    assert answer.schema.name == "String"
    assert (await later.request(pulsar.BaseCommand.GET_SCHEMA, topic=NEW)).schema.name == "String"


async def test_a_broker_that_has_the_unit_serves_a_former_name_without_asking_a_shard(
    world: BrokerWorld,
) -> None:
    await used(world)
    world.rename(TOPIC, NEW, grace_ms=GRACE_MS)
    await world.broker("a").client().producer(NEW)
    world.directory.error = Unavailable("no shard can be reached")

    client = world.broker("a").client()
    assert (await client.producer(TOPIC, producer_id=1)).producer_ready
    assert isinstance(await client.subscribe("other"), pulsar.CommandSuccess)
    looked_up = await client.request(pulsar.BaseCommand.LOOKUP, topic=TOPIC)
    partitions = await client.request(pulsar.BaseCommand.PARTITIONED_METADATA, topic=TOPIC)

    assert looked_up.brokerServiceUrl == world.broker("a").url
    assert partitions.partitions == 0
    (stats,) = topic_stats(world.broker("a").topics, [TOPIC])
    assert (stats.topic, stats.producers) == (TOPIC, 2)


async def test_behind_its_grace_a_former_name_is_another_topics(world: BrokerWorld) -> None:
    client = await used(world)
    world.rename(TOPIC, NEW, grace_ms=GRACE_MS)
    await world.broker("a").client().producer(NEW)
    world.wall_clock_ms += GRACE_MS
    world.directory.renamed[NEW] = replace(world.directory.renamed[NEW], former_names=())

    refused = world.broker("a").client()
    world.directory.allows_creation = False
    assert (await refused.producer(TOPIC)).error == pulsar.TopicNotFound
    world.directory.allows_creation = True
    world.directory.renamed[TOPIC] = Renamed(topic_id_of("a later topic"), ())
    await refused.producer(TOPIC)

    names = {topic.unit.name: topic.ledger.entry_count for topic in world.broker("a").topics}
    assert names == {NEW: 1, TOPIC: 0}
    assert client.got(CLOSE_PRODUCER)


async def test_the_shards_clock_decides_on_a_former_name_that_the_broker_takes_for_free(
    world: BrokerWorld,
) -> None:
    """Its clock is ahead of the leader's."""
    await used(world)
    world.rename(TOPIC, NEW, grace_ms=GRACE_MS)
    await world.broker("a").client().producer(NEW)
    holding = world.broker("a").agent.session.holding
    key = (topic_id_of(TOPIC), "")
    topic = replace(holding.topics[key[0]], former_names=(), version=9)
    holding.apply(topic, 0)
    assert holding.held(parse_topic(TOPIC), world.clock()) is None

    assert (await world.broker("a").client().producer(TOPIC)).producer_ready
    assert {each.unit.name for each in world.broker("a").topics} == {NEW}


async def test_the_new_name_waits_until_the_old_one_has_closed_here(world: BrokerWorld) -> None:
    """Both are one ledger: it has one owner in this process at a time."""
    client = await used(world)
    world.rename(TOPIC, NEW, grace_ms=GRACE_MS, is_released=False)
    (old,) = world.broker("a").topics
    closing = asyncio.Event()
    close, closes = old.ledger.close, []

    async def slow_close(**how: Any) -> None:
        closes.append(how)
        await closing.wait()
        await close(**how)

    old.ledger.close = slow_close  # type: ignore[method-assign]
    world.release(NEW, "a", 1)
    later = world.broker("a").client()
    request = later.start(pulsar.BaseCommand.PRODUCER, topic=NEW, producer_id=0)
    await settle()

    assert closes
    assert not later.got(pulsar.BaseCommand.PRODUCER_SUCCESS)
    closing.set()
    assert (await later.answer(request)).producer_ready
    assert client.got(CLOSE_PRODUCER)


async def test_a_release_that_names_the_unit_by_its_new_name_ends_the_old_one(
    world: BrokerWorld,
) -> None:
    """A later leader repeats releases by the names that units have by then."""
    client = await used(world)
    world.rename(TOPIC, NEW, grace_ms=GRACE_MS, is_released=False)
    world.assign(NEW, "b")

    world.broker("a").deliver(
        Release(topic_id_of(TOPIC), "", NEW, 1, "b", 2, "", world.broker("b").url)
    )

    (closed,) = await client.until_got(CLOSE_PRODUCER)
    assert closed.assignedBrokerServiceUrl == world.broker("b").url
    await until(lambda: len(world.broker("a").topics) == 0)


async def test_an_assignment_under_the_new_name_ends_the_old_one_without_its_release(
    world: BrokerWorld,
) -> None:
    client = await used(world)
    world.rename(TOPIC, NEW, grace_ms=GRACE_MS, is_released=False)

    world.assign(NEW, "a")

    (closed,) = await client.until_got(CLOSE_PRODUCER)
    assert closed.assignedBrokerServiceUrl == world.broker("a").url
    assert (await client.producer(TOPIC, producer_id=5)).producer_ready
    assert {topic.unit.name for topic in world.broker("a").topics} == {NEW}


async def test_an_operator_names_the_unit_by_any_name(world: BrokerWorld) -> None:
    await used(world)
    world.rename(TOPIC, NEW, grace_ms=GRACE_MS)
    await world.broker("a").client().producer(NEW)
    topics = world.broker("a").topics

    opened = await topics.open_assigned(parse_topic(TOPIC), (topic_id_of(TOPIC), ""), 2)

    assert opened is topics.get(NEW)
    await topics.end_assigned(parse_topic(TOPIC), opened.unit.key, 2, is_forced=True)
    await topics.remove(parse_topic(TOPIC), opened.unit.key, 2)
    assert len(topics) == 0
    assert opened.unit.key not in world.disk.units


async def test_a_topic_that_is_open_from_an_ended_session_is_sent_to_its_owner_by_its_old_name(
    world: BrokerWorld,
) -> None:
    client = await used(world)
    world.rename(TOPIC, NEW, grace_ms=GRACE_MS, is_released=False)
    world.directory.assigns_to = "b"

    world.broker("a").begin_session()

    (closed,) = await client.until_got(CLOSE_PRODUCER)
    assert closed.assignedBrokerServiceUrl == world.broker("b").url
    await until(lambda: len(world.broker("a").topics) == 0)
