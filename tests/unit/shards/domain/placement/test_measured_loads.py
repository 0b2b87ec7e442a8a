"""Which reports count, when, and how much."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.limits.placement import (
    BALANCE_REPORT_AGE_MS_MAX,
    BALANCE_REPORT_AHEAD_MS_MAX,
    BUSIEST_UNITS_MAX,
)
from shards.domain.placement.measured_loads import (
    FUTURE,
    NEGATIVE,
    NOT_A_NUMBER,
    RATES_PER_BROKER_MAX,
    STALE,
    BrokerMeasured,
    MeasuredLoads,
    Report,
    smoothed,
)
from shards.domain.placement.rebalance import UNIT_WEIGHT, Move

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000
GOOD = Report("a", "s-a", NOW_MS, 10, 5_000.0, {"t": 2_000.0})


def loads_at(now_ms: int = NOW_MS) -> MeasuredLoads:
    loads = MeasuredLoads()
    loads.open_round(now_ms, MINUTE_MS)
    return loads


def known(loads: MeasuredLoads, broker: str = "a") -> BrokerMeasured:
    found = loads.of(broker, f"s-{broker}")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (replace(GOOD, load=math.nan), NOT_A_NUMBER),
        (replace(GOOD, load=math.inf), NOT_A_NUMBER),
        (replace(GOOD, named={"t": math.nan}), NOT_A_NUMBER),
        (replace(GOOD, named={"t": 1.0, "u": -math.inf}), NOT_A_NUMBER),
        (replace(GOOD, load=-0.5), NEGATIVE),
        (replace(GOOD, units=-1), NEGATIVE),
        (replace(GOOD, named={"t": -1e-9}), NEGATIVE),
        (replace(GOOD, busy_permille=-1), NEGATIVE),
    ],
)
def test_what_cannot_be_is_ignored_and_counted_once_however_often_it_is_seen(
    bad: Report, why: str
) -> None:
    loads = loads_at()

    for _ in range(3):
        loads.take(bad, NOW_MS)

    assert loads.of("a", "s-a") is None
    assert loads.refused == {why: 1}


@pytest.mark.parametrize(
    ("away_ms", "why"),
    [
        (-BALANCE_REPORT_AGE_MS_MAX, ""),
        (-BALANCE_REPORT_AGE_MS_MAX - 1, STALE),
        (BALANCE_REPORT_AHEAD_MS_MAX, ""),
        (BALANCE_REPORT_AHEAD_MS_MAX + 1, FUTURE),
    ],
)
def test_balance_report_age_ms_max_and_balance_report_ahead_ms_max_bound_what_counts(
    away_ms: int, why: str
) -> None:
    loads = loads_at(NOW_MS + BALANCE_REPORT_AHEAD_MS_MAX)

    loads.take(replace(GOOD, measured_at_ms=NOW_MS + away_ms), NOW_MS)

    assert loads.refused == ({why: 1} if why else {})
    assert (loads.of("a", "s-a") is None) == bool(why)


def test_an_older_report_of_the_session_is_stale() -> None:
    loads = loads_at()
    loads.take(GOOD, NOW_MS)

    loads.take(replace(GOOD, measured_at_ms=NOW_MS - 1, load=1e9), NOW_MS)

    assert loads.refused == {STALE: 1}
    assert known(loads).load == 5_000


def test_a_report_waits_for_the_round_in_which_it_was_measured() -> None:
    loads = loads_at()
    early = replace(GOOD, measured_at_ms=NOW_MS + 1)

    loads.take(early, NOW_MS)
    assert loads.of("a", "s-a") is None

    loads.open_round(NOW_MS + 1, MINUTE_MS)
    assert known(loads).measured_at_ms == NOW_MS + 1


def test_nodes_that_get_reports_at_other_times_know_the_same_in_the_end() -> None:
    early, late = loads_at(), loads_at()
    first, second = GOOD, replace(GOOD, measured_at_ms=NOW_MS + 30_000, load=7_000.0)

    early.take(first, NOW_MS)
    early.take(second, NOW_MS + 30_000)
    late.take(first, NOW_MS + 29_000)
    late.take(second, NOW_MS + 31_000)
    for loads in (early, late):
        loads.open_round(NOW_MS + MINUTE_MS, MINUTE_MS)

    assert known(early) == known(late)
    assert known(early).load > 5_000


def test_a_new_session_begins_anew() -> None:
    loads = loads_at()
    loads.take(GOOD, NOW_MS)
    loads.take(replace(GOOD, session_id="s-a2", load=1.0), NOW_MS)

    assert loads.of("a", "s-a") is None
    found = loads.of("a", "s-a2")
    assert found is not None
    assert found.load == 1


def test_the_first_reports_are_averaged_and_later_ones_weigh_an_eighth() -> None:
    loads = loads_at(NOW_MS + 100 * MINUTE_MS)
    seen = []
    for minute, load in enumerate([1_000, 1_200, 800, 1_000, 1_000, 1_000, 1_000, 1_000, 1_080]):
        at_ms = NOW_MS + minute * MINUTE_MS
        loads.take(Report("a", "s-a", at_ms, 1, load), at_ms)
        seen.append(known(loads).load)

    assert seen[:3] == [1_000, 1_100, 1_000], "the mean"
    assert seen[-1] - seen[-2] == 80 // 8


def test_a_leap_is_followed_at_once() -> None:
    leap = smoothed(
        1_000, 10_000, passed_ms=MINUTE_MS, known_ms=10 * MINUTE_MS, interval_ms=MINUTE_MS
    )
    noise = smoothed(
        1_000, 1_400, passed_ms=MINUTE_MS, known_ms=10 * MINUTE_MS, interval_ms=MINUTE_MS
    )

    assert leap == 5_500
    assert noise == 1_050


def test_many_reports_of_a_minute_weigh_as_much_as_one() -> None:
    def after(reports: int) -> int:
        known = 10_000
        for _ in range(reports):
            known = smoothed(
                known,
                12_000,
                passed_ms=MINUTE_MS // reports,
                known_ms=10 * MINUTE_MS,
                interval_ms=MINUTE_MS,
            )
        return known

    assert after(1) == 10_250
    assert abs(after(12) - after(1)) < 30


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10 * MINUTE_MS))
def test_a_rate_that_is_reported_again_and_again_is_reached(
    rate: int, reported: int, passed_ms: int
) -> None:
    for _ in range(100_000):
        before = rate
        rate = smoothed(
            rate, reported, passed_ms=passed_ms, known_ms=7 * MINUTE_MS, interval_ms=MINUTE_MS
        )
        assert min(before, reported) <= rate <= max(before, reported)
        if rate == reported:
            return
        # Beyond this a step per report is all that is left to see.
        passed_ms = max(passed_ms, MINUTE_MS)
    raise AssertionError(f"{rate} is not {reported}")


def test_a_unit_that_is_named_no_more_fades() -> None:
    loads = loads_at(NOW_MS + 100 * MINUTE_MS)
    for minute in range(60):
        named = {"gone": 8_000.0} if minute == 0 else {"stays": 800.0}
        at_ms = NOW_MS + minute * MINUTE_MS
        loads.take(Report("a", "s-a", at_ms, 2, 9_000, named), at_ms)

    assert known(loads).rates == {"stays": 800}
    assert known(loads).named == {"stays"}


def test_rates_per_broker_max_rates_are_kept_and_no_more() -> None:
    loads = loads_at(NOW_MS + 100 * MINUTE_MS)
    names = [f"t-{number}" for number in range(RATES_PER_BROKER_MAX + 1)]
    for turn, start in enumerate(range(0, len(names), BUSIEST_UNITS_MAX)):
        named = {name: 1e9 for name in names[start : start + BUSIEST_UNITS_MAX]}
        at_ms = NOW_MS + turn * MINUTE_MS
        loads.take(Report("a", "s-a", at_ms, 500, 1e12, named), at_ms)

        kept = min(start + BUSIEST_UNITS_MAX, len(names))
        assert len(known(loads).rates) == min(kept, RATES_PER_BROKER_MAX)
        assert known(loads).named <= known(loads).rates.keys()


# Moves that are booked --------------------------------------------------------------------------


def booked() -> MeasuredLoads:
    """Return loads where unit t of a, of 2,000 of its 5,000 bytes a second, was moved to b."""
    loads = loads_at(NOW_MS + 10 * MINUTE_MS)
    loads.take(GOOD, NOW_MS)
    loads.take(Report("b", "s-b", NOW_MS, 4, 1_000.0), NOW_MS)
    loads.book(Move("t", "a", "b", 1, UNIT_WEIGHT + 2_000), NOW_MS + 1_000)
    return loads


def test_a_booked_move_counts_at_once_and_holds_both_until_a_report_behind_it() -> None:
    loads = booked()

    assert (known(loads).load, known(loads).units) == (3_000, 9)
    assert (known(loads, "b").load, known(loads, "b").units) == (3_000, 5)
    assert known(loads, "b").named == {"t"}

    # Measured before the move was over: it says nothing about it.
    loads.take(replace(GOOD, measured_at_ms=NOW_MS + 999), NOW_MS + 999)
    assert known(loads).load == 3_000
    assert loads.is_held("a")

    loads.take(Report("a", "s-a", NOW_MS + 1_000, 9, 3_000), NOW_MS + 1_000)
    assert not loads.is_held("a")
    assert loads.is_held("b")


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_unit_that_stayed_is_counted_where_it_is_whoever_reports_first(first: str) -> None:
    loads = booked()
    reports = {
        "a": replace(GOOD, measured_at_ms=NOW_MS + 2_000),
        "b": Report("b", "s-b", NOW_MS + 2_000, 4, 1_000.0),
    }

    for broker in (first, *(reports.keys() - {first})):
        loads.take(reports[broker], NOW_MS + 2_000)

    assert (known(loads).load, known(loads).units, known(loads).rates) == (5_000, 10, {"t": 2_000})
    assert (known(loads, "b").load, known(loads, "b").units) == (1_000, 4)
    assert known(loads, "b").rates == {}


def test_a_unit_that_came_and_is_less_busy_than_fifty_others_is_not_missed() -> None:
    loads = booked()
    busier = {f"u-{number}": 3_000.0 for number in range(BUSIEST_UNITS_MAX)}

    loads.take(Report("b", "s-b", NOW_MS + 2_000, 60, 3_000.0, busier), NOW_MS + 2_000)

    assert known(loads, "b").load == 3_000


def test_units_without_names_take_their_part_of_the_traffic_along() -> None:
    loads = loads_at()
    loads.take(GOOD, NOW_MS)
    loads.take(Report("b", "s-b", NOW_MS, 0, 0.0), NOW_MS)
    rate = known(loads).unnamed_rate
    assert rate == 3_000 // 9

    loads.book(Move("", "a", "b", 3, UNIT_WEIGHT + rate), NOW_MS + 1)

    assert known(loads, "b").load == 3 * rate
    assert known(loads).load == 5_000 - 3 * rate
    assert (known(loads).unnamed_units, known(loads, "b").unnamed_units) == (6, 3)


def test_only_brokers_that_are_kept_are_remembered() -> None:
    loads = booked()

    loads.keep({"b"})

    assert loads.of("a", "s-a") is None
    assert loads.measured_at_ms("a") == 0
    assert known(loads, "b").units == 5
