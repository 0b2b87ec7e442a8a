"""Subscriptions are sent messages within their rates, and none is forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nextgen.kernel.governance.client_limits import Rate, TenantLimits, TopicLimits
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle

SHARED = pulsar.CommandSubscribe.Shared
KEY_SHARED = pulsar.CommandSubscribe.Key_Shared
EXCLUSIVE = pulsar.CommandSubscribe.Exclusive


def use(world: BrokerWorld, **limits: object) -> None:
    given = TopicLimits(**limits)  # type: ignore[arg-type]
    world.broker().topics.use_limits(given)
    for topic in world.broker().topics:
        topic.use_policy(replace(topic.policy, limits=given))


async def consumer(
    world: BrokerWorld, subscription: str = "sub", kind: int = EXCLUSIVE, port: int = 10
) -> FakeClient:
    client = world.broker().client(peer=("127.0.0.1", port))
    answer = await client.subscribe(subscription, kind=kind, permits=100_000)
    assert isinstance(answer, pulsar.CommandSuccess)
    return client


async def publish(world: BrokerWorld, count: int, size: int = 10, messages: int = 1) -> None:
    client = world.broker().client()
    await client.producer(TOPIC)
    for number in range(count):
        batch = {"with_num_messages_in_batch": messages} if messages > 1 else {}
        client.send(number * messages, b"x" * size, **batch)
    await settle()


def received(client: FakeClient) -> int:
    return len(client.got(pulsar.BaseCommand.MESSAGE))


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
async def test_a_subscription_gets_messages_at_its_rate_and_all_of_them(world, kind):
    use(world, subscription_dispatch=Rate(messages=100))
    client = await consumer(world, kind=kind)

    await publish(world, 600)

    assert received(client) == pytest.approx(100, abs=1)
    await asyncio.sleep(2)
    assert received(client) == pytest.approx(300, abs=3)
    await asyncio.sleep(10)
    assert received(client) == 600


async def test_messages_of_a_batch_count_one_by_one(world):
    use(world, subscription_dispatch=Rate(messages=100))
    client = await consumer(world)

    await publish(world, 40, messages=10)
    await asyncio.sleep(1.05)

    assert received(client) == pytest.approx(20, abs=1)
    await asyncio.sleep(4)
    assert received(client) == 40


async def test_bytes_have_a_rate_too(world):
    use(world, subscription_dispatch=Rate(size_bytes=10_000))
    client = await consumer(world, kind=SHARED)

    await publish(world, 2_000, size=100)
    await asyncio.sleep(10)

    subscription = world.broker().topics.get(TOPIC).subscriptions["sub"]
    sent = subscription.stats().bytes_out
    assert sent == pytest.approx(110_000, abs=500)
    await asyncio.sleep(60)
    assert received(client) == 2_000


async def test_a_period_of_many_seconds_may_be_sent_at_once(world):
    use(world, dispatch=Rate(messages=200, period_seconds=20))
    client = await consumer(world)

    await publish(world, 400)
    assert received(client) == pytest.approx(200, abs=1)
    await asyncio.sleep(10)
    assert received(client) == pytest.approx(300, abs=2)


async def test_subscriptions_share_their_topics_rate_evenly(world):
    use(world, dispatch=Rate(messages=300))
    clients = [await consumer(world, f"s{number}", port=number) for number in range(3)]

    await publish(world, 2_000)
    await asyncio.sleep(10)

    counts = [received(client) for client in clients]
    assert sum(counts) == pytest.approx(3_300, rel=0.02)
    # The first burst is of whoever came first.
    assert max(counts) - min(counts) <= 330


async def test_one_subscription_may_have_a_rate_of_its_own(world):
    use(
        world,
        subscription_dispatch=Rate(messages=10),
        named_dispatch=(("fast", Rate(messages=100)), ("free", Rate())),
    )
    slow, fast, free = [
        await consumer(world, name, port=port)
        for port, name in enumerate(("slow", "fast", "free"), start=1)
    ]

    await publish(world, 300)
    await asyncio.sleep(1)

    assert received(slow) == pytest.approx(20, abs=1)
    assert received(fast) == pytest.approx(200, abs=3)
    assert received(free) == 300


async def test_topics_of_a_tenant_share_its_rate(world):
    use(world, tenant=TenantLimits(dispatch=Rate(messages=100)))
    clients = [await consumer(world, name, port=port) for port, name in enumerate("ab", start=1)]

    await publish(world, 1_000)
    await asyncio.sleep(4)

    assert sum(map(received, clients)) == pytest.approx(500, abs=10)


async def test_a_rate_that_is_removed_or_set_counts_at_once(world):
    use(world, subscription_dispatch=Rate(messages=1))
    client = await consumer(world)
    await publish(world, 500)
    assert received(client) <= 2

    use(world)
    await settle()
    assert received(client) == 500

    use(world, subscription_dispatch=Rate(messages=10))
    await publish(world, 500)
    assert received(client) == pytest.approx(510, abs=1)


async def test_a_subscription_that_ends_waits_for_nothing(world):
    use(world, subscription_dispatch=Rate(messages=1), dispatch=Rate(messages=1))
    client = await consumer(world)
    await publish(world, 10)
    topic = world.broker().topics.get(TOPIC)
    limiters = topic.subscriptions["sub"].sending._pacing._limiters
    assert sum(each.waiting for each in limiters) == 1

    await client.request(pulsar.BaseCommand.UNSUBSCRIBE, consumer_id=0)
    await settle()

    assert sum(each.waiting for each in limiters) == 0


async def test_fewer_unacknowledged_messages_may_be_allowed(world):
    use(world, consumer_unacked=10, subscription_unacked=15)
    first = await consumer(world, kind=SHARED, port=1)
    second = await consumer(world, kind=SHARED, port=2)

    await publish(world, 100)

    assert received(first) <= 10
    assert received(second) <= 10
    assert received(first) + received(second) == 15
    for message in first.got(pulsar.BaseCommand.MESSAGE):
        first.ack(message)
    await settle()
    assert received(first) + received(second) > 15

    use(world)
    await settle()
    assert received(first) + received(second) == 100
