"""When a load is written, and since when a segment is cold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nextgen.kernel.governance.auto_scale_policy import DEFAULT_AUTO_SCALE
from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.limits.placement import LOAD_RATE_MAX
from nextgen.kernel.limits.scalable import AUTO_SCALE_CLOCK_LEAP_MS
from nextgen.kernel.scalable.segment_load import (
    SegmentLoad,
    cold_since,
    is_material,
    refused_rates,
)

BEFORE = Rates(400, 400, 400, 400)


@pytest.mark.parametrize("field", ["messages_in", "messages_out", "bytes_in", "bytes_out"])
@pytest.mark.parametrize(
    ("rate", "is_written"), [(500, False), (501, True), (300, False), (299, True)]
)
def test_a_rate_is_written_that_moved_by_more_than_segment_load_change(field, rate, is_written):
    assert is_material(BEFORE, replace(BEFORE, **{field: rate}), DEFAULT_AUTO_SCALE) is is_written


def test_a_load_is_written_that_has_no_record_or_leaves_zero_or_comes_to_it():
    idle, slow = Rates(), Rates(messages_in=0.01)

    assert is_material(None, idle, DEFAULT_AUTO_SCALE)
    assert is_material(idle, slow, DEFAULT_AUTO_SCALE)
    assert is_material(slow, idle, DEFAULT_AUTO_SCALE)
    assert not is_material(idle, idle, DEFAULT_AUTO_SCALE)


@pytest.mark.parametrize(
    ("then", "now"),
    [(10_000, 10_001), (10_900, 9_900), (1_000, 999), (950, 1_000)],
    ids=["hot", "not hot", "cold", "not cold"],
)
def test_a_small_step_over_a_threshold_is_written(then, now):
    """Finding 3: a rate may not stay on the wrong side of a threshold unseen."""
    policy = DEFAULT_AUTO_SCALE
    assert is_material(Rates(messages_in=then), Rates(messages_in=now), policy)
    # The same step elsewhere is not.
    beside = (Rates(messages_in=then + 2_000), Rates(messages_in=now + 2_000))
    assert not is_material(*beside, policy)


def test_a_small_step_over_the_floor_of_consumers_splits_is_written():
    policy = replace(DEFAULT_AUTO_SCALE, split_vs_rebucket_min_msg_rate_in_threshold=3_000)
    assert is_material(Rates(messages_in=3_000), Rates(messages_in=2_999), policy)
    assert not is_material(Rates(messages_out=3_000), Rates(messages_out=2_999), policy)


def test_a_segment_is_cold_since_its_first_cold_rates_until_one_rises():
    policy, cold, warm = DEFAULT_AUTO_SCALE, Rates(999, 0, 0, 0), Rates(0, 5_000, 0, 0)
    first = SegmentLoad(0, cold, 1_000, cold_since(None, cold, policy, 1_000))
    colder = cold_since(first, Rates(), policy, 2_000)

    assert first.cold_since_ms == colder == 1_000
    assert cold_since(first, warm, policy, 3_000) == 0
    assert cold_since(SegmentLoad(0, warm, 3_000), cold, policy, 4_000) == 4_000


@pytest.mark.parametrize(
    ("ahead_ms", "is_kept"),
    [(AUTO_SCALE_CLOCK_LEAP_MS, True), (AUTO_SCALE_CLOCK_LEAP_MS + 1, False)],
)
def test_a_mark_ahead_by_more_than_auto_scale_clock_leap_ms_is_not_kept(ahead_ms, is_kept):
    """Leaders' clocks differ a little. One that is far ahead has leapt."""
    at_ms = 5_000 + ahead_ms
    later = SegmentLoad(0, Rates(), at_ms, at_ms)

    assert cold_since(later, Rates(), DEFAULT_AUTO_SCALE, 5_000) == (at_ms if is_kept else 5_000)


def test_a_mark_from_before_the_clock_leapt_is_not_kept():
    marked = SegmentLoad(0, Rates(), 1_000, 1_000)

    assert cold_since(marked, Rates(), DEFAULT_AUTO_SCALE, 9_000, leapt_at_ms=9_000) == 9_000
    assert cold_since(marked, Rates(), DEFAULT_AUTO_SCALE, 9_000, leapt_at_ms=1_000) == 1_000


@pytest.mark.parametrize(
    ("rate", "is_refused"),
    [
        (0, False),
        (LOAD_RATE_MAX, False),
        (LOAD_RATE_MAX * 2, True),
        (-1, True),
        (float("nan"), True),
        (float("inf"), True),
    ],
)
def test_rates_that_cannot_be_are_refused(rate, is_refused):
    assert bool(refused_rates(Rates(bytes_out=rate))) is is_refused
