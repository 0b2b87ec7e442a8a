"""A classic topic becomes scalable: its units are sealed, and segments of its own follow them."""

from __future__ import annotations

import asyncio
from typing import Any

from nextgen.kernel.limits.scalable import MIGRATED_PARTITIONS_MAX, SCALABLE_SUBSCRIPTIONS_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.scalable.vocabulary import SubscriptionPhase, SubscriptionType
from shards.ports import SegmentUnit
from tests.support.scalable.shard import CLASSIC, NAME, ScalableShard, in_scalable_shard
from tests.support.scenarios import run_by


async def delete(shard: ScalableShard, name: str) -> pb.CommandResult:
    return await shard.run(delete_topic=pb.DeleteTopic(name=name))


async def rejection(shard: ScalableShard, name: str) -> str:
    (answer,) = await shard.harness.lookup(name)
    return answer.rejection_code


@run_by(in_scalable_shard, classic=2)
async def test_as_many_segments_follow_the_sealed_partitions(shard: ScalableShard) -> None:
    outcome = await shard.migrate()

    assert not outcome.rejection_code
    topic = shard.topic
    assert topic.topic_id == outcome.topic_id != shard.classic_topic().topic_id
    assert shard.units == {"p0": "sealed", "p1": "sealed", "s2": "active", "s3": "active"}
    assert [
        (each.segment_id, each.hash_start, each.hash_end, each.parents, each.legacy_topic_name)
        for each in topic.segments.values()
    ] == [
        (0, 0, 0xFFFF, (), f"{CLASSIC}-partition-0"),
        (1, 0, 0xFFFF, (), f"{CLASSIC}-partition-1"),
        (2, 0, 0x7FFF, (0, 1), ""),
        (3, 0x8000, 0xFFFF, (0, 1), ""),
    ]
    assert {each.merge_depth for each in topic.segments.values()} == {0}
    assert (topic.epoch, topic.next_segment_id) == (1, 4)


@run_by(in_scalable_shard, classic=0)
async def test_a_topic_without_partitions_gets_one_segment(shard: ScalableShard) -> None:
    await shard.migrate()

    assert shard.units == {"": "sealed", "s1": "active"}
    # Consumers read it out where it is, and its producers learn that it has ended.
    assert await rejection(shard, CLASSIC) == ""


@run_by(in_scalable_shard, classic=2)
async def test_subscriptions_are_carried_over(shard: ScalableShard) -> None:
    shard.segments.queues = {"jobs"}
    shard.segments.ledger("p0").cursors.update(jobs=3, audit=1)
    shard.segments.ledger("p1").cursors.update(jobs=2)

    await shard.migrate()

    subscriptions = shard.topic.subscriptions
    assert {each.name: each.type for each in subscriptions.values()} == {
        "audit": SubscriptionType.STREAM,
        "jobs": SubscriptionType.QUEUE,
    }
    cursors = {unit: each.cursors for unit, each in shard.segments.ledgers.items()}
    assert cursors == {
        "p0": {"jobs": 3, "audit": 1},
        "p1": {"jobs": 2, "audit": 0},
        "s2": {"jobs": 0, "audit": 0},
        "s3": {"jobs": 0, "audit": 0},
    }


@run_by(in_scalable_shard, classic=1)
async def test_a_subscription_that_comes_at_the_last_moment_is_carried_over(
    shard: ScalableShard,
) -> None:
    def come(step: str, _unit: SegmentUnit, _effect: Any) -> None:
        if step == "seal p0 is sent":
            shard.segments.ledger("p0").cursors["late"] = 0

    shard.segments.on_step = come

    await shard.migrate()

    assert shard.topic.subscriptions["late"].phase is SubscriptionPhase.LIVE
    assert shard.segments.ledger("s1").cursors == {"late": 0}


@run_by(in_scalable_shard, classic=1)
async def test_a_topic_of_too_many_subscriptions_stays_classic(shard: ScalableShard) -> None:
    names = [f"s{number}" for number in range(SCALABLE_SUBSCRIPTIONS_MAX + 1)]
    shard.segments.ledger("p0").cursors.update(dict.fromkeys(names, 0))

    outcome = await shard.migrate()

    assert outcome.rejection_code == "NOT_ALLOWED"
    assert not shard.segments.ledger("p0").is_terminated
    # Nothing has changed for its clients, and it can be migrated once there are fewer.
    assert await rejection(shard, f"{CLASSIC}-partition-0") == ""
    del shard.segments.ledger("p0").cursors["s0"]
    deleted = await shard.unsubscribe(max(shard.topic.subscriptions))
    assert not deleted.rejection_code


@run_by(in_scalable_shard, classic=1)
async def test_properties_and_policies_are_carried_over(shard: ScalableShard) -> None:
    properties = {"team": "billing"}
    await shard.run(set_topic_properties=pb.SetTopicProperties(name=CLASSIC, properties=properties))
    await shard.migrate()

    before = shard.classic_topic()
    after = shard.harness.leader.state.reads.load_topic(NAME)
    assert after is not None
    assert after.properties == before.properties == (("team", "billing"),)
    assert (after.policies, after.partitions) == (before.policies, 0)


@run_by(in_scalable_shard, classic=1)
async def test_what_was_migrated_is_not_migrated_again(shard: ScalableShard) -> None:
    await shard.migrate()

    assert (await shard.migrate()).rejection_code == "ALREADY_EXISTS"
    assert shard.topic.last_operation_id == 1


@run_by(in_scalable_shard)
async def test_a_scalable_topic_and_an_absent_one_are_not_migrated(shard: ScalableShard) -> None:
    assert (await shard.migrate()).rejection_code == "ALREADY_EXISTS"
    spec = pb.TopicSpec(name=NAME.replace("paid", "absent"), migrates=True)
    result = await shard.run(create_topics=pb.CreateTopics(topics=[spec]))
    assert result.topics[0].rejection_code == "NOT_FOUND"


@run_by(in_scalable_shard, classic=1)
async def test_a_second_command_joins_the_migration(shard: ScalableShard) -> None:
    outcomes = await asyncio.gather(shard.migrate(), shard.migrate())

    assert [each.rejection_code for each in outcomes] == ["", ""]
    assert outcomes[0].topic_id == outcomes[1].topic_id
    assert shard.topic.last_operation_id == 1


@run_by(in_scalable_shard, classic=MIGRATED_PARTITIONS_MAX + 1)
async def test_a_topic_of_too_many_partitions_stays_classic(shard: ScalableShard) -> None:
    assert (await shard.migrate()).rejection_code == "LIMIT_EXCEEDED"
    assert shard.harness.leader.state.reads.load_topic(NAME) is None


@run_by(in_scalable_shard, classic=1)
async def test_a_replica_that_knows_no_migrations_keeps_a_topic_classic(
    shard: ScalableShard,
) -> None:
    """It knows all events of layouts, but none of this kind, and would stop at the first."""
    (own, *_) = shard.harness.log.status.members
    shard.harness.log.event_levels[own] = 7

    spec = pb.TopicSpec(name=NAME, migrates=True)
    result = await shard.run(create_topics=pb.CreateTopics(topics=[spec]))

    assert result.rejection_code == "NOT_ALLOWED"
    assert "not known to know layout_change_planned events" in result.message
    assert shard.harness.leader.state.reads.load_topic(NAME) is None
    shard.harness.log.event_levels[own] = 8
    assert not (await shard.migrate()).rejection_code


@run_by(in_scalable_shard, classic=2)
async def test_a_replaced_topic_neither_grows_nor_goes_alone(shard: ScalableShard) -> None:
    await shard.migrate()

    grown = await shard.run(grow_topic=pb.GrowTopic(name=CLASSIC, partitions=3))
    assert grown.rejection_code == "SCALABLE"
    assert (await delete(shard, CLASSIC)).rejection_code == "SCALABLE"
    result = await shard.change("split", 0)
    assert result.rejection_code == "NOT_ALLOWED"


@run_by(in_scalable_shard, classic=2)
async def test_the_classic_topic_goes_with_the_scalable_one(shard: ScalableShard) -> None:
    await shard.migrate()

    assert not (await delete(shard, NAME)).rejection_code
    await asyncio.sleep(1)

    assert shard.classic_topic() is None
    deleted = await shard.harness.events("topic_deleted")
    assert [each.topic_deleted.name for each in deleted] == [NAME, CLASSIC]
    released = {
        each.release.unit
        for broker in shard.harness.brokers.values()
        for each in broker.deliveries
        if each.release.is_deleted
    }
    assert released == {"p0", "p1", "s2", "s3"}


@run_by(in_scalable_shard, classic=2)
async def test_the_classic_topic_goes_with_its_last_partition(shard: ScalableShard) -> None:
    await shard.migrate()
    partition = f"{CLASSIC}-partition-0"

    await shard.prune(0)
    await asyncio.sleep(1)

    assert shard.segments.ledger("p0").is_removed
    assert shard.classic_topic() is not None
    assert await rejection(shard, partition) == "NOT_FOUND", "it would begin anew"
    assert await rejection(shard, f"{CLASSIC}-partition-1") == ""

    await shard.prune(1)
    await asyncio.sleep(1)

    assert shard.classic_topic() is None
    assert shard.topic.removals == ()
    assert await rejection(shard, partition) == "SCALABLE"


@run_by(in_scalable_shard, classic=1)
async def test_without_a_broker_it_is_taken_back_and_begun_again(shard: ScalableShard) -> None:
    for broker_id in list(shard.harness.brokers):
        shard.stop_broker(broker_id)

    assert (await shard.migrate()).rejection_code == "NOT_ALLOWED"
    assert shard.units == {"p0": "active"}, "its classic clients have it still"

    for broker_id in list(shard.harness.brokers):
        await shard.start_broker(broker_id)
    assert not (await shard.migrate()).rejection_code
    assert shard.units == {"p0": "sealed", "s2": "active"}
    assert shard.topic.segments[2].parents == (0,)
