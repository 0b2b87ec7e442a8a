"""Units of deleted topics: which broker removes their messages, and when none may."""

from __future__ import annotations

import asyncio

from nextgen.kernel.events.generations import GENERATION_BITS
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer, UnitAssignment
from shards.domain.assignment import Assignment
from shards.domain.renames.names import OldName, TopicRenamed
from tests.support.scenarios import run_by
from tests.support.shards.harness import FakeBroker, Harness, in_shard

UNITS = 1_000
LAST_EPOCH = (1 << GENERATION_BITS) - 1
"""Of the generation in which all these shards are."""

SETTLED_S = 3.0
"""Longer than one time-to-live of the assignments: a new leader moves nothing before."""


async def delete(shard: Harness, topic: str) -> None:
    result = await shard.execute(delete_topic=pb.DeleteTopic(name=topic))
    assert not result.rejection_code
    await asyncio.sleep(0.5)


def removed(broker: FakeBroker) -> list[tuple[str, int]]:
    """Return the units whose messages the broker is to remove, with their epochs."""
    return [
        (each.release.name, each.release.epoch)
        for each in broker.deliveries
        if each.HasField("release") and each.release.is_deleted
    ]


def ended_of(answer: LookupAnswer) -> Assignment:
    """Return the assignment of a topic without partitions, as its deletion ends it."""
    return Assignment(
        answer.topic_id, "", answer.topic, answer.epoch, answer.broker_id, answer.session_id
    )


@run_by(in_shard)
async def test_the_owner_of_a_deleted_topic_removes_its_messages(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1", UNITS)
    (topic,) = await shard.create_topics("orders", partitions=3)
    names = [f"{topic}-partition-{number}" for number in range(3)]
    await shard.lookup(*names)

    await delete(shard, topic)

    assert sorted(removed(broker)) == [(name, LAST_EPOCH) for name in names]


@run_by(in_shard)
async def test_an_unloaded_topic_keeps_its_messages(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1", UNITS)
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)

    units = [UnitAssignment(name=topic)]
    await shard.ask(unassign=pb.UnassignRequest(units=units, reason="unloaded"))

    assert set(broker.released) == {(topic, 1, "")}
    assert removed(broker) == []


@run_by(in_shard)
async def test_another_broker_removes_the_messages_when_the_owner_is_gone(shard: Harness) -> None:
    owner = await shard.start_broker("broker-1", UNITS)
    (topic,) = await shard.create_topics("orders")
    (answer,) = await shard.lookup(topic)
    other = await shard.start_broker("broker-2", UNITS)
    await asyncio.sleep(SETTLED_S)
    await delete(shard, topic)
    assert removed(other) == [], "the owner removes them"
    owner.vanish()
    await asyncio.sleep(SETTLED_S)

    shard.leader._finisher.release_deleted([ended_of(answer)])
    await asyncio.sleep(SETTLED_S)

    assert removed(other) == [(topic, LAST_EPOCH)]


@run_by(in_shard)
async def test_the_next_leader_repeats_it_to_every_broker(shard: Harness) -> None:
    owner = await shard.start_broker("broker-1", UNITS)
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    other = await shard.start_broker("broker-2", UNITS)
    await asyncio.sleep(SETTLED_S)
    await delete(shard, topic)
    await asyncio.sleep(SETTLED_S)
    shard.next_term()
    for broker in (owner, other):
        await broker.connect()
        broker.deliveries.clear()

    await asyncio.sleep(2 * SETTLED_S)

    assert removed(owner) == removed(other) == [(topic, LAST_EPOCH)]


@run_by(in_shard)
async def test_units_that_ended_for_a_deletion_that_was_lost_keep_their_messages(
    shard: Harness,
) -> None:
    """The units of a large topic end in several records, and only the last deletes the topic."""
    broker = await shard.start_broker("broker-1", UNITS)
    (topic,) = await shard.create_topics("orders")
    (answer,) = await shard.lookup(topic)

    shard.leader._finisher.release_deleted([ended_of(answer)])
    await asyncio.sleep(0.5)

    assert set(broker.released) == {(topic, 1, "")}
    assert removed(broker) == []


@run_by(in_shard)
async def test_a_deletion_that_was_lost_does_not_remove_what_was_renamed_since(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1", UNITS)
    (topic,) = await shard.create_topics("orders")
    (answer,) = await shard.lookup(topic)
    reads, proposer = shard.leader.state.reads, shard.leader.state.proposer
    before = reads.load_topic(topic)
    assert before is not None
    new_name = topic.replace("orders", "settled")
    former = (OldName(topic, 1),)
    await proposer.propose(
        [TopicRenamed(topic, answer.topic_id, new_name, before.namespace_id, former)]
    )

    shard.leader._finisher.release_deleted([ended_of(answer)])
    await asyncio.sleep(0.5)

    assert set(broker.released) == {(topic, 1, "")}
    assert removed(broker) == []


async def delete_idle(shard: Harness, topic: str) -> None:
    """Delete by force a topic that was served and has no owner now."""
    await shard.lookup(topic)
    units = [UnitAssignment(name=topic)]
    await shard.ask(unassign=pb.UnassignRequest(units=units, reason="unloaded"))
    body = pb.DeleteTopic(name=topic, is_checked=True, force=True)
    assert not (await shard.execute(delete_topic=body)).rejection_code


@run_by(in_shard)
async def test_the_messages_of_an_idle_topic_are_removed_too(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1", UNITS)
    (topic,) = await shard.create_topics("orders")

    await delete_idle(shard, topic)
    await asyncio.sleep(0.5)

    assert removed(broker) == [(topic, LAST_EPOCH)]


@run_by(in_shard)
async def test_the_messages_of_an_idle_topic_wait_for_a_live_broker(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1", UNITS)
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    units = [UnitAssignment(name=topic)]
    await shard.ask(unassign=pb.UnassignRequest(units=units, reason="idle"))
    broker.vanish()
    await shard.wait_ended("broker-1")
    body = pb.DeleteTopic(name=topic, is_checked=True, force=True)
    await shard.execute(delete_topic=body)
    await asyncio.sleep(SETTLED_S)

    later = await shard.start_broker("broker-2", UNITS)
    await asyncio.sleep(2 * SETTLED_S)

    assert removed(later) == [(topic, LAST_EPOCH)]


@run_by(in_shard)
async def test_the_next_leader_has_the_messages_of_an_idle_topic_removed(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1", UNITS)
    (topic,) = await shard.create_topics("orders")
    await delete_idle(shard, topic)
    shard.next_term()
    await broker.connect()
    broker.deliveries.clear()

    await asyncio.sleep(2 * SETTLED_S)

    assert removed(broker) == [(topic, LAST_EPOCH)]


@run_by(in_shard)
async def test_a_removal_ends_the_epochs_of_its_own_generation_and_no_later_ones(
    shard: Harness,
) -> None:
    """Lost replicas may have given epochs that the survivor does not know, up to its promotion."""
    broker = await shard.start_broker("broker-1", UNITS)
    known, idle = await shard.create_topics("orders", "bills")
    await shard.lookup(known)
    await delete_idle(shard, idle)
    shard.next_term((3 << GENERATION_BITS) + 1)
    await broker.connect()
    broker.deliveries.clear()
    await asyncio.sleep(2 * SETTLED_S)

    await delete(shard, known)

    last = (4 << GENERATION_BITS) - 1
    assert sorted(removed(broker)) == [(idle, last), (known, last)]
