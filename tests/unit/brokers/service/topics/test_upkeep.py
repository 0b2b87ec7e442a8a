"""What open topics need from time to time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from brokers.domain.position import Position
from brokers.domain.storage_policy import NO_BOUND, StoragePolicy
from brokers.ports.ledger import StorageFailed
from brokers.service.subscriptions.subscription import SubscriptionStart
from brokers.service.topics import upkeep as upkeep_of_topics
from brokers.service.topics.upkeep import Upkeep, trim
from nextgen.kernel.governance.policies import FOR_EVER
from nextgen.kernel.limits.pulsar import LEDGER_SEGMENT_BYTES, TOPIC_IDLE_MS_MAX, TOPIC_TRIM_MS
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeBroker, FakeClient, settle

OTHER = f"{TOPIC}-other"
EARLIEST = {"initialPosition": pulsar.CommandSubscribe.Earliest}


@pytest.fixture
async def world() -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld(policy=StoragePolicy(60_000, 2**30, backlog_bytes_max=10_000))
    yield world
    await world.stop()


def upkeep(broker: FakeBroker) -> Upkeep:
    return Upkeep(broker.topics, lambda: broker.now_ms)


async def filled(world: BrokerWorld, count: int, *, size: int = 1_000) -> FakeClient:
    client = world.broker().client()
    await client.producer(producer_id=9, producer_name="p")
    await client.subscribe(permits=0, **EARLIEST)
    for number in range(count):
        client.send(number, b"x" * size, producer_id=9)
    await client.receipts(count)
    return client


async def acknowledge(client: FakeClient, count: int) -> None:
    client.send_raw(client.command(pulsar.BaseCommand.FLOW, consumer_id=0, messagePermits=1_000))
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, count)
    await client.answer(client.ack(messages[count - 1], is_cumulative=True))


async def test_a_topic_that_nobody_uses_is_closed_after_a_while(world: BrokerWorld):
    broker = world.broker()
    client = broker.client()
    await client.producer()
    care = upkeep(broker)
    broker.now_ms += TOPIC_IDLE_MS_MAX * 2
    await care.look()
    assert broker.topics.get(TOPIC) is not None, "somebody is here"

    client.leave()
    await settle()
    await care.look()
    broker.now_ms += TOPIC_IDLE_MS_MAX
    await care.look()
    assert broker.topics.get(TOPIC) is not None, "not long enough"
    broker.now_ms += 1
    await care.look()

    assert broker.topics.get(TOPIC) is None
    assert (await broker.client().producer()).producer_ready


async def test_a_client_in_between_begins_the_time_anew(world: BrokerWorld):
    broker = world.broker()
    client = broker.client()
    await client.producer()
    client.leave()
    await settle()
    care = upkeep(broker)
    await care.look()
    broker.now_ms += TOPIC_IDLE_MS_MAX

    visitor = broker.client()
    await visitor.producer()
    await care.look()
    visitor.leave()
    await settle()
    broker.now_ms += 1
    await care.look()

    assert broker.topics.get(TOPIC) is not None


@pytest.mark.parametrize("is_producer", [True, False])
async def test_a_client_that_comes_and_goes_between_two_looks_was_there(
    world: BrokerWorld, is_producer: bool
):
    """A topic with a client for a moment each minute must not count as unused."""
    broker = world.broker()
    client = broker.client()
    await client.producer()
    client.leave()
    await settle()
    topic = broker.topics.get(TOPIC)
    assert topic is not None
    assert topic.idle_for_ms(broker.now_ms) == 0
    broker.now_ms += 60_000
    assert topic.idle_for_ms(broker.now_ms) == 60_000

    visitor = broker.client()
    await (visitor.producer() if is_producer else visitor.subscribe())
    visitor.leave()
    await settle()
    broker.now_ms += 1_000

    assert topic.idle_for_ms(broker.now_ms) == 0
    broker.now_ms += 1_000
    assert topic.idle_for_ms(broker.now_ms) == 1_000


async def test_too_much_backlog_refuses_producers_and_messages_until_it_is_consumed(
    world: BrokerWorld,
):
    client = await filled(world, 9)
    care = upkeep(world.broker())
    await care.look()
    client.send(9, b"x" * 1_000, producer_id=9)
    client.send(10, b"x" * 1_000, producer_id=9)
    await client.receipts(11)

    await care.look()
    refused = await client.producer(producer_id=1)
    client.send(11, producer_id=9)
    (error,) = await client.until_got(pulsar.BaseCommand.SEND_ERROR)

    assert refused.error == error.error == pulsar.ProducerBlockedQuotaExceededException
    assert world.broker().topics.get(TOPIC).ledger.entry_count == 11
    await acknowledge(client, 11)
    await care.look()
    assert (await client.producer(producer_id=1)).producer_ready


async def test_a_topic_without_durable_subscriptions_has_no_backlog(world: BrokerWorld):
    client = world.broker().client()
    await client.producer()
    for number in range(20):
        client.send(number, b"x" * 1_000)
    await client.receipts(20)

    await upkeep(world.broker()).look()

    assert (await client.producer(producer_id=1)).producer_ready


class Segments:
    """The positions of a topic's segments, each of one entry."""

    def __init__(self, world: BrokerWorld) -> None:
        world.broker().store.segment_bytes = 1
        self.world = world

    @property
    def kept(self) -> int:
        return self.world.broker().topics.get(TOPIC).ledger.entry_count


async def test_what_is_old_and_acknowledged_by_all_is_dropped(world: BrokerWorld):
    segments = Segments(world)
    client = await filled(world, 5)
    await acknowledge(client, 4)
    care = upkeep(world.broker())

    world.broker().now_ms += TOPIC_TRIM_MS
    await care.look()
    assert segments.kept == 5, "it is not old"
    world.wall_clock_ms += 60_001
    await care.look()
    assert segments.kept == 5, "it is not time to look"
    world.broker().now_ms += TOPIC_TRIM_MS
    await care.look()

    assert segments.kept == 1


async def test_what_the_slowest_subscription_needs_is_kept(world: BrokerWorld):
    segments = Segments(world)
    client = await filled(world, 5)
    await client.subscribe("slow", consumer_id=1, permits=0)
    await client.subscribe("slower", consumer_id=2, permits=0, **EARLIEST)
    await acknowledge(client, 5)
    topic = world.broker().topics.get(TOPIC)

    await trim(topic, StoragePolicy(0, 0, backlog_bytes_max=NO_BOUND), world.wall_clock_ms + 1)

    assert segments.kept == 5


SHADOW = "persistent://public/default/shadow"


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes"), [(0, FOR_EVER), (FOR_EVER, 0)], ids=["time", "size"]
)
async def test_what_shadows_need_is_kept_if_the_policy_says_so(
    world: BrokerWorld, retention_ms: int, retention_bytes: int
):
    segments = Segments(world)
    client = await filled(world, 5)
    await acknowledge(client, 5)
    topic = world.broker().topics.get(TOPIC)
    topic.ledger = Sizes(topic.ledger, LEDGER_SEGMENT_BYTES)
    policy = StoragePolicy(
        retention_ms,
        retention_bytes,
        backlog_bytes_max=NO_BOUND,
        shadow_topics=(SHADOW,),
        keeps_for_shadows=True,
    )
    await trim(topic, policy, world.wall_clock_ms + 1)
    assert segments.kept == 5, "the shadow may need all of them"

    topic.shadows.report(SHADOW, Position(topic.ledger.extents[2].ledger_id, 0))
    await trim(topic, policy, world.wall_clock_ms + 1)
    assert segments.kept == 2
    assert f"shadow/{SHADOW}" in topic.ledger.state

    await trim(topic, replace(policy, keeps_for_shadows=False), world.wall_clock_ms + 1)
    assert segments.kept == 1
    assert f"shadow/{SHADOW}" not in topic.ledger.state


async def test_what_shadows_need_is_not_kept_otherwise(world: BrokerWorld):
    segments = Segments(world)
    client = await filled(world, 5)
    await acknowledge(client, 5)
    topic = world.broker().topics.get(TOPIC)

    policy = StoragePolicy(0, 0, backlog_bytes_max=NO_BOUND, shadow_topics=(SHADOW,))
    await trim(topic, policy, world.wall_clock_ms + 1)

    assert segments.kept == 1


async def test_what_is_beyond_the_newest_bytes_is_dropped_although_it_is_young(
    world: BrokerWorld,
):
    Segments(world)
    client = await filled(world, 6)
    await acknowledge(client, 6)
    topic = world.broker().topics.get(TOPIC)
    big = Sizes(topic.ledger, LEDGER_SEGMENT_BYTES)
    topic.ledger = big

    policy = StoragePolicy(FOR_EVER, 2 * LEDGER_SEGMENT_BYTES, backlog_bytes_max=NO_BOUND)
    await trim(topic, policy, world.wall_clock_ms)

    assert big.entry_count == 2


async def test_what_is_kept_for_ever_is_kept_however_old_and_much_it_is(world: BrokerWorld):
    segments = Segments(world)
    client = await filled(world, 6)
    await acknowledge(client, 6)
    topic = world.broker().topics.get(TOPIC)
    topic.ledger = Sizes(topic.ledger, LEDGER_SEGMENT_BYTES)

    policy = StoragePolicy(FOR_EVER, FOR_EVER, backlog_bytes_max=NO_BOUND)
    await trim(topic, policy, world.wall_clock_ms + 10**12)

    assert segments.kept == 6


class Sizes:
    """A ledger whose entries count as ``size`` bytes each."""

    def __init__(self, inner: Any, size: int) -> None:
        self.inner = inner
        self.size = size

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def byte_count(self) -> int:
        return int(self.inner.entry_count * self.size)


async def test_a_topic_that_cannot_be_trimmed_does_not_keep_others_from_it(world: BrokerWorld):
    segments = Segments(world)
    other = f"{TOPIC}-0"
    first = world.broker().client()
    await first.producer(other)
    client = await filled(world, 3)
    await acknowledge(client, 3)

    async def fail(_: Any) -> None:
        raise StorageFailed("no space left")

    world.broker().store.moody[other].inner.trim = fail
    world.broker().now_ms += TOPIC_TRIM_MS
    world.wall_clock_ms += 60_001

    await upkeep(world.broker()).look()
    world.broker().now_ms += TOPIC_TRIM_MS
    care = Upkeep(world.broker().topics, lambda: world.broker().now_ms, trim_ms=0)
    await care.look()

    assert segments.kept == 1


async def test_strays_are_asked_for_again(world: BrokerWorld):
    broker = world.broker()
    client = broker.client()
    await client.producer()
    care = upkeep(broker)
    world.directory.owners[TOPIC] = ("a", 1)
    broker.agent.session.holding = type(broker.agent.session.holding)()
    world.broker("b")
    world.directory.owners[TOPIC] = ("b", 2)

    broker.now_ms += TOPIC_TRIM_MS
    await care.look()

    (closed,) = await client.until_got(pulsar.BaseCommand.CLOSE_PRODUCER)
    assert closed.assignedBrokerServiceUrl == "pulsar://b:6650"


async def test_topics_with_many_subscriptions_are_checked_in_turns(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
):
    for name in (TOPIC, OTHER):
        world.assign(name, "a")
        await world.broker().client().subscribe(topic=name)
        topic = world.broker().topics.get(name)
        assert topic is not None
        for number in range(1_000):
            await topic.create_subscription(f"sub-{number}", SubscriptionStart())
    seen: list[str] = []
    monkeypatch.setattr(
        upkeep_of_topics, "limit_backlog", lambda topic: seen.append(topic.unit.name)
    )
    looking = asyncio.create_task(upkeep(world.broker()).look())

    await asyncio.sleep(0)

    assert seen == [TOPIC]
    await looking
    assert seen == [TOPIC, OTHER]
