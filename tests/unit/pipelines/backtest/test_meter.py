"""Sums over a topic's life: by the topic, and by the hour."""

from __future__ import annotations

from nextgen.kernel.governance.auto_scale_policy import DEFAULT_AUTO_SCALE
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.scalable.auto_scale import ActionKind
from pipelines.backtest.meter import Condition, HourSums, Meter, is_hot, no_hours
from pipelines.durations import HOUR_MS, MINUTE_MS


def test_times_are_summed_up_by_the_condition_that_held() -> None:
    hours = no_hours()
    meter = Meter("s", hours, HOUR_MS)
    meter.set(HOUR_MS, Condition(1))
    meter.set(HOUR_MS + 30 * MINUTE_MS, Condition(4, is_hot=True, is_short=True))
    meter.count(HOUR_MS + 30 * MINUTE_MS, ActionKind.SPLIT)
    meter.set(2 * HOUR_MS + 15 * MINUTE_MS, Condition(2))
    sums = meter.close(4 * HOUR_MS)

    assert sums["lived_ms"] == 3 * HOUR_MS
    assert sums["segment_ms"] == (30 * 1 + 45 * 4 + 105 * 2) * MINUTE_MS
    assert (sums["hot_ms"], sums["own_hot_ms"], sums["short_ms"]) == (
        45 * MINUTE_MS,
        0,
        45 * MINUTE_MS,
    )
    assert (sums["segments_first"], sums["segments_max"], sums["segments_last"]) == (1, 4, 2)
    assert (sums["splits"], sums["merges"], sums["rebuckets"]) == (1, 0, 0)
    assert dict(hours) == {
        ("s", HOUR_MS): HourSums(150 * MINUTE_MS, 30 * MINUTE_MS, 30 * MINUTE_MS, 1),
        ("s", 2 * HOUR_MS): HourSums(150 * MINUTE_MS, 15 * MINUTE_MS, 15 * MINUTE_MS, 0),
        ("s", 3 * HOUR_MS): HourSums(120 * MINUTE_MS, 0, 0, 0),
    }


def test_a_clock_that_goes_back_takes_no_time_away() -> None:
    meter = Meter("s", no_hours(), 1_000)
    meter.set(1_000, Condition(1))
    meter.set(5_000, Condition(2))
    meter.set(3_000, Condition(3))
    sums = meter.close(6_000)

    assert sums["segment_ms"] == 4_000 * 1 + 1_000 * 3


def test_a_clock_that_leaps_for_years_is_not_summed_up_hour_by_hour() -> None:
    meter = Meter("s", no_hours(), 1_000)
    meter.set(1_000, Condition(1))
    meter.set(10**17, Condition(2))
    meter.set(3_000, Condition(3))
    sums = meter.close(4_000)

    assert (sums["segment_ms"], sums["lived_ms"]) == (2_000 * 2 + 1_000 * 3, 3_000)


def test_hot_is_above_a_threshold_in_any_rate() -> None:
    at, above = Rates(10_000, 50_000, 5e7, 2.5e8), Rates(0, 0, 0, 2.5e8 + 1)

    assert not is_hot([at], DEFAULT_AUTO_SCALE)
    assert is_hot([at, above], DEFAULT_AUTO_SCALE)
    assert not is_hot([above], None)
