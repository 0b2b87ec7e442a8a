"""Key_Shared: a key stays with one consumer and in order while consumers come and go."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.key_hash import key_slot
from brokers.service.subscriptions.consumer import Consumer
from brokers.service.subscriptions.dispatch.key_shared import KeySharedDispatcher
from brokers.service.subscriptions.subscription import KeySharedRequest, SubscriptionKind
from nextgen.kernel.limits.pulsar import REPLAY_ENTRIES_PAUSE
from tests.support.brokers.subscription_world import (
    NOW_MS,
    FakeConsumer,
    SubscriptionWorld,
    settle,
)
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

KEY_SHARED = SubscriptionKind.KEY_SHARED
LOW, HIGH = (0, 2**15 - 1), (2**15, 2**16 - 1)


def sticky(*ranges: tuple[int, int]) -> KeySharedRequest:
    return KeySharedRequest(is_sticky=True, ranges=ranges)


def key_in(slots: tuple[int, int], skip: int = 0) -> str:
    """Return the ``skip``-th key whose slot is among these."""
    keys = (f"key-{number}" for number in count())
    fitting = (key for key in keys if slots[0] <= key_slot(key.encode()) <= slots[1])
    for _ in range(skip):
        next(fitting)
    return next(fitting)


def key_of(world: SubscriptionWorld, owner: FakeConsumer) -> str:
    """Return a key that belongs to ``owner``."""
    ranges = world.subscription._dispatcher._ranges  # type: ignore[attr-defined]
    keys = (f"key-{number}" for number in count())
    return next(key for key in keys if ranges.owner(key_slot(key.encode())) is owner.consumer)


async def test_a_key_stays_with_one_consumer() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    consumers = [world.join(permits=1_000) for _ in range(3)]
    for _ in range(5):
        for key in range(30):
            await world.publish(key=f"key-{key}")

    for key in range(30):
        owners = [each for each in consumers if key in each.numbers]
        assert [number for number in owners[0].numbers if number % 30 == key] == [
            key + 30 * turn for turn in range(5)
        ]
    assert all(each.received for each in consumers)


async def test_messages_without_a_key_are_spread() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    consumers = [world.join(permits=1_000) for _ in range(3)]

    await world.publish(60)

    assert all(each.received for each in consumers)


async def test_a_key_goes_to_a_new_owner_when_the_old_one_has_nothing_of_it() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    old = world.join(permits=100)
    new = world.join("new")
    key = key_of(world, new)
    new.leave()
    first, second = await world.publish(2, key=key)
    assert old.positions == [first, second]

    new = world.join("new", permits=100)
    (third,) = await world.publish(key=key)
    assert new.received == [], "the old owner has messages of the key"
    await old.ack(first)
    await settle()
    assert new.received == []
    await old.ack(second)
    await settle()

    assert new.positions == [third]
    assert old.positions == [first, second]


async def test_a_key_moves_at_once_where_order_does_not_matter() -> None:
    policy = KeySharedRequest(is_out_of_order_allowed=True)
    world = await SubscriptionWorld().open(KEY_SHARED)
    old = world.join(permits=100, key_shared=policy)
    new = world.join("new", key_shared=policy)
    key = key_of(world, new)
    new.leave()
    await world.publish(key=key)

    new = world.join("new", permits=100, key_shared=policy)
    (second,) = await world.publish(key=key)

    assert new.positions == [second]
    await old.ack(*old.positions)
    await new.ack(second)
    assert world.subscription.is_drained


async def test_keys_of_a_consumer_that_leaves_stay_in_order() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    leaving = world.join(permits=3)
    positions = await world.publish(5, key="k")
    staying = world.join(permits=100)
    await leaving.ack(positions[1])

    leaving.leave()
    await settle()

    assert staying.positions == [positions[0], *positions[2:]]
    assert staying.counts == [1, 1, 0, 0]


async def test_a_key_that_is_given_back_comes_before_later_ones_of_it() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    consumer = world.join(permits=3)
    positions = await world.publish(4, key="k")
    consumer.nack(positions[2])
    consumer.nack(positions[0])
    consumer.forget()

    consumer.flow(10)
    await settle()

    assert consumer.positions == [positions[0], positions[2], positions[3]]


async def test_a_consumer_without_permits_does_not_hold_up_the_others() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    slow = world.join(key_shared=sticky(LOW), permits=1)
    fast = world.join(key_shared=sticky(HIGH), permits=100)
    low, high = key_in(LOW), key_in(HIGH)
    for _ in range(3):
        await world.publish(key=low)
        await world.publish(key=high)

    assert (slow.numbers, fast.numbers) == ([0], [1, 3, 5])
    slow.flow(100)
    await settle()

    assert slow.numbers == [0, 2, 4]


async def test_what_waits_is_read_from_disk_if_it_must() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    slow = world.join(key_shared=sticky(LOW))
    fast = world.join(key_shared=sticky(HIGH), permits=1_000)
    keys = [key_in(LOW, skip) for skip in range(5)] + [key_in(HIGH, skip) for skip in range(5)]
    for turn in range(200):
        await world.publish(key=keys[turn * 7 % 10])
    world.ledger.is_cold = True

    slow.flow(1_000)
    await settle()
    await settle()

    assert slow.numbers == [turn for turn in range(200) if turn * 7 % 10 < 5]
    assert len(fast.numbers) == 100
    assert world.ledger.reads < 5


async def test_unclaimed_slots_wait_for_a_shard() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    low = world.join(key_shared=sticky(LOW), permits=100)
    await world.publish(2, key=key_in(HIGH))
    await world.publish(key=key_in(LOW))
    assert low.numbers == [2]

    high = world.join(key_shared=sticky(HIGH), permits=100)
    await settle()

    assert high.numbers == [0, 1]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(sticky((100, 200)), id="overlap"),
        pytest.param(sticky((0, 50), (50, 60)), id="overlaps itself"),
        pytest.param(sticky(), id="no ranges"),
        pytest.param(sticky((0, 2**16)), id="beyond the last slot"),
        pytest.param(sticky((9, 8)), id="backwards"),
        pytest.param(KeySharedRequest(), id="another mode"),
        pytest.param(
            KeySharedRequest(is_sticky=True, ranges=((0, 9),), is_out_of_order_allowed=True),
            id="another order",
        ),
        pytest.param(None, id="the default mode"),
    ],
)
async def test_ranges_that_cannot_be_given_are_refused(request_: KeySharedRequest | None) -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    world.join(key_shared=sticky((150, 300)))

    with pytest.raises(Refusal) as refused:
        world.join(key_shared=request_)

    assert refused.value.code is ServerError.CONSUMER_ASSIGN
    assert len(world.subscription.consumers) == 1


async def test_a_sticky_consumer_that_leaves_makes_room() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    world.join(key_shared=sticky((0, 9)))
    gone = world.join(key_shared=sticky((10, 19), (30, 39)))
    gone.leave()

    world.join(key_shared=sticky((10, 39)))


@run_by(run_virtual)
async def test_a_delayed_message_of_a_key_waits_for_its_time() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    world = SubscriptionWorld()
    world.clock = lambda: NOW_MS + int((loop.time() - started) * 1_000)  # type: ignore[method-assign]
    await world.open(KEY_SHARED)
    consumer = world.join(permits=10)
    await world.publish(key="k", deliver_at_ms=NOW_MS + 1_000)
    await world.publish(key="k")
    assert consumer.numbers == [1]

    await asyncio.sleep(1.1)
    await settle()

    assert consumer.numbers == [1, 0]
    await consumer.ack(*consumer.positions)
    assert world.subscription.is_drained


async def test_looking_ahead_for_other_keys_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokers.service.subscriptions.dispatch.individual.REPLAY_ENTRIES_PAUSE", 5)
    assert REPLAY_ENTRIES_PAUSE > 5
    world = await SubscriptionWorld().open(KEY_SHARED)
    slow = world.join(key_shared=sticky(LOW))
    fast = world.join(key_shared=sticky(HIGH), permits=100)
    low, high = key_in(LOW), key_in(HIGH)

    await world.publish(4, key=low)
    await world.publish(key=high)
    await world.publish(key=low)
    await world.publish(key=high)
    assert fast.numbers == [4]
    slow.flow(1)
    await settle()

    assert fast.numbers == [4, 6]


async def test_an_acknowledged_message_does_not_wait_any_more() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    consumer = world.join(permits=2)
    first, second = await world.publish(2, key="k")
    consumer.nack(first, second)
    await settle()

    await consumer.ack(first, second)
    consumer.forget()
    consumer.flow(10)
    await world.publish(key="k")

    assert consumer.numbers == [2]


async def test_everything_of_everybody_can_be_given_back() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    consumers = [world.join(permits=1_000) for _ in range(2)]
    for key in range(20):
        await world.publish(2, key=f"key-{key}")
    before = [each.numbers for each in consumers]
    for each in consumers:
        each.forget()
        each.redeliver_all()
    await settle()

    assert [each.numbers for each in consumers] == before
    assert {each for consumer in consumers for each in consumer.counts} == {1}


async def test_consumers_that_leave_together_have_the_waiting_keys_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection that closes takes its consumers with it in one turn of the event loop."""
    looked_at: list[int] = []
    target = KeySharedDispatcher._target

    def counted(dispatcher: KeySharedDispatcher, slot: int) -> Consumer | None:
        looked_at.append(slot)
        return target(dispatcher, slot)

    monkeypatch.setattr(KeySharedDispatcher, "_target", counted)
    world = await SubscriptionWorld().open(KEY_SHARED)
    leaving = [world.join() for _ in range(30)]
    staying = world.join(permits=1)
    for key in range(100):
        await world.publish(key=f"key-{key}")
    before = len(staying.received)
    looked_at.clear()

    for consumer in leaving:
        consumer.leave()
    assert looked_at == []
    staying.flow(1_000)
    await settle()

    assert len(staying.received) == 100
    assert before < 100
    assert len(looked_at) < 400
