"""Units that are about to be looked up are assigned with what makes them, and opened at once."""

from __future__ import annotations

import asyncio

import pytest

from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.assignment import topic_controller
from tests.support.scalable.shard import NAME, ScalableShard, in_scalable_shard
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, Harness, in_shard

TOPIC = f"persistent://{NAMESPACE}/orders"


async def create(
    shard: Harness, *, on_demand: bool = True, partitions: int = 0, preferred: str = ""
) -> pb.CommandResult:
    """Create ``TOPIC``, and return the result."""
    await shard.create_topics("earlier")
    body = pb.CreateTopics(
        topics=[pb.TopicSpec(name=TOPIC, partitions=partitions)],
        on_demand=on_demand,
        preferred_broker_id=preferred,
    )
    return await shard.execute(create_topics=body)


@run_by(in_shard)
async def test_a_topic_on_demand_is_assigned_right_behind_its_creation(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")

    created = await create(shard)

    (event,) = await shard.events("topic_assigned")
    assert event.topic_assigned.name == TOPIC
    assert event.position == created.position + 1
    await asyncio.sleep(0.1)
    assert broker.taken_over == [(TOPIC, 1)]


@run_by(in_shard)
async def test_its_lookup_finds_the_assignment_and_makes_no_other(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    broker.is_hanging = True
    await create(shard)

    looking = asyncio.create_task(shard.lookup(TOPIC))
    await asyncio.sleep(0.5)
    assert not looking.done(), "the broker has not acknowledged it yet"
    broker.wake()
    (answer,) = await looking

    assert (answer.broker_id, answer.epoch) == ("broker-1", 1)
    assert len(await shard.events("topic_assigned")) == 1


@run_by(in_shard)
async def test_every_partition_of_a_topic_on_demand_is_assigned(shard: Harness) -> None:
    await shard.start_broker("broker-1")

    await create(shard, partitions=3)

    events = await shard.events("topic_assigned")
    assert [each.topic_assigned.name for each in events] == [
        f"{TOPIC}-partition-{number}" for number in range(3)
    ]


@run_by(in_shard)
async def test_it_goes_to_the_broker_whose_client_made_it(shard: Harness) -> None:
    for number in range(1, 5):
        await shard.start_broker(f"broker-{number}")

    await create(shard, preferred="broker-3")

    (event,) = await shard.events("topic_assigned")
    assert event.topic_assigned.broker_id == "broker-3"


@run_by(in_shard)
async def test_a_topic_that_an_operator_creates_waits_for_its_lookup(shard: Harness) -> None:
    await shard.start_broker("broker-1")

    await create(shard, on_demand=False)
    await asyncio.sleep(1.0)

    assert not await shard.events("topic_assigned")


@run_by(in_shard)
async def test_a_creation_succeeds_where_its_units_cannot_be_assigned(shard: Harness) -> None:
    await shard.start_broker("broker-1")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic_controller, "UNITS_IN_FLIGHT_MAX", 0)
        created = await create(shard)

    assert not created.topics[0].rejection_code
    assert not await shard.events("topic_assigned")
    (answer,) = await shard.lookup(TOPIC)
    assert answer.broker_id == "broker-1"


@run_by(in_scalable_shard)
async def test_children_are_assigned_right_behind_the_plan(shard: ScalableShard) -> None:
    await shard.change("split", 0)

    (planned,) = await shard.harness.events("layout_change_planned")
    events = await shard.harness.events("topic_assigned")
    children = {
        each.topic_assigned.name: each.position - planned.position
        for each in events
        if each.position > planned.position
    }
    segments = NAME.replace("topic://", "segment://")
    assert children[f"{segments}/0000-7fff-1"] == 1
    assert children[f"{segments}/8000-ffff-2"] == 2
