"""Asks a shard for rebalances, and waits for what they bring."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.governance.policies import PlacementRules, Policies
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from shards.moves import rebalance_look, rebalancer
from tests.support.shards.harness import Harness

SETTLED_S = 3.0


async def spread(shard: Harness, units: int, *brokers: str) -> list[str]:
    """Give all units to the first broker, then start the others."""
    await shard.start_broker(brokers[0], capacity_units=10_000)
    topics: list[str] = []
    for start in range(0, units, 1_000):
        numbers = range(start, min(start + 1_000, units))
        page = await shard.create_topics(*(f"t-{number:05}" for number in numbers))
        await shard.lookup(*page)
        topics += page
    for broker_id in brokers[1:]:
        await shard.start_broker(broker_id, capacity_units=10_000)
    await asyncio.sleep(SETTLED_S)
    return topics


def read_few(monkeypatch: pytest.MonkeyPatch, units: int) -> None:
    """Bound the units that one plan evens out, and those that it reads beside them."""
    monkeypatch.setattr(rebalancer, "REBALANCE_UNITS_READ_MAX", units)
    monkeypatch.setattr(rebalance_look, "REBALANCE_UNITS_READ_MAX", units)
    monkeypatch.setattr(rebalance_look, "REBALANCE_UNITS_SWEPT_MAX", units)
    monkeypatch.setattr(rebalance_look, "PAGE_UNITS", 10)


async def pin(shard: Harness, topic: str, *brokers: str) -> None:
    await rule(shard, topic, PlacementRules(pinned_brokers=brokers))


async def rule(shard: Harness, topic: str, rules: PlacementRules) -> None:
    policies = policies_to_proto(Policies(placement=rules))
    await shard.execute(set_policies=pb.SetPolicies(kind=KIND_TOPIC, name=topic, policies=policies))


async def rebalance(shard: Harness, **request: object) -> pb.RebalanceResponse:
    wanted = pb.RebalanceRequest(**request)  # type: ignore[arg-type]
    return (await shard.ask(rebalance=wanted)).rebalance


async def counts(shard: Harness) -> dict[str, int]:
    answer = (await shard.ask(unit_count=pb.UnitCountRequest())).unit_count
    return {each.broker_id: each.units for each in answer.brokers}


async def settled(shard: Harness) -> dict[str, int]:
    """Return the counts once nothing is under way any more."""
    for _ in range(3_000):
        answer = (await shard.ask(unit_count=pb.UnitCountRequest())).unit_count
        if not answer.under_way:
            return await counts(shard)
        await asyncio.sleep(0.2)
    raise AssertionError("it never ends")


def units(brokers: Sequence[pb.BrokerUnits]) -> dict[str, int]:
    return {each.broker_id: each.units for each in brokers}
