"""What open topics need from time to time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from brokers.domain.holding import Assignment
from brokers.domain.position import Position
from brokers.domain.storage_policy import NO_BOUND, StoragePolicy
from brokers.ports.ledger import StorageFailed
from brokers.service.subscriptions.subscription import SubscriptionStart
from brokers.service.topics import upkeep as upkeep_of_topics
from brokers.service.topics.upkeep import Upkeep, trim
from nextgen.kernel.governance.policies import FOR_EVER
from nextgen.kernel.limits.pulsar import (
    LEDGER_SEGMENT_BYTES,
    TOPIC_IDLE_MS_MAX,
    TOPIC_TRIM_MS,
    UPKEEP_CLOSED_MS,
    UPKEEP_OPENED_MAX,
)
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


# Upkeep of topics without clients ------------------------------------------------------------


def unit_of(broker: FakeBroker) -> Assignment:
    topic = broker.topics.get(TOPIC)
    assert topic is not None
    unit = broker.topics.assignment_of(topic.unit.key)
    assert unit is not None
    return unit


async def left_alone(world: BrokerWorld, count: int, acknowledged: int) -> Assignment:
    """Return a unit with messages that its clients have left."""
    client = await filled(world, count)
    if acknowledged:
        await acknowledge(client, acknowledged)
    unit = unit_of(world.broker())
    client.leave()
    await settle()
    return unit


async def pass_ms(world: BrokerWorld, care: Upkeep, milliseconds: int) -> None:
    """Let both clocks go on, and check."""
    world.broker().now_ms += milliseconds
    world.wall_clock_ms += milliseconds
    await care.look()


async def test_old_messages_of_a_closed_topic_are_dropped_and_only_then_it_may_leave(
    world: BrokerWorld,
):
    """Retention is a minute here. The topic is closed for being idle long before."""
    broker = world.broker()
    unit = await left_alone(world, 3, acknowledged=3)
    care = Upkeep(broker.topics, lambda: broker.now_ms, idle_ms_max=1_000, trim_ms=0)
    await care.look()
    await pass_ms(world, care, 2_000)
    assert broker.topics.get(TOPIC) is None
    assert care.pending.has(unit)

    await pass_ms(world, care, 61_000)
    assert care.pending.has(unit), "it is opened every UPKEEP_CLOSED_MS only"
    await pass_ms(world, care, UPKEEP_CLOSED_MS)

    assert broker.topics.get(TOPIC) is None, "opened for upkeep, it is closed again"
    assert not care.pending.has(unit)


async def test_a_unit_that_was_never_open_here_is_opened_once_before_it_leaves(
    world: BrokerWorld,
):
    broker = world.broker()
    unit = await left_alone(world, 3, acknowledged=3)
    await broker.topics.close_idle(broker.topics.get(TOPIC))
    care = Upkeep(broker.topics, lambda: broker.now_ms)
    world.wall_clock_ms += 120_000
    assert care.pending.has(unit), "nobody knows yet"

    await care.look()

    assert not care.pending.has(unit)
    assert broker.topics.get(TOPIC) is None


async def test_a_backlog_without_a_time_to_live_is_no_upkeep(world: BrokerWorld):
    """Nobody will ever drop it: it waits for its consumer, wherever the topic is opened next."""
    broker = world.broker()
    unit = await left_alone(world, 3, acknowledged=0)
    care = Upkeep(broker.topics, lambda: broker.now_ms, trim_ms=0)

    await care.look()

    assert not care.pending.has(unit)


async def test_a_backlog_with_a_time_to_live_expires_without_a_client(world: BrokerWorld):
    broker = world.broker()
    unit = await left_alone(world, 3, acknowledged=0)
    topic = broker.topics.get(TOPIC)
    assert topic is not None
    topic.use_policy(replace(topic.policy, message_ttl_ms=90_000))
    care = Upkeep(broker.topics, lambda: broker.now_ms, trim_ms=0)
    await pass_ms(world, care, 89_000)
    assert care.pending.has(unit)

    await pass_ms(world, care, 2_000)

    assert topic.backlog_bytes == 0
    assert not care.pending.has(unit)


async def test_a_client_makes_a_unit_unknown_again(world: BrokerWorld):
    broker = world.broker()
    unit = await left_alone(world, 3, acknowledged=3)
    care = Upkeep(broker.topics, lambda: broker.now_ms, trim_ms=0)
    await pass_ms(world, care, 120_000)
    assert not care.pending.has(unit)

    client = broker.client()
    await client.producer()
    await care.look()

    assert care.pending.has(unit)


@pytest.mark.parametrize(
    "policy",
    [
        StoragePolicy(0, 2**30, backlog_bytes_max=NO_BOUND),
        StoragePolicy(FOR_EVER, 2**30, backlog_bytes_max=NO_BOUND),
    ],
    ids=["nothing is kept", "all is kept"],
)
async def test_where_time_drops_nothing_a_unit_has_no_upkeep_and_is_not_opened_for_it(policy):
    world = BrokerWorld(policy=policy)
    try:
        unit = await left_alone(world, 3, acknowledged=0)
        broker = world.broker()
        await broker.topics.close_idle(broker.topics.get(TOPIC))
        care = Upkeep(broker.topics, lambda: broker.now_ms)

        assert not care.pending.has(unit)
        assert care.pending.due() == []
    finally:
        await world.stop()


async def test_a_unit_whose_ledger_cannot_be_opened_may_leave(world: BrokerWorld):
    broker = world.broker()
    unit = await left_alone(world, 3, acknowledged=3)
    await broker.topics.close_idle(broker.topics.get(TOPIC))
    care = Upkeep(broker.topics, lambda: broker.now_ms)
    assert care.pending.has(unit)
    broker.topics._damaged[unit.key] = "a torn record"

    await care.look()

    assert not care.pending.has(unit)


async def test_closed_topics_are_opened_a_few_at_a_time(world: BrokerWorld):
    broker = world.broker()
    unit = await left_alone(world, 1, acknowledged=1)
    care = Upkeep(broker.topics, lambda: broker.now_ms)
    held = {
        (f"id-{number}", ""): replace(unit, topic=replace(unit.topic, topic_id=f"id-{number}"))
        for number in range(UPKEEP_OPENED_MAX + 1)
    }
    broker.topics.assignment_of = held.get  # type: ignore[method-assign]
    for each in held.values():
        assert care.pending.has(each)

    assert len(care.pending.due()) == UPKEEP_OPENED_MAX
