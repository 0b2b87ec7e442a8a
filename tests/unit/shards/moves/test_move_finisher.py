"""What a new leader finishes of its predecessor's moves: nothing before its commit."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import MetadataError
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from tests.support.scenarios import run_by
from tests.support.shards.harness import FakeBroker, Harness, in_shard

UNITS = 1_000
SETTLED_S = 3.0
"""Longer than one time-to-live of the assignments: a new leader moves nothing before."""


async def in_next_term(shard: Harness, *brokers: FakeBroker) -> None:
    """Win another election, get the brokers back, and hold commits before moves are finished."""
    await asyncio.sleep(SETTLED_S)
    shard.next_term()
    for broker in brokers:
        await broker.connect()
    await asyncio.sleep(0.1)
    for broker in brokers:
        broker.deliveries.clear()
    shard.log.hold_commits()


async def unload(shard: Harness, topic: str) -> None:
    units = [UnitAssignment(name=topic)]
    response = await shard.ask(unassign=pb.UnassignRequest(units=units, reason="unloaded"))
    assert [each.message for each in response.unassign.outcomes] == [""]


@pytest.mark.parametrize("is_committed", [True, False])
@run_by(in_shard)
async def test_recovered_assignment_reaches_its_broker_only_once_committed(
    shard: Harness, *, is_committed: bool
) -> None:
    """Cluster seed 912078: the new leader assigns a unit that was unloaded a moment before."""
    broker = await shard.start_broker("broker-1", UNITS)
    other = await shard.start_broker("broker-2", UNITS)
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    await unload(shard, topic)
    await in_next_term(shard, broker, other)

    looking = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(SETTLED_S)

    assert not looking.done()
    assert broker.assigned == other.assigned == []
    assert broker.released == other.released == []
    if is_committed:
        shard.log.release_commits()
        ((answer,),) = await asyncio.gather(looking)
        assert answer.epoch == 2
        assert [(topic, 2)] in (broker.assigned[:1], other.assigned[:1])
    else:
        shard.log.lose_leadership()
        with pytest.raises(MetadataError):
            await looking
        await asyncio.sleep(SETTLED_S)
        assert broker.assigned == other.assigned == []


@run_by(in_shard)
async def test_recovered_unassignment_reaches_the_owner_only_once_committed(shard: Harness) -> None:
    source = await shard.start_broker("broker-1", UNITS)
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    target = await shard.start_broker("broker-2", UNITS)
    await asyncio.sleep(SETTLED_S)
    await shard.move((topic, "broker-2"))
    await in_next_term(shard, source, target)

    unloading = asyncio.create_task(unload(shard, topic))
    await asyncio.sleep(SETTLED_S)

    assert not unloading.done()
    assert source.released == target.released == []
    shard.log.release_commits()
    await unloading
    assert (topic, 2, "") in target.released
