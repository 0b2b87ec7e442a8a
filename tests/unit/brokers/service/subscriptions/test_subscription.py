"""What a subscription does for its consumers, whatever its kind: start, acks, seek, end."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from brokers.domain.position import Position
from brokers.domain.refusal import Refusal, ServerError
from brokers.domain.subscriptions.cursor import before
from brokers.ports.ledger import Fenced, StorageFailed
from brokers.service.subscriptions.subscription import (
    Ack,
    Subscription,
    SubscriptionKind,
    SubscriptionStart,
    cursor_key,
)
from nextgen.kernel.limits.pulsar import (
    CONSUMER_PERMITS_MAX,
    CURSOR_CLOSE_MS_MAX,
    CURSOR_WRITE_DELAY_MS,
    DISPATCH_BYTES_MAX,
    DISPATCH_ENTRIES_MAX,
    SEEK_RECONNECT_MS_MAX,
    SUBSCRIPTION_CONSUMERS_MAX,
)
from tests.support.brokers.subscription_world import SubscriptionWorld, settle
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

EXCLUSIVE = SubscriptionKind.EXCLUSIVE
SHARED = SubscriptionKind.SHARED
FAILOVER = SubscriptionKind.FAILOVER
KEY_SHARED = SubscriptionKind.KEY_SHARED
ALL_KINDS = pytest.mark.parametrize("kind", list(SubscriptionKind))
EARLIEST_ID = Position(2**64 - 1, 2**64 - 1)
LATEST_ID = Position(2**63 - 1, 2**63 - 1)


async def started_at(start: SubscriptionStart, *, before_it: int = 3) -> list[int]:
    """Return what an Exclusive consumer gets of messages published before and after the start."""
    world = SubscriptionWorld()
    await world.open_ledger()
    await world.publish(before_it)
    world.now_ms += 10_000
    await world.publish(1)
    await world.create(EXCLUSIVE, start)
    consumer = world.join(permits=100)
    await world.publish(1)
    return consumer.numbers


async def test_a_subscription_begins_at_either_end() -> None:
    assert await started_at(SubscriptionStart(is_earliest=True)) == [0, 1, 2, 3, 4]
    assert await started_at(SubscriptionStart(is_earliest=False)) == [4]


@pytest.mark.parametrize("earliest", [EARLIEST_ID, Position(-1, -1)])
async def test_a_reader_begins_where_its_start_message_says(earliest: Position) -> None:
    async def reader_at(position: Position) -> list[int]:
        return await started_at(SubscriptionStart(is_durable=False, position=position))

    assert await reader_at(earliest) == [0, 1, 2, 3, 4]
    assert await reader_at(LATEST_ID) == [4]
    # The start message itself is sent: the client drops it if it is not to be included.
    assert await reader_at(Position(2**20, 2)) == [2, 3, 4]
    assert await reader_at(Position(2**20, 0)) == [0, 1, 2, 3, 4]
    assert await reader_at(Position(2**30, 0)) == [4], "a start behind the end is the end"


async def test_a_durable_subscription_takes_no_notice_of_a_start_message() -> None:
    start = SubscriptionStart(is_durable=True, position=Position(2**20, 0))

    assert await started_at(start) == [4]


async def test_a_subscription_rolls_back_in_time() -> None:
    assert await started_at(SubscriptionStart(rollback_seconds=5)) == [3, 4]


@ALL_KINDS
async def test_a_subscription_is_stored_before_it_is_acknowledged(kind: SubscriptionKind) -> None:
    world = SubscriptionWorld()
    await world.open_ledger()
    world.ledger.hold_state()

    creating = asyncio.create_task(
        world.create(kind, SubscriptionStart(is_earliest=True, properties={"team": "a"}))
    )
    await settle()
    assert not creating.done()
    world.ledger.release_state()
    created = await creating

    assert cursor_key("sub") in world.ledger.inner.state
    assert created.is_durable
    await world.take_over()
    assert (world.subscription.kind, world.subscription.properties) == (kind, {"team": "a"})


async def test_a_subscription_that_is_not_durable_stores_nothing_and_ends_with_its_last() -> None:
    world = await SubscriptionWorld().open(SHARED, SubscriptionStart(is_durable=False))
    first, second = world.join(permits=10), world.join()
    (position,) = await world.publish()
    await first.ack(position)

    first.leave()
    assert not world.subscription.is_over
    second.leave()

    assert world.subscription.is_over
    assert world.ledger.state_writes == []


async def test_a_durable_subscription_outlives_its_consumers() -> None:
    world = await SubscriptionWorld().open(SHARED)
    world.join().leave()

    assert not world.subscription.is_over


async def test_acknowledged_means_stored() -> None:
    world = await SubscriptionWorld().open(EXCLUSIVE)
    consumer = world.join(permits=10)
    first, second, third = await world.publish(3)
    world.ledger.hold_state()

    acked = consumer.ack(first)
    await settle()
    also_acked = consumer.ack(second)
    await settle()
    assert not acked.done()
    assert not also_acked.done()
    world.ledger.release_state()
    await asyncio.gather(acked, also_acked)

    await world.take_over()
    assert world.subscription.mark_delete == second
    assert world.subscription.backlog_entries == 1
    successor = world.join(permits=10)
    await settle()
    assert successor.positions == [third]


async def test_many_acknowledgements_are_one_write() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=1_000)
    positions = await world.publish(500)
    writes = len(world.ledger.state_writes)

    await asyncio.gather(*(consumer.ack(position) for position in positions))

    assert len(world.ledger.state_writes) == writes + 1


@run_by(run_virtual)
async def test_an_acknowledgement_without_a_waiter_is_stored_soon() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=10)
    positions = await world.publish(2)
    writes = len(world.ledger.state_writes)

    for position in positions:
        done = world.subscription.acknowledge(
            consumer.consumer, [Ack(position)], is_cumulative=False, is_awaited=False
        )
        assert done.done()
    await settle()
    assert len(world.ledger.state_writes) == writes
    await asyncio.sleep(CURSOR_WRITE_DELAY_MS / 1_000 + 0.001)
    await settle()

    assert len(world.ledger.state_writes) == writes + 1
    await world.take_over()
    assert world.subscription.is_drained


async def test_stored_ends_once_everything_is_stored() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=10)
    positions = await world.publish(2)
    assert world.subscription.stored().done(), "nothing to store"
    world.ledger.hold_state()
    first = consumer.ack(positions[0])
    await settle()
    # The write that is under way does not have the second one.
    world.subscription.acknowledge(
        consumer.consumer, [Ack(positions[1])], is_cumulative=False, is_awaited=False
    )
    stored = world.subscription.stored()
    await settle()
    assert not stored.done()

    world.ledger.release_state()
    await asyncio.gather(first, stored)

    await world.take_over()
    assert world.subscription.is_drained
    assert (
        (await SubscriptionWorld().open(SHARED, SubscriptionStart(is_durable=False)))
        .subscription.stored()
        .done()
    )


async def test_acknowledgements_fail_with_the_ledger() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=10)
    first, second = await world.publish(2)
    old, subscription = consumer.world.ledger, world.subscription
    await world.open_ledger()

    with pytest.raises(Fenced):
        await subscription.acknowledge(consumer.consumer, [Ack(first)], is_cumulative=False)
    with pytest.raises(Fenced):
        await subscription.acknowledge(consumer.consumer, [Ack(second)], is_cumulative=False)

    assert old.inner.is_fenced


@ALL_KINDS
async def test_acknowledgements_of_what_is_not_there_are_ignored(kind: SubscriptionKind) -> None:
    world = await SubscriptionWorld().open(kind)
    consumer = world.join(permits=10)
    first, second = await world.publish(2)
    await consumer.ack(first)
    await world.take_over()
    consumer = world.join(permits=10)
    (third,) = await world.publish()

    nowhere = [
        first,
        Position(second.ledger_id, 7),
        Position(third.ledger_id, 7),
        Position(0, 0),
        Position(2**50, 0),
        Position(third.ledger_id, -3),
    ]
    await consumer.ack(*nowhere)

    assert world.subscription.mark_delete == first
    assert world.subscription.backlog_entries == 2
    await consumer.ack(third, second)
    assert world.subscription.is_drained
    assert world.subscription.mark_delete == third


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
async def test_a_cumulative_acknowledgement_takes_everything_up_to_it(
    kind: SubscriptionKind,
) -> None:
    world = await SubscriptionWorld().open(kind)
    consumer = world.join(permits=10)
    positions = await world.publish(5)
    await consumer.ack(positions[4])

    await consumer.ack_up_to(positions[2])
    assert world.subscription.mark_delete == positions[2]
    await consumer.ack_up_to(positions[0])
    await consumer.ack_up_to(Position(2**50, 0))
    assert world.subscription.mark_delete == positions[2]
    await consumer.ack_up_to(positions[3])

    assert world.subscription.is_drained


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
async def test_a_cumulative_acknowledgement_is_refused_where_others_would_lose_messages(
    kind: SubscriptionKind,
) -> None:
    world = await SubscriptionWorld().open(kind)
    consumer = world.join(permits=10)
    (position,) = await world.publish()

    with pytest.raises(Refusal) as refused:
        consumer.ack_up_to(position)

    assert refused.value.code is ServerError.NOT_ALLOWED


@ALL_KINDS
async def test_a_batch_that_is_acknowledged_in_part_comes_again_in_part(
    kind: SubscriptionKind,
) -> None:
    world = await SubscriptionWorld().open(kind)
    consumer = world.join(permits=100)
    (batch,) = await world.publish(messages=70)
    (after,) = await world.publish()

    await consumer.ack(batch, open_bits=(1 << 70) - 2)
    await consumer.ack(batch, open_bits=1 << 69 | 1)
    await consumer.ack(after)
    await world.take_over()
    successor = world.join(permits=100)
    await settle()

    (dispatch,) = successor.received
    assert dispatch.entry.position == batch
    assert list(dispatch.ack_set) == [0, 1 << 5]
    assert successor.consumer.permits == 99, "what is acknowledged already costs no permit"
    await successor.ack(batch, open_bits=0)
    assert world.subscription.is_drained


async def test_a_cumulative_acknowledgement_may_end_within_a_batch() -> None:
    world = await SubscriptionWorld().open(EXCLUSIVE)
    consumer = world.join(permits=100)
    first, batch, last = [
        *(await world.publish()),
        *(await world.publish(messages=4)),
        *(await world.publish()),
    ]

    await consumer.ack_up_to(batch, open_bits=0b1000)
    consumer.forget()
    consumer.redeliver_all()
    await settle()

    assert world.subscription.mark_delete == before(batch) == first
    assert consumer.positions == [batch, last]
    assert list(consumer.received[0].ack_set) == [0b1000]


async def test_permits_have_a_limit() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join()
    consumer.flow(CONSUMER_PERMITS_MAX)

    with pytest.raises(Refusal) as refused:
        consumer.flow(1)
    with pytest.raises(Refusal):
        consumer.flow(0)

    assert refused.value.code is ServerError.TOO_MANY_REQUESTS
    assert consumer.consumer.permits == CONSUMER_PERMITS_MAX


async def test_consumers_have_a_limit() -> None:
    world = await SubscriptionWorld().open(FAILOVER)
    for _ in range(SUBSCRIPTION_CONSUMERS_MAX):
        world.join()

    with pytest.raises(Refusal) as refused:
        world.join()

    assert refused.value.code is ServerError.CONSUMER_BUSY


@ALL_KINDS
async def test_a_consumer_gets_what_it_asked_for_and_a_batch_at_most_more(
    kind: SubscriptionKind,
) -> None:
    world = await SubscriptionWorld().open(kind)
    consumer = world.join()
    await world.publish(3, messages=4)
    assert consumer.received == []

    consumer.flow(5)
    await settle()
    assert len(consumer.received) == 2
    assert consumer.consumer.permits == -3
    consumer.flow(3)
    await settle()
    assert len(consumer.received) == 2
    consumer.flow(1)
    await settle()

    assert len(consumer.received) == 3


@ALL_KINDS
async def test_a_consumer_that_does_not_read_gets_nothing_until_it_does(
    kind: SubscriptionKind,
) -> None:
    world = await SubscriptionWorld().open(kind)
    consumer = world.join()
    consumer.is_writable = False
    consumer.flow(10)
    await world.publish(3)
    assert consumer.received == []

    consumer.resume()
    await settle()

    assert consumer.numbers == [0, 1, 2]


@ALL_KINDS
async def test_what_is_not_in_memory_is_read_from_disk(kind: SubscriptionKind) -> None:
    world = await SubscriptionWorld().open(kind)
    world.ledger.is_cold = True
    await world.publish(1_200)
    consumer = world.join(permits=2_000)
    await settle()
    await settle()

    assert consumer.numbers == list(range(1_200))
    assert world.ledger.reads < 10


async def test_a_topic_that_cannot_be_read_says_so() -> None:
    world = await SubscriptionWorld().open(SHARED)
    errors: list[Exception] = []
    world.subscription.on_failed(errors.append)
    world.ledger.is_cold = True
    world.ledger.read_error = StorageFailed("no such sector")
    await world.publish()

    consumer = world.join(permits=1)
    await settle()

    assert errors == [world.ledger.read_error]
    assert consumer.received == []


@ALL_KINDS
async def test_a_consumer_of_another_kind_is_refused_while_there_are_others(
    kind: SubscriptionKind,
) -> None:
    world = await SubscriptionWorld().open(kind)
    other = SubscriptionKind((kind + 1) % 4)
    consumer = world.join(permits=10)
    await world.publish(2)

    with pytest.raises(Refusal) as refused:
        world.join(kind=other)
    assert refused.value.code is ServerError.CONSUMER_BUSY
    consumer.leave()
    changed = world.join(kind=other, permits=10)
    await settle()

    assert changed.numbers == [0, 1]
    assert world.subscription.kind is other


@ALL_KINDS
async def test_a_seek_is_stored_and_everybody_comes_back(kind: SubscriptionKind) -> None:
    world = await SubscriptionWorld().open(kind)
    consumers = [world.join(permits=10) for _ in range(1 if kind is EXCLUSIVE else 2)]
    positions = await world.publish(5)
    for consumer in consumers:
        await consumer.ack(*consumer.positions)
    world.ledger.hold_state()

    seeking = asyncio.create_task(world.subscription.seek(positions[2]))
    await settle()
    assert not seeking.done()
    assert all(consumer.ended is None for consumer in consumers), "not before it is durable"
    with pytest.raises(Refusal):
        world.join()
    # What a client acknowledges of what it had before the seek is not meant for the cursor after.
    late = consumers[0].ack(positions[3])
    world.ledger.release_state()
    await seeking

    assert [consumer.ended for consumer in consumers] == [""] * len(consumers)
    assert isinstance(late.exception(), Refusal)
    assert not world.subscription.consumers
    await world.take_over()
    back = world.join(permits=10)
    await settle()
    assert back.positions == positions[2:]


async def test_a_seek_goes_to_either_end_to_a_time_and_into_a_batch() -> None:
    world = await SubscriptionWorld().open(EXCLUSIVE)
    await world.publish(2)
    world.now_ms += 1_000
    (batch,) = await world.publish(messages=3)

    async def received_after_seek() -> list[tuple[int, tuple[int, ...]]]:
        consumer = world.join(permits=10)
        await settle()
        consumer.leave()
        return [(each.entry.sequence_id, tuple(each.ack_set)) for each in consumer.received]

    await world.subscription.seek(EARLIEST_ID)
    assert await received_after_seek() == [(0, ()), (1, ()), (2, ())]
    await world.subscription.seek(LATEST_ID)
    assert await received_after_seek() == []
    await world.subscription.seek_to_time(world.now_ms - 500)
    assert await received_after_seek() == [(2, ())]
    await world.subscription.seek_to_time(0)
    assert len(await received_after_seek()) == 3
    await world.subscription.seek(batch, ack_set=(0b100,))
    assert await received_after_seek() == [(2, (0b100,))]
    await world.subscription.seek(Position(2**50, 3), ack_set=(0b100,))
    assert await received_after_seek() == []


@run_by(run_virtual)
async def test_a_reader_survives_its_own_seek_but_not_for_ever() -> None:
    world = await SubscriptionWorld().open(EXCLUSIVE, SubscriptionStart(is_durable=False))
    over: list[bool] = []
    world.subscription.on_over(lambda: over.append(True))
    reader = world.join(permits=10)
    await world.publish(3)

    await world.subscription.seek(EARLIEST_ID)
    reader.leave()
    assert not world.subscription.is_over
    back = world.join(permits=10)
    await settle()
    assert back.numbers == [0, 1, 2]

    await world.subscription.seek(EARLIEST_ID)
    await asyncio.sleep(SEEK_RECONNECT_MS_MAX / 1_000 - 1)
    assert not over
    await asyncio.sleep(2)
    assert over
    assert world.subscription.is_over


async def test_two_seeks_at_a_time_are_one_too_many() -> None:
    world = await SubscriptionWorld().open(EXCLUSIVE)
    (position,) = await world.publish()
    world.ledger.hold_state()
    seeking = asyncio.create_task(world.subscription.seek(position))
    await settle()

    with pytest.raises(Refusal):
        await world.subscription.seek(position)
    world.ledger.release_state()
    await seeking


async def test_only_the_last_consumer_may_unsubscribe() -> None:
    world = await SubscriptionWorld().open(SHARED)
    first, second = world.join(), world.join()

    with pytest.raises(Refusal):
        await world.subscription.delete(first.consumer)
    assert cursor_key("sub") in world.ledger.inner.state
    second.leave()
    await world.subscription.delete(first.consumer)

    assert cursor_key("sub") not in world.ledger.inner.state
    assert world.subscription.is_over
    assert first.ended is None, "its own answer tells it"


async def test_unsubscribing_by_force_sends_the_others_away() -> None:
    world = await SubscriptionWorld().open(SHARED)
    first, second = world.join(permits=5), world.join(permits=5)
    positions = await world.publish(4)
    world.ledger.hold_state()
    deleting = asyncio.create_task(world.subscription.delete(first.consumer, is_forced=True))
    await settle()

    acked = second.ack(positions[0])
    world.ledger.release_state()
    await deleting

    assert isinstance(acked.exception(), Refusal)
    assert (first.ended, second.ended) == (None, "")
    await settle()
    assert cursor_key("sub") not in world.ledger.inner.state, "nothing stores it again"


@ALL_KINDS
async def test_closing_sends_everybody_on_and_stores_what_was_acknowledged(
    kind: SubscriptionKind,
) -> None:
    world = await SubscriptionWorld().open(kind)
    consumer = world.join(permits=10)
    first, second = await world.publish(2)
    world.subscription.acknowledge(
        consumer.consumer, [Ack(first)], is_cumulative=False, is_awaited=False
    )

    await world.subscription.close("pulsar://elsewhere:6650")

    assert consumer.ended == "pulsar://elsewhere:6650"
    with pytest.raises(Refusal):
        await consumer.ack(second)
    with pytest.raises(Refusal):
        world.join()
    consumer.forget()
    await world.publish()
    assert consumer.received == []
    await world.take_over()
    assert world.subscription.mark_delete == first


async def test_closing_does_not_wait_for_a_fenced_ledger() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=10)
    (position,) = await world.publish()
    subscription = world.subscription
    subscription.acknowledge(
        consumer.consumer, [Ack(position)], is_cumulative=False, is_awaited=False
    )
    await world.open_ledger()

    await subscription.close("")

    assert subscription.is_over


@run_by(run_virtual)
async def test_closing_does_not_wait_for_ever_for_storage_that_is_stuck() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer = world.join(permits=10)
    (position,) = await world.publish()
    world.ledger.hold_state()
    acked = consumer.ack(position)
    loop = asyncio.get_running_loop()
    started = loop.time()

    await world.subscription.close("")

    assert loop.time() - started == pytest.approx(CURSOR_CLOSE_MS_MAX / 1_000)
    assert not acked.done() or isinstance(acked.exception(), Refusal)


async def test_a_subscription_with_much_to_send_does_not_keep_others_waiting() -> None:
    """Every turn is bounded: behind each, whatever else is ready runs."""
    world = await SubscriptionWorld().open(EXCLUSIVE)
    await world.publish(10 * DISPATCH_ENTRIES_MAX)
    consumer = world.join(permits=10 * DISPATCH_ENTRIES_MAX)
    seen = []
    for _ in range(15):
        await asyncio.sleep(0)
        seen.append(len(consumer.received))

    assert seen[-1] == 10 * DISPATCH_ENTRIES_MAX
    steps = {after - before for before, after in itertools.pairwise([0, *seen])}
    assert steps == {0, DISPATCH_ENTRIES_MAX}


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
async def test_a_turn_is_bounded_in_bytes_too(kind: SubscriptionKind) -> None:
    world = await SubscriptionWorld().open(kind)
    await world.publish(8, body_bytes=DISPATCH_BYTES_MAX // 2)
    consumer = world.join(permits=100)
    seen = []
    for _ in range(30):
        await asyncio.sleep(0)
        seen.append(len(consumer.received))

    assert seen[-1] == 8
    assert max(after - before for before, after in itertools.pairwise([0, *seen])) <= 2


async def test_statistics_count_what_goes_out() -> None:
    world = await SubscriptionWorld().open(SHARED)
    consumer, other = world.join(permits=10), world.join()
    positions = await world.publish(2, messages=3)
    await consumer.ack(positions[0])
    stats = world.subscription.stats()

    assert (stats.consumers, stats.backlog_entries, stats.unacked_messages) == (2, 1, 3)
    assert (stats.messages_out, stats.mark_delete) == (6, positions[0])
    assert stats.bytes_out == sum(len(each.entry.payload) for each in consumer.received)
    consumer.leave()
    other.flow(10)
    await settle()
    assert world.subscription.stats().messages_out == 9
    assert "SHARED" in repr(world.subscription)


async def test_a_subscription_on_a_topic_that_forgets_goes_on_behind_what_is_gone() -> None:
    """A topic that is not persistent keeps its newest entries, read or unread."""
    world = await SubscriptionWorld().open(SHARED, SubscriptionStart(is_durable=False))
    consumer = world.join(permits=2)
    first, second, *_ = await world.publish(6)
    consumer.nack(first)
    world.ledger.inner._unit.drop(4)

    consumer.flow(10)
    await settle()

    assert consumer.numbers == [0, 1, 4, 5]
    await consumer.ack(second, *consumer.positions[2:])
    assert world.subscription.is_drained


def test_recovering_is_a_matter_of_the_stored_record_only() -> None:
    async def main() -> None:
        world = await SubscriptionWorld().open(KEY_SHARED)
        stored = world.ledger.inner.state[cursor_key("sub")]

        recovered = Subscription.recover("sub", stored, world.ledger, world.clock)

        assert recovered.stats() == world.subscription.stats()

    asyncio.run(main())
