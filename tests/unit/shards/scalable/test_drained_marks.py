"""Reports of drained segments become marks of their topics, once each."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import InvalidRequest, StaleShardMap
from nextgen.kernel.limits.scalable import DRAINED_UNITS_PER_MESSAGE_MAX
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import Unit, parse_topic
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from protos.nextgen.v1.shard_service_pb2 import DrainedMark
from shards.domain.assignment import TopicAssigned
from shards.domain.scalable.commands import (
    CreateSubscription,
    MarkChildrenReady,
    MarkSubscriptionReady,
    RegisterConsumer,
    ScalableTopicCommand,
    SealSegment,
    SeekSubscription,
)
from shards.domain.scalable.state import ScalableTopic
from tests.support.scenarios import run_by
from tests.support.shards.harness import FakeBroker, Harness, in_shard
from tests.support.shards.scalable import END, NAME, SPLIT, STREAM, accepted, create, plan

PARENT, LOWER, UPPER = 0, 1, 2
PARENT_NAME = "segment://acme/orders/paid/0000-ffff-0"
READY = MarkSubscriptionReady("s", (0, 1, 2))
SETTLED_S = 3.0


def topic_of(shard: Harness) -> ScalableTopic:
    topic = shard.leader.state.reads.load_scalable(NAME)
    assert topic is not None
    return topic


def drained_of(shard: Harness) -> frozenset[int]:
    return topic_of(shard).subscriptions["s"].drained


async def decided(shard: Harness, *commands: ScalableTopicCommand) -> None:
    """Record what follows from commands that must be accepted."""
    state = shard.leader.state
    for command in commands:
        events = accepted(state.reads.load_scalable(NAME), command)
        if events:
            await state.proposer.propose(events)


async def owned(shard: Harness, epoch: int = 1) -> FakeBroker:
    """Assign the parent segment to a broker, in an epoch."""
    broker = shard.brokers.get("broker-1") or await shard.start_broker("broker-1")
    unit = Unit.segment(PARENT).text
    assigned = TopicAssigned(
        "topic-1", unit, PARENT_NAME, epoch, broker.broker_id, broker.session_id, "first_lookup"
    )
    await shard.leader.state.proposer.propose([assigned])
    return broker


async def split(shard: Harness, *, is_sealed: bool = True) -> FakeBroker:
    """Split the only segment of a topic with a stream subscription; return the parent's owner."""
    await decided(
        shard,
        create(),
        CreateSubscription("s", STREAM, 1_000),
        READY,
        plan(SPLIT, PARENT),
        MarkChildrenReady(1, ("s",)),
    )
    if is_sealed:
        await decided(shard, SealSegment(1, PARENT, END, 3_000))
    return await owned(shard)


def mark(
    broker: FakeBroker, *, epoch: int = 1, name: str = PARENT_NAME, subscription: str = "s"
) -> DrainedMark:
    unit = UnitAssignment(
        topic_id="topic-1",
        unit=parse_topic(name).unit.text,
        name=name,
        epoch=epoch,
        broker_id=broker.broker_id,
        session_id=broker.session_id,
    )
    return DrainedMark(unit=unit, subscription=subscription)


@run_by(in_shard)
async def test_a_drained_segment_is_noted_once_and_its_children_are_given_out(
    shard: Harness,
) -> None:
    broker = await split(shard)
    await decided(shard, RegisterConsumer("s", "c", STREAM, True, 1_000))
    assert [each.segments for each in topic_of(shard).subscriptions["s"].assigned] == [(PARENT,)]

    first = await shard.leader.drained_marks.mark([mark(broker), mark(broker)])
    second = await shard.leader.drained_marks.mark([mark(broker)])

    assert (first, second) == ([True, True], [True])
    assert drained_of(shard) == {PARENT}
    assert len(await shard.events("segment_drained")) == 1
    (assigned,) = topic_of(shard).subscriptions["s"].assigned
    assert assigned.segments == (LOWER, UPPER)


@run_by(in_shard)
async def test_a_report_before_the_seal_is_recorded_is_to_be_repeated(shard: Harness) -> None:
    broker = await split(shard, is_sealed=False)
    assert await shard.leader.drained_marks.mark([mark(broker)]) == [False]
    assert drained_of(shard) == frozenset()

    await decided(shard, SealSegment(1, PARENT, END, 3_000))

    assert await shard.leader.drained_marks.mark([mark(broker)]) == [True]
    assert drained_of(shard) == {PARENT}


@run_by(in_shard)
async def test_what_an_earlier_owner_reports_is_of_no_use(shard: Harness) -> None:
    broker = await split(shard)
    await owned(shard, epoch=2)
    stranger = mark(broker, epoch=2)
    stranger.unit.session_id = "s-of-before"

    settled = await shard.leader.drained_marks.mark([mark(broker), stranger])

    assert settled == [True, True]
    assert drained_of(shard) == frozenset()


@run_by(in_shard)
async def test_what_the_layout_does_not_have_is_of_no_use(shard: Harness) -> None:
    broker = await split(shard)

    settled = await shard.leader.drained_marks.mark(
        [
            mark(broker, subscription="of nobody"),
            mark(broker, name="segment://acme/orders/paid/0000-7fff-0"),
            mark(broker, name="segment://acme/orders/paid/0000-ffff-9"),
            mark(broker, name="segment://acme/orders/other/0000-ffff-0"),
            mark(broker, name="persistent://acme/orders/paid"),
            mark(broker, name="persistent://acme/orders/paid-partition-3"),
        ]
    )

    assert settled == [True] * 6
    assert await shard.events("segment_drained") == []


@run_by(in_shard)
async def test_a_report_during_a_seek_is_not_noted(shard: Harness) -> None:
    broker = await split(shard)
    await decided(shard, SeekSubscription("s", 9))

    assert await shard.leader.drained_marks.mark([mark(broker)]) == [True]

    assert drained_of(shard) == frozenset()


@run_by(in_shard)
async def test_drained_units_per_message_max_are_noted_and_one_more_refused(
    shard: Harness,
) -> None:
    broker = await split(shard)
    most = [mark(broker)] * DRAINED_UNITS_PER_MESSAGE_MAX

    with pytest.raises(InvalidRequest):
        await shard.leader.drained_marks.mark([*most, mark(broker)])
    with pytest.raises(InvalidRequest):
        await shard.leader.drained_marks.mark([])
    wrong = mark(broker)
    wrong.unit.name = "persistent://no/"
    with pytest.raises(InvalidRequest):
        await shard.leader.drained_marks.mark([wrong])

    assert await shard.leader.drained_marks.mark(most) == [True] * len(most)


@run_by(in_shard, shards=2)
async def test_a_topic_of_another_shard_is_refused(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    slots = shard.leader.state.slots
    names = [f"segment://acme/orders/t{number}/0000-ffff-0" for number in range(100)]
    keys = {name: parse_topic(name).routing_key for name in names}
    elsewhere = next(name for name in names if not slots.has(slot_of(keys[name])))

    with pytest.raises(StaleShardMap):
        await shard.leader.drained_marks.mark([mark(broker, name=elsewhere)])


@run_by(in_shard)
async def test_a_report_about_a_slot_that_leaves_meanwhile_is_to_be_repeated(
    shard: Harness,
) -> None:
    """Between two marks of a request others have their turn, a release, too. What is no topic of
    this shard any more is not one that nobody has."""
    broker = await split(shard)
    slots, has_left = shard.leader.state.slots, [False, False, False, True]
    slots.has = lambda _slot: not (has_left and has_left.pop(0))  # type: ignore[method-assign]

    settled = await shard.leader.drained_marks.mark([mark(broker), mark(broker)])

    assert settled == [True, False]


@run_by(in_shard)
async def test_a_brokers_report_reaches_the_topic_by_its_manager(shard: Harness) -> None:
    broker = await split(shard)
    assert broker.connection is not None
    unit = mark(broker).unit
    report = broker_pb.DrainedUnit(
        topic_id=unit.topic_id,
        unit=unit.unit,
        name=unit.name,
        epoch=unit.epoch,
        subscription="s",
    )
    message = broker_pb.BrokerMessage(drained=broker_pb.DrainedUnits(units=[report]))

    shard.leader.brokers.sessions.receive(broker.connection, message)
    await asyncio.sleep(SETTLED_S)

    assert drained_of(shard) == {PARENT}
    assert broker.settled == [report]
