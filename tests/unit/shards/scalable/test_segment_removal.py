"""Segments that left their layout: their messages go, and then they are forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nextgen.kernel.events.generations import GENERATION_BITS
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from tests.support.scalable.shard import NAME, ScalableShard, endpoint_of, in_scalable_shard
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE

LAST_EPOCH = (1 << GENERATION_BITS) - 1
"""Of the generation in which all these shards are."""


def removed(shard: ScalableShard) -> list[tuple[str, int]]:
    return [(unit, epoch) for kind, unit, epoch in shard.segments.calls if kind == "remove"]


def told(shard: ScalableShard) -> list[tuple[str, str]]:
    """Return the releases for removed units: the broker of each, and the unit."""
    return [
        (broker_id, each.release.unit)
        for broker_id, broker in shard.harness.brokers.items()
        for each in broker.deliveries
        if each.release.is_deleted
    ]


@run_by(in_scalable_shard)
async def test_the_messages_of_a_pruned_segment_go(shard: ScalableShard) -> None:
    await shard.change("split", 0)
    owner = shard.owner("s0")

    await shard.prune(0)
    await asyncio.sleep(1)

    assert told(shard) == [(owner, "s0")]
    assert removed(shard) == [("s0", LAST_EPOCH)]
    assert shard.topic.removals == ()
    (unassigned,) = await shard.harness.events("topic_unassigned")
    assert unassigned.topic_unassigned.reason == "segment_removed"
    assert not shard.segments.ledger("s1").is_removed


@run_by(in_scalable_shard)
async def test_a_removed_segment_leaves_no_assignment_behind(shard: ScalableShard) -> None:
    """A topic that is split and merged for years would have a row for each segment it ever had."""

    def units() -> list[str]:
        rows = shard.harness.view.reader().exec_driver_sql("SELECT key FROM assignments")
        return sorted(row[0].rpartition("/")[2] for row in rows)

    await shard.change("split", 0)
    assert units() == ["s0", "s1", "s2"]

    await shard.prune(0)
    await asyncio.sleep(1)

    assert units() == ["s1", "s2"]


@run_by(in_scalable_shard)
async def test_a_segment_that_no_broker_ever_had_has_no_messages(shard: ScalableShard) -> None:
    for broker_id in tuple(shard.harness.brokers):
        shard.stop_broker(broker_id)
    for broker_id in shard.harness.brokers:
        await shard.harness.wait_ended(broker_id)
    result = await shard.change("split", 0)
    assert result.rejection_code == "NOT_ALLOWED"

    await asyncio.sleep(1)

    assert shard.topic.removals == ()
    assert removed(shard) == []


@run_by(in_scalable_shard)
async def test_a_removal_is_repeated_until_the_messages_are_gone(shard: ScalableShard) -> None:
    await shard.change("split", 0)
    for broker_id in shard.harness.brokers:
        shard.segments.hanging.add(endpoint_of(broker_id))

    await shard.prune(0)
    await asyncio.sleep(20)

    assert [each.segment_id for each in shard.topic.removals] == [0]
    shard.segments.hanging.clear()
    await asyncio.sleep(2)
    assert shard.topic.removals == ()
    assert shard.segments.ledger("s0").is_removed


@run_by(in_scalable_shard)
async def test_a_removal_waits_for_a_live_broker(shard: ScalableShard) -> None:
    await shard.change("split", 0)
    for broker_id in shard.harness.brokers:
        shard.stop_broker(broker_id)
        await shard.harness.wait_ended(broker_id)

    await shard.prune(0)
    await asyncio.sleep(5)

    assert [each.segment_id for each in shard.topic.removals] == [0]
    await shard.start_broker("broker-1")
    await asyncio.sleep(3)
    assert shard.topic.removals == ()
    assert removed(shard) == [("s0", LAST_EPOCH)]


@run_by(in_scalable_shard)
async def test_the_next_leader_goes_on_with_removals(shard: ScalableShard) -> None:
    await shard.change("split", 0)
    for broker_id in shard.harness.brokers:
        shard.segments.hanging.add(endpoint_of(broker_id))
    await shard.prune(0)
    await asyncio.sleep(0.5)

    shard.stop_leader()
    await shard.start_leader()
    shard.segments.hanging.clear()
    await asyncio.sleep(3)

    assert shard.topic.removals == ()
    assert removed(shard) == [("s0", LAST_EPOCH)]


@pytest.mark.parametrize("is_idle", [False, True])
@run_by(in_scalable_shard)
async def test_nothing_is_removed_before_the_pruning_is_committed(
    shard: ScalableShard, *, is_idle: bool
) -> None:
    """A pruning that is lost with its leader leaves the segment in the layout."""
    await shard.change("split", 0)
    await asyncio.sleep(1)
    if is_idle:
        unit = UnitAssignment(name=f"segment://{NAMESPACE}/paid/0000-ffff-0")
        await shard.harness.ask(unassign=pb.UnassignRequest(units=[unit], reason="unloaded"))
    shard.harness.log.hold_commits()
    pruned = asyncio.create_task(shard.prune(0))
    await asyncio.sleep(0.05)

    shard.harness.leader.scalable.resume(NAME)
    await asyncio.sleep(1)

    assert told(shard) == removed(shard) == []
    assert not shard.segments.ledger("s0").is_removed
    shard.harness.log.release_commits()
    await pruned


@run_by(in_scalable_shard)
async def test_a_split_does_not_wait_for_removals(
    shard: ScalableShard, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*given: object, **named: object) -> None:
        del given, named
        await asyncio.sleep(3_600)

    await shard.change("split", 0)
    monkeypatch.setattr(shard.segments, "remove", hang)
    await shard.prune(0)
    await asyncio.sleep(1)

    result = await shard.change("split", 1)

    assert not result.rejection_code
    assert [each.segment_id for each in shard.topic.removals] == [0]


@run_by(in_scalable_shard)
async def test_a_removal_whose_task_fails_by_a_bug_begins_again(
    shard: ScalableShard, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``segment_removal`` is a kept task, which no simulated cluster has all the time."""
    remove, failed = shard.segments.remove, []

    async def break_once(*given: Any, **named: Any) -> None:
        if not failed:
            failed.append(1)
            raise ZeroDivisionError
        await remove(*given, **named)

    await shard.change("split", 0)
    monkeypatch.setattr(shard.segments, "remove", break_once)
    await shard.prune(0)
    await asyncio.sleep(5)

    assert failed
    assert shard.topic.removals == ()
