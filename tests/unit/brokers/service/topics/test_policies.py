"""An open topic acts on what its tenant, its namespace and it itself say, once they say it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from brokers.domain.holding import NamespaceMetadata, TenantMetadata, TopicMetadata
from brokers.domain.position import Position
from brokers.service.topics.upkeep import Upkeep
from brokers.wire import schema_of_message
from nextgen.kernel.governance.policies import (
    NO_POLICIES,
    BacklogAction,
    BacklogQuota,
    Policies,
    Retention,
    SchemaCompatibility,
)
from nextgen.kernel.limits.pulsar import LEDGER_SEGMENT_BYTES, TOPIC_TRIM_MS
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.world import POLICY, TOPIC, BrokerWorld, FakeClient, settle, topic_id_of

EARLIEST = {"initialPosition": pulsar.CommandSubscribe.Earliest}
OFF = Policies(deduplication=False)


class DeliveredPolicies:
    """Delivers policies of one topic, its namespace and its tenant, as the broker manager does."""

    def __init__(self, world: BrokerWorld, broker_id: str = "a") -> None:
        self._world = world
        self._broker_id = broker_id
        self._version = 1

    def tenant(self, policies: Policies = NO_POLICIES, name: str = "public") -> None:
        self._deliver(TenantMetadata(f"t-{name}", name, {}, self._next(), policies))

    def namespace(self, policies: Policies = NO_POLICIES, name: str = "public/default") -> None:
        self._deliver(NamespaceMetadata(f"n-{name}", name, {}, self._next(), policies))

    def topic(self, policies: Policies = NO_POLICIES, name: str = TOPIC) -> None:
        self._deliver(TopicMetadata(topic_id_of(name), name, 0, {}, self._next(), policies))

    def parents(self) -> None:
        self.tenant()
        self.namespace()

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _deliver(self, payload: Any) -> None:
        self._world.broker(self._broker_id).deliver(payload)


@pytest.fixture
def delivered(world: BrokerWorld) -> DeliveredPolicies:
    delivered = DeliveredPolicies(world)
    delivered.parents()
    return delivered


def upkeep(world: BrokerWorld) -> Upkeep:
    broker = world.broker()
    return Upkeep(broker.topics, lambda: broker.now_ms, trim_ms=0)


def topic_of(world: BrokerWorld, broker_id: str = "a") -> Any:
    return world.broker(broker_id).topics.get(TOPIC)


async def producing(world: BrokerWorld, count: int = 0, *, size: int = 1_000) -> FakeClient:
    client = world.broker().client()
    await client.producer(producer_id=9, producer_name="p")
    await client.subscribe(permits=0, **EARLIEST)
    await send(client, range(count), size=size)
    return client


async def send(client: FakeClient, numbers: range, *, size: int = 1_000) -> None:
    before = len(client.got(pulsar.BaseCommand.SEND_RECEIPT))
    for number in numbers:
        client.send(number, b"x" * size, producer_id=9)
    await client.receipts(before + len(numbers))


# Who says it --------------------------------------------------------------------------------------


async def test_the_topic_wins_over_its_namespace_and_that_over_its_tenant(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    await producing(world)

    delivered.tenant(
        Policies(message_ttl_ms=1, deduplication=False, retention=Retention(time_ms=1))
    )
    delivered.namespace(Policies(message_ttl_ms=2, retention=Retention(size_bytes=2)))
    delivered.topic(Policies(message_ttl_ms=3))

    assert topic_of(world).policy == replace(
        POLICY, message_ttl_ms=3, deduplicates=False, retention_ms=1, retention_bytes=2
    )

    delivered.topic()
    delivered.tenant()

    assert topic_of(world).policy == replace(POLICY, message_ttl_ms=2, retention_bytes=2)


async def test_what_others_say_changes_nothing(world: BrokerWorld, delivered: DeliveredPolicies):
    await producing(world)

    delivered.tenant(OFF, name="publi")
    delivered.namespace(OFF, name="public/default-2")
    delivered.namespace(OFF, name="public/defaul")
    delivered.topic(OFF, name=f"{TOPIC}-2")

    assert topic_of(world).policy == POLICY


async def test_a_topic_is_opened_with_what_is_said_already(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    delivered.namespace(OFF)

    await producing(world)

    assert not topic_of(world).policy.deduplicates


async def test_what_is_said_while_a_topic_is_being_opened_counts_for_it(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    client = world.broker().client()
    world.directory.released.clear()
    request = client.start(pulsar.BaseCommand.PRODUCER, topic=TOPIC, producer_id=9)
    await settle()
    delivered.namespace(OFF)
    world.directory.released.set()
    await client.answer(request)

    assert not topic_of(world).policy.deduplicates


async def test_an_assignment_that_brings_another_version_of_the_topic_counts_for_all_its_units(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    first, second = f"{TOPIC}-partition-0", f"{TOPIC}-partition-1"
    world.assign(first, "a")
    await world.broker().client().producer(first)
    assignment = world.broker().agent.session.holding.assigned(first)
    assert assignment is not None

    brought = replace(assignment.topic, version=7, policies=OFF)
    world.broker().deliver(replace(assignment, topic=brought, unit="p1", name=second))

    assert not world.broker().topics.get(first).policy.deduplicates


async def test_a_session_that_has_not_told_yet_leaves_what_was_said(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    delivered.namespace(OFF)
    client = await producing(world)
    world.directory.released.clear()
    assignment = world.broker().agent.session.holding.assigned(TOPIC)
    assert assignment is not None

    world.broker().begin_session()
    fresh = DeliveredPolicies(world)
    fresh.tenant()
    await settle()
    assert not topic_of(world).policy.deduplicates
    fresh.namespace()
    world.broker().deliver(assignment)

    assert topic_of(world).policy.deduplicates
    await send(client, range(1))


# Duplicates ---------------------------------------------------------------------------------------


async def test_without_deduplication_what_comes_again_is_stored_again_and_in_order(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    client = await producing(world, 3)
    delivered.topic(OFF)

    await send(client, range(1, 3))

    ledger = topic_of(world).ledger
    entries = await ledger.read(Position(-1, -1), entries_max=10, bytes_max=10**6)
    assert [entry.sequence_id for entry in entries] == [0, 1, 2, 1, 2]
    assert all(entry >= 0 for _, _, entry in await client.receipts(5)), "none is a duplicate"


async def test_duplicates_are_recognised_again_from_the_next_message_on(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    delivered.namespace(OFF)
    client = await producing(world, 3)
    await send(client, range(2))
    delivered.topic(Policies(deduplication=True))

    await send(client, range(2))
    await send(client, range(2, 4))

    # It had begun to count anew: 2 is behind the 1 that it sent last.
    assert [entry for _, _, entry in await client.receipts(9)] == [0, 1, 2, 3, 4, -1, -1, 5, 6]


# Backlogs -----------------------------------------------------------------------------------------


def quota(size_bytes: int, action: BacklogAction | None = None) -> Policies:
    return Policies(backlog_quota=BacklogQuota(size_bytes, action))


@pytest.mark.parametrize("action", [None, BacklogAction.PRODUCER_EXCEPTION])
async def test_producers_of_a_too_large_backlog_are_notified(
    world: BrokerWorld, delivered: DeliveredPolicies, action: BacklogAction | None
):
    client = await producing(world, 10)
    delivered.topic(quota(5_000, action))

    await upkeep(world).look()
    refused = await client.producer(producer_id=1)
    client.send(10, producer_id=9)
    (error,) = await client.until_got(pulsar.BaseCommand.SEND_ERROR)

    assert refused.error == error.error == pulsar.ProducerBlockedQuotaExceededException
    assert not client.got(pulsar.BaseCommand.CLOSE_PRODUCER)

    delivered.topic()
    await upkeep(world).look()
    await send(client, range(10, 11))


async def test_producers_that_are_to_hold_what_they_have_are_sent_away_until_there_is_room(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    client = await producing(world, 10)
    waiting = world.broker().client()
    delivered.topic(quota(5_000, BacklogAction.PRODUCER_REQUEST_HOLD))

    await upkeep(world).look()
    (closed,) = await client.until_got(pulsar.BaseCommand.CLOSE_PRODUCER)
    client.send(10, producer_id=9)
    refused = await waiting.producer(producer_id=1)

    assert closed.producer_id == 9
    assert refused.error == pulsar.ProducerBlockedQuotaExceededError
    await settle()
    assert not client.got(pulsar.BaseCommand.SEND_ERROR), "it sends it again when it is back"
    assert topic_of(world).ledger.entry_count == 10

    delivered.topic(quota(0, BacklogAction.PRODUCER_REQUEST_HOLD))
    await upkeep(world).look()
    assert (await waiting.producer(producer_id=1)).producer_ready


async def test_a_backlog_may_be_cut_instead(world: BrokerWorld, delivered: DeliveredPolicies):
    client = await producing(world, 20)
    size_bytes = topic_of(world).ledger.byte_count
    await client.subscribe("fast", consumer_id=1, permits=0)
    delivered.topic(quota(size_bytes // 2, BacklogAction.CONSUMER_BACKLOG_EVICTION))

    await upkeep(world).look()

    subscriptions = topic_of(world).subscriptions
    assert subscriptions["sub"].backlog_entries == 9, "nine tenths of what there may be"
    assert subscriptions["fast"].backlog_entries == 0
    await send(client, range(20, 21))
    await upkeep(world).look()
    assert subscriptions["sub"].backlog_entries == 10, "it is not too large"


async def test_consumers_go_on_behind_what_was_cut(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    client = await producing(world, 20)
    delivered.topic(quota(1, BacklogAction.CONSUMER_BACKLOG_EVICTION))
    await upkeep(world).look()

    client.send_raw(client.command(pulsar.BaseCommand.FLOW, consumer_id=0, messagePermits=9))
    await send(client, range(20, 21))

    (message,) = await client.until_got(pulsar.BaseCommand.MESSAGE)
    assert message.message_id.entryId == 20


# Age ----------------------------------------------------------------------------------------------


async def test_messages_expire_for_durable_subscriptions(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    client = await producing(world, 3)
    await client.subscribe("reader", consumer_id=1, permits=0, durable=False, **EARLIEST)
    world.wall_clock_ms += 1_000
    await send(client, range(3, 5))
    delivered.topic(Policies(message_ttl_ms=1_000))

    await upkeep(world).look()
    assert topic_of(world).subscriptions["sub"].backlog_entries == 5, "as old as they may be"
    world.wall_clock_ms += 1
    await upkeep(world).look()

    subscriptions = topic_of(world).subscriptions
    assert subscriptions["sub"].backlog_entries == 2
    assert subscriptions["reader"].backlog_entries == 5


async def test_what_expired_stays_so_at_the_next_owner(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    client = await producing(world, 3)
    delivered.topic(Policies(message_ttl_ms=1_000))
    world.wall_clock_ms += 1_001
    await upkeep(world).look()
    client.leave()

    world.broker("b")
    world.move(TOPIC, "b")
    await settle()
    await world.broker("b").client().producer()

    assert topic_of(world, "b").subscriptions["sub"].backlog_entries == 0


async def test_retention_is_what_the_topic_says(world: BrokerWorld, delivered: DeliveredPolicies):
    world.broker().store.segment_bytes = 1
    client = await producing(world, 5)
    client.send_raw(client.command(pulsar.BaseCommand.FLOW, consumer_id=0, messagePermits=9))
    messages = await client.until_got(pulsar.BaseCommand.MESSAGE, 5)
    await client.answer(client.ack(messages[4], is_cumulative=True))
    world.wall_clock_ms += 2
    await upkeep(world).look()
    assert topic_of(world).ledger.entry_count == 5
    assert POLICY.retention_bytes < LEDGER_SEGMENT_BYTES * 100

    delivered.topic(Policies(retention=Retention(time_ms=1)))
    world.broker().now_ms += TOPIC_TRIM_MS
    await upkeep(world).look()

    assert topic_of(world).ledger.entry_count == 1, "the segment that is written to stays"


# Schemas ------------------------------------------------------------------------------------------


def record(*fields: dict[str, object]) -> pulsar.Schema:
    content = {"type": "record", "name": "Order", "fields": list(fields)}
    data = json.dumps(content).encode()
    return pulsar.Schema(name="Order", type=pulsar.Schema.Avro, schema_data=data)


ID: dict[str, object] = {"name": "id", "type": "long"}
NAME: dict[str, object] = {"name": "name", "type": "string"}


def strategy(which: SchemaCompatibility) -> Policies:
    return Policies(schema_compatibility=which)


async def test_a_schema_is_refused_or_taken_by_what_is_said_at_the_moment(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    client = world.broker().client()
    await client.producer(producer_id=1, schema=record(ID, NAME))

    delivered.topic(strategy(SchemaCompatibility.FORWARD))
    forward = await client.producer(producer_id=2, schema=record(ID))
    delivered.topic(strategy(SchemaCompatibility.BACKWARD))
    backward = await client.producer(producer_id=3, schema=record(ID))
    delivered.topic(strategy(SchemaCompatibility.ALWAYS_INCOMPATIBLE))
    never = await client.producer(producer_id=4, schema=record())
    known = await client.producer(producer_id=5, schema=record(ID, NAME))

    assert forward.error == never.error == pulsar.IncompatibleSchema
    assert backward.producer_ready
    assert known.producer_ready


async def test_a_transitive_strategy_asks_about_every_version(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    delivered.namespace(strategy(SchemaCompatibility.ALWAYS_COMPATIBLE))
    client = world.broker().client()
    for number, schema in enumerate((record(ID), record())):
        await client.producer(producer_id=number, schema=schema)
    delivered.topic(strategy(SchemaCompatibility.FORWARD))
    by_latest = await client.producer(producer_id=7, schema=record(NAME))
    delivered.topic(strategy(SchemaCompatibility.FORWARD_TRANSITIVE))
    other = {"name": "other", "type": "long"}
    by_all = await client.producer(producer_id=8, schema=record(other))

    assert by_latest.producer_ready
    assert by_all.error == pulsar.IncompatibleSchema


@pytest.mark.parametrize("is_reopened", [False, True])
async def test_without_auto_update_clients_bring_known_versions_only(
    world: BrokerWorld, delivered: DeliveredPolicies, is_reopened: bool
):
    fields: list[dict[str, object]] = [
        {"name": name, "type": "string", "default": ""} for name in "abc"
    ]
    client = world.broker().client()
    await client.producer(producer_id=1, schema=record(fields[0]))
    delivered.namespace(Policies(schema_auto_update=False))
    if is_reopened:
        await topic_of(world).close()
        client = world.broker().client()

    known = await client.producer(producer_id=2, schema=record(fields[0]))
    refused = await client.producer(producer_id=3, schema=record(*fields[:2]))
    await topic_of(world).schemas.add(schema_of_message(record(*fields[:2])), by_operator=True)
    added = await client.producer(producer_id=4, schema=record(*fields[:2]))
    delivered.topic(Policies(schema_auto_update=True))
    allowed = await client.producer(producer_id=5, schema=record(*fields))

    assert known.producer_ready
    assert refused.error == pulsar.IncompatibleSchema
    assert "let no client add one" in refused.message
    assert added.producer_ready
    assert allowed.producer_ready


async def test_without_auto_update_a_consumer_adds_no_first_version(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    delivered.namespace(Policies(schema_auto_update=False))
    client = world.broker().client()

    refused = await client.subscribe(schema=record(ID))

    assert refused.error == pulsar.IncompatibleSchema


async def test_of_those_who_bring_one_version_at_the_same_time_one_makes_it(
    world: BrokerWorld, delivered: DeliveredPolicies
):
    delivered.namespace(strategy(SchemaCompatibility.FULL_TRANSITIVE))
    defaults = [{"name": name, "type": "string", "default": ""} for name in "abc"]
    client = world.broker().client()
    await client.producer(producer_id=0, schema=record())
    await client.producer(producer_id=1, schema=record(defaults[0]))

    requests = [
        client.start(
            pulsar.BaseCommand.PRODUCER,
            topic=TOPIC,
            producer_id=number,
            schema=record(*defaults[: 2 + number % 2]),
        )
        for number in range(2, 8)
    ]
    answers = [await client.answer(request) for request in requests]

    versions = [int.from_bytes(answer.schema_version, "big") for answer in answers]
    assert sorted(set(versions)) == [2, 3]
    assert len(topic_of(world).schemas) == 4
