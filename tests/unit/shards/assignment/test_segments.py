"""Segments of scalable topics are units: assigned, moved, and refused by their layout."""

from __future__ import annotations

import asyncio

from nextgen.kernel.events.decider import Accepted
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.scalable import decider
from shards.domain.scalable.commands import AbandonLayoutChange
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, Harness, in_shard

NAME = f"topic://{NAMESPACE}/scaled"
CLASSIC = f"persistent://{NAMESPACE}/scaled"
LOWER = f"segment://{NAMESPACE}/scaled/0000-7fff-0"
UPPER = f"segment://{NAMESPACE}/scaled/8000-ffff-1"


async def scaled(shard: Harness, brokers: int = 1) -> None:
    for number in range(brokers):
        await shard.start_broker(f"broker-{number + 1}")
    await shard.create_topics("classic")
    specs = [pb.TopicSpec(name=NAME, segments=2)]
    result = await shard.execute(create_topics=pb.CreateTopics(topics=specs))
    assert not result.topics[0].rejection_code


@run_by(in_shard)
async def test_each_segment_is_assigned_by_itself(shard: Harness) -> None:
    await scaled(shard)

    lower, upper, again = await shard.lookup(LOWER, UPPER, LOWER)

    assert (lower.broker_id, lower.epoch, lower.topic) == ("broker-1", 1, LOWER)
    assert (upper.broker_id, upper.epoch, upper.topic) == ("broker-1", 1, UPPER)
    assert again == lower
    events = await shard.events("topic_assigned")
    units = [(each.topic_assigned.unit, each.topic_assigned.name) for each in events]
    assert units == [("s0", LOWER), ("s1", UPPER)]


@run_by(in_shard)
async def test_only_what_the_layout_lists_is_assigned(shard: Harness) -> None:
    await scaled(shard)
    others = [
        f"segment://{NAMESPACE}/scaled/0000-ffff-0",
        f"segment://{NAMESPACE}/scaled/0000-7fff-1",
        f"segment://{NAMESPACE}/scaled/0000-7fff-7",
        f"segment://{NAMESPACE}/classic/0000-ffff-0",
        f"segment://{NAMESPACE}/none/0000-ffff-0",
    ]

    answers = await shard.lookup(*others)
    odd = await shard.lookup(f"segment://{NAMESPACE}/scaled/0-7FFF-0")

    assert [each.rejection_code for each in answers] == ["NOT_FOUND"] * 5
    assert odd[0].rejection_code == "INVALID_NAME"
    assert await shard.events("topic_assigned") == []


@run_by(in_shard)
async def test_a_scalable_topic_itself_has_no_broker_under_either_name(shard: Harness) -> None:
    await scaled(shard)

    answers = await shard.lookup(NAME, CLASSIC, f"non-{CLASSIC}")

    assert [each.rejection_code for each in answers] == ["SCALABLE", "SCALABLE", "NOT_FOUND"]


@run_by(in_shard)
async def test_a_child_is_assigned_for_its_operation_alone_until_the_layout_has_it(
    shard: Harness,
) -> None:
    await scaled(shard)
    shard.leader.scalable.close()
    split = pb.ChangeLayout(name=NAME, kind="split", segments=[0])
    planned = asyncio.create_task(shard.execute(change_layout=split))
    await asyncio.sleep(0.1)
    child = f"segment://{NAMESPACE}/scaled/0000-3fff-2"

    (refused,) = await shard.lookup(child)
    (assigned,) = await shard.leader.topics.lookup([child], timeout_ms=1_000, may_be_planned=True)
    (later,) = await shard.lookup(child)

    assert refused.rejection_code == later.rejection_code == "NOT_FOUND"
    assert (assigned.broker_id, assigned.epoch) == ("broker-1", 1)
    planned.cancel()


@run_by(in_shard)
async def test_a_segment_moves_and_no_other_range_does(shard: Harness) -> None:
    await scaled(shard, brokers=2)
    (before,) = await shard.lookup(LOWER)

    (wrong,) = await shard.move((f"segment://{NAMESPACE}/scaled/0000-ffff-0", ""))
    (moved,) = await shard.move((LOWER, ""))
    await asyncio.sleep(1)
    (after,) = await shard.lookup(LOWER)

    assert wrong.rejection_code == "NOT_FOUND"
    assert moved.broker_id != before.broker_id
    assert (after.broker_id, after.epoch) == (moved.broker_id, 2)


@run_by(in_shard)
async def test_a_deleted_scalable_topic_takes_its_units_along(shard: Harness) -> None:
    await scaled(shard)
    await shard.lookup(LOWER, UPPER)

    await shard.execute(delete_topic=pb.DeleteTopic(name=NAME))
    await asyncio.sleep(1)

    ended = [each.topic_unassigned.unit for each in await shard.events("topic_unassigned")]
    assert ended == ["s0", "s1"]
    released = sorted(name for name, *_ in shard.brokers["broker-1"].released)
    assert released == [LOWER, UPPER]
    (gone,) = await shard.lookup(LOWER)
    assert gone.rejection_code == "NOT_FOUND"


@run_by(in_shard)
async def test_a_segment_that_left_the_layout_is_neither_moved_nor_in_the_way_of_a_deletion(
    shard: Harness,
) -> None:
    """Its owner cannot be looked up any more; it is released with the others."""
    await scaled(shard, brokers=2)
    child = f"segment://{NAMESPACE}/scaled/0000-3fff-2"
    await shard.lookup(LOWER)
    # The brokers here carry nothing out, so its answer waits until it is taken back.
    split = asyncio.create_task(
        shard.execute(change_layout=pb.ChangeLayout(name=NAME, kind="split", segments=[0]))
    )
    await asyncio.sleep(0.1)
    await shard.leader.topics.lookup([child], timeout_ms=1_000, may_be_planned=True)
    layout = shard.leader.state.reads.load_scalable(NAME)
    assert layout is not None
    abandon = decider.decide(layout, AbandonLayoutChange(1, "a test"))
    assert isinstance(abandon, Accepted)
    await shard.leader.state.proposer.propose(abandon.events)
    await split

    (moved,) = await shard.move((child, ""))
    units = (await shard.ask(topic_units=pb.TopicUnitsRequest(name=NAME))).topic_units
    ended = [pb.EndedUnit(unit=each.unit, epoch=each.epoch) for each in units.units]
    deletion = pb.DeleteTopic(
        name=NAME, is_checked=True, topic_id=units.topic_id, ended=ended, force=True
    )
    result = await shard.execute(delete_topic=deletion)
    await asyncio.sleep(1)

    assert moved.rejection_code == "NOT_FOUND"
    assert [each.name for each in units.units] == [LOWER]
    assert result.rejection_code == ""
    gone = {name for each in shard.brokers.values() for name, *_ in each.released}
    assert gone == {LOWER, child, f"segment://{NAMESPACE}/scaled/4000-7fff-3"}
