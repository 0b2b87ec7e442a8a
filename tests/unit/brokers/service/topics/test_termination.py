"""A terminated topic: what clients see, and that the end outlives crashes, restarts and moves."""

from __future__ import annotations

import asyncio

import pytest

from brokers.ports.ledger import Fenced, StorageFailed
from brokers.service.topics import termination
from brokers.service.topics.upkeep import limit_backlog
from nextgen.kernel.errors import ProposalLost, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.topic_admin_calls import Admin, unit_of
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle

REACHED_END = pulsar.BaseCommand.REACHED_END_OF_TOPIC
MESSAGE = pulsar.BaseCommand.MESSAGE


async def terminate(admin: Admin) -> tuple[int, int]:
    answer = await admin.call("Terminate", wire.TerminateRequest())
    return answer.position.ledger_id, answer.position.entry_id


async def producing(world: BrokerWorld, messages: int = 0) -> FakeClient:
    client = world.broker(world.directory.owners[TOPIC][0]).client()
    await client.producer()
    for number in range(messages):
        client.send(number)
    await client.receipts(messages)
    return client


async def is_refused(client: FakeClient, producer_id: int = 9) -> bool:
    answer = await client.producer(producer_id=producer_id)
    return isinstance(answer, pulsar.CommandError) and answer.error == pulsar.TopicTerminatedError


# Producers --------------------------------------------------------------------------------------


async def test_termination_answers_the_last_id_and_closes_producers(
    world: BrokerWorld, admin: Admin
):
    client = await producing(world, 3)
    (_, *last) = (await client.receipts(3))[-1]

    assert await terminate(admin) == tuple(last)

    await client.until_got(pulsar.BaseCommand.CLOSE_PRODUCER)
    assert await is_refused(client)
    assert (await admin.stats()).is_terminated


async def test_a_second_termination_answers_the_same(world: BrokerWorld, admin: Admin):
    await producing(world, 2)

    first, second = await asyncio.gather(terminate(admin), terminate(admin))

    assert first == second == await terminate(admin)


async def test_an_empty_topic_can_be_terminated(admin: Admin):
    assert await terminate(admin) == (-1, -1)
    assert await is_refused(admin.world.broker().client())


async def test_messages_sent_before_are_stored_first_and_those_sent_meanwhile_refused_behind_them(
    world: BrokerWorld, admin: Admin
):
    client = await producing(world)
    ledger = world.broker().ledger()
    ledger.is_holding = True
    client.send(0)
    terminating = asyncio.create_task(terminate(admin))
    await settle()
    client.send(1)
    await settle()
    # A client that hears of the end sends all without a receipt to another topic.
    assert not client.got(pulsar.BaseCommand.SEND_ERROR)
    assert not terminating.done()

    ledger.release()

    (error,) = await client.until_got(pulsar.BaseCommand.SEND_ERROR)
    assert (error.sequence_id, error.error) == (1, pulsar.TopicTerminatedError)
    answers = [
        command.type
        for command in client.commands
        if command.type in (pulsar.BaseCommand.SEND_RECEIPT, pulsar.BaseCommand.SEND_ERROR)
    ]
    assert answers == [pulsar.BaseCommand.SEND_RECEIPT, pulsar.BaseCommand.SEND_ERROR]
    ((_, *last),) = await client.receipts(1)
    assert await terminating == tuple(last)


async def test_what_is_sent_behind_a_message_that_was_not_stored_is_not_refused(
    world: BrokerWorld, admin: Admin
):
    client = await producing(world)
    ledger = world.broker().ledger()
    ledger.is_holding = True
    client.send(0)
    terminating = asyncio.create_task(admin.refusal("Terminate", wire.TerminateRequest()))
    await settle()
    client.send(1)

    ledger.failure = Fenced("another owner")
    ledger.release()
    await terminating

    await client.until_got(pulsar.BaseCommand.CLOSE_PRODUCER)
    assert not client.got(pulsar.BaseCommand.SEND_RECEIPT)
    assert not client.got(pulsar.BaseCommand.SEND_ERROR)


async def test_upkeep_does_not_open_a_terminated_topic_to_producers_again(
    world: BrokerWorld, admin: Admin
):
    client = await producing(world, 1)
    await terminate(admin)
    topic = world.broker().topics.get(TOPIC)
    assert topic is not None

    limit_backlog(topic)

    assert await is_refused(client)


async def test_a_topic_whose_storage_does_not_answer_goes_on(
    world: BrokerWorld, admin: Admin, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(termination, "TOPIC_TERMINATION_MS_MAX", 1)
    client = await producing(world)
    ledger = world.broker().ledger()
    ledger.is_holding = True
    client.send(0)

    assert isinstance(await admin.refusal("Terminate", wire.TerminateRequest()), Unavailable)

    ledger.release()
    client.send(1)
    await client.receipts(2)
    assert not (await admin.stats()).is_terminated


async def test_a_termination_that_storage_loses_may_have_happened(world: BrokerWorld, admin: Admin):
    await producing(world, 1)
    world.broker().ledger().failure = StorageFailed("I/O error")

    assert isinstance(await admin.refusal("Terminate", wire.TerminateRequest()), ProposalLost)


async def test_a_non_persistent_topic_is_not_terminated(world: BrokerWorld):
    admin = Admin(world, TOPIC.replace("persistent", "non-persistent"))

    refused = await admin.refusal("Terminate", wire.TerminateRequest())

    assert isinstance(refused, Refused)
    assert refused.code == RejectionCode.NOT_ALLOWED


# Consumers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(pulsar.CommandSubscribe.SubType.values()))
async def test_a_consumer_reaches_the_end_once_everything_is_acknowledged(
    world: BrokerWorld, admin: Admin, kind: int
):
    client = world.broker().client()
    await client.subscribe(kind=kind)
    await producing(world, 2)
    await terminate(admin)
    messages = await client.until_got(MESSAGE, 2)
    await client.answer(client.ack(messages[0]))
    await settle()
    assert not client.got(REACHED_END), "one message is not acknowledged"

    await client.answer(client.ack(messages[1]))

    assert len(await client.until_got(REACHED_END)) == 1
    flow = client.command(pulsar.BaseCommand.FLOW, consumer_id=0, messagePermits=1)
    client.send_raw(flow)
    await settle()
    assert len(client.got(REACHED_END)) == 1, "once is enough"


async def test_a_consumer_of_a_terminated_and_drained_topic_reaches_the_end_behind_its_answer(
    world: BrokerWorld, admin: Admin
):
    await terminate(admin)
    client = world.broker().client()

    await client.subscribe()

    await client.until_got(REACHED_END)
    assert client.kinds.index("SUCCESS") < client.kinds.index("REACHED_END_OF_TOPIC")


async def test_connected_consumers_without_backlog_reach_the_end_at_once(
    world: BrokerWorld, admin: Admin
):
    client = world.broker().client()
    for consumer_id in range(3):
        await client.subscribe(kind=pulsar.CommandSubscribe.Shared, consumer_id=consumer_id)

    await terminate(admin)

    ends = await client.until_got(REACHED_END, 3)
    assert {each.consumer_id for each in ends} == {0, 1, 2}


async def test_a_consumer_that_seeks_back_reaches_the_end_again(world: BrokerWorld, admin: Admin):
    client = world.broker().client()
    await client.subscribe()
    await producing(world, 1)
    await terminate(admin)
    (message,) = await client.until_got(MESSAGE)
    await client.answer(client.ack(message))
    await client.until_got(REACHED_END)

    request = wire.ResetCursorRequest(
        subscription="sub", place=wire.TopicPlace(earliest=wire.Earliest())
    )
    await admin.call("ResetCursor", request)
    await client.until_got(pulsar.BaseCommand.CLOSE_CONSUMER)
    await client.subscribe(consumer_id=1)
    message = (await client.until_got(MESSAGE, 2))[-1]
    assert len(client.got(REACHED_END)) == 1
    await client.answer(client.ack(message, consumer_id=1))

    assert (await client.until_got(REACHED_END, 2))[-1].consumer_id == 1


async def test_consumers_of_a_topic_that_goes_on_never_reach_an_end(world: BrokerWorld):
    client = world.broker().client()
    await client.subscribe()
    Admin(world)
    await producing(world, 1)
    (message,) = await client.until_got(MESSAGE)
    await client.answer(client.ack(message))
    await settle()

    assert not client.got(REACHED_END)


# Durability -------------------------------------------------------------------------------------


async def test_a_terminated_topic_stays_so_when_it_moves(world: BrokerWorld, admin: Admin):
    await producing(world, 2)
    last = await terminate(admin)
    world.broker("b")
    world.move(TOPIC, "b")
    client = world.broker("b").client()

    assert await is_refused(client)
    assert await terminate(admin) == last
    await client.subscribe(initialPosition=pulsar.CommandSubscribe.Earliest)
    messages = await client.until_got(MESSAGE, 2)
    await client.answer(client.ack(messages[1], is_cumulative=True))
    await client.until_got(REACHED_END)


async def test_a_termination_under_another_epoch_is_refused_and_changes_nothing(
    world: BrokerWorld, admin: Admin
):
    client = await producing(world, 1)
    _, epoch = world.directory.owners[TOPIC]
    for stale in (epoch - 1, epoch + 1):
        request = wire.TerminateRequest(unit=unit_of(world, epoch=stale))

        refused = await admin.refusal("Terminate", request)

        assert isinstance(refused, Refused)
        assert refused.code == RejectionCode.STALE_EPOCH

    client.send(1)
    await client.receipts(2)
    assert not (await admin.stats()).is_terminated


async def test_the_last_id_stays_the_same_when_every_message_is_dropped_and_the_topic_moves(
    world: BrokerWorld, admin: Admin
):
    await producing(world, 3)
    last = await terminate(admin)

    await admin.call("Truncate", wire.TruncateRequest())
    assert await terminate(admin) == last
    world.broker("b")
    world.move(TOPIC, "b")

    assert await terminate(admin) == last


# Segments: what changes of a layout rely on -------------------------------------------------------


@pytest.mark.parametrize("is_moved", [False, True])
async def test_a_subscription_made_at_earliest_before_any_producer_gets_the_first_message(
    world: BrokerWorld, admin: Admin, is_moved: bool
):
    await admin.create(start=wire.TopicPlace(earliest=wire.Earliest()))
    if is_moved:
        world.broker("b")
        world.move(TOPIC, "b")
    await producing(world, 2)
    client = world.broker(world.directory.owners[TOPIC][0]).client()

    await client.subscribe()

    messages = await client.until_got(MESSAGE, 2)
    await client.answer(client.ack(messages[1], is_cumulative=True))
    assert not (await admin.stats()).subscriptions[0].backlog_entries


@pytest.mark.parametrize("is_moved", [False, True])
async def test_a_segment_without_a_message_ends_at_once_for_its_subscriptions(
    world: BrokerWorld, admin: Admin, is_moved: bool
):
    await admin.create(start=wire.TopicPlace(earliest=wire.Earliest()))
    assert await terminate(admin) == (-1, -1)
    if is_moved:
        world.broker("b")
        world.move(TOPIC, "b")
    client = world.broker(world.directory.owners[TOPIC][0]).client()

    await client.subscribe()

    await client.until_got(REACHED_END)
    assert await terminate(admin) == (-1, -1)


@pytest.mark.parametrize("is_moved", [False, True])
@pytest.mark.parametrize(("ledger_id", "expected"), [(-1, 2), (2**63 - 1, 0)])
async def test_a_reader_of_a_sealed_segment_reaches_the_end(
    world: BrokerWorld, admin: Admin, ledger_id: int, expected: int, is_moved: bool
):
    """A reader is a non-durable subscription that acknowledges what it has read."""
    await producing(world, 2)
    await terminate(admin)
    if is_moved:
        world.broker("b")
        world.move(TOPIC, "b")
    client = world.broker(world.directory.owners[TOPIC][0]).client()
    unsigned = ledger_id % 2**64
    start = pulsar.MessageIdData(ledgerId=unsigned, entryId=unsigned)

    await client.subscribe("reader", durable=False, start_message_id=start)

    messages = await client.until_got(MESSAGE, expected)
    if messages:
        await settle()
        assert not client.got(REACHED_END), "not everything is read"
        await client.answer(client.ack(messages[-1], is_cumulative=True))
    await client.until_got(REACHED_END)


async def test_every_consumer_of_shared_entry_buckets_reaches_the_end(
    world: BrokerWorld, admin: Admin
):
    client = world.broker().client()
    buckets = pulsar.KeySharedMeta(
        keySharedMode=pulsar.STICKY,
        entryBucketDispatch=True,
        hashRanges=[
            pulsar.IntRange(start=0, end=0x7FFF),
            pulsar.IntRange(start=0x8000, end=0xFFFF),
        ],
    )
    for consumer_id in (1, 2):
        await client.subscribe(
            consumer_id=consumer_id,
            kind=pulsar.CommandSubscribe.Key_Shared,
            keySharedMeta=buckets,
        )
    await producing(world, 4)
    await terminate(admin)
    for message in await client.until_got(MESSAGE, 4):
        assert not client.got(REACHED_END)
        await client.answer(client.ack(message, consumer_id=message.consumer_id))

    ends = await client.until_got(REACHED_END, 2)
    assert {each.consumer_id for each in ends} == {1, 2}
