"""Shared: turns, redelivery, delays, chunks, and what is out."""

from __future__ import annotations

import asyncio

import pytest

from brokers.domain.refusal import Refusal, ServerError
from brokers.ports.ledger import NewEntry
from brokers.service.subscriptions.subscription import SubscriptionKind
from nextgen.kernel.limits.pulsar import (
    CHUNK_OWNERS_MAX,
    CONSUMER_UNACKED_MAX,
    CURSOR_HOLES_MAX,
    CURSOR_HOLES_PAUSE,
    DELAYED_ENTRIES_MAX,
    ROUND_ROBIN_ENTRIES,
    SUBSCRIPTION_UNACKED_MAX,
)
from tests.support.brokers.subscription_world import NOW_MS, SubscriptionWorld, settle
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

SHARED = SubscriptionKind.SHARED


async def test_consumers_take_turns() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumers = [world.join(permits=100) for _ in range(3)]

    await world.publish(6 * ROUND_ROBIN_ENTRIES)

    assert [len(each.received) for each in consumers] == [2 * ROUND_ROBIN_ENTRIES] * 3
    everything = sorted(number for each in consumers for number in each.numbers)
    assert everything == list(range(6 * ROUND_ROBIN_ENTRIES))


async def test_a_lower_level_gets_what_the_higher_has_no_room_for() -> None:
    world = await SubscriptionWorld().open(SHARED)
    low = world.join(permits=100, priority_level=1)
    high = [world.join(permits=5), world.join(permits=5)]

    await world.publish(12)

    assert [len(each.received) for each in high] == [5, 5]
    assert low.numbers == [10, 11]


async def test_a_consumer_that_cannot_be_written_to_is_passed_over() -> None:
    world = await SubscriptionWorld().open(SHARED)
    stuck, reading = world.join(permits=10), world.join(permits=10)
    stuck.is_writable = False

    await world.publish(3)

    assert (stuck.numbers, reading.numbers) == ([], [0, 1, 2])


async def test_a_negative_acknowledgement_sends_again_and_counts() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=20)
    positions = await world.publish(5)
    consumer.forget()

    consumer.nack(positions[3], positions[1])
    await settle()
    consumer.nack(positions[1])
    await settle()

    assert consumer.numbers == [1, 3, 1]
    assert consumer.counts == [1, 1, 2]
    assert world.subscription.stats().unacked_messages == 5


async def test_what_others_have_cannot_be_given_back() -> None:
    world = await SubscriptionWorld().open(SHARED)
    owner, other = world.join(permits=10), world.join()
    (position,) = await world.publish()

    other.nack(position)
    await settle()
    owner.redeliver_all()
    await settle()

    assert owner.counts == [0, 1]


async def test_messages_of_a_consumer_that_leaves_go_to_the_others_in_order() -> None:
    world = await SubscriptionWorld().open(SHARED)
    leaving, staying = world.join(permits=10), world.join()
    positions = await world.publish(5)
    await leaving.ack(positions[2])
    staying.flow(10)

    leaving.leave()
    await world.publish()

    assert staying.numbers == [0, 1, 3, 4, 5]
    assert staying.counts == [1, 1, 1, 1, 0]


async def test_the_last_one_to_leave_leaves_them_to_the_next() -> None:
    world = await SubscriptionWorld().open(SHARED)
    first = world.join(permits=2)
    await world.publish(4)

    first.leave()
    second = world.join(permits=10)
    await settle()

    assert second.numbers == [0, 1, 2, 3]
    assert second.counts == [1, 1, 0, 0]


async def test_an_acknowledgement_by_another_consumer_counts() -> None:
    world = await SubscriptionWorld().open(SHARED)
    owner, other = world.join(permits=10), world.join()
    (position,) = await world.publish()

    await other.ack(position)

    assert owner.consumer.unacked_messages == 0
    assert world.subscription.is_drained


async def test_what_waits_to_be_sent_again_may_still_be_acknowledged() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=2)
    positions = await world.publish(2)
    consumer.nack(*positions)
    await consumer.ack(positions[0])
    consumer.forget()

    consumer.flow(10)
    await settle()

    assert consumer.positions == [positions[1]]


async def test_a_partly_acknowledged_batch_counts_what_is_open() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=10)
    (batch,) = await world.publish(messages=4)
    assert consumer.consumer.unacked_messages == 4

    await consumer.ack(batch, open_bits=0b0110)
    assert consumer.consumer.unacked_messages == 2
    consumer.nack(batch)
    await settle()
    assert list(consumer.received[-1].ack_set) == [0b0110]
    assert consumer.consumer.unacked_messages == 2
    await consumer.ack(batch, open_bits=0b1001)

    assert consumer.consumer.unacked_messages == 0
    assert world.subscription.is_drained


async def test_messages_to_be_sent_again_are_read_from_disk_if_they_must() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=1_000)
    positions = await world.publish(300)
    world.ledger.is_cold = True
    consumer.forget()

    consumer.nack(*positions[10:200:3], *positions[250:260])
    await settle()
    await settle()

    assert consumer.positions == [*positions[10:200:3], *positions[250:260]]
    assert world.ledger.reads < 5


async def test_a_consumer_with_too_much_unacknowledged_gets_no_more_until_half_is() -> None:
    world = await SubscriptionWorld().open(SHARED)
    batch = 500
    slow, other = world.join(permits=900_000), world.join()
    await world.publish(CONSUMER_UNACKED_MAX // batch - 1, messages=batch)
    assert not slow.consumer.is_blocked
    await world.publish(3, messages=batch)

    assert slow.consumer.is_blocked
    assert slow.consumer.unacked_messages == CONSUMER_UNACKED_MAX
    other.flow(1)
    await settle()
    assert len(other.received) == 1
    half = CONSUMER_UNACKED_MAX // batch // 2
    await slow.ack(*slow.positions[: half - 1])
    assert slow.consumer.is_blocked
    await slow.ack(slow.positions[half])

    assert not slow.consumer.is_blocked
    await settle()
    assert slow.consumer.unacked_messages == CONSUMER_UNACKED_MAX // 2 + batch


async def test_a_consumer_that_returns_its_messages_is_not_blocked_by_them() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=900_000)
    await world.publish(10, messages=CONSUMER_UNACKED_MAX // 5)
    received = len(consumer.received)
    assert consumer.consumer.is_blocked

    consumer.redeliver_all()
    await settle()

    assert len(consumer.received) == 2 * received


async def test_a_subscription_with_too_much_unacknowledged_pauses() -> None:
    world = await SubscriptionWorld().open(SHARED)
    batch = 10_000
    consumers = [world.join(permits=900_000) for _ in range(6)]
    await world.publish(30, messages=batch)
    # Turns are longer than this is: every consumer is full before the next has one.
    sent = [each for consumer in consumers for each in consumer.positions]
    assert len(sent) * batch == SUBSCRIPTION_UNACKED_MAX

    for consumer in consumers:
        await consumer.ack(*consumer.positions)
    await settle()

    assert sum(len(consumer.received) for consumer in consumers) == 30


@run_by(run_virtual)
async def test_a_delayed_message_waits_for_its_time_and_others_do_not() -> None:
    loop = asyncio.get_running_loop()
    world = SubscriptionWorld()
    started = loop.time()
    world.clock = lambda: NOW_MS + int((loop.time() - started) * 1_000)  # type: ignore[method-assign]
    await world.open(SHARED)
    consumer = world.join(permits=10)

    await world.publish(deliver_at_ms=NOW_MS + 5_000)
    await world.publish(deliver_at_ms=NOW_MS + 2_000)
    await world.publish(deliver_at_ms=NOW_MS - 1)
    await world.publish()
    assert consumer.numbers == [2, 3]
    assert world.subscription.stats().delayed_entries == 2
    await asyncio.sleep(1.9)
    assert consumer.numbers == [2, 3]
    await asyncio.sleep(0.2)
    assert consumer.numbers == [2, 3, 1]
    await asyncio.sleep(3)

    assert consumer.numbers == [2, 3, 1, 0]
    assert consumer.counts == [0, 0, 0, 0]
    assert world.subscription.backlog_entries == 4


async def test_a_delayed_message_survives_its_owner() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=10)
    await world.publish(deliver_at_ms=NOW_MS + 5_000)
    (plain,) = await world.publish()
    await consumer.ack(plain)

    await world.take_over()
    successor = world.join(permits=10)
    await settle()
    assert successor.received == []
    world.now_ms += 5_000
    world.subscription.appended()
    await settle()

    assert successor.numbers == [0]


async def test_a_delayed_message_may_be_acknowledged_before_its_time() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=10)
    (delayed,) = await world.publish(deliver_at_ms=NOW_MS + 5_000)

    await consumer.ack(delayed)
    world.now_ms += 5_000
    await world.publish()

    assert consumer.numbers == [1]


async def test_reading_pauses_when_no_more_can_be_held_back() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=10)
    delayed = world.subscription._dispatcher._delayed  # type: ignore[attr-defined]
    assert delayed._entries_max == DELAYED_ENTRIES_MAX
    delayed._entries_max = 3

    await world.publish(4, deliver_at_ms=NOW_MS + 5_000)
    await world.publish()
    assert world.subscription.stats().delayed_entries == 3
    assert consumer.received == [], "what is behind waits as well"
    world.now_ms += 5_000
    world.subscription.appended()
    await settle()

    assert sorted(consumer.numbers) == [0, 1, 2, 3, 4]


async def test_the_chunks_of_a_message_go_to_one_consumer() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumers = [world.join(permits=100) for _ in range(2)]
    for number in range(30):
        await world.publish(chunk=("a", number, 30))
        await world.publish()

    owners = [each for each in consumers if 0 in each.numbers]
    chunks = set(range(0, 60, 2))
    assert chunks <= set(owners[0].numbers)
    assert all(each.received for each in consumers), "the other messages took turns"


async def test_a_chunk_waits_for_the_consumer_that_has_the_others() -> None:
    world = await SubscriptionWorld().open(SHARED)
    owner = world.join(permits=1)
    await world.publish(chunk=("a", 0, 3))
    other = world.join(permits=10)

    await world.publish(chunk=("a", 1, 3))
    await world.publish(chunk=("a", 2, 3))
    await world.publish()
    assert (owner.numbers, other.numbers) == ([0], [3])
    owner.flow(1)
    await settle()
    assert owner.numbers == [0, 1]
    owner.leave()
    await settle()

    assert other.numbers == [3, 0, 1, 2], "whoever gets the first gets the rest"


async def test_chunked_messages_that_are_half_sent_are_remembered_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("brokers.service.subscriptions.dispatch.shared.CHUNK_OWNERS_MAX", 2)
    assert CHUNK_OWNERS_MAX > 2
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=100)
    owners = world.subscription._dispatcher._chunk_owners  # type: ignore[attr-defined]
    for uuid in "abc":
        await world.publish(chunk=(uuid, 0, 2))
    assert set(owners) == {"a", "b"}

    for uuid in "abc":
        await world.publish(chunk=(uuid, 1, 2))

    assert not owners
    assert len(consumer.received) == 6


async def test_a_payload_that_nobody_can_read_is_sent_all_the_same() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=10)

    await world.ledger.inner.append(NewEntry(b"\x00", 1, "p", 0))
    await settle()

    assert len(consumer.received) == 1


async def test_holes_stop_reading_and_then_acknowledging() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=900_000)
    cursor = world.subscription.cursor
    # Small bounds of the same kind: tens of thousands of entries would say no more.
    cursor._holes_max = 3
    assert CURSOR_HOLES_PAUSE < CURSOR_HOLES_MAX
    positions = await world.publish(9)
    consumer.forget()

    await consumer.ack(positions[1], positions[3], positions[5])
    with pytest.raises(Refusal) as refused:
        await consumer.ack(positions[7], positions[4])
    await settle()

    assert refused.value.code is ServerError.TOO_MANY_REQUESTS
    assert consumer.positions == [positions[7]], "what could not be taken comes again"
    assert cursor.is_acked(positions[4]), "what makes no hole is taken"
    await consumer.ack(positions[0], positions[7])
    assert cursor.is_acked(positions[7])


async def test_reading_goes_on_at_a_cursor_with_room_again() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=900_000)
    positions = await world.publish(2 * CURSOR_HOLES_PAUSE)
    for _ in range(50):
        await settle()
    await consumer.ack(*positions[1::2])
    consumer.forget()

    await world.publish()
    assert consumer.received == []
    await consumer.ack(positions[0])
    await settle()

    assert consumer.numbers == [2 * CURSOR_HOLES_PAUSE]


@pytest.mark.parametrize("kind", [SubscriptionKind.SHARED, SubscriptionKind.KEY_SHARED])
async def test_what_is_passed_over_is_neither_counted_nor_sent_again(
    kind: SubscriptionKind,
) -> None:
    world = await SubscriptionWorld().open(kind)
    consumer = world.join(permits=4)
    positions = await world.publish(6)
    await settle()
    consumer.nack(positions[1], positions[3])
    consumer.forget()

    world.subscription.pass_over(positions[2])
    assert world.subscription.stats().unacked_messages == 0
    consumer.flow(10)
    await settle()

    assert consumer.numbers == [3, 4, 5]
    assert consumer.counts == [1, 0, 0]
    await world.take_over()
    assert world.subscription.backlog_entries == 6, "it is stored a moment later"
