"""What rules, quotas and room mean for a rebalance: who has to go, and who may come."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nextgen.kernel.governance.policies import AntiAffinity, PlacementRules
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.moves import rebalance_look
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard
from tests.support.shards.rebalances import (
    SETTLED_S,
    pin,
    read_few,
    rebalance,
    rule,
    settled,
    spread,
    units,
)

# What rules forbid ----------------------------------------------------------------------------


async def units_at(shard: Harness, broker_id: str) -> list[str]:
    """Return the units of a broker in the order in which a plan reads them."""
    session_id = shard.brokers[broker_id].session_id
    return [unit.name for unit in shard.leader.state.scans.units_of_session(session_id, "", 1_000)]


@pytest.mark.parametrize("at", ["a", "b"])
def test_what_a_rule_forbids_is_moved_though_a_plan_does_not_read_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """On the fullest broker behind what a plan reads, and on one that is emptier."""
    read_few(monkeypatch, 10)

    async def scenario(shard: Harness) -> None:
        topics = await spread(shard, 80, "a", "b")
        await shard.move(*((topic, "b") for topic in topics[:39]))
        forbidden = (await units_at(shard, at))[-1]
        other = "b" if at == "a" else "a"
        await pin(shard, forbidden, other)

        planned = await rebalance(shard, plan_only=True)
        began = await rebalance(shard, units_per_second=1_000)
        await settled(shard)

        assert planned.count == 0
        assert "60 units are not read yet" in planned.reason
        assert began.under_way == 1, "nothing to move is known yet, and it looks for more"
        assert (await shard.lookup(forbidden))[0].broker_id == other
        assert (await rebalance(shard, stop=True)).reason == "none was under way"

    in_shard(tmp_path, scenario, units=1_000)


def test_a_plan_reads_a_part_more_for_what_rules_forbid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forbidden unit lies beyond the bound, and is planned all the same."""
    read_few(monkeypatch, 40)

    async def scenario(shard: Harness) -> None:
        topics = await spread(shard, 80, "a", "b")
        await shard.move(*((topic, "b") for topic in topics[:39]))
        forbidden = (await units_at(shard, "b"))[-1]
        await pin(shard, forbidden, "a")

        planned = await rebalance(shard, plan_only=True)

        assert [move.name for move in planned.moves] == [forbidden]
        assert "not read yet" not in planned.reason

    in_shard(tmp_path, scenario, units=1_000)


@run_by(in_shard, units=1_000)
async def test_a_rebalance_is_under_way_while_it_plans_what_is_left(shard: Harness) -> None:
    """Between two rounds nothing is left of the first, and the second is not known yet."""
    topics = await spread(shard, 40, "a", "b")
    await rebalance(shard, units_per_second=1_000)
    looked: list[int] = []
    look = shard.leader.rebalancer._looks.look

    async def noted(*given: rebalance_look.Sweep | None) -> rebalance_look.Look:
        looked.append(shard.leader.rebalancer.units_under_way)
        return await look(*given)

    shard.leader.rebalancer._looks.look = noted  # type: ignore[method-assign]
    await settled(shard)

    assert len(topics) == 40
    assert looked == [1]
    assert shard.leader.rebalancer.units_under_way == 0


@run_by(in_shard, units=1_000)
async def test_a_broker_within_a_tenth_is_left_alone_though_a_rule_drives_a_unit_away(
    shard: Harness,
) -> None:
    """27 and 23 are within a tenth of 25, though not within the twentieth that a round aims at."""
    topics = await spread(shard, 50, "a", "b")
    await shard.move(*((topic, "b") for topic in topics[:23]))
    await pin(shard, topics[0], "a")
    await pin(shard, topics[30], "b")

    planned = await rebalance(shard, plan_only=True)
    await rebalance(shard, units_per_second=1_000)

    assert {move.name for move in planned.moves} == {topics[0], topics[30]}
    assert await settled(shard) == {"a": 27, "b": 23}


@run_by(in_shard, units=1_000)
async def test_a_unit_that_may_go_nowhere_is_named_and_not_planned(shard: Harness) -> None:
    topics = await spread(shard, 2, "a", "b", "gone")
    await shard.move((topics[0], "b"))
    await pin(shard, topics[0], "gone")
    shard.brokers["gone"].vanish()
    await shard.wait_ended("gone")

    answer = await rebalance(shard, units_per_second=1_000)

    assert (answer.count, answer.under_way) == (0, 0)
    assert answer.reason.startswith("1 units have to leave and can go nowhere, first")
    assert "placement.pinned_brokers (only gone) leaves none of a, b" in answer.reason
    assert topics[0] in answer.reason


@run_by(in_shard, units=1_000)
async def test_of_partitions_that_are_together_one_may_stay(shard: Harness) -> None:
    await shard.start_broker("a", capacity_units=1_000)
    (topic,) = await shard.create_topics("t", partitions=3)
    await shard.lookup(*(f"{topic}-partition-{number}" for number in range(3)))
    await shard.start_broker("b", capacity_units=1_000)
    await shard.start_broker("c", capacity_units=1_000)
    await asyncio.sleep(SETTLED_S)
    await rule(shard, topic, PlacementRules(anti_affinity=AntiAffinity.BROKER))

    planned = await rebalance(shard, plan_only=True)
    await rebalance(shard, units_per_second=1_000)

    assert planned.count == 2
    assert await settled(shard) == {"a": 1, "b": 1, "c": 1}


# Room -----------------------------------------------------------------------------------------


async def check_that_the_plan_is_kept(shard: Harness) -> pb.RebalanceResponse:
    """Return the plan once all of it, and nothing else, was done."""
    before = len(await shard.events("topic_assigned"))
    planned = await rebalance(shard, plan_only=True)
    await rebalance(shard, units_per_second=1_000)
    after = await settled(shard)
    assert after == units(planned.after)
    assert len(await shard.events("topic_assigned")) - before == planned.count
    return planned


@run_by(in_shard, units=1_000)
async def test_a_plan_gives_no_broker_more_than_its_quota(shard: Harness) -> None:
    shard.cluster.broker_quotas["b"] = shard.cluster.broker_units["b"] = 10
    await spread(shard, 90, "a", "b")

    planned = await check_that_the_plan_is_kept(shard)

    assert units(planned.after) == {"a": 80, "b": 10}
    assert "room (none is left at b)" in planned.reason


@run_by(in_shard, units=1_000)
async def test_a_plan_counts_the_room_that_a_lease_may_grow_to(shard: Harness) -> None:
    """The lease of b is small at first, as each shard's is: the rest is leased when it is used."""
    await spread(shard, 90, "a")
    shard.cluster.units = 20
    await shard.start_broker("b", capacity_units=10_000)
    await asyncio.sleep(SETTLED_S)
    planned = await rebalance(shard, plan_only=True)
    shard.cluster.units = 1_000

    await rebalance(shard, units_per_second=20)

    assert units(planned.after) == {"a": 47, "b": 43}
    assert await settled(shard) == units(planned.after)


@pytest.mark.parametrize(
    "rules",
    [PlacementRules(anti_affinity=AntiAffinity.BROKER), PlacementRules(units_per_broker_max=1)],
)
@run_by(in_shard, units=1_000)
async def test_a_plan_puts_no_two_partitions_where_one_may_be(
    shard: Harness, *, rules: PlacementRules
) -> None:
    await shard.start_broker("a", capacity_units=10_000)
    await shard.start_broker("b", capacity_units=10_000)
    topics = await shard.create_topics(*(f"t-{number}" for number in range(12)), partitions=2)
    for topic in topics:
        await rule(shard, topic, rules)
    await shard.lookup(*(f"{topic}-partition-{n}" for topic in topics for n in (0, 1)))
    await shard.start_broker("c", capacity_units=10_000)
    await asyncio.sleep(SETTLED_S)

    planned = await check_that_the_plan_is_kept(shard)

    bases = [move.name.partition("-partition-")[0] for move in planned.moves]
    assert len(bases) == len(set(bases)) == 8


@run_by(in_shard, units=1_000)
async def test_units_that_leave_for_another_reason_are_distinguished(shard: Harness) -> None:
    topics = await spread(shard, 90, "a", "b", "c")
    await shard.move(*((topic, "c") for topic in topics[:30]))
    for topic in topics[:30]:
        await pin(shard, topic, "c")
    await shard.ask(drain=pb.DrainRequest(broker_id="c", units_per_second=1_000))
    await asyncio.sleep(SETTLED_S)

    answer = await rebalance(shard, units_per_second=1_000)
    for _ in range(3_000):
        counted = (await shard.ask(unit_count=pb.UnitCountRequest())).unit_count
        if counted.under_way == counted.evacuating:
            break
        await asyncio.sleep(0.2)

    assert (answer.count, answer.under_way, answer.evacuating) == (29, 59, 30)
    assert (counted.under_way, counted.evacuating) == (30, 30)
    assert shard.leader.rebalancer.units_under_way == 30
