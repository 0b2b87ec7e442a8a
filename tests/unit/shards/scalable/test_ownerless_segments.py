"""A segment that has no owner for two report intervals has no traffic, and that is recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nextgen.kernel.errors import Overloaded
from nextgen.kernel.governance.service_settings import LoadReporting, ServiceSettings
from nextgen.kernel.limits.scalable import AUTO_SCALE_TICK_MS, SEGMENT_LOAD_REPORT_MS
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import UnitAssignment
from shards.domain.assignment import REASON_IDLE, REASON_UNLOADED
from shards.domain.scalable.loads import TopicLoads
from shards.scalable.scaling.ownerless_segments import OWNERLESS_REPORTS
from tests.support.scalable.loads import COLD, HOT, IDLE, WARM, decided, report, set_policy, settle
from tests.support.scalable.shard import NAME, ScalableShard, in_scalable_shard
from tests.support.scenarios import run_by

OWNERLESS_S = OWNERLESS_REPORTS * SEGMENT_LOAD_REPORT_MS / 1_000

LOOKS_S = 12.0
"""A look at the sessions comes within ten seconds, and what it finds is recorded at once."""


def loads_of(shard: ScalableShard) -> TopicLoads:
    found = shard.harness.leader.state.reads.load_loads(NAME)
    return found or TopicLoads("")


async def lose_all_brokers(shard: ScalableShard) -> None:
    """Let all brokers be gone, and their sessions end: no segment has an owner any more."""
    for broker_id in tuple(shard.harness.brokers):
        shard.stop_broker(broker_id)
    while shard.harness.cluster.live():
        await asyncio.sleep(0.1)


async def unassign(shard: ScalableShard, segment: int, reason: str) -> None:
    """Take a segment from its broker. It waits for two seconds for the broker's release."""
    found = shard.topic.segments[segment]
    unit = UnitAssignment(name=found.name_in(parse_topic(NAME)))
    (outcome,) = await shard.harness.leader.unassigner.unassign([unit], reason)
    assert outcome.unassigned, outcome


async def records(shard: ScalableShard) -> list[Any]:
    found = await shard.harness.events("segment_loads_recorded")
    return [each.segment_loads_recorded for each in found]


@run_by(in_scalable_shard)
async def test_a_hot_segment_of_brokers_that_died_is_not_split_again(shard: ScalableShard) -> None:
    """Its traffic went with its owner: when brokers are back, nothing is hot."""
    await set_policy(shard, enabled=False)
    await report(shard, {0: HOT})
    await lose_all_brokers(shard)
    await settle(OWNERLESS_S + LOOKS_S)
    assert loads_of(shard).loads[0].rates == IDLE

    await set_policy(shard, enabled=True)
    await shard.start_broker("broker-1")
    await settle(60)

    assert await decided(shard) == []
    assert len(shard.topic.active) == 1


@run_by(in_scalable_shard)
async def test_its_load_counts_until_two_report_intervals_are_over(shard: ScalableShard) -> None:
    """Usually another broker has it within a second, and the same clients."""
    await set_policy(shard, enabled=False)
    await report(shard, {0: HOT})
    await lose_all_brokers(shard)
    await asyncio.sleep(OWNERLESS_S - 1)

    await set_policy(shard, enabled=True)
    await settle(0.5)

    assert loads_of(shard).loads[0].rates == HOT
    assert [each.reason for each in await decided(shard)] == ["msgRateIn"]


@run_by(in_scalable_shard, segments=2)
async def test_segments_that_lost_their_owners_are_merged(shard: ScalableShard) -> None:
    """Nobody reports that nobody sends. A warm record would keep them apart for good."""
    await set_policy(shard, mergeWindowSeconds=30)
    await report(shard, {0: WARM, 1: WARM})
    lost_at = asyncio.get_running_loop().time()
    await lose_all_brokers(shard)
    await settle(OWNERLESS_S + LOOKS_S)
    await shard.start_broker("broker-1")
    loads = loads_of(shard).loads
    assert [each.rates for each in loads.values()] == [IDLE, IDLE]
    since_s = (loads[0].cold_since_ms - 1_700_000_000_000) / 1_000
    assert since_s >= lost_at + OWNERLESS_S, "they were not cold before"

    await settle(60)

    assert [each.reason for each in await decided(shard)] == ["cold"]


@run_by(in_scalable_shard, segments=2)
async def test_a_cold_segment_stays_cold_since_when_it_was(shard: ScalableShard) -> None:
    """Finding 4: that it lost its owner does not begin the merge window anew."""
    await set_policy(shard, enabled=False)
    await report(shard, {0: COLD, 1: IDLE})
    before = loads_of(shard).loads
    await asyncio.sleep(50)
    await lose_all_brokers(shard)
    await settle(OWNERLESS_S + LOOKS_S)

    after = loads_of(shard).loads
    assert after[0].rates == IDLE
    assert {each.cold_since_ms for each in after.values()} == {before[0].cold_since_ms}
    assert after[1] == before[1], "no traffic was on record already"


@run_by(in_scalable_shard)
async def test_a_segment_that_another_broker_has_keeps_its_load(shard: ScalableShard) -> None:
    """Finding 4: its next owner goes on from what is on record."""
    await set_policy(shard, enabled=False)
    await report(shard, {0: HOT})
    shard.stop_broker(shard.owner("s0"))
    await settle(3)
    assert await report(shard, {0: HOT}) == [HOT]
    await settle(OWNERLESS_S + LOOKS_S)

    assert loads_of(shard).loads[0].rates == HOT
    assert len(await records(shard)) == 1


@run_by(in_scalable_shard, segments=2)
async def test_an_unloaded_segment_that_nobody_looks_up_has_no_traffic(
    shard: ScalableShard,
) -> None:
    await set_policy(shard, enabled=False)
    await report(shard, {0: HOT, 1: WARM})
    await unassign(shard, 0, REASON_UNLOADED)
    await asyncio.sleep(OWNERLESS_S - 4)
    assert loads_of(shard).loads[0].rates == HOT

    await settle(4)

    assert [each.rates for each in loads_of(shard).loads.values()] == [IDLE, WARM]


@run_by(in_scalable_shard, segments=2)
async def test_segments_that_leave_their_brokers_because_they_are_idle_are_merged(
    shard: ScalableShard,
) -> None:
    await set_policy(shard, mergeWindowSeconds=30)
    await report(shard, {0: WARM, 1: WARM})
    for segment in (0, 1):
        await unassign(shard, segment, REASON_IDLE)

    await settle(OWNERLESS_S + 40)

    assert [each.reason for each in await decided(shard)] == ["cold"]


@run_by(in_scalable_shard)
async def test_the_time_without_an_owner_counts_from_its_last_beginning(
    shard: ScalableShard,
) -> None:
    await set_policy(shard, enabled=False)
    await report(shard, {0: HOT})
    await unassign(shard, 0, REASON_UNLOADED)
    await asyncio.sleep(OWNERLESS_S - 4)
    await report(shard, {0: HOT})
    await unassign(shard, 0, REASON_UNLOADED)
    await asyncio.sleep(OWNERLESS_S - 4)
    assert loads_of(shard).loads[0].rates == HOT

    await settle(6)

    assert loads_of(shard).loads[0].rates == IDLE


@run_by(in_scalable_shard)
async def test_a_new_leader_counts_anew_and_records_it(shard: ScalableShard) -> None:
    await set_policy(shard, enabled=False)
    await report(shard, {0: HOT})
    await unassign(shard, 0, REASON_UNLOADED)
    await asyncio.sleep(OWNERLESS_S - 4)
    shard.stop_leader()
    await shard.start_leader()
    await asyncio.sleep(OWNERLESS_S - 2)
    assert loads_of(shard).loads[0].rates == HOT

    await settle(4)

    assert loads_of(shard).loads[0].rates == IDLE
    scaler = shard.harness.leader.scalable.scaler
    assert repr(scaler.ownerless) == "<OwnerlessSegments topics=0>"


@run_by(in_scalable_shard)
async def test_a_record_that_is_refused_is_made_later(shard: ScalableShard) -> None:
    await set_policy(shard, enabled=False)
    await report(shard, {0: HOT})
    await unassign(shard, 0, REASON_UNLOADED)

    def refuse(*_: object) -> None:
        raise Overloaded("too much is pending")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard.harness.leader.state, "check_not_restoring", refuse)
        await settle(OWNERLESS_S)
    assert loads_of(shard).loads[0].rates == HOT

    await settle(AUTO_SCALE_TICK_MS / 1_000)

    assert loads_of(shard).loads[0].rates == IDLE


@run_by(in_scalable_shard)
async def test_two_intervals_are_those_that_are_set(shard: ScalableShard) -> None:
    reporting = LoadReporting(interval_ms=60_000)
    shard.harness.cluster.set_settings(ServiceSettings(load_reporting=reporting))
    await set_policy(shard, enabled=False)
    await report(shard, {0: HOT})
    await unassign(shard, 0, REASON_UNLOADED)
    await asyncio.sleep(110)
    assert loads_of(shard).loads[0].rates == HOT

    await settle(12)

    assert loads_of(shard).loads[0].rates == IDLE


@run_by(in_scalable_shard)
async def test_a_deleted_topic_is_forgotten(shard: ScalableShard) -> None:
    await report(shard, {0: WARM})
    await unassign(shard, 0, REASON_UNLOADED)
    await shard.run(delete_topic=pb.DeleteTopic(name=NAME))

    await settle(OWNERLESS_S + 1)

    scaler = shard.harness.leader.scalable.scaler
    assert repr(scaler.ownerless) == "<OwnerlessSegments topics=0>"
