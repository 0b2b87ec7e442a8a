"""Shadow topics at their broker: what clients and operators can do there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from brokers.adapters.broker_service.topic_statistics import detailed_stats
from brokers.adapters.metrics import BrokerCollector
from brokers.domain.position import Position, ledger_id_of
from brokers.domain.schemas.schema import Schema
from brokers.domain.storage_policy import StoragePolicy
from brokers.ports.source_feed import SourceAway
from brokers.service.shadows.followers import Follower, ShadowFeed
from brokers.service.subscriptions.subscription import SubscriptionStart
from brokers.service.topics import operations
from brokers.service.topics.upkeep import expire, limit_backlog, trim
from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.policies import BacklogAction
from nextgen.kernel.limits.shadow import SHADOW_SOURCE_WAIT_MS
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from protos.nextgen.v1 import broker_service_pb2 as wire
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.shadow_world import EARLIEST, SHADOW, ShadowWorld
from tests.support.brokers.world import TOPIC, BrokerWorld, FakeClient, settle, topic_id_of

SCHEMA = Schema("s", pulsar.Schema.String, b"", {})
OTHER = Schema("s", pulsar.Schema.Bool, b"", {})
KINDS = pulsar.CommandSubscribe.SubType.values()


@pytest.fixture
async def world() -> AsyncIterator[ShadowWorld]:
    world = ShadowWorld(policy=StoragePolicy(60_000, 2**30, backlog_bytes_max=2**30))
    await world.begin()
    yield world
    await world.stop()


def positions(messages: list[Any]) -> list[tuple[int, int]]:
    return [(each.message_id.ledgerId, each.message_id.entryId) for each in messages]


def skips_in(logs: list[Any]) -> list[Any]:
    return [each for each in logs if "skip" in each["event"]]


async def drop_all_but_the_last_ledger(world: ShadowWorld, ledgers: int = 2) -> None:
    """Have the source's ledger begin anew, and drop what was before."""
    inner = world.broker("a").ledger(TOPIC).inner
    inner._segment, inner._segment_bytes, inner._next_entry = ledgers - 1, 0, 0
    await world.publish(1)
    await inner.trim(Position(ledger_id_of(world.source.unit.epoch, ledgers - 1), -1))
    world.feeds.send()


# Reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_messages_of_the_source_arrive_with_their_ids_in_every_kind(
    world: ShadowWorld, kind: int
):
    early = await world.publish(2)
    client = world.client()
    await client.subscribe(topic=SHADOW, kind=kind, **EARLIEST)
    late = await world.publish(2)

    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 4)

    assert positions(messages) == early + late
    assert world.topic.subscriptions["sub"].backlog_entries == 4
    await client.answer(client.ack(messages[0]))
    assert world.topic.subscriptions["sub"].backlog_entries == 3
    assert list(world.source.subscriptions) == []


async def test_a_subscription_begins_at_the_end_of_the_source(world: ShadowWorld):
    await world.publish(3)
    client = world.client()
    await client.subscribe(topic=SHADOW)
    last = await client.request(pulsar.BaseCommand.GET_LAST_MESSAGE_ID, consumer_id=0)
    new = await world.publish(1)

    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 1)

    assert positions(messages) == new
    assert (last.last_message_id.ledgerId, last.last_message_id.entryId) == (
        new[0][0],
        new[0][1] - 1,
    )


async def test_cursors_come_back_with_the_shadows_next_owner(world: ShadowWorld):
    await world.publish(3)
    client = world.client()
    await client.subscribe(topic=SHADOW, **EARLIEST)
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 3)
    await client.answer(client.ack(messages[1], is_cumulative=True))

    world.assign(SHADOW, "a", properties={SHADOW_SOURCE_PROPERTY: TOPIC})
    later = world.broker("a").client()
    await later.subscribe(topic=SHADOW)

    assert (
        positions(await later.until_got(pulsar.BaseCommand.MESSAGE, 1)) == positions(messages)[2:]
    )


async def test_a_shadow_whose_source_is_away_serves_what_it_has_and_goes_on_later(
    world: ShadowWorld,
):
    first = await world.publish(1)
    client = world.client()
    await client.subscribe(topic=SHADOW, **EARLIEST)
    ledger = world.feeds.ledger
    assert ledger is not None
    world.feeds.go_away(SourceAway.MOVED)
    assert world.shadow.away == "moved"
    await client.subscribe("second", topic=SHADOW, consumer_id=1, **EARLIEST)
    await client.until_got(pulsar.BaseCommand.MESSAGE, 2)

    world.feeds.return_with(ledger)
    later = await world.publish(1)

    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 4)
    assert positions(messages) == first * 2 + later * 2
    assert (world.shadow.source, world.shadow.away) == (TOPIC, "")


async def test_opening_waits_for_a_lost_source_so_long_and_no_longer(world: ShadowWorld):
    await world.publish(1)
    await world.client().subscribe(topic=SHADOW)
    await world.broker("b").topics.close_topic(world.topic)
    world.feeds.go_away(SourceAway.LOST)
    world.feeds.away = SourceAway.LOST

    client = world.client()
    subscribing = client.start(
        pulsar.BaseCommand.SUBSCRIBE, topic=SHADOW, subscription="sub", consumer_id=0, subType=0
    )
    await asyncio.sleep(SHADOW_SOURCE_WAIT_MS / 1_000 - 0.001)
    await settle()
    assert world.broker("b").topics.get(SHADOW) is None
    await asyncio.sleep(0.001)

    assert isinstance(await client.answer(subscribing), pulsar.CommandSuccess)
    assert (world.shadow.away, world.topic.ledger.entry_count) == ("lost", 1)


async def test_a_shadow_that_was_never_fed_is_not_opened_until_its_source_answers(
    world: ShadowWorld,
):
    early = await world.publish(3)
    ledger = world.feeds.ledger
    assert ledger is not None
    world.feeds.ledger, world.feeds.away = None, SourceAway.LOST
    client = world.client()
    kind = pulsar.BaseCommand.SUBSCRIBE
    subscribing = client.start(kind, topic=SHADOW, subscription="sub", consumer_id=0, subType=0)
    await asyncio.sleep(SHADOW_SOURCE_WAIT_MS / 1_000)
    refused = await client.answer(subscribing)
    assert (refused.error, len(world.broker("b").topics)) == (pulsar.PersistenceError, 0)

    world.feeds.ledger = ledger
    await client.subscribe(topic=SHADOW)
    late = await world.publish(1)

    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 1)
    assert positions(messages) == late, f"and not {early}"


async def test_a_partition_of_a_shadow_follows_the_same_partition(world: ShadowWorld):
    name = f"{SHADOW}-partition-3"
    world.disk.units[topic_id_of(TOPIC), "p3"] = world.disk.units[topic_id_of(TOPIC), ""]
    world.assign(name, "b", properties={SHADOW_SOURCE_PROPERTY: TOPIC})

    await world.client().subscribe(topic=name)

    assert world.feeds.followed == [(f"{TOPIC}-partition-3", name)]


async def test_a_broker_without_feeds_opens_no_shadow():
    world = BrokerWorld()
    for source in (TOPIC, "no/topic"):
        name = f"{SHADOW}-{len(source)}"
        world.assign(name, "a", properties={SHADOW_SOURCE_PROPERTY: source})
        refused = await world.broker("a").client().subscribe(topic=name)
        assert refused.error == pulsar.PersistenceError
        assert world.broker("a").ledger(name).is_closed
    await world.stop()


@pytest.mark.parametrize("partition", ["", "-partition-1"])
@pytest.mark.parametrize(
    "source",
    [
        "no/topic",
        "topic://public/default/orders",
        "non-persistent://public/default/orders",
        f"{TOPIC}-partition-1",
        f"{SHADOW}2",
    ],
)
async def test_a_source_that_cannot_be_one_is_a_failure_of_storage(
    world: ShadowWorld, source: str, partition: str
):
    name = f"{SHADOW}2{partition}"
    world.assign(name, "b", properties={SHADOW_SOURCE_PROPERTY: source})

    refused = await world.client().subscribe(topic=name)

    assert refused.error == pulsar.PersistenceError
    assert source in refused.message
    assert world.feeds.follows == []
    assert world.broker("b").ledger(name).is_closed


async def test_a_topic_that_is_not_persistent_is_never_a_shadow(world: ShadowWorld):
    name = "non-persistent://public/default/orders-shadow"
    world.assign(name, "b", properties={SHADOW_SOURCE_PROPERTY: TOPIC})

    assert (await world.client().producer(name)).producer_ready


# Nothing is written ---------------------------------------------------------------------------


async def test_producers_are_refused(world: ShadowWorld):
    client = world.client()

    refused = await client.producer(SHADOW, initial_subscription_name="sub")
    limit_backlog(world.topic)
    again = await client.producer(SHADOW)

    for answer in (refused, again):
        assert answer.error == pulsar.NotAllowedError
        assert f"is a shadow of {TOPIC}" in answer.message
    assert world.topic.subscriptions == {}


async def test_a_message_with_an_id_is_refused_at_an_ordinary_topic(world: ShadowWorld):
    world.producer.send(0, message_id=pulsar.MessageIdData(ledgerId=1, entryId=1))

    (error,) = await world.producer.until_got(pulsar.BaseCommand.SEND_ERROR, 1)

    assert (error.sequence_id, error.error) == (0, pulsar.NotAllowedError)
    assert await world.publish(1), "the producer goes on"


async def test_a_shadow_is_neither_terminated_nor_trimmed_by_operators(world: ShadowWorld):
    await world.publish(3)
    client = world.client()
    await client.subscribe(topic=SHADOW, permits=0, **EARLIEST)

    with pytest.raises(Refused, match="is a shadow") as refused:
        await operations.terminate(world.topic)
    await operations.truncate(world.topic)

    assert refused.value.code == RejectionCode.NOT_ALLOWED
    assert world.topic.subscriptions["sub"].backlog_entries == 0
    assert world.topic.ledger.entry_count == 3
    assert world.feeds.follows[-1].reported == [world.topic.ledger.last]


async def test_the_end_of_the_source_is_the_end_of_its_shadows(world: ShadowWorld):
    await world.publish(1)
    client = world.client()
    await client.subscribe(topic=SHADOW, **EARLIEST)
    (message,) = await client.until_got(pulsar.BaseCommand.MESSAGE, 1)

    await world.source.terminate()
    world.feeds.send(has_facts=True)
    await settle()
    assert world.topic.is_terminated
    assert not client.got(pulsar.BaseCommand.REACHED_END_OF_TOPIC)
    await client.answer(client.ack(message))
    await client.until_got(pulsar.BaseCommand.REACHED_END_OF_TOPIC, 1)

    assert (await client.producer(SHADOW)).error == pulsar.NotAllowedError


# Schemas --------------------------------------------------------------------------------------


async def test_the_schema_is_that_of_the_source_and_follows_it(world: ShadowWorld):
    await world.source.schemas.add(SCHEMA)
    await world.client().subscribe(topic=SHADOW)
    schemas = world.topic.schemas
    assert schemas.find(None) == (0, SCHEMA)

    await world.source.schemas.delete(is_forced=False)
    await world.source.schemas.add(OTHER)
    world.feeds.send(has_facts=True)

    assert schemas.find(None) == (1, OTHER)
    assert schemas.find(0) == (0, SCHEMA)
    assert await schemas.add(OTHER) == 1, "it is a version"


async def test_a_schema_of_the_source_that_cannot_be_read_changes_nothing(world: ShadowWorld):
    await world.source.schemas.add(SCHEMA)
    await world.client().subscribe(topic=SHADOW)
    for key, value in (("schema/1", b"\xff"), ("schema/x", b""), ("schemas_deleted", b"x")):
        await world.source.ledger.put_state(key, value)
        world.feeds.send(has_facts=True)
        await world.source.ledger.put_state(key, None)

    assert world.topic.schemas.find(None) == (0, SCHEMA)
    await world.source.schemas.delete(is_forced=False)
    world.feeds.send(has_facts=True)
    assert world.topic.schemas.find(None) is None


async def test_nobody_adds_or_deletes_a_schema(world: ShadowWorld):
    client = world.client()
    schema = pulsar.Schema(name="s", schema_data=b"", type=pulsar.Schema.String)
    for consumer_id in range(2):
        success = await client.subscribe(
            f"sub{consumer_id}", topic=SHADOW, consumer_id=consumer_id, schema=schema
        )
        assert isinstance(success, pulsar.CommandSuccess), "nothing was published yet"

    for attempt in (
        world.topic.schemas.add(SCHEMA, by_operator=True),
        world.topic.schemas.delete(is_forced=True),
    ):
        with pytest.raises(Exception, match="its schema is that of its source"):
            await attempt

    assert len(world.topic.schemas) == len(world.source.schemas) == 0
    await world.publish(1)
    refused = await client.subscribe("late", topic=SHADOW, consumer_id=9, schema=schema)
    assert refused.error == pulsar.IncompatibleSchema, "as at the source"


# Falling behind -------------------------------------------------------------------------------


async def backlog_of(world: ShadowWorld, count: int, *, size: int = 1) -> FakeClient:
    client = world.client()
    await client.subscribe(topic=SHADOW, **EARLIEST, permits=0)
    await client.subscribe("other", topic=SHADOW, consumer_id=1)
    await world.publish(count, size=size)
    return client


async def test_what_the_source_drops_is_skipped_counted_and_logged(world: ShadowWorld):
    client = await backlog_of(world, 3)
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 3)
    for message in messages[:2]:
        await client.answer(client.ack(message, consumer_id=1))

    with capture_logs() as logs:
        await drop_all_but_the_last_ledger(world)

    (line,) = skips_in(logs)
    assert (line["subscriptions"], line["entries"]) == (2, 4)
    assert line["examples"] == {"sub": 3, "other": 1}
    assert world.shadow.skipped_entries == 4
    assert world.topic.subscriptions["sub"].backlog_entries == 1
    assert world.topic.subscriptions["other"].backlog_entries == 1


async def test_thousands_of_subscriptions_that_skip_are_one_line_with_some_names(
    world: ShadowWorld,
):
    await backlog_of(world, 3)
    for number in range(50):
        name = f"sub-{number}"
        await world.topic.create_subscription(name, SubscriptionStart(is_earliest=True))

    with capture_logs() as logs:
        await drop_all_but_the_last_ledger(world)

    (line,) = skips_in(logs)
    assert (line["subscriptions"], line["entries"]) == (52, 156)
    assert len(line["examples"]) == 10


async def test_a_shadow_that_was_closed_skips_when_it_is_opened(world: ShadowWorld):
    client = await backlog_of(world, 3)
    world.topic.pass_over(Position(world.topic.ledger.last.ledger_id, 0))
    client.leave()
    await settle()
    await world.broker("b").topics.close_idle(world.topic)
    await drop_all_but_the_last_ledger(world)

    with capture_logs() as logs:
        await world.client().subscribe(topic=SHADOW)

    (line,) = skips_in(logs)
    assert line["examples"] == ["sub", "other"]
    assert world.topic.subscriptions["sub"].backlog_entries == 1
    assert world.topic.subscriptions["sub"].mark_delete == Position(
        world.topic.ledger.first.ledger_id, -1
    )


async def test_a_new_subscription_at_the_beginning_skips_nothing(world: ShadowWorld):
    await world.publish(1)
    with capture_logs() as logs:
        await backlog_of(world, 1)
        world.feeds.send()

    assert skips_in(logs) == []
    assert world.shadow.skipped_entries == 0


async def test_a_backlog_above_the_policy_continues_at_the_end(world: ShadowWorld):
    await backlog_of(world, 4)
    topic = world.topic
    topic.use_policy(replace(topic.policy, backlog_reset_entries=4))
    limit_backlog(topic)
    assert topic.subscriptions["sub"].backlog_entries == 4

    topic.use_policy(replace(topic.policy, backlog_reset_entries=3))
    limit_backlog(topic)

    assert topic.subscriptions["sub"].backlog_entries == 0
    assert world.shadow.skipped_entries == 8


@pytest.mark.parametrize("action", BacklogAction)
async def test_a_backlog_quota_evicts_whatever_its_action(
    world: ShadowWorld, action: BacklogAction
):
    await backlog_of(world, 10, size=1_000)
    topic = world.topic
    policy = replace(topic.policy, backlog_bytes_max=5_500, backlog_action=action)
    topic.use_policy(policy)

    limit_backlog(topic)

    assert 0 < topic.subscriptions["sub"].backlog_entries < 6
    assert world.source.ledger.entry_count == 10


async def test_messages_expire_by_the_shadows_policy(world: ShadowWorld):
    await backlog_of(world, 2)
    world.wall_clock_ms += 10_000
    await world.publish(1)
    topic = world.topic
    topic.use_policy(replace(topic.policy, message_ttl_ms=5_000))

    await expire(topic, world.clock())

    assert topic.subscriptions["sub"].backlog_entries == 1


async def test_what_is_acknowledged_is_reported_to_the_source_and_nothing_is_dropped(
    world: ShadowWorld,
):
    client = await backlog_of(world, 3)
    world.wall_clock_ms += 10**9
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 3)
    await client.answer(client.ack(messages[1], consumer_id=1, is_cumulative=True))

    await trim(world.topic, world.topic.policy, world.clock())
    world.topic.subscriptions["sub"].pass_over(Position(*positions(messages)[0]))
    await trim(world.topic, world.topic.policy, world.clock())

    assert world.feeds.follows[-1].reported[1:] == [Position(*positions(messages)[0])]
    assert world.topic.ledger.entry_count == 3
    assert world.source.ledger.entry_count == 3
    for subscription in list(world.topic.subscriptions.values()):
        await world.topic.delete_subscription(subscription, is_forced=True)
    await trim(world.topic, world.topic.policy, world.clock())
    assert world.feeds.follows[-1].reported[-1] is None, "nothing is needed here"


# Statistics -----------------------------------------------------------------------------------


async def test_statistics_name_the_source_and_what_was_missed(world: ShadowWorld):
    await backlog_of(world, 3)
    await drop_all_but_the_last_ledger(world)
    world.feeds.go_away(SourceAway.UNLISTED)

    stats = await detailed_stats(world.topic)

    assert stats.shadow == wire.ShadowStats(source=TOPIC, away="unlisted", skipped_entries=6)
    assert (stats.entries, stats.producers, len(stats.subscriptions)) == (1, 0, 2)
    assert not (await detailed_stats(world.source)).HasField("shadow")


async def test_statistics_of_a_source_have_a_row_for_each_shadow_that_it_feeds(
    world: ShadowWorld,
):
    published = await world.publish(3)
    feeds = [ShadowFeed(name, "b", 5, entries_out=3, bytes_out=30) for name in (SHADOW, "new")]

    class Feeding(Follower):
        @property
        def feeds(self) -> list[ShadowFeed]:
            return feeds

    world.source.followers.add(Feeding())
    world.source.shadows.report(SHADOW, Position(*published[0]))

    rows = (await detailed_stats(world.source)).feeds

    assert list(rows) == [
        wire.ShadowFeedStats(
            shadow=name,
            broker_id="b",
            connected_since_ms=5,
            entries_out=3,
            bytes_out=30,
            backlog_entries=backlog,
        )
        for name, backlog in ((SHADOW, 2), ("new", 0))
    ]


async def test_metrics_count_shadows_and_no_bytes_twice(world: ShadowWorld):
    await backlog_of(world, 3)
    world.feeds.go_away(SourceAway.LOST)
    found = {}
    for broker_id in ("a", "b"):
        broker = world.broker(broker_id)
        for family in BrokerCollector(broker.agent, broker.front).collect():
            for sample in family.samples:
                found[broker_id, sample.name.removeprefix("nextgen_broker_")] = sample.value

    assert [found[each, "shadows"] for each in "ab"] == [0, 1]
    assert [found[each, "shadows_away"] for each in "ab"] == [0, 1]
    assert found["a", "ledger_bytes"] > 0
    assert found["b", "ledger_bytes"] == 0
