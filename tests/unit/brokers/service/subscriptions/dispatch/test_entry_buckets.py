"""Key_Shared by entry buckets: the broker spreads them, and moves none before it is drained."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.entry_buckets import bucket_hash
from brokers.ports.consumer import Dispatch
from brokers.service.subscriptions.subscription import KeySharedRequest, SubscriptionKind
from tests.support.brokers.subscription_world import FakeConsumer, SubscriptionWorld, settle

KEY_SHARED = SubscriptionKind.KEY_SHARED
HALVES = ((0, 0x7FFF), (0x8000, 0xFFFF))
LOW, HIGH = (0x10, 0x20), (0x8000, 0xFFFF)
"""Stamps of entries of the first and of the second bucket."""


def by_bucket(*ranges: tuple[int, int]) -> KeySharedRequest:
    return KeySharedRequest(is_sticky=True, uses_entry_buckets=True, ranges=ranges or HALVES)


async def test_an_entry_goes_to_the_owner_of_the_bucket_that_it_is_stamped_with() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    first = world.join(permits=100, key_shared=by_bucket())
    second = world.join(permits=100, key_shared=by_bucket())

    # The key's own hash is not looked at.
    await world.publish(2, key="k", stamp=LOW, messages=3)
    await world.publish(key="k", stamp=HIGH)

    assert (first.numbers, second.numbers) == ([0, 1], [2])


async def test_an_entry_without_a_stamp_goes_by_its_key() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    first = world.join(permits=100, key_shared=by_bucket())
    second = world.join(permits=100, key_shared=by_bucket())
    low, high = "key1", "order-42"
    assert bucket_hash(low.encode()) < 0x8000 <= bucket_hash(high.encode())

    await world.publish(key=low)
    await world.publish(key=high)

    assert (first.numbers, second.numbers) == ([0], [1])


async def test_a_bucket_moves_only_when_its_former_owner_has_acknowledged_everything() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    old = world.join(permits=100, key_shared=by_bucket())
    first, second = await world.publish(2, stamp=HIGH)
    (kept,) = await world.publish(stamp=LOW)

    new = world.join(permits=100, key_shared=by_bucket())
    (third,) = await world.publish(stamp=HIGH)
    (other,) = await world.publish(stamp=LOW)
    assert old.positions == [first, second, kept, other], "the bucket that stays goes on"
    assert new.positions == []
    await old.ack(first, kept, other)
    await settle()
    assert new.positions == []
    await old.ack(second)
    await settle()

    assert new.positions == [third]


async def test_the_buckets_of_a_consumer_that_leaves_go_on_in_order() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    staying = world.join(permits=100, key_shared=by_bucket())
    leaving = world.join(permits=2, key_shared=by_bucket())
    positions = await world.publish(4, stamp=HIGH)
    assert leaving.positions == positions[:2]

    leaving.leave()
    await settle()

    assert staying.positions == positions
    assert staying.counts == [1, 1, 0, 0]


async def test_a_consumer_without_a_bucket_does_not_hold_up_the_others() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    owners = [world.join(permits=100, key_shared=by_bucket()) for _ in range(2)]
    surplus = world.join(permits=100, key_shared=by_bucket())

    await world.publish(stamp=LOW)
    await world.publish(stamp=HIGH)

    assert [each.numbers for each in owners] == [[0], [1]]
    assert surplus.received == []


async def test_the_next_consumers_may_state_other_buckets_once_all_have_left() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    world.join(permits=100, key_shared=by_bucket()).leave()

    again = world.join(permits=100, key_shared=by_bucket((0, 0xFFFF)))
    await world.publish(stamp=HIGH)

    assert again.numbers == [0]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(by_bucket((0, 0xFFFF)), id="stale layout"),
        pytest.param(by_bucket((0, 0x7FFF)), id="a slice"),
        pytest.param(KeySharedRequest(is_sticky=True, ranges=HALVES), id="ranges, not buckets"),
        pytest.param(KeySharedRequest(), id="another mode"),
        pytest.param(None, id="the default mode"),
    ],
)
async def test_a_consumer_with_another_list_or_mode_is_refused(
    request_: KeySharedRequest | None,
) -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    member = world.join(permits=100, key_shared=by_bucket())

    with pytest.raises(Refusal) as refused:
        world.join(key_shared=request_)

    assert refused.value.code is ServerError.CONSUMER_ASSIGN
    await world.publish(stamp=LOW)
    assert member.numbers == [0]


async def test_a_first_consumer_with_a_wrong_list_leaves_nothing_behind() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)

    with pytest.raises(Refusal):
        world.join(key_shared=by_bucket((0, 0x7FFF)))

    assert len(world.subscription.consumers) == 0
    world.join(key_shared=KeySharedRequest())


async def test_consumers_of_one_segment_share_one_list() -> None:
    world = await SubscriptionWorld().open(KEY_SHARED)
    members = [world.join(key_shared=by_bucket(*list(HALVES))) for _ in range(3)]

    lists = {id(each.consumer.request.key_shared) for each in members}

    assert len(lists) == 1


QUARTERS = ((0, 0x3FFF), (0x4000, 0x7FFF), (0x8000, 0xBFFF), (0xC000, 0xFFFF))
STEP_NAMES = ["publish"] * 4 + ["join", "leave", "ack", "ack", "return"]
STEPS = st.lists(st.tuples(st.sampled_from(STEP_NAMES), st.integers(0, 999)), max_size=60)
"""A step, and what chooses the bucket, the consumer and the entries of it."""


class BucketHistory:
    """A segment's consumers that come and go. Checks each delivery when it is made."""

    def __init__(self) -> None:
        self.world = SubscriptionWorld()
        self.consumers: list[FakeConsumer] = []
        self.bucket_of: dict[Position, int] = {}
        self.open: set[Position] = set()
        """Published and not acknowledged."""
        self.held: dict[Position, FakeConsumer] = {}
        """Delivered, and neither acknowledged nor returned."""
        self.delivered_up_to: dict[tuple[FakeConsumer, int], Position] = {}

    async def play(self, steps: Sequence[tuple[str, int]]) -> None:
        await self.world.open(KEY_SHARED)
        self.join()
        for step, seed in steps:
            await self.step(step, seed)
            await settle()
            self.check_owners()
        await self.finish()

    async def step(self, step: str, seed: int) -> None:
        consumer = self.consumers[seed % len(self.consumers)] if self.consumers else None
        if step == "publish":
            self.publishes = seed % 4
            start, end = QUARTERS[seed % 4]
            (position,) = await self.world.publish(stamp=(start + seed % 100, end))
            self.bucket_of[position] = seed % 4
            self.open.add(position)
        elif (step == "join" and len(self.consumers) < 6) or consumer is None:
            self.join()
        elif step == "leave":
            self.consumers.remove(consumer)
            self.give_back([each for each in self.held if self.held[each] is consumer])
            consumer.leave()
        elif positions := sorted(each for each in self.held if self.held[each] is consumer):
            chosen = [positions[seed % len(positions)]] if seed % 3 else positions
            if step == "ack":
                self.open -= set(chosen)
                for position in chosen:
                    del self.held[position]
                await consumer.ack(*chosen)
            else:
                self.give_back(chosen)
                consumer.nack(*chosen)

    def join(self) -> None:
        consumer = self.world.join(key_shared=by_bucket(*QUARTERS))
        consumer.watch = self.check_delivery
        self.consumers.append(consumer)
        consumer.flow(1_000)

    def give_back(self, positions: Sequence[Position]) -> None:
        for position in positions:
            del self.held[position]

    def check_delivery(self, consumer: FakeConsumer, dispatch: Dispatch) -> None:
        position = dispatch.entry.position
        bucket = self.bucket_of.setdefault(position, self.publishes)
        self.open.add(position)
        assert position not in self.held, "two have it, or one has it twice"
        elsewhere = [
            each
            for each, holder in self.held.items()
            if self.bucket_of[each] == bucket and holder is not consumer
        ]
        assert not elsewhere, f"bucket {bucket} moved before {elsewhere} were acknowledged"
        overtaken = [
            each
            for each in self.open - self.held.keys()
            if each < position and self.bucket_of[each] == bucket
        ]
        assert not overtaken, f"{position} of bucket {bucket} overtakes {overtaken}"
        self.held[position] = consumer

    def check_owners(self) -> None:
        ranges = self.world.subscription._dispatcher._ranges  # type: ignore[attr-defined]
        members = {each.consumer for each in self.consumers}
        assert not members or {ranges.owner(bucket) for bucket in range(4)} <= members

    async def finish(self) -> None:
        """Consumers that acknowledge what they get are sent everything."""
        if not self.consumers:
            self.join()
        while self.open:
            await settle()
            assert self.held, f"nobody gets {self.open}"
            for consumer in self.consumers:
                mine = [each for each in self.held if self.held[each] is consumer]
                self.open -= set(mine)
                self.give_back(mine)
                await consumer.ack(*mine)
        assert self.world.subscription.is_drained


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_buckets_stay_in_order_and_lose_nothing_while_consumers_come_and_go(
    steps: list[tuple[str, int]],
) -> None:
    asyncio.run(BucketHistory().play(steps))
