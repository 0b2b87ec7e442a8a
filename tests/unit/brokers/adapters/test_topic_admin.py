"""Operations on topics: statistics and subscriptions, as discovery calls them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from brokers.adapters.broker_service import topic_statistics
from brokers.ports.ledger import StorageFailed
from brokers.service.topics.upkeep import Upkeep
from nextgen.kernel.errors import InvalidRequest, MetadataError, ProposalLost, Refused, Unavailable
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.limits.pulsar import (
    CLIENT_VERSION_CHARACTERS_MAX,
    SUBSCRIPTION_NAME_BYTES_MAX,
    SUBSCRIPTION_PROPERTIES_MAX,
    TOPIC_RATES_MS,
)
from protos.nextgen.v1 import topic_admin_pb2 as wire
from protos.nextgen.v1.broker_service_pb2 import MessagePosition
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.topic_admin_calls import Admin, unit_of
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient

NON_PERSISTENT = TOPIC.replace("persistent", "non-persistent")
EARLIEST = wire.TopicPlace(earliest=wire.Earliest())


async def published(world: BrokerWorld, count: int) -> list[tuple[int, int]]:
    """Publish messages a second apart; return their positions."""
    client = world.broker(world.directory.owners[TOPIC][0]).client()
    await client.producer()
    for number in range(count):
        world.wall_clock_ms += 1_000
        client.send(number)
        await client.receipts(number + 1)
    receipts = await client.receipts(count)
    client.leave()
    return [(ledger, entry) for _, ledger, entry in receipts]


async def received(client: FakeClient, count: int) -> list[tuple[int, int]]:
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, count)
    assert len(messages) == count
    return [(each.message_id.ledgerId, each.message_id.entryId) for each in messages]


def at(position: tuple[int, int], **fields: Any) -> wire.TopicPlace:
    return wire.TopicPlace(
        position=MessagePosition(ledger_id=position[0], entry_id=position[1]), **fields
    )


def code_of(error: MetadataError) -> str:
    assert isinstance(error, Refused), error
    return error.code


# The owner --------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, 2, 2**64 - 1])
async def test_another_epoch_than_the_present_is_refused_as_stale(
    world: BrokerWorld, admin: Admin, epoch: int
):
    request = wire.GetStatsRequest(unit=unit_of(world, epoch=epoch))

    assert code_of(await admin.refusal("GetStats", request)) == RejectionCode.STALE_EPOCH
    assert world.broker().store.opened == 0, "the refusal costs no disk"


async def test_another_topic_of_the_same_name_is_refused_as_stale(world: BrokerWorld, admin: Admin):
    unit = unit_of(world)
    unit.topic_id = "an-earlier-one"

    refused = await admin.refusal("GetStats", wire.GetStatsRequest(unit=unit))

    assert code_of(refused) == RejectionCode.STALE_EPOCH
    assert world.broker().store.opened == 0


async def test_the_former_owner_of_a_moved_topic_refuses_and_the_new_one_answers(
    world: BrokerWorld, admin: Admin
):
    await admin.create()
    before = unit_of(world)
    world.broker("b")
    world.move(TOPIC, "b")

    stale = wire.GetStatsRequest(unit=before)
    assert code_of(await admin.refusal("GetStats", stale, broker_id="a")) == (
        RejectionCode.STALE_EPOCH
    )
    assert [each.name for each in (await admin.stats()).subscriptions] == ["sub"]


@pytest.mark.parametrize("name", ["", "a/b/c/d/e", "topic://"])
async def test_a_name_that_is_none_is_an_invalid_request(
    world: BrokerWorld, admin: Admin, name: str
):
    unit = unit_of(world)
    unit.name = name

    refused = await admin.refusal("GetStats", wire.GetStatsRequest(unit=unit))

    assert isinstance(refused, InvalidRequest)


async def test_a_topic_that_storage_does_not_open_is_trouble_that_passes(
    world: BrokerWorld, admin: Admin
):
    world.broker().store.error = StorageFailed("no space left")

    assert isinstance(await admin.refusal("GetStats", wire.GetStatsRequest()), Unavailable)


# Subscriptions ----------------------------------------------------------------------------------


async def test_a_subscription_without_a_consumer_gets_what_is_published_later(
    world: BrokerWorld, admin: Admin
):
    await published(world, 2)
    await admin.create(properties={"team": "billing"})
    later = await published(world, 2)

    client = world.broker().client()
    await client.subscribe(kind=pulsar.CommandSubscribe.Shared)

    assert await received(client, 2) == later
    (subscription,) = (await admin.stats()).subscriptions
    assert (subscription.kind, subscription.is_durable) == ("SHARED", True)
    assert dict(subscription.properties) == {"team": "billing"}


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (lambda _at, _ms: EARLIEST, 4),
        (lambda _at, _ms: wire.TopicPlace(latest=wire.Latest()), 0),
        (lambda positions, _ms: at(positions[1]), 3),
        (lambda positions, _ms: at(positions[1], is_excluded=True), 2),
        (lambda _at, _ms: at((-1, -1)), 4),
        (lambda _at, _ms: at((2**63 - 1, 2**63 - 1)), 0),
        (lambda _at, _ms: at((2**62, 0)), 0),
        (lambda _at, _ms: at((0, 0)), 4),
        (lambda _at, now_ms: wire.TopicPlace(publish_time_ms=now_ms - 1_000), 2),
        (lambda _at, _ms: wire.TopicPlace(publish_time_ms=0), 4),
        (lambda _at, _ms: wire.TopicPlace(publish_time_ms=2**63 - 1), 0),
    ],
)
async def test_a_subscription_is_created_at_a_place(
    world: BrokerWorld, admin: Admin, place: Any, expected: int
):
    positions = await published(world, 4)

    await admin.create(start=place(positions, world.wall_clock_ms))

    (subscription,) = (await admin.stats()).subscriptions
    assert subscription.backlog_entries == expected
    client = world.broker().client()
    await client.subscribe()
    assert await received(client, expected) == positions[4 - expected :]


@pytest.mark.parametrize(
    "place",
    [wire.TopicPlace(), at((-2, 0)), at((0, -5)), wire.TopicPlace(publish_time_ms=2**64 - 1)],
)
async def test_a_place_that_cannot_be_is_an_invalid_request(admin: Admin, place: wire.TopicPlace):
    request = wire.CreateSubscriptionRequest(subscription="sub", start=place)

    assert isinstance(await admin.refusal("CreateSubscription", request), InvalidRequest)
    assert not (await admin.stats()).subscriptions


async def test_a_created_subscription_outlives_a_restart_and_a_move(
    world: BrokerWorld, admin: Admin
):
    positions = await published(world, 3)
    await admin.create(start=at(positions[1]), properties={"a": "b"})
    world.broker("b")
    world.move(TOPIC, "b")

    (subscription,) = (await admin.stats()).subscriptions

    assert subscription.backlog_entries == 2
    assert dict(subscription.properties) == {"a": "b"}


async def test_a_subscription_of_a_taken_name_is_refused_and_stays(admin: Admin):
    await admin.create(properties={"first": "1"})

    again = wire.CreateSubscriptionRequest(subscription="sub", start=EARLIEST)
    assert code_of(await admin.refusal("CreateSubscription", again)) == (
        RejectionCode.ALREADY_EXISTS
    )
    (subscription,) = (await admin.stats()).subscriptions
    assert dict(subscription.properties) == {"first": "1"}


async def test_a_subscription_is_not_said_to_exist_before_it_is_stored(
    world: BrokerWorld, admin: Admin
):
    """Who creates it anew, such as a growth that broke off, takes it for durable then."""
    await admin.stats()
    world.broker().ledger().hold_facts()
    first = asyncio.ensure_future(admin.create())
    await asyncio.sleep(0)
    request = wire.CreateSubscriptionRequest(subscription="sub", start=EARLIEST)
    again = asyncio.ensure_future(admin.refusal("CreateSubscription", request))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not first.done()
    assert not again.done()

    world.broker().ledger().release_facts()

    await first
    assert code_of(await again) == RejectionCode.ALREADY_EXISTS


async def test_a_non_persistent_topic_has_no_durable_subscriptions(world: BrokerWorld):
    admin = Admin(world, NON_PERSISTENT)
    request = wire.CreateSubscriptionRequest(subscription="sub")

    assert code_of(await admin.refusal("CreateSubscription", request)) == RejectionCode.NOT_ALLOWED


async def test_subscription_name_bytes_max_are_accepted_and_one_more_refused(admin: Admin):
    longest = "x" * SUBSCRIPTION_NAME_BYTES_MAX
    await admin.create(longest)

    for name in ("", f"{longest}x"):
        request = wire.CreateSubscriptionRequest(subscription=name)
        assert isinstance(await admin.refusal("CreateSubscription", request), InvalidRequest)


async def test_subscription_properties_max_are_accepted_and_one_more_refused(admin: Admin):
    properties = {str(number): "" for number in range(SUBSCRIPTION_PROPERTIES_MAX)}
    await admin.create(properties=properties)

    for method, request in (
        ("CreateSubscription", wire.CreateSubscriptionRequest),
        ("UpdateSubscription", wire.UpdateSubscriptionRequest),
    ):
        more = request(subscription="sub", properties={**properties, "more": ""})
        assert isinstance(await admin.refusal(method, more), InvalidRequest)


async def test_properties_are_replaced_durably(world: BrokerWorld, admin: Admin):
    await admin.create(properties={"a": "1", "b": "2"})

    update = wire.UpdateSubscriptionRequest(subscription="sub", properties={"c": "3"})
    await admin.call("UpdateSubscription", update)
    world.broker("b")
    world.move(TOPIC, "b")

    (subscription,) = (await admin.stats()).subscriptions
    assert dict(subscription.properties) == {"c": "3"}


async def test_a_deleted_subscription_does_not_come_back(world: BrokerWorld, admin: Admin):
    await admin.create()

    await admin.call("DeleteSubscription", wire.DeleteSubscriptionRequest(subscription="sub"))

    assert not (await admin.stats()).subscriptions
    world.broker("b")
    world.move(TOPIC, "b")
    assert not (await admin.stats()).subscriptions


async def test_a_subscription_with_a_consumer_is_deleted_only_by_force(
    world: BrokerWorld, admin: Admin
):
    client = world.broker().client()
    await client.subscribe()
    request = wire.DeleteSubscriptionRequest(subscription="sub")

    assert code_of(await admin.refusal("DeleteSubscription", request)) == RejectionCode.NOT_EMPTY
    assert not client.got(pulsar.BaseCommand.CLOSE_CONSUMER)
    request.is_forced = True
    await admin.call("DeleteSubscription", request)

    await client.until_got(pulsar.BaseCommand.CLOSE_CONSUMER)
    assert not (await admin.stats()).subscriptions


@pytest.mark.parametrize(
    ("method", "request_type"),
    [
        ("DeleteSubscription", wire.DeleteSubscriptionRequest),
        ("UpdateSubscription", wire.UpdateSubscriptionRequest),
    ],
)
async def test_an_unknown_subscription_is_not_found(admin: Admin, method: str, request_type: Any):
    request = request_type(subscription="other")

    assert code_of(await admin.refusal(method, request)) == RejectionCode.NOT_FOUND


async def test_a_creation_that_storage_loses_may_have_happened(world: BrokerWorld, admin: Admin):
    await admin.stats()
    world.broker().ledger().failure = StorageFailed("I/O error")

    request = wire.CreateSubscriptionRequest(subscription="sub")

    assert isinstance(await admin.refusal("CreateSubscription", request), ProposalLost)


async def test_a_deletion_that_storage_loses_may_have_happened(world: BrokerWorld, admin: Admin):
    await admin.create()
    world.broker().ledger().failure = StorageFailed("I/O error")

    request = wire.DeleteSubscriptionRequest(subscription="sub")

    assert isinstance(await admin.refusal("DeleteSubscription", request), ProposalLost)


# Statistics -------------------------------------------------------------------------------------


async def test_statistics_have_a_row_for_each_client(world: BrokerWorld, admin: Admin):
    producing, consuming = world.broker().client(), world.broker().client()
    await producing.producer(producer_name="orders", producer_id=3)
    await consuming.subscribe(kind=pulsar.CommandSubscribe.Failover, consumer_name="billing")
    producing.send(0, b"abc", producer_id=3, with_num_messages_in_batch=2)
    await received(consuming, 1)

    stats = await admin.stats()

    (publisher,) = stats.publishers
    assert (publisher.name, publisher.producer_id, publisher.access_mode) == ("orders", 3, "Shared")
    assert (publisher.messages_in, publisher.bytes_in) == (2, stats.bytes_in)
    assert publisher.client.client_version == "test"
    assert publisher.client.connected_since_ms == world.wall_clock_ms
    assert stats.last_publish_time_ms == world.broker().ledger().last_time_ms > 0
    (subscription,) = stats.subscriptions
    assert subscription.active_consumer == "billing"
    assert subscription.backlog_bytes == stats.bytes
    (consumer,) = subscription.rows
    assert (consumer.name, consumer.messages_out, consumer.bytes_out) == ("billing", 2, stats.bytes)
    assert consumer.available_permits == 998


async def test_clients_that_follow_a_layout_are_told_from_classic_ones(
    world: BrokerWorld, admin: Admin
):
    managed = [pulsar.KeyValue(key="__pulsar.v5.managed", value="true")]
    others = [pulsar.KeyValue(key="__pulsar.v5.managed", value="false")]
    clients = [world.broker().client() for _ in range(4)]
    await clients[0].producer(metadata=managed)
    await clients[1].subscribe("a", metadata=managed)
    assert (await admin.stats()).classic_clients == 0

    await clients[2].producer(metadata=others)
    await clients[3].subscribe("b")
    assert (await admin.stats()).classic_clients == 2


async def test_rates_are_those_of_the_last_interval(world: BrokerWorld, admin: Admin):
    broker = world.broker()
    upkeep = Upkeep(broker.topics, lambda: broker.now_ms)
    producing, consuming = broker.client(), broker.client()
    await producing.producer()
    await consuming.subscribe()

    async def measured(messages: int) -> Any:
        before = len(producing.got(pulsar.BaseCommand.SEND_RECEIPT))
        for number in range(before, before + messages):
            producing.send(number)
        await producing.receipts(before + messages)
        await received(consuming, before + messages)
        broker.now_ms += TOPIC_RATES_MS
        await upkeep.look()
        return await admin.stats()

    await measured(7)
    busy, quiet = await measured(20), await measured(0)

    seconds = TOPIC_RATES_MS / 1_000
    (row,) = busy.subscriptions
    for rate in (
        busy.rates_in,
        busy.rates_out,
        busy.publishers[0].rates_in,
        row.rates_out,
        row.rows[0].rates_out,
    ):
        assert rate.messages_per_s == 20 / seconds
        assert rate.bytes_per_s == pytest.approx(busy.bytes_in * 20 / 27 / seconds)
    assert quiet.rates_in.messages_per_s == quiet.publishers[0].rates_in.bytes_per_s == 0
    assert (await measured(0)).rates_out.messages_per_s == 0


@pytest.mark.parametrize(("most", "publishers", "consumers"), [(4, 2, 2), (3, 2, 1), (1, 1, 0)])
async def test_topic_admin_rows_max_clients_have_rows_and_one_more_is_only_counted(
    world: BrokerWorld,
    admin: Admin,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    publishers: int,
    consumers: int,
):
    monkeypatch.setattr(topic_statistics, "TOPIC_ADMIN_ROWS_MAX", most)
    client = world.broker().client()
    for number in range(2):
        await client.producer(producer_id=number)
        await client.subscribe(kind=pulsar.CommandSubscribe.Shared, consumer_id=number)

    stats = await admin.stats()

    (subscription,) = stats.subscriptions
    assert (len(stats.publishers), len(subscription.rows)) == (publishers, consumers)
    assert (stats.producers, subscription.consumers) == (2, 2)


@pytest.mark.parametrize(("one_less", "publishers", "consumers"), [(0, 2, 2), (1, 2, 1)])
async def test_topic_admin_rows_bytes_max_of_clients_have_rows_and_one_more_byte_is_only_counted(
    world: BrokerWorld,
    admin: Admin,
    monkeypatch: pytest.MonkeyPatch,
    one_less: int,
    publishers: int,
    consumers: int,
):
    client = world.broker().client()
    for number in range(2):
        await client.producer(producer_id=number)
        await client.subscribe(kind=pulsar.CommandSubscribe.Shared, consumer_id=number)
    whole = await admin.stats()
    rows = [*whole.publishers, *whole.subscriptions[0].rows]
    bytes_max = sum(each.ByteSize() for each in rows) - one_less
    monkeypatch.setattr(topic_statistics, "TOPIC_ADMIN_ROWS_BYTES_MAX", bytes_max)

    stats = await admin.stats()

    (subscription,) = stats.subscriptions
    assert (len(stats.publishers), len(subscription.rows)) == (publishers, consumers)
    assert (stats.producers, subscription.consumers) == (2, 2)


async def test_client_version_characters_max_are_kept_and_one_more_is_cut(
    world: BrokerWorld, admin: Admin
):
    longest = "v" * CLIENT_VERSION_CHARACTERS_MAX
    for number, version in enumerate((longest, f"{longest}x")):
        client = world.broker().client(version=version)
        await client.producer(producer_id=number)

    stats = await admin.stats()

    assert [each.client.client_version for each in stats.publishers] == [longest, longest]
