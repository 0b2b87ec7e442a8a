"""A segment goes from one member of a group to another, who may be first to hear of it."""

from __future__ import annotations

import asyncio

import pytest

from brokers.domain.subscriptions.kind import SubscriptionKind
from brokers.service.topics import topic as topics
from nextgen.kernel.limits.scalable import SEGMENT_HANDOVER_MS_MAX
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.subscription_world import SubscriptionWorld
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

SEGMENT = "segment://public/default/orders/0000-7fff-3"


async def subscribed(client: FakeClient, request: int) -> bool:
    return isinstance(await client.answer(request), pulsar.CommandSuccess)


def subscribe(client: FakeClient, topic: str = SEGMENT) -> int:
    return client.start(
        pulsar.BaseCommand.SUBSCRIBE,
        topic=topic,
        subscription="group",
        subType=pulsar.CommandSubscribe.Exclusive,
        consumer_id=0,
    )


async def departed(world: SubscriptionWorld, limit_ms: int) -> None:
    subscription = world.subscription
    await subscription.departures.wait(lambda: not subscription.consumers, limit_ms)


async def test_a_new_member_waits_until_the_former_one_has_left(world: BrokerWorld):
    former, first, second = (world.broker("a").client() for _ in range(3))
    assert await subscribed(former, subscribe(former))

    waiting = [subscribe(first), subscribe(second)]
    await settle()
    assert not first.got(pulsar.BaseCommand.SUCCESS)
    former.leave()

    assert await subscribed(first, waiting[0])
    await settle()
    assert not second.got(pulsar.BaseCommand.SUCCESS)
    first.leave()
    assert await subscribed(second, waiting[1])


async def test_a_member_that_does_not_leave_is_not_replaced(
    world: BrokerWorld, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(topics, "SEGMENT_HANDOVER_MS_MAX", 0)
    former, new = world.broker("a").client(), world.broker("a").client()
    assert await subscribed(former, subscribe(former))

    answer = await new.answer(subscribe(new))

    assert answer.error == pulsar.ConsumerBusy


async def test_a_second_consumer_of_a_classic_topic_is_refused_at_once(world: BrokerWorld):
    former, new = world.broker("a").client(), world.broker("a").client()
    assert await subscribed(former, subscribe(former, TOPIC))

    answer = await new.answer(subscribe(new, TOPIC))

    assert answer.error == pulsar.ConsumerBusy


@pytest.mark.parametrize("after_ms", [SEGMENT_HANDOVER_MS_MAX, SEGMENT_HANDOVER_MS_MAX + 1])
def test_a_consumer_has_left_within_SEGMENT_HANDOVER_MS_MAX_or_not(after_ms: int) -> None:
    async def main() -> None:
        world = await SubscriptionWorld().open(SubscriptionKind.EXCLUSIVE)
        world.join()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await departed(world, after_ms)
        assert round((loop.time() - began) * 1_000) == after_ms

    run_virtual(main)


@run_by(run_virtual)
async def test_nobody_waits_where_no_consumer_is() -> None:
    world = await SubscriptionWorld().open(SubscriptionKind.EXCLUSIVE)
    began = asyncio.get_running_loop().time()

    await departed(world, SEGMENT_HANDOVER_MS_MAX)

    assert asyncio.get_running_loop().time() == began
