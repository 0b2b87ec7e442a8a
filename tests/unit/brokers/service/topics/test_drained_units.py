"""A drained subscription of a sealed segment is reported, once for each reason to."""

from __future__ import annotations

import asyncio

import pytest

from brokers.ports.session import DrainedUnit
from brokers.service.topics import drained_units
from nextgen.kernel.limits.scalable import DRAINED_UNITS_IN_FLIGHT_MAX
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.topic_admin_calls import Admin
from tests.support.brokers.world import BrokerWorld, FakeClient, settle, topic_id_of

SEGMENT = "segment://public/default/orders/0000-7fff-3"
EARLIEST = wire.TopicPlace(earliest=wire.Earliest())


@pytest.fixture
async def segment(world: BrokerWorld) -> Admin:
    """A segment with a durable subscription at its beginning."""
    admin = Admin(world, SEGMENT)
    await admin.create(start=EARLIEST)
    return admin


def reported(world: BrokerWorld, broker_id: str = "a") -> list[tuple[int, str]]:
    """Return epoch and subscription of each report, forget them, and let the shards settle them."""
    broker = world.broker(broker_id)
    drained = list(broker.drained)
    broker.drained.clear()
    broker.front.drained.settled(drained)
    return [(each.epoch, each.subscription) for each in drained]


async def published(world: BrokerWorld, messages: int) -> None:
    client = world.broker(world.directory.owners[SEGMENT][0]).client()
    await client.producer(SEGMENT)
    for number in range(messages):
        client.send(number)
    await client.receipts(messages)


async def sealed(admin: Admin) -> None:
    await admin.call("Terminate", wire.TerminateRequest())
    await settle()


async def consuming(world: BrokerWorld, broker_id: str = "a", **fields: object) -> FakeClient:
    client = world.broker(broker_id).client()
    answer = await client.subscribe(topic=SEGMENT, **fields)
    assert isinstance(answer, pulsar.CommandSuccess)
    await settle()
    return client


async def acknowledge_all(client: FakeClient, count: int) -> None:
    for message in await client.until_got(pulsar.BaseCommand.MESSAGE, count):
        await client.answer(client.ack(message))
    await settle()


async def test_a_subscription_is_reported_when_it_has_acknowledged_everything(
    world: BrokerWorld, segment: Admin
):
    await published(world, 2)
    await sealed(segment)
    client = await consuming(world)
    first, second = await client.until_got(pulsar.BaseCommand.MESSAGE, 2)
    await client.answer(client.ack(first))
    await settle()
    assert reported(world) == []

    await client.answer(client.ack(second))
    await settle()

    assert world.broker().drained == [
        DrainedUnit(topic_id_of("topic://public/default/orders"), "s3", SEGMENT, 1, "sub")
    ]
    flow = client.command(pulsar.BaseCommand.FLOW, consumer_id=0, messagePermits=1)
    client.send_raw(flow)
    await settle()
    assert len(reported(world)) == 1, "once is enough"


async def test_an_active_segment_is_never_drained(world: BrokerWorld, segment: Admin):
    await published(world, 1)
    client = await consuming(world)
    await acknowledge_all(client, 1)

    world.broker().front.drained.connected()
    await settle()

    assert reported(world) == []


async def test_a_subscription_that_had_nothing_left_is_reported_at_the_seal(
    world: BrokerWorld, segment: Admin
):
    await segment.create("other", start=EARLIEST)

    await sealed(segment)

    assert sorted(reported(world)) == [(1, "other"), (1, "sub")]


async def test_nothing_is_reported_before_the_cursor_is_stored(world: BrokerWorld, segment: Admin):
    await published(world, 1)
    await sealed(segment)
    client = await consuming(world)
    (message,) = await client.until_got(pulsar.BaseCommand.MESSAGE)
    ledger = world.broker().ledger(SEGMENT)
    ledger.hold_facts()
    client.ack(message)
    await settle()
    assert reported(world) == []

    ledger.release_facts()
    await settle()

    assert reported(world) == [(1, "sub")]


async def test_a_reader_is_not_reported(world: BrokerWorld, segment: Admin):
    await segment.call("DeleteSubscription", wire.DeleteSubscriptionRequest(subscription="sub"))
    await sealed(segment)

    await consuming(world, subscription="reader", durable=False)

    assert reported(world) == []


async def test_a_consumer_that_connects_later_has_it_reported_again(
    world: BrokerWorld, segment: Admin
):
    """The controller may have got to know the subscription only then."""
    await sealed(segment)
    assert reported(world) == [(1, "sub")]

    await consuming(world)

    assert reported(world) == [(1, "sub")]


async def test_a_subscription_that_was_set_back_is_reported_when_it_is_drained_again(
    world: BrokerWorld, segment: Admin
):
    await published(world, 1)
    await sealed(segment)
    client = await consuming(world)
    await acknowledge_all(client, 1)
    assert reported(world) == [(1, "sub")]

    reset = wire.ResetCursorRequest(subscription="sub", place=EARLIEST)
    await segment.call("ResetCursor", reset)
    await settle()
    world.broker().front.drained.connected()
    await settle()
    assert reported(world) == []
    skip = wire.SkipMessagesRequest(subscription="sub", is_all=True)
    await segment.call("SkipMessages", skip)
    await settle()

    assert reported(world) == [(1, "sub")]


async def test_what_was_set_back_is_not_reported_on_the_next_connection(
    world: BrokerWorld, segment: Admin
):
    await published(world, 1)
    await sealed(segment)
    client = await consuming(world)
    await acknowledge_all(client, 1)
    assert len(world.broker().drained) == 1
    reset = wire.ResetCursorRequest(subscription="sub", place=EARLIEST)
    await segment.call("ResetCursor", reset)

    world.broker().front.drained.connected()

    assert len(world.broker().drained) == 1


async def test_each_reset_to_the_end_is_reported(world: BrokerWorld, segment: Admin):
    """A seek takes the mark away, and another report has to come."""
    await published(world, 1)
    await sealed(segment)
    latest = wire.TopicPlace(latest=wire.Latest())

    for _ in range(2):
        request = wire.ResetCursorRequest(subscription="sub", place=latest)
        await segment.call("ResetCursor", request)
        await settle()

        assert reported(world) == [(1, "sub")]


async def test_a_new_connection_to_a_manager_has_reported_again_what_is_not_settled(
    world: BrokerWorld, segment: Admin
):
    await segment.create("other", start=EARLIEST)
    await sealed(segment)
    drained, reports = world.broker().front.drained, world.broker().drained
    one, other = reports
    reports.clear()
    drained.connected()
    assert reports == [one, other]

    reports.clear()
    drained.settled([one])
    drained.connected()
    assert reports == [other]
    reports.clear()
    drained.settled([other])
    drained.connected()

    assert reports == []


async def test_a_reason_behind_a_report_has_it_repeated_once_that_is_settled(
    world: BrokerWorld, segment: Admin
):
    """The report may have been settled before the shard knew the subscription."""
    await sealed(segment)
    (unit,) = world.broker().drained
    await consuming(world)
    assert len(world.broker().drained) == 1, "one at a time"

    world.broker().front.drained.settled([unit])
    assert world.broker().drained == [unit, unit]
    world.broker().front.drained.settled([unit])

    assert world.broker().drained == [unit, unit]


async def test_drained_units_in_flight_max_are_reported_and_one_more_waits(
    world: BrokerWorld, segment: Admin, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(drained_units, "DRAINED_UNITS_IN_FLIGHT_MAX", 2)
    assert DRAINED_UNITS_IN_FLIGHT_MAX > 2
    for name in ("a", "b"):
        await segment.create(name, start=EARLIEST)
    await sealed(segment)
    assert len(world.broker().drained) == 2

    world.broker().front.drained.settled(world.broker().drained[:1])

    assert {each.subscription for each in world.broker().drained} == {"a", "b", "sub"}


async def test_the_next_owner_reports_in_its_own_epoch_and_the_former_one_no_more(
    world: BrokerWorld, segment: Admin
):
    await sealed(segment)
    assert reported(world) == [(1, "sub")]
    world.broker("b")
    world.move(SEGMENT, "b")
    await settle()
    world.broker().front.drained.connected()
    await settle()

    await consuming(world, "b")

    assert reported(world) == []
    assert set(reported(world, "b")) == {(2, "sub")}


async def test_an_owner_whose_session_is_over_reports_nothing(world: BrokerWorld, segment: Admin):
    await published(world, 1)
    await sealed(segment)
    client = await consuming(world)
    world.broker().begin_session()

    await acknowledge_all(client, 1)

    assert reported(world) == []


async def test_a_restarted_broker_reports_again(world: BrokerWorld, segment: Admin):
    await sealed(segment)
    assert reported(world) == [(1, "sub")]
    await world.broker().stop()
    del world.brokers["a"]
    world.assign(SEGMENT, "a")

    await segment.stats()
    await asyncio.sleep(0)
    await settle()

    assert reported(world) == [(2, "sub")]
