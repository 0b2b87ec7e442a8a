"""Units leave their brokers for none: who may ask, what stays, and what a dead leader leaves."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import InvalidRequest, Unavailable
from nextgen.kernel.limits.cluster import ASSIGNMENTS_PER_REQUEST_MAX
from nextgen.kernel.limits.placement import LEASE_UNUSED_MS
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import LookupAnswer, UnitAssignment
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard
from tests.support.shards.leased_subscriber import LeasedSubscriber

SETTLED_S = 3.0
"""Longer than one time-to-live of the assignments: a new leader waits for it once."""


def unit_of(answer: LookupAnswer, **other: object) -> UnitAssignment:
    unit = UnitAssignment(
        topic_id=answer.topic_id,
        name=answer.topic,
        epoch=answer.epoch,
        broker_id=answer.broker_id,
        session_id=answer.session_id,
    )
    for name, value in other.items():
        setattr(unit, name, value)
    return unit


def departures(shard: Harness) -> dict[str, int]:
    """Return how many units have left for no broker, by reason."""
    (metric,) = shard.node_metrics.unassigned.collect()
    return {
        each.labels["kind"]: int(each.value)
        for each in metric.samples
        if each.name.endswith("_total")
    }


async def unassign(
    shard: Harness, *units: UnitAssignment, reason: str = "unloaded"
) -> list[pb.UnassignOutcome]:
    request = pb.UnassignRequest(units=units, reason=reason)
    return list((await shard.ask(unassign=request)).unassign.outcomes)


@run_by(in_shard)
async def test_a_unit_leaves_its_broker_and_is_assigned_again_by_its_next_lookup(
    shard: Harness,
) -> None:
    broker = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    (answer,) = await shard.lookup(topic)
    await asyncio.sleep(SETTLED_S)

    (outcome,) = await unassign(shard, UnitAssignment(name=topic))

    assert outcome.unassigned
    assert broker.released == [(topic, 1, "")]
    (event,) = await shard.events("topic_unassigned")
    ended = event.topic_unassigned
    assert (ended.name, ended.epoch, ended.reason) == (topic, 1, "unloaded")
    assert shard.leader.state.reads.used_units(answer.session_id) == 0
    assert departures(shard) == {"idle": 0, "renamed": 0, "unloaded": 1, "topic_deleted": 0}
    (again,) = await shard.lookup(topic)
    assert (again.broker_id, again.epoch) == ("broker-1", 2)


@run_by(in_shard)
async def test_caches_forget_it_before_its_broker_lets_go(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    await asyncio.sleep(SETTLED_S)
    subscriber = LeasedSubscriber(shard.replica.changes)
    await subscriber.drain()

    unassigning = asyncio.create_task(unassign(shard, UnitAssignment(name=topic)))
    await asyncio.sleep(1.0)
    assert broker.released == []
    update = await subscriber.take()
    subscriber.acknowledge(update.position)
    await unassigning

    assert [event.topic_unassigned.name for event in update.events] == [topic]
    assert broker.released == [(topic, 1, "")]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"epoch": 2}, "is at epoch 1, 2 was to end"),
        ({"session_id": "another"}, "belongs to session"),
        ({"topic_id": "another"}, "is another topic of that name"),
    ],
)
@run_by(in_shard)
async def test_what_is_not_as_it_was_said_is_left_alone(
    shard: Harness, *, other: dict[str, object], why: str
) -> None:
    broker = await shard.start_broker("broker-1")
    idle, named, absent = await shard.create_topics("idle", "named", "absent")
    first, second = await shard.lookup(idle, named)
    await asyncio.sleep(SETTLED_S)

    outcomes = await unassign(
        shard,
        unit_of(first, **other),
        unit_of(second),
        UnitAssignment(name=absent),
        UnitAssignment(name="no name"),
        reason="idle",
    )

    assert [outcome.unassigned for outcome in outcomes] == [False, True, False, False]
    assert why in outcomes[0].message
    assert "is not assigned" in outcomes[2].message
    assert outcomes[3].message
    assert broker.released == [(named, 1, "")]


@run_by(in_shard)
async def test_an_unload_of_what_no_broker_has_is_done_and_names_what_cannot_be_unloaded(
    shard: Harness,
) -> None:
    # Given: a topic that was never assigned, one with partitions, and no other.
    broker = await shard.start_broker("broker-1")
    (never,) = await shard.create_topics("never")
    (parted,) = await shard.create_topics("parted", partitions=2)
    absent = never.replace("never", "absent")
    partition, missing = f"{parted}-partition-1", f"{parted}-partition-2"

    # When: all of them are unloaded.
    names = (never, parted, absent, partition, missing)
    outcomes = await unassign(shard, *(UnitAssignment(name=name) for name in names))

    # Then: what has no broker is unloaded already; the others have three different answers.
    assert [outcome.unassigned for outcome in outcomes] == [True, False, False, True, False]
    assert "has 2 partitions, name one of them" in outcomes[1].message
    assert "does not exist" in outcomes[2].message
    assert "there is no partition 2" in outcomes[4].message
    assert broker.released == []


@run_by(in_shard)
async def test_an_idle_unit_that_is_being_looked_up_stays(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    broker.is_hanging = True
    looking = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(0.1)

    (outcome,) = await unassign(shard, UnitAssignment(name=topic), reason="idle")
    broker.wake()

    assert not outcome.unassigned
    assert "being looked up" in outcome.message
    assert (await looking)[0].epoch == 1


@run_by(in_shard)
async def test_an_operator_waits_for_who_is_looking_it_up(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    broker.is_hanging = True
    looking = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(0.1)
    unassigning = asyncio.create_task(unassign(shard, UnitAssignment(name=topic)))
    await asyncio.sleep(0.1)
    assert not unassigning.done()
    broker.wake()

    assert (await looking)[0].epoch == 1
    assert (await unassigning)[0].unassigned


@run_by(in_shard)
async def test_a_broker_that_cannot_be_told_is_told_later(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    await asyncio.sleep(SETTLED_S)
    shard.others.release_error = Unavailable("its manager cannot be reached")

    (outcome,) = await unassign(shard, UnitAssignment(name=topic))
    assert outcome.unassigned
    shard.others.release_error = None
    await asyncio.sleep(5.0)

    assert broker.released == [(topic, 1, "")]


@run_by(in_shard)
async def test_a_new_leader_tells_the_brokers_of_what_the_old_one_ended(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    ended, again = await shard.create_topics("ended", "again")
    await shard.lookup(ended, again)
    await asyncio.sleep(SETTLED_S)
    shard.others.release_error = Unavailable("its manager cannot be reached")
    await unassign(shard, UnitAssignment(name=ended), UnitAssignment(name=again))
    await shard.lookup(again)

    shard.next_term()
    shard.others.release_error = None
    await broker.connect()
    await asyncio.sleep(SETTLED_S)

    assert broker.released == [(ended, 1, "")]
    assert (again, 2) in broker.assigned


@run_by(in_shard)
async def test_so_many_at_once_and_only_for_a_reason(shard: Harness) -> None:
    units = [
        UnitAssignment(name=f"persistent://a/b/t-{number}")
        for number in range(ASSIGNMENTS_PER_REQUEST_MAX)
    ]

    assert len(await unassign(shard, *units)) == ASSIGNMENTS_PER_REQUEST_MAX
    with pytest.raises(InvalidRequest, match="1001 units"):
        await unassign(shard, *units, UnitAssignment(name="persistent://a/b/more"))
    with pytest.raises(InvalidRequest, match="0 units"):
        await unassign(shard)
    with pytest.raises(InvalidRequest, match="'moved' is no reason"):
        await unassign(shard, units[0], reason="moved")


@run_by(in_shard, units=1_000)
async def test_units_that_left_for_being_idle_give_their_capacity_back(shard: Harness) -> None:
    """The next request for leases says so; what is not needed for long is returned (ADR 0036)."""
    await shard.start_broker("broker-1", capacity_units=1_000)
    topics = await shard.create_topics(*(f"t-{number}" for number in range(600)))
    answers = await shard.lookup(*topics)
    await asyncio.sleep(SETTLED_S)

    outcomes = await unassign(shard, *map(unit_of, answers), reason="idle")
    await asyncio.sleep(2 * LEASE_UNUSED_MS / 1_000 + 60)

    assert all(each.unassigned for each in outcomes)
    assert departures(shard) == {"idle": 600, "renamed": 0, "unloaded": 0, "topic_deleted": 0}
    last = shard.cluster.lease_requests[-1]
    assert [use.units_used for use in last.uses] == [0]
    assert last.returns
