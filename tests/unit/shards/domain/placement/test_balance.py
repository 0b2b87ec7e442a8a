"""When the balance moves units, which ones, and what it leaves alone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.kernel.governance.balance_settings import BalanceSettings
from nextgen.kernel.limits.placement import (
    BALANCE_REPORT_AGE_MS_MAX,
    BALANCE_ROUND_LAG_MS,
    BALANCE_SETTLE_MS,
)
from shards.domain.placement.balance import (
    CLOSED,
    NO_REPORT,
    OVERLOADED,
    START_ROUNDS,
    WAITS,
    Balance,
    BalancePlan,
    BrokerView,
    UnitMove,
    UnitShift,
    part_of,
    units_of_budget,
)
from shards.domain.placement.measured_loads import Report
from shards.domain.placement.rebalance import UNIT_WEIGHT
from tests.support.simulated.balanced_brokers import START_MS, BalancedBrokers

MINUTE_MS = 60_000
DEFAULTS = BalanceSettings()


def units_of(counts: Mapping[str, int]) -> dict[str, str]:
    return {
        f"{broker}/{number}": broker for broker, some in counts.items() for number in range(some)
    }


def brokers_with(counts: Mapping[str, int], rate: int = 50_000, **given: object) -> BalancedBrokers:
    places = units_of(counts)
    return BalancedBrokers(
        dict.fromkeys(places, rate),
        places,
        brokers=list(counts),
        **given,  # type: ignore[arg-type]
    )


class Rounds:
    """One node, and reports as a test gives them: a broker's units, traffic and busiest units."""

    def __init__(self, *brokers: str, **capacities: int) -> None:
        self.balance = Balance()
        self.views = [
            BrokerView(broker, f"s-{broker}", capacities.get(broker, 50_000))
            for broker in (*brokers, *capacities)
        ]
        self.settings = DEFAULTS
        self.ended_ms = START_MS

    def report(self, broker: str, units: int, load: float, **named: float) -> None:
        at_ms = self.ended_ms + MINUTE_MS // 2
        self.balance.take(Report(broker, f"s-{broker}", at_ms, units, load, named), at_ms)

    def end(self) -> BalancePlan:
        self.ended_ms += MINUTE_MS
        plan = self.balance.plan(self.views, self.settings, self.ended_ms + BALANCE_ROUND_LAG_MS)
        assert plan is not None
        return plan

    def run(
        self, rounds: int = START_ROUNDS, **loads: tuple[int, float, dict[str, float]]
    ) -> BalancePlan:
        """Run rounds with the same reports; return the last plan. The others have no moves."""
        for number in range(rounds):
            for broker, (units, load, named) in loads.items():
                self.report(broker, units, load, **named)
            plan = self.end()
            assert number == rounds - 1 or not (plan.moves or plan.shifts)
        return plan


def test_a_busy_named_unit_goes_to_the_emptier_broker_after_three_rounds() -> None:
    rounds = Rounds("a", "b")

    plan = rounds.run(
        a=(10, 900_000, {"hot": 400_000, "warm": 300_000}), b=(10, 100_000, {"cold": 90_000})
    )

    assert plan.moves == (UnitMove("hot", "a", "b"),)
    assert plan.shifts == ()


def test_traffic_that_no_report_names_is_spread_over_the_units_without_names() -> None:
    rounds = Rounds("a", "b")

    plan = rounds.run(a=(1_000, 3e8, {}), b=(1_000, 1e8, {}))

    assert plan.moves == ()
    assert plan.shifts == (UnitShift("a", "b", 299),), "301,000 each, to 5 % of 201 million"


def test_without_traffic_units_are_counted() -> None:
    plan = Rounds("a", "b").run(a=(300, 0, {}), b=(100, 0, {}))

    assert plan.shifts == (UnitShift("a", "b", 90),)


def test_shares_are_by_capacity() -> None:
    plan = Rounds(small=100, large=300).run(small=(40, 0, {}), large=(40, 0, {}))

    assert plan.shifts == (UnitShift("small", "large", 19),), "21 of 80 at a share of 20"


def test_a_broker_that_is_a_little_too_far_from_its_share_needs_more_rounds() -> None:
    """A round counts by how far it is beyond the start: a half here."""
    near = {"a": (115, 0.0, {}), "b": (85, 0.0, {})}

    plan = Rounds("a", "b").run(2 * START_ROUNDS, **near)

    assert plan.shifts == (UnitShift("a", "b", 10),)


def test_a_broker_within_the_start_is_left_alone_for_ever() -> None:
    Rounds("a", "b").run(100, a=(110, 0, {}), b=(90, 0, {}))


def test_a_round_within_the_start_begins_the_count_again() -> None:
    rounds = Rounds("a", "b")
    far, near = (
        {"a": (150, 0.0, {}), "b": (50, 0.0, {})},
        {"a": (100, 0.0, {}), "b": (100, 0.0, {})},
    )

    for _ in range(5):
        assert not rounds.run(START_ROUNDS - 1, **far).shifts
        assert not rounds.run(1, **near).shifts


def test_only_rounds_with_a_new_report_count() -> None:
    rounds = Rounds("a", "b")
    rounds.run(1, a=(150, 0, {}), b=(50, 0, {}))

    assert not rounds.end().shifts
    assert not rounds.end().shifts
    assert not rounds.run(1, a=(150, 0, {}), b=(50, 0, {})).shifts
    assert rounds.run(1, a=(150, 0, {}), b=(50, 0, {})).shifts


def test_no_round_is_planned_twice_and_none_before_its_end() -> None:
    rounds = Rounds("a")
    rounds.end()
    at_ms = rounds.ended_ms + BALANCE_ROUND_LAG_MS

    def planned(now_ms: int) -> bool:
        return rounds.balance.plan(rounds.views, DEFAULTS, now_ms) is not None

    assert not planned(at_ms)
    assert not planned(at_ms + MINUTE_MS - 1)
    assert planned(at_ms + MINUTE_MS)


def test_what_is_turned_off_moves_nothing_and_begins_when_it_is_turned_on() -> None:
    rounds = Rounds("a", "b")
    rounds.settings = replace(DEFAULTS, enabled=False)
    for _ in range(10):
        rounds.report("a", 150, 0)
        rounds.report("b", 50, 0)
        rounds.ended_ms += MINUTE_MS
        now_ms = rounds.ended_ms + BALANCE_ROUND_LAG_MS
        assert rounds.balance.plan(rounds.views, rounds.settings, now_ms) is None

    rounds.settings = DEFAULTS
    assert rounds.run(a=(150, 0, {}), b=(50, 0, {})).shifts


# Who takes part ---------------------------------------------------------------------------------


def standing(plan: BalancePlan, broker: str) -> str:
    (found,) = (each.why_not for each in plan.standings if each.broker_id == broker)
    return found


def test_an_overloaded_broker_gets_nothing() -> None:
    rounds = Rounds("a", "b", "c")
    loads = {"a": (150, 0.0), "b": (50, 0.0), "c": (100, 0.0)}
    for _ in range(START_ROUNDS):
        for broker, (units, load) in loads.items():
            busy = 850 if broker == "b" else 849
            at_ms = rounds.ended_ms + 1
            report = Report(broker, f"s-{broker}", at_ms, units, load, busy_permille=busy)
            rounds.balance.take(report, at_ms)
        plan = rounds.end()

    assert standing(plan, "b") == OVERLOADED
    assert standing(plan, "c") == ""
    assert {shift.to_broker_id for shift in plan.shifts} == {"c"}


def test_a_broker_in_quarantine_gets_nothing() -> None:
    rounds = Rounds("a", "b", "c")
    rounds.views[1] = replace(rounds.views[1], may_receive=False)

    plan = rounds.run(a=(150, 0, {}), b=(50, 0, {}), c=(100, 0, {}))

    assert standing(plan, "b") == CLOSED
    assert {shift.to_broker_id for shift in plan.shifts} == {"c"}


def test_a_broker_without_a_fresh_report_takes_no_part() -> None:
    rounds = Rounds("a", "b", "c", "never")
    rounds.run(1, a=(150, 0, {}), b=(50, 0, {}), c=(100, 0, {}))
    silent = BALANCE_REPORT_AGE_MS_MAX // MINUTE_MS

    fresh = rounds.run(silent - 1, a=(100, 0, {}), c=(100, 0, {}))
    stale = rounds.run(1, a=(100, 0, {}), c=(100, 0, {}))

    assert standing(fresh, "b") == ""
    assert standing(stale, "b") == standing(stale, "never") == NO_REPORT
    assert {each.broker_id for each in stale.standings} == {"a", "b", "c", "never"}
    assert [each.share for each in stale.standings if each.broker_id == "a"] == [100 * UNIT_WEIGHT]


def test_a_broker_gets_no_more_units_than_it_has_room_for() -> None:
    plan = Rounds(a=1_000, b=110).run(a=(900, 0, {}), b=(100, 9, {}))

    assert plan.shifts == ()
    plan = Rounds(a=100, b=100).run(a=(99, 1e9, {}), b=(97, 0, {}))
    assert plan.shifts == (UnitShift("a", "b", 3),)


def test_a_unit_that_rules_bind_is_not_planned_and_weighs_all_the_same() -> None:
    rounds = Rounds("a", "b")
    for _ in range(START_ROUNDS):
        named = {"pinned": 400_000.0, "free": 200_000.0, "other": 100_000.0}
        at_ms = rounds.ended_ms + 1
        report = Report("a", "s-a", at_ms, 3, 700_000, named, bound=["pinned"])
        rounds.balance.take(report, at_ms)
        rounds.report("b", 0, 0)
        plan = rounds.end()

    assert plan.moves == (UnitMove("free", "a", "b"), UnitMove("other", "a", "b"))


def test_a_draining_broker_is_not_there_and_a_new_session_counts_from_zero() -> None:
    rounds = Rounds("a", "b")
    rounds.run(START_ROUNDS - 1, a=(150, 0, {}), b=(50, 0, {}))
    rounds.views[1] = replace(rounds.views[1], session_id="s-b2")

    plan = rounds.run(1, a=(150, 0, {}), b=(50, 0, {}))

    assert standing(plan, "b") == NO_REPORT, "its reports are of its former session"
    assert plan.shifts == ()


# After a move -----------------------------------------------------------------------------------


def test_brokers_that_a_plan_touched_wait_for_a_report_measured_behind_the_moves() -> None:
    rounds = Rounds("a", "b", "c")
    plan = rounds.run(a=(160, 0, {}), b=(40, 0, {}), c=(100, 0, {}))
    assert plan.shifts == (UnitShift("a", "b", 55),)
    assert plan.carried_out_by_ms - rounds.ended_ms == BALANCE_ROUND_LAG_MS + 5_500, "600 a minute"

    # These were measured before the moves were over: they must not be moved a second time.
    at_ms = plan.carried_out_by_ms + BALANCE_SETTLE_MS - 1
    for broker, units in (("a", 160), ("b", 40), ("c", 100)):
        rounds.balance.take(Report(broker, f"s-{broker}", at_ms, units, 0), at_ms)
    waiting = rounds.end()
    assert waiting.shifts == ()
    assert standing(waiting, "a") == standing(waiting, "b") == WAITS

    seen = rounds.run(1, a=(105, 0, {}), b=(95, 0, {}), c=(100, 0, {}))
    assert standing(seen, "a") == ""
    assert seen.shifts == ()


def test_a_moved_unit_stays_for_the_grace() -> None:
    rounds = Rounds("a", "b")
    hot = {"hot": 400_000.0}
    assert rounds.run(a=(10, 800_000, hot), b=(10, 0, {})).moves == (UnitMove("hot", "a", "b"),)

    # All other traffic is gone from a, so that the unit ought to go back.
    planned: list[int] = []
    for number in range(1, 30):
        rounds.report("a", 9, 0)
        rounds.report("b", 11, 900_000, other=500_000, **hot)
        if any(move.name == "hot" for move in rounds.end().moves):
            planned.append(number)
    assert planned
    assert planned[0] >= DEFAULTS.grace_seconds // 60


def test_what_was_not_moved_is_counted_where_it_is_and_something_else_is_tried() -> None:
    """Another shard's rule keeps the hottest unit: no node knows that but its own."""
    rounds = Rounds("a", "b")
    named = {"kept": 450_000.0, "second": 300_000.0, "third": 100_000.0}
    loads: dict[str, tuple[int, float, dict[str, float]]] = {
        "a": (10, 900_000, named),
        "b": (10, 0, {}),
    }
    assert rounds.run(**loads).moves == (UnitMove("kept", "a", "b"),)

    then = rounds.run(1, **loads)

    assert then.moves == (UnitMove("second", "a", "b"), UnitMove("third", "a", "b"))


def test_a_unit_that_is_larger_than_all_excess_is_not_swapped_back_and_forth() -> None:
    rates = {
        "a/giant": 3_000_000,
        **{f"{broker}/{n}": 30_000 for broker in "abcd" for n in range(9)},
    }
    places = {unit: unit[0] for unit in rates}
    cluster = BalancedBrokers(rates, places, noise=0.2, seed=3)

    cluster.run(1_000)

    assert "a/giant" not in {unit for _, unit, _, _ in cluster.moved}
    assert cluster.counts()["a"] == 1, "all others have left it"


# Budget -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_minute", [1, 7, 600])
@pytest.mark.parametrize("interval_seconds", [1, 15, 60, 3600])
def test_the_moves_of_a_minute_are_within_the_budget(
    per_minute: int, interval_seconds: int
) -> None:
    budget = BalanceSettings(interval_seconds=interval_seconds, moves_per_minute_max=per_minute)
    rounds_a_minute = max(1, 60 // interval_seconds)

    for first in range(1_000, 1_100):
        some = [units_of_budget(budget, number) for number in range(first, first + rounds_a_minute)]
        assert sum(some) == per_minute


def test_a_plan_ends_at_the_budget() -> None:
    rounds = Rounds("a", "b")
    rounds.settings = replace(DEFAULTS, moves_per_minute_max=7)

    plan = rounds.run(a=(150, 9e6, {"hot": 4e6}), b=(50, 0, {}))

    assert plan.moves == (UnitMove("hot", "a", "b"),)
    assert sum(shift.count for shift in plan.shifts) == 6
    assert plan.carried_out_by_ms == rounds.ended_ms + BALANCE_ROUND_LAG_MS + MINUTE_MS


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=40),
    st.integers(0, 60),
    st.integers(0, 2**64 - 1),
)
def test_a_shards_part_of_a_shift_is_its_part_of_the_units(
    units: list[int], count: int, draw: int
) -> None:
    every = sum(units)
    for here in units:
        part = part_of(min(count, every), units_here=here, units_all=every, draw=draw)
        assert 0 <= part <= here
        assert abs(part - min(count, every) * here / max(1, every)) < 1


def test_the_parts_of_all_shards_add_up_to_the_shift_on_average() -> None:
    chance = random.Random(5)
    units = [chance.randrange(10) for _ in range(256)]

    sums = [
        sum(
            part_of(100, units_here=here, units_all=sum(units), draw=chance.getrandbits(64))
            for here in units
        )
        for _ in range(200)
    ]

    assert 99 < sum(sums) / len(sums) < 101


# Convergence ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_reports_that_are_off_by_a_fifth_move_nothing_in_a_thousand_rounds(seed: int) -> None:
    cluster = brokers_with(dict.fromkeys("abcdef", 20), noise=0.2, seed=seed)

    assert cluster.run(1_000) == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_skewed_cluster_is_evened_out_within_minutes_and_stays_so(seed: int) -> None:
    chance = random.Random(seed)
    rates = {f"t-{number}": int(2e7 / (number + 1) ** 0.9) for number in range(400)}
    places = {unit: chance.choice("abcdef") for unit in rates}
    cluster = BalancedBrokers(rates, places, noise=0.1, seed=seed)
    assert cluster.imbalance() > 1.2

    settling = cluster.run(20)
    assert cluster.imbalance() <= 1.15
    later = cluster.run(200)

    assert cluster.imbalance() <= 1.15
    assert later <= settling // 4
    stay_ms = cluster.shortest_stay_ms()
    assert stay_ms is None or stay_ms >= 1000 * DEFAULTS.grace_seconds


def test_a_new_broker_is_filled_and_only_it_gets_units() -> None:
    cluster = brokers_with({"a": 300, "b": 300, "c": 300, "new": 0})

    cluster.run(15)

    assert 200 < cluster.counts()["new"] < 240
    assert {to for _, _, _, to in cluster.moved} == {"new"}


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from("abcdef"), st.lists(st.integers(0, 900_000), max_size=60), min_size=1
    ),
    st.integers(0, 99),
)
def test_whatever_the_loads_units_are_kept_and_no_broker_ends_worse_than_the_worst_was(
    loads: dict[str, list[int]], seed: int
) -> None:
    rates = {f"{broker}/{n}": rate for broker, some in loads.items() for n, rate in enumerate(some)}
    cluster = BalancedBrokers(
        rates, {unit: unit[0] for unit in rates}, brokers=sorted(loads), seed=seed
    )

    def heaviest() -> int:
        traffic, counts = cluster.loads(), cluster.counts()
        return max(traffic[broker] + UNIT_WEIGHT * counts[broker] for broker in loads)

    before = heaviest()
    cluster.run(30)

    assert sorted(cluster.places) == sorted(rates)
    # Units without names weigh their average until they have moved.
    assert heaviest() <= before * 1.05 + UNIT_WEIGHT
    assert cluster.run(30) <= len(rates) // 10, "it comes to rest"


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 10**8)), min_size=2, max_size=6),
    st.randoms(),
)
def test_the_order_of_brokers_and_reports_does_not_matter(
    loads: list[tuple[int, int]], chance: random.Random
) -> None:
    def planned(order: list[int]) -> list[BalancePlan]:
        rounds = Rounds(*[f"b-{place}" for place in order])
        plans = []
        for _ in range(START_ROUNDS + 1):
            for place in order:
                units, load = loads[place]
                rounds.report(f"b-{place}", units, load, **{f"{place}/hot": load / 2})
            plans.append(rounds.end())
        return plans

    order = list(range(len(loads)))
    shuffled = order.copy()
    chance.shuffle(shuffled)
    assert planned(shuffled) == planned(order)


def test_a_unit_that_two_brokers_name_is_not_moved() -> None:
    """It moved by an operator's hand, and the report of one of the two is older."""
    rounds = Rounds("a", "b", "c")
    named = {"moved": 400_000.0}

    plan = rounds.run(a=(2, 900_000, named), b=(2, 400_000, named), c=(2, 0, {}))

    assert plan.moves == ()
