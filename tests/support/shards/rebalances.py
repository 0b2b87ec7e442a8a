"""Asks a shard for rebalances, waits for what they bring, and reports loads of its brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest

from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.governance.policies import PlacementRules, Policies
from nextgen.kernel.limits.placement import BUSIEST_UNITS_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import LoadReport, TopicLoad
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from shards.moves import rebalance_look, rebalancer
from tests.support.shards.harness import Harness

SETTLED_S = 3.0

REPORT_S = 5.0
"""Between two reports of a broker whose load changes."""


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


class ReportedLoads:
    """``rates`` are bytes a second by unit; a unit that is not among them has none. Change it at
    any time. The brokers of ``silent`` report nothing."""

    def __init__(self, shard: Harness, rates: Mapping[str, float]) -> None:
        self._shard = shard
        self.rates = dict(rates)
        self.silent: set[str] = set()
        self.bound: set[str] = set()
        """Units that placement rules bind, as brokers know."""
        self.others: Sequence[ReportedLoads] = ()
        """Of other shards: a broker's report is about its units of all of them."""
        self.delay_s = 0.0
        """From a measurement to the push."""

    def units(self) -> dict[str, list[str]]:
        """Return the names of the units that each live broker has."""
        scans = self._shard.leader.state.scans
        return {
            broker.broker_id: [
                unit.name for unit in scans.units_of_session(broker.session_id, "", 100_000)
            ]
            for broker in self._shard.cluster.live()
        }

    def by_broker(self) -> dict[str, float]:
        """Return the traffic of each live broker."""
        return {
            broker_id: sum(self.rates.get(name, 0.0) for name in names)
            for broker_id, names in self.units().items()
        }

    @property
    def imbalance(self) -> float:
        """The largest traffic of a broker by the mean."""
        loads = self.by_broker().values()
        return max(loads) * len(loads) / sum(loads)

    def report(self) -> None:
        """Have every broker measure and report its load."""
        elsewhere = [other.units() for other in self.others]
        for broker_id, names in self.units().items():
            broker = self._shard.cluster.broker(broker_id)
            if broker is None or broker_id in self.silent:
                continue
            every = [*names, *(name for units in elsewhere for name in units.get(broker_id, ()))]
            report = self._report_of(every)
            asyncio.get_running_loop().call_later(
                self.delay_s, self._push, broker.session_id, report
            )

    async def run(self, seconds: float) -> None:
        """Report for so long, as brokers do whose load changes."""
        clock = self._shard.clock
        until = clock.monotonic() + seconds
        while clock.monotonic() < until:
            self.report()
            await asyncio.sleep(min(REPORT_S, seconds))

    def _push(self, session_id: str, report: LoadReport) -> None:
        self._shard.cluster.loads[session_id] = report

    def _report_of(self, names: Sequence[str]) -> LoadReport:
        rates = Counter({name: self.rates[name] for name in names if self.rates.get(name)})
        busiest = rates.most_common(BUSIEST_UNITS_MAX)
        return LoadReport(
            topics=len(names),
            bytes_in_per_second=sum(rates.values()),
            measured_at_ms=self._shard.clock.wall_ms(),
            busiest=[TopicLoad(name=name, bytes_in_per_second=rate) for name, rate in busiest],
            bound=[at for at, (name, _) in enumerate(busiest) if name in self.bound],
        )
