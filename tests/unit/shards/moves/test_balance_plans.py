"""When a node plans a balance, which brokers it includes, and which leaders get the plan."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from nextgen.kernel.governance.balance_settings import BalanceSettings
from nextgen.kernel.governance.service_settings import DEFAULT_SETTINGS
from nextgen.kernel.limits.placement import BALANCE_ROUND_LAG_MS
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.placement.balance import BalancePlan
from shards.moves.balance_plans import permille_of
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard
from tests.support.shards.rebalances import ReportedLoads, spread

FAST = BalanceSettings(interval_seconds=20)


def use(shard: Harness, settings: BalanceSettings) -> None:
    shard.cluster.set_settings(replace(DEFAULT_SETTINGS, balance=settings))


@run_by(in_shard, units=10_000)
async def test_plans_are_made_behind_the_edges_of_the_interval(shard: Harness) -> None:
    """So that all nodes plan from the same reports."""
    use(shard, FAST)
    topics = await spread(shard, 60, "a", "b")
    told: list[int] = []
    shard.plans.on_plan(lambda _plan: told.append(shard.clock.wall_ms()))

    await ReportedLoads(shard, dict.fromkeys(topics, 10_000.0)).run(300.0)

    assert told
    behind_ms = [(at - BALANCE_ROUND_LAG_MS) % 20_000 for at in told]
    assert max(behind_ms) <= 1_000


@run_by(in_shard, units=10_000)
async def test_a_shorter_interval_counts_within_seconds(shard: Harness) -> None:
    use(shard, replace(FAST, interval_seconds=3_600))
    topics = await spread(shard, 60, "a", "b")
    loads = ReportedLoads(shard, dict.fromkeys(topics, 10_000.0))
    told: list[BalancePlan] = []
    shard.plans.on_plan(told.append)
    await loads.run(120.0)
    assert told == []

    use(shard, FAST)
    await loads.run(120.0)

    assert told


@run_by(in_shard, units=10_000)
async def test_an_operator_is_shown_where_each_broker_stands(shard: Harness) -> None:
    use(shard, FAST)
    topics = await spread(shard, 60, "a", "b")
    await ReportedLoads(shard, dict.fromkeys(topics, 10_000.0)).run(30.0)

    assert shard.plans.last is not None
    standings = {each.broker_id: permille_of(each) for each in shard.plans.last.standings}
    assert standings == {"a": 2_000, "b": 0}
    imbalance = shard.node_metrics.imbalance._value.get()
    assert imbalance == 2_000


@run_by(in_shard, units=10_000)
async def test_a_draining_broker_is_planned_nothing_and_one_in_quarantine_gets_nothing(
    shard: Harness,
) -> None:
    use(shard, FAST)
    topics = await spread(shard, 60, "a", "b", "c")
    closed = shard.cluster.broker("b")
    assert closed is not None
    closed.quarantined_until_ms = shard.clock.wall_ms() + 3_600_000
    await shard.ask(drain=pb.DrainRequest(broker_id="c", units_per_second=1))
    told: list[BalancePlan] = []
    shard.plans.on_plan(told.append)

    await ReportedLoads(shard, dict.fromkeys(topics, 10_000.0)).run(200.0)

    assert told == []
    assert shard.plans.last is not None
    why = {each.broker_id: each.why_not for each in shard.plans.last.standings}
    assert why == {"a": "", "b": "gets no units"}


@run_by(in_shard, units=10_000)
async def test_turned_off_it_plans_nothing(shard: Harness) -> None:
    use(shard, replace(FAST, enabled=False))
    topics = await spread(shard, 60, "a", "b")

    await ReportedLoads(shard, dict.fromkeys(topics, 10_000.0)).run(120.0)

    assert shard.plans.last is None


@run_by(in_shard, units=10_000)
async def test_whoever_unsubscribed_is_told_nothing(shard: Harness) -> None:
    use(shard, FAST)
    topics = await spread(shard, 60, "a", "b")
    told: list[BalancePlan] = []
    unsubscribe = shard.plans.on_plan(told.append)

    unsubscribe()
    await ReportedLoads(shard, dict.fromkeys(topics, 10_000.0)).run(120.0)
    await asyncio.sleep(1.0)

    assert told == []
