"""Exclusive and Failover: order, and who is active."""

from __future__ import annotations

import pytest

from brokers.domain.refusal import Refusal, ServerError
from brokers.service.subscriptions.subscription import NO_EPOCH, SubscriptionKind
from nextgen.kernel.limits.pulsar import CURSOR_HOLES_PAUSE
from tests.support.brokers.subscription_world import SubscriptionWorld, settle

EXCLUSIVE = SubscriptionKind.EXCLUSIVE
FAILOVER = SubscriptionKind.FAILOVER
BOTH = pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])


async def test_a_second_exclusive_consumer_is_refused_until_the_first_is_gone() -> None:
    world = await SubscriptionWorld().open(EXCLUSIVE)
    first = world.join(permits=10)
    await world.publish(3)

    with pytest.raises(Refusal) as refused:
        world.join()
    assert refused.value.code is ServerError.CONSUMER_BUSY
    first.leave()
    second = world.join(permits=10)
    await settle()

    assert second.numbers == [0, 1, 2]
    assert (first.active, second.active) == ([], []), "only Failover consumers are told"


@BOTH
async def test_everything_is_sent_again_in_order_when_the_consumer_asks(
    kind: SubscriptionKind,
) -> None:
    world = await SubscriptionWorld().open(kind)
    consumer = world.join(permits=20, consumer_epoch=0)
    positions = await world.publish(5)
    await consumer.ack(positions[0], positions[3])
    consumer.forget()

    consumer.redeliver_all(consumer_epoch=1)
    await world.publish()

    assert consumer.numbers == [1, 2, 4, 5]
    assert {dispatch.consumer_epoch for dispatch in consumer.received} == {1}
    assert consumer.counts == [0, 0, 0, 0]


@BOTH
async def test_an_older_epoch_does_not_replace_a_later_one(kind: SubscriptionKind) -> None:
    world = await SubscriptionWorld().open(kind)
    consumer = world.join(permits=20, consumer_epoch=5)
    await world.publish()

    consumer.redeliver_all(consumer_epoch=4)
    await settle()

    assert [dispatch.consumer_epoch for dispatch in consumer.received] == [5, 5]


@BOTH
async def test_single_messages_do_not_come_again_out_of_order(kind: SubscriptionKind) -> None:
    world = await SubscriptionWorld().open(kind)
    consumer = world.join(permits=20)
    positions = await world.publish(3)
    consumer.forget()

    consumer.nack(positions[1])
    await settle()

    assert consumer.numbers == [0, 1, 2]
    assert {dispatch.consumer_epoch for dispatch in consumer.received} == {NO_EPOCH}


async def test_a_failover_consumer_that_came_later_waits() -> None:
    world = await SubscriptionWorld().open(FAILOVER)
    first, second = world.join(permits=10), world.join(permits=10)
    positions = await world.publish(4)
    await first.ack(positions[1])

    assert (first.active, second.active) == ([True], [False])
    assert second.received == []
    first.leave()
    await settle()

    assert second.active == [False, True]
    assert second.numbers == [0, 2, 3]


async def test_the_old_active_consumers_requests_count_no_more_but_its_acks_do() -> None:
    world = await SubscriptionWorld().open(FAILOVER)
    low = world.join(permits=10, priority_level=1)
    positions = await world.publish(2)
    high = world.join(permits=10, priority_level=0)
    await settle()
    assert (low.active, high.active) == ([True, False], [True])
    assert high.numbers == [0, 1]

    low.redeliver_all()
    await low.ack(positions[0])
    await settle()

    assert high.numbers == [0, 1]
    assert world.subscription.mark_delete == positions[0]


async def test_a_waiting_consumer_that_leaves_changes_nothing() -> None:
    world = await SubscriptionWorld().open(FAILOVER)
    first, second = world.join(permits=10), world.join()
    await world.publish()

    second.leave()
    await world.publish()

    assert first.numbers == [0, 1]
    assert first.active == [True]


@pytest.mark.parametrize(("partition", "active"), [(0, "a"), (1, "b"), (2, "c"), (3, "a")])
async def test_the_partitions_of_a_topic_are_dealt_out_by_name(partition: int, active: str) -> None:
    world = await SubscriptionWorld().open(FAILOVER, partition=partition)
    consumers = {name: world.join(name) for name in ("c", "a", "b")}
    world.join("0", priority_level=1)

    assert {name for name, each in consumers.items() if each.active[-1]} == {active}


async def test_a_cursor_full_of_holes_gets_no_further_entries_but_lets_holes_close() -> None:
    world = await SubscriptionWorld().open(EXCLUSIVE)
    consumer = world.join(permits=1_000_000)
    positions = await world.publish(2 * CURSOR_HOLES_PAUSE + 10)
    for _ in range(20):
        await settle()
    assert len(consumer.received) == len(positions)

    await consumer.ack(*positions[1 : 2 * CURSOR_HOLES_PAUSE : 2])
    consumer.forget()
    await world.publish()
    assert consumer.received == []
    # What was sent before is sent again, and behind it nothing, also at the next owner.
    consumer.redeliver_all()
    for _ in range(100):
        await settle()
    assert consumer.positions == [
        *positions[0 : 2 * CURSOR_HOLES_PAUSE : 2],
        *positions[2 * CURSOR_HOLES_PAUSE :],
    ]
    await world.take_over()
    successor = world.join(permits=1_000_000)
    for _ in range(100):
        await settle()
    assert successor.positions == positions[0 : 2 * CURSOR_HOLES_PAUSE : 2]
    await successor.ack(positions[0])
    for _ in range(20):
        await settle()

    assert successor.numbers[-1] == len(positions), "one hole less, and it goes on"
