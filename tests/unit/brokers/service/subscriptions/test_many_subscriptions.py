"""A topic with more subscriptions than one turn of the loop handles."""

from __future__ import annotations

import asyncio
from typing import Any

from brokers.service.subscriptions.many_subscriptions import WakeUps, for_all
from nextgen.kernel.limits.pulsar import SUBSCRIPTIONS_PER_TURN
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import TOPIC, BrokerWorld, settle


class Sleeper:
    """What is woken, in place of a subscription."""

    def __init__(self, name: int, woken: list[int]) -> None:
        self.name = name
        self._woken = woken

    def appended(self) -> None:
        self._woken.append(self.name)

    async def work(self) -> None:
        self._woken.append(self.name)


def crowd(count: int) -> tuple[dict[Any, Any], list[int]]:
    woken: list[int] = []
    return {number: Sleeper(number, woken) for number in range(count)}, woken


async def test_subscriptions_per_turn_are_woken_at_once_and_one_more_in_the_next_turn():
    for count, at_once in ((SUBSCRIPTIONS_PER_TURN, True), (SUBSCRIPTIONS_PER_TURN + 1, False)):
        subscriptions, woken = crowd(count)

        WakeUps(subscriptions).appended()

        assert (len(woken) == count) is at_once
        await asyncio.sleep(0)
        assert woken == list(range(count))


async def test_appends_during_a_round_cause_one_more_round():
    subscriptions, woken = crowd(2 * SUBSCRIPTIONS_PER_TURN + 1)
    wake_ups = WakeUps(subscriptions)

    for _ in range(3):
        wake_ups.appended()
    subscriptions.update(crowd(1)[0])
    await settle()

    assert woken[: len(subscriptions)] == list(range(len(subscriptions)))
    assert len(woken) == 2 * len(subscriptions) - 1, "one was exchanged meanwhile"
    wake_ups.appended()
    await settle()
    assert len(woken) == 3 * len(subscriptions) - 2


async def test_work_for_all_begins_in_turns():
    subscriptions, worked = crowd(2 * SUBSCRIPTIONS_PER_TURN)

    working = asyncio.ensure_future(for_all(subscriptions.values(), lambda each: each.work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert len(worked) == SUBSCRIPTIONS_PER_TURN
    await working
    assert worked == list(subscriptions)


async def test_a_topic_restores_wakes_and_closes_more_than_one_turn_handles(world: BrokerWorld):
    count = SUBSCRIPTIONS_PER_TURN + 1
    for owner in ("a", "b"):
        world.assign(TOPIC, owner)
        client = world.broker(owner).client()
        for number in range(count):
            client.start(
                pulsar.BaseCommand.SUBSCRIBE,
                topic=TOPIC,
                subscription=f"s{number}",
                subType=0,
                consumer_id=number,
            )
        await client.until_got(pulsar.BaseCommand.SUCCESS, count)
        for number in range(count):
            flow = client.command(pulsar.BaseCommand.FLOW, consumer_id=number, messagePermits=10)
            client.send_raw(flow)
        producer = world.broker(owner).client()
        await producer.producer()
        producer.send(len(owner))

        messages = await client.until_got(pulsar.BaseCommand.MESSAGE, count)

        assert {each.consumer_id for each in messages} == set(range(count))
    topic = world.broker("b").topics.get(TOPIC)
    assert len(topic.subscriptions) == count
    assert all(each.backlog_entries for each in topic.subscriptions.values())
