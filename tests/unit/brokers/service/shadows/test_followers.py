"""What a topic tells the streams that feed its shadows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from brokers.service.shadows.followers import ShadowFeed
from brokers.service.topics.topic import Topic
from brokers.service.topics.upkeep import Upkeep
from nextgen.kernel.limits.pulsar import TOPIC_IDLE_MS_MAX
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, settle


class Watcher:
    """A follower that counts its calls."""

    def __init__(self) -> None:
        self.changes = 0
        self.ends = 0
        self.feeds: list[ShadowFeed] = []

    def changed(self) -> None:
        self.changes += 1

    def ended(self) -> None:
        self.ends += 1


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld()
    yield world
    await world.stop()


async def followed(world: BrokerWorld) -> tuple[Topic, Watcher]:
    await world.broker().client().producer(producer_name="p")
    topic = world.broker().topics.get(TOPIC)
    assert topic is not None
    watcher = Watcher()
    topic.followers.add(watcher)
    return topic, watcher


async def test_a_follower_looks_when_entries_are_acknowledged_and_not_before(
    world: BrokerWorld,
) -> None:
    topic, watcher = await followed(world)
    client = world.broker().client()
    await client.producer(producer_id=1, producer_name="q")
    world.broker().ledger().is_holding = True
    client.send(0, producer_id=1)
    await settle()
    assert watcher.changes == 0

    world.broker().ledger().is_holding = False
    world.broker().ledger().release()
    await client.receipts(1)

    assert watcher.changes == 1
    topic.followers.remove(watcher)
    topic.followers.remove(watcher)
    client.send(1, producer_id=1)
    await client.receipts(2)
    assert watcher.changes == 1


async def test_new_schemas_and_the_end_of_a_topic_are_changed_facts(world: BrokerWorld) -> None:
    topic, watcher = await followed(world)
    schema = pulsar.Schema(name="s", type=pulsar.Schema.String, schema_data=b"")

    await world.broker().client().producer(producer_id=1, schema=schema)
    assert (topic.followers.facts_version, watcher.changes) == (1, 1)
    await world.broker().client().producer(producer_id=1, schema=schema)
    assert topic.followers.facts_version == 1, "it is no new version"
    await topic.schemas.delete(is_forced=False)
    assert topic.followers.facts_version == 2
    await topic.terminate()

    assert (topic.followers.facts_version, watcher.changes) == (3, 3)


async def test_a_changed_policy_is_looked_at(world: BrokerWorld) -> None:
    topic, watcher = await followed(world)

    topic.use_policy(replace(topic.policy, shadow_topics=("persistent://t/ns/x",)))

    assert watcher.changes == 1


async def test_followers_are_told_of_the_end_once(world: BrokerWorld) -> None:
    topic, watcher = await followed(world)

    await world.broker().topics.close_topic(topic)
    await topic.close()

    assert watcher.ends == 1


async def test_a_topic_that_feeds_shadows_is_not_idle(world: BrokerWorld) -> None:
    broker = world.broker()
    client = broker.client()
    await client.producer()
    topic = broker.topics.get(TOPIC)
    assert topic is not None
    watcher = Watcher()
    watcher.feeds = [ShadowFeed("persistent://t/ns/x", "b", 5)]
    topic.followers.add(watcher)
    client.leave()
    await settle()
    upkeep = Upkeep(broker.topics, lambda: broker.now_ms)

    await upkeep.look()
    broker.now_ms += 2 * TOPIC_IDLE_MS_MAX
    await upkeep.look()
    assert broker.topics.get(TOPIC) is topic
    assert topic.followers.feeds == watcher.feeds

    topic.followers.remove(watcher)
    await upkeep.look()
    broker.now_ms += 2 * TOPIC_IDLE_MS_MAX
    await upkeep.look()
    assert broker.topics.get(TOPIC) is None
