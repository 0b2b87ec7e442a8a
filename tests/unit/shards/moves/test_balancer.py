"""Brokers are evened out without being asked: each shard carries out its part of the plan."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nextgen.kernel.governance.balance_settings import BalanceSettings
from nextgen.kernel.governance.policies import PlacementRules
from nextgen.kernel.governance.service_settings import DEFAULT_SETTINGS
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import Event, LoadReport
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard
from tests.support.shards.rebalances import (
    ReportedLoads,
    counts,
    pin,
    rebalance,
    rule,
    settled,
    spread,
)
from tests.support.simulated.virtual_time import run_virtual

FAST = BalanceSettings(interval_seconds=20, grace_seconds=120)
MINUTE = 60.0


def use(shard: Harness, settings: BalanceSettings) -> None:
    shard.cluster.set_settings(replace(DEFAULT_SETTINGS, balance=settings))


def skewed(topics: Sequence[str]) -> dict[str, float]:
    """Return traffic that falls by the topic's number, as a few topics have most of it."""
    return {name: 200_000.0 / (1 + at) + 2_000.0 for at, name in enumerate(topics)}


async def moves(shard: Harness) -> list[Event]:
    """Return the assignments that the balance made."""
    return [
        event
        for event in await shard.events("topic_assigned")
        if event.topic_assigned.decision.asked_by == "balance"
    ]


def gaps(events: Sequence[Event]) -> list[float]:
    """Return the seconds between two moves of the same unit."""
    last: dict[str, int] = {}
    found = []
    for event in events:
        name = event.topic_assigned.name
        if name in last:
            found.append((event.time_ms - last[name]) / 1_000)
        last[name] = event.time_ms
    return found


def rounds(shard: Harness) -> Counter[str]:
    """Return the rounds by outcome."""
    return labelled(shard.node_metrics._balance_rounds)


def left_out(shard: Harness) -> Counter[str]:
    return labelled(shard.node_metrics._left_out)


def labelled(counter: object) -> Counter[str]:
    samples = (s for metric in counter.collect() for s in metric.samples)  # type: ignore[attr-defined]
    totals = (s for s in samples if s.name.endswith("_total"))
    return Counter({s.labels["outcome"]: int(s.value) for s in totals})


@run_by(in_shard, units=10_000)
async def test_brokers_are_evened_out_by_traffic_without_a_request(shard: Harness) -> None:
    topics = await spread(shard, 90, "a", "b", "c")
    loads = ReportedLoads(shard, skewed(topics))

    await loads.run(15 * MINUTE)

    assert loads.imbalance <= 1.15
    moved = await moves(shard)
    assert {event.topic_assigned.reason for event in moved} == {"rebalanced"}
    first = moved[0].topic_assigned.decision.balance
    assert first.from_permille > 2_000
    assert first.to_permille < 500
    assert gaps(moved) == []
    assert shard.node_metrics.counters()["evacuated_units"] == len(moved)
    assert rounds(shard)["moved"] > 0


@run_by(in_shard, units=10_000)
async def test_a_broker_that_joins_is_filled_within_its_budget(shard: Harness) -> None:
    """Rounds until it counts as empty, then its share at the rate, and a round to see the end."""
    use(shard, replace(FAST, moves_per_minute_max=30))
    topics = await spread(shard, 120, "a", "b", "c")
    await rebalance(shard, units_per_second=1_000)
    await settled(shard)
    loads = ReportedLoads(shard, dict.fromkeys(topics, 50_000.0))
    await loads.run(5 * MINUTE)
    before = len(await moves(shard))

    await shard.start_broker("d", capacity_units=10_000)
    await loads.run(4 * MINUTE)

    moved = (await moves(shard))[before:]
    assert loads.imbalance <= 1.15
    assert {event.topic_assigned.broker_id for event in moved} == {"d"}
    times = [event.time_ms for event in moved]
    for at in times:
        assert sum(at <= each < at + 60_000 for each in times) <= 31


@run_by(in_shard, units=10_000)
async def test_a_broker_without_traffic_is_filled_by_units(shard: Harness) -> None:
    use(shard, FAST)
    topics = await spread(shard, 90, "a", "b", "c")

    await ReportedLoads(shard, {}).run(10 * MINUTE)

    assert max((await counts(shard)).values()) <= 35
    assert len(await moves(shard)) <= len(topics)


@run_by(in_shard, units=10_000)
async def test_an_operator_turns_it_off_and_on_again(shard: Harness) -> None:
    use(shard, replace(FAST, enabled=False))
    topics = await spread(shard, 60, "a", "b")
    loads = ReportedLoads(shard, skewed(topics))

    await loads.run(5 * MINUTE)
    off = len(await moves(shard))
    use(shard, FAST)
    await loads.run(5 * MINUTE)

    assert off == 0
    assert loads.imbalance <= 1.15


@run_by(in_shard, units=10_000)
async def test_loads_that_are_off_by_a_fifth_move_nothing(shard: Harness) -> None:
    use(shard, FAST)
    topics = await spread(shard, 60, "a", "b", "c")
    rates = dict.fromkeys(topics, 50_000.0)
    await ReportedLoads(shard, rates).run(10 * MINUTE)
    before = len(await moves(shard))
    noisy = ReportedLoads(shard, rates)

    for number in range(360):
        for at, name in enumerate(topics):
            noisy.rates[name] = 50_000.0 * (1 + 0.2 * math.sin(7.3 * number + 1.7 * at))
        await noisy.run(5.0)

    assert len(await moves(shard)) == before


@run_by(in_shard, units=10_000)
async def test_a_pinned_topic_stays_and_others_go_in_its_stead(shard: Harness) -> None:
    use(shard, FAST)
    topics = await spread(shard, 60, "a", "b")
    rates = dict.fromkeys(topics, 20_000.0) | {topics[0]: 300_000.0}
    loads = ReportedLoads(shard, rates)
    await pin(shard, topics[0], "a")
    loads.bound = {topics[0]}

    await loads.run(10 * MINUTE)

    assert topics[0] not in {event.topic_assigned.name for event in await moves(shard)}
    assert loads.imbalance <= 1.15


@run_by(in_shard, units=10_000)
async def test_what_a_rule_forbids_is_refused_and_other_units_are_chosen(shard: Harness) -> None:
    """The units that a page of the view begins with may not leave: no report says so."""
    use(shard, FAST)
    topics = await spread(shard, 60, "a", "b")
    session = shard.brokers["a"].session_id
    first = shard.leader.state.scans.units_of_session(session, "", 20)
    for unit in first:
        await rule(shard, unit.name, PlacementRules(excluded_brokers=("b",)))

    await ReportedLoads(shard, {}).run(10 * MINUTE)

    units = await counts(shard)
    assert max(units.values()) - min(units.values()) <= 4
    stayed = {unit.name for unit in first}
    assert stayed.isdisjoint(event.topic_assigned.name for event in await moves(shard))
    assert len(topics) == sum(units.values())


@run_by(in_shard, units=10_000)
async def test_no_broker_is_given_more_than_it_has_room_for(shard: Harness) -> None:
    use(shard, FAST)
    topics = await spread(shard, 100, "a")
    await shard.start_broker("small", capacity_units=10)
    await shard.start_broker("large", capacity_units=10_000)

    await ReportedLoads(shard, dict.fromkeys(topics, 10_000.0)).run(10 * MINUTE)

    units = await counts(shard)
    assert units["small"] <= 10
    assert units["large"] >= 40


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (LoadReport(topics=1, bytes_in_per_second=math.nan), "not_a_number"),
        (LoadReport(topics=1, bytes_in_per_second=-5.0), "negative"),
        (None, "no_fresh_report"),
    ],
)
@run_by(in_shard, units=10_000)
async def test_a_broker_whose_load_is_absent_or_absurd_takes_no_part(
    shard: Harness, *, report: LoadReport | None, why: str
) -> None:
    use(shard, FAST)
    topics = await spread(shard, 60, "a", "b", "odd")
    loads = ReportedLoads(shard, skewed(topics))
    loads.silent.add("odd")

    for _ in range(60):
        if report is not None:
            report.measured_at_ms = shard.clock.wall_ms()
            shard.cluster.loads[shard.brokers["odd"].session_id] = report
        await loads.run(5.0)

    traffic = loads.by_broker()
    assert traffic["odd"] == 0.0
    assert abs(traffic["a"] - traffic["b"]) <= 0.15 * traffic["a"]
    assert left_out(shard)[why] > 0


@run_by(in_shard, units=10_000)
async def test_a_broker_that_falls_silent_takes_no_part_any_more(shard: Harness) -> None:
    use(shard, FAST)
    topics = await spread(shard, 60, "a", "b", "c")
    loads = ReportedLoads(shard, dict.fromkeys(topics, 50_000.0))
    await loads.run(6 * MINUTE)
    loads.silent.add("c")
    await loads.run(4 * MINUTE)
    before = (await counts(shard))["c"]

    loads.rates = skewed(topics)
    await loads.run(5 * MINUTE)

    assert (await counts(shard))["c"] == before
    assert left_out(shard)["no_fresh_report"] > 0


@run_by(in_shard, units=10_000)
async def test_units_of_a_draining_broker_come_first(shard: Harness) -> None:
    use(shard, replace(FAST, moves_per_minute_max=60))
    topics = await spread(shard, 300, "a", "b", "c")
    loads = ReportedLoads(shard, dict.fromkeys(topics, 10_000.0))
    while (await counts(shard))["b"] < 40:
        await loads.run(5.0)

    await shard.ask(drain=pb.DrainRequest(broker_id="b", units_per_second=1))
    await asyncio.sleep(7.0)
    begun = len(await moves(shard))
    await loads.run(2 * MINUTE)

    during = (await moves(shard))[begun:]
    assert (await counts(shard))["b"] == 0
    assert rounds(shard)["evacuating"] > 0
    assert {event.topic_assigned.broker_id for event in during} <= {"c"}
    await loads.run(10 * MINUTE)
    assert abs((await counts(shard))["a"] - 150) <= 15


@run_by(in_shard, units=10_000)
async def test_a_rebalance_that_an_operator_asks_for_takes_the_place_of_a_round(
    shard: Harness,
) -> None:
    use(shard, replace(FAST, moves_per_minute_max=20))
    topics = await spread(shard, 100, "a", "b")
    loads = ReportedLoads(shard, dict.fromkeys(topics, 10_000.0))
    while not await moves(shard):
        await loads.run(5.0)
    before = len(await moves(shard))

    await rebalance(shard, units_per_second=1)
    await asyncio.sleep(20.0)
    after = len(await moves(shard))
    await settled(shard)

    assert after - before <= 1, "what was begun is finished"
    reasons = Counter(
        event.topic_assigned.decision.asked_by for event in await shard.events("topic_assigned")
    )
    assert reasons["rebalance"] > 20


@run_by(in_shard, units=10_000)
async def test_a_broker_that_dies_in_the_middle_leaves_nothing_behind(shard: Harness) -> None:
    use(shard, replace(FAST, moves_per_minute_max=60))
    topics = await spread(shard, 150, "a", "b", "c")
    loads = ReportedLoads(shard, dict.fromkeys(topics, 20_000.0))
    while not await moves(shard):
        await loads.run(5.0)

    shard.brokers["b"].vanish()
    await shard.wait_ended("b")
    await loads.run(10 * MINUTE)

    assert loads.imbalance <= 1.15
    answers = await shard.lookup(*topics)
    assert {answer.broker_id for answer in answers} == {"a", "c"}


@run_by(in_shard, units=10_000)
async def test_a_new_leader_moves_no_unit_that_the_former_one_just_moved(shard: Harness) -> None:
    """It changes in the middle of a round, and all traffic follows what was moved."""
    use(shard, replace(FAST, moves_per_minute_max=60, grace_seconds=600))
    topics = await spread(shard, 100, "a", "b")
    loads = ReportedLoads(shard, dict.fromkeys(topics, 20_000.0))
    while len(await moves(shard)) < 10:
        await loads.run(2.0)
    moved = {event.topic_assigned.name for event in await moves(shard)}

    shard.next_term()
    for broker in shard.brokers.values():
        await broker.connect()
    await asyncio.sleep(5.0)
    assert all(shard.leader.moves.moved.is_resting(name, 600.0) for name in moved)
    loads.rates |= dict.fromkeys(moved, 200_000.0)
    await loads.run(12 * MINUTE)

    assert all(gap >= 595.0 for gap in gaps(await moves(shard)))
    assert loads.imbalance <= 1.15


def test_two_shards_whose_leaders_see_reports_at_different_times_even_out_together(
    tmp_path: Path,
) -> None:
    """Each has half of the units and knows only its own; one has reports 20 s late."""

    async def main() -> None:
        shards = [Harness(tmp_path / name, units=10_000) for name in ("one", "two")]
        names: list[list[str]] = []
        for number, shard in enumerate(shards):
            use(shard, FAST)
            await shard.start_broker("a", capacity_units=10_000)
            topics = await shard.create_topics(*(f"t-{number}-{at:03}" for at in range(60)))
            await shard.lookup(*topics)
            for broker_id in ("b", "c"):
                await shard.start_broker(broker_id, capacity_units=10_000)
            names.append(topics)
        rates = skewed([name for pair in zip(*names, strict=True) for name in pair])
        early, late = (ReportedLoads(shard, rates) for shard in shards)
        early.others, late.others = [late], [early]
        reporting = asyncio.create_task(early.run(15 * MINUTE))
        await asyncio.sleep(1.0)
        late.delay_s = 20.0
        await late.run(15 * MINUTE)
        await reporting

        together = Counter(early.by_broker())
        together.update(late.by_broker())
        assert max(together.values()) * 3 / sum(together.values()) <= 1.15
        for shard in shards:
            moved = await moves(shard)
            assert moved
            assert all(gap >= 115.0 for gap in gaps(moved))
            await shard.close()

    run_virtual(main)
