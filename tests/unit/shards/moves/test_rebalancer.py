"""Units are spread evenly on request: first the plan, then the moves."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.errors import InvalidRequest
from nextgen.kernel.governance.policies import AntiAffinity, PlacementRules, Policies
from nextgen.kernel.limits.placement import (
    DRAIN_UNITS_PER_SECOND_MAX,
    REBALANCE_COOL_DOWN_MS,
    REBALANCE_MOVES_NAMED_MAX,
)
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import LoadReport, TopicLoad
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard
from tests.support.shards.rebalances import (
    SETTLED_S,
    counts,
    read_few,
    rebalance,
    settled,
    spread,
    units,
)


@run_by(in_shard, units=10_000)
async def test_a_plan_says_what_would_move_and_moves_nothing(shard: Harness) -> None:
    await spread(shard, 90, "a", "b", "c")

    answer = await rebalance(shard, plan_only=True)
    await asyncio.sleep(30.0)

    assert (answer.count, len(answer.moves)) == (59, 59)
    assert units(answer.before) == {"a": 90, "b": 0, "c": 0}
    assert units(answer.after) == {"a": 31, "b": 30, "c": 29}
    assert Counter(move.to_broker_id for move in answer.moves) == {"b": 30, "c": 29}
    assert answer.reason == "every broker ends within a twentieth of its share"
    assert await counts(shard) == {"a": 90, "b": 0, "c": 0}


@run_by(in_shard, units=10_000)
async def test_a_rebalance_makes_the_planned_moves_at_the_rate(shard: Harness) -> None:
    await spread(shard, 300, "a", "b", "c")
    planned = await rebalance(shard, plan_only=True)
    began = shard.clock.monotonic()

    answer = await rebalance(shard, units_per_second=20)
    after = await settled(shard)

    assert answer.count == planned.count
    assert answer.under_way == planned.count
    assert shard.clock.monotonic() - began == pytest.approx(planned.count / 20, rel=0.2)
    assert after == units(planned.after)
    reasons = Counter(event.topic_assigned.reason for event in await shard.events("topic_assigned"))
    assert reasons == {"first_lookup": 300, "rebalanced": planned.count}
    assert shard.node_metrics.counters()["evacuated_units"] == planned.count


@run_by(in_shard, units=10_000)
async def test_nothing_is_done_while_every_broker_is_within_a_tenth(shard: Harness) -> None:
    await spread(shard, 100, "a", "b")
    await rebalance(shard, units_per_second=1_000)
    after = await settled(shard)

    answer = await rebalance(shard, units_per_second=1_000)

    assert after == {"a": 52, "b": 48}
    assert (answer.count, answer.reason) == (0, "every broker is within a tenth of its share")


@run_by(in_shard, units=10_000)
async def test_a_rebalance_can_be_stopped_and_only_one_is_under_way(shard: Harness) -> None:
    await spread(shard, 200, "a", "b")
    await rebalance(shard, units_per_second=5)
    await asyncio.sleep(4.0)

    second = await rebalance(shard, units_per_second=5)
    stopped = await rebalance(shard, stop=True)
    await asyncio.sleep(1.0)
    then = await counts(shard)
    await asyncio.sleep(30.0)

    assert (second.count, second.reason) == (0, "a rebalance is under way")
    assert stopped.reason == "stopped, what was begun is finished"
    assert 10 <= then["b"] <= 30
    assert await counts(shard) == then
    assert (await rebalance(shard, stop=True)).reason == "none was under way"


@run_by(in_shard, units=10_000)
async def test_a_unit_that_was_moved_stays_for_a_while(shard: Harness) -> None:
    """Broker c comes when a and b have been evened out: what b was just given stays there."""
    await spread(shard, 120, "a", "b")
    await rebalance(shard, units_per_second=1_000)
    await settled(shard)
    await shard.start_broker("c", capacity_units=10_000)
    await asyncio.sleep(SETTLED_S)

    soon = await rebalance(shard, plan_only=True)
    await asyncio.sleep(REBALANCE_COOL_DOWN_MS / 1000)
    later = await rebalance(shard, plan_only=True)

    assert {move.from_broker_id for move in soon.moves} == {"a"}
    assert {move.from_broker_id for move in later.moves} == {"a", "b"}


@run_by(in_shard, units=10_000)
async def test_a_draining_broker_takes_no_part(shard: Harness) -> None:
    await spread(shard, 90, "a", "b", "c")
    await shard.ask(drain=pb.DrainRequest(broker_id="c", units_per_second=1))

    answer = await rebalance(shard, plan_only=True)

    assert units(answer.after).keys() == {"a", "b"}
    assert {move.to_broker_id for move in answer.moves} == {"b"}


@run_by(in_shard, units=10_000)
async def test_a_unit_that_a_new_rule_drives_away_is_moved(shard: Harness) -> None:
    topics = await spread(shard, 4, "a", "b")
    await rebalance(shard, units_per_second=1_000)
    await settled(shard)
    (answer,) = await shard.lookup(topics[0])
    other = "b" if answer.broker_id == "a" else "a"
    rules = Policies(placement=PlacementRules(pinned_brokers=(other,)))
    await shard.execute(
        set_policies=pb.SetPolicies(
            kind=KIND_TOPIC, name=topics[0], policies=policies_to_proto(rules)
        )
    )

    planned = await rebalance(shard, plan_only=True)
    await rebalance(shard, units_per_second=1_000)
    await settled(shard)

    assert [move.name for move in planned.moves] == [topics[0]]
    assert planned.reason.startswith("1 units are where their rules forbid it")
    assert (await shard.lookup(topics[0]))[0].broker_id == other


@run_by(in_shard, units=10_000)
async def test_units_that_are_pinned_stay_however_uneven_that_is(shard: Harness) -> None:
    topics = await spread(shard, 20, "a", "b")
    rules = Policies(placement=PlacementRules(pinned_brokers=("a",)))
    for topic in topics[:18]:
        await shard.execute(
            set_policies=pb.SetPolicies(
                kind=KIND_TOPIC, name=topic, policies=policies_to_proto(rules)
            )
        )

    answer = await rebalance(shard, plan_only=True)

    assert {move.name for move in answer.moves} == set(topics[18:])
    assert "stand in the way" in answer.reason


@run_by(in_shard, units=10_000)
async def test_busy_units_weigh_more_than_idle_ones(shard: Harness) -> None:
    """Both have as many units; all traffic is at a."""
    await spread(shard, 100, "a", "b")
    await rebalance(shard, units_per_second=1_000)
    await settled(shard)
    await asyncio.sleep(REBALANCE_COOL_DOWN_MS / 1000)
    session = shard.brokers["a"].session_id
    page = shard.leader.state.scans.units_of_session(session, "", 1_000)
    busy = [unit.name for unit in page[:10]]
    shard.cluster.loads[session] = LoadReport(
        measured_at_ms=1,
        busiest=[TopicLoad(name=name, bytes_in_per_second=1e6) for name in busy],
    )
    await asyncio.sleep(6.0)

    answer = await rebalance(shard, plan_only=True)

    moved = {move.name for move in answer.moves}
    assert moved <= set(busy)
    assert 0 < len(moved) <= 5


def test_a_shard_with_more_units_than_a_plan_reads_is_evened_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read first must not be what may stay where it is."""
    read_few(monkeypatch, 20)

    async def scenario(shard: Harness) -> None:
        topics = await spread(shard, 80, "broker-1", "broker-2", "broker-3")
        await shard.move(*((topic, "broker-2") for topic in topics[:30]))
        await shard.move(*((topic, "broker-3") for topic in topics[30:]))
        assert await counts(shard) == {"broker-1": 0, "broker-2": 30, "broker-3": 50}

        await rebalance(shard, units_per_second=1_000)

        assert all(abs(3 * units - 80) <= 3 for units in (await settled(shard)).values())

    in_shard(tmp_path, scenario, units=1_000)


@run_by(in_shard, units=10_000)
async def test_an_answer_names_a_thousand_moves_and_counts_all(shard: Harness) -> None:
    await spread(shard, 2 * REBALANCE_MOVES_NAMED_MAX + 200, "a", "b")

    answer = await rebalance(shard, plan_only=True)

    assert answer.count > REBALANCE_MOVES_NAMED_MAX
    assert len(answer.moves) == REBALANCE_MOVES_NAMED_MAX
    assert sum(units(answer.after).values()) == 2 * REBALANCE_MOVES_NAMED_MAX + 200


@run_by(in_shard)
async def test_a_rebalance_that_is_too_fast_is_refused(shard: Harness) -> None:
    await shard.start_broker("a")
    await rebalance(shard, plan_only=True, units_per_second=DRAIN_UNITS_PER_SECOND_MAX)
    with pytest.raises(InvalidRequest, match="a rebalance of"):
        await rebalance(shard, plan_only=True, units_per_second=DRAIN_UNITS_PER_SECOND_MAX + 1)


@run_by(in_shard, units=10_000)
async def test_partitions_that_must_be_apart_stay_apart(shard: Harness) -> None:
    await shard.start_broker("a", capacity_units=10_000)
    await shard.start_broker("b", capacity_units=10_000)
    topics = await shard.create_topics(*(f"t-{number}" for number in range(12)), partitions=2)
    rules = Policies(placement=PlacementRules(anti_affinity=AntiAffinity.BROKER))
    for topic in topics:
        body = pb.SetPolicies(kind=KIND_TOPIC, name=topic, policies=policies_to_proto(rules))
        await shard.execute(set_policies=body)
    partitions = [[f"{topic}-partition-{number}" for number in (0, 1)] for topic in topics]
    await shard.lookup(*(name for pair in partitions for name in pair))
    await shard.start_broker("c", capacity_units=10_000)
    await asyncio.sleep(SETTLED_S)

    await rebalance(shard, units_per_second=1_000)
    after = await settled(shard)

    assert after == {"a": 8, "b": 8, "c": 8}
    for pair in partitions:
        owners = {answer.broker_id for answer in await shard.lookup(*pair)}
        assert len(owners) == 2, pair
