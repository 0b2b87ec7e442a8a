"""No more passes than the rate, one period's tokens, and one charge beyond."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.domain.token_bucket import TokenBucket

SLICE_S = 0.01


def test_a_full_bucket_has_a_period_of_tokens_and_fills_at_the_rate():
    bucket = TokenBucket(100, 1, 50.0)

    assert bucket.fill(60.0) == 100
    bucket.tokens -= 100
    assert bucket.fill(60.25) == pytest.approx(25)
    assert bucket.fill(99.0) == 100


def test_what_is_not_spent_for_long_is_no_more_than_a_period_has():
    bucket = TokenBucket(100, 1, 0.0)

    assert bucket.spend(60, 1_000.0)
    assert bucket.tokens == 40
    assert not bucket.spend(40, 1_000.0)


def test_a_debt_is_paid_before_anything_passes():
    bucket = TokenBucket(100, 1, 0.0)
    bucket.tokens -= 350

    assert bucket.fill(2.0) == pytest.approx(-50)
    assert bucket.wait_s(SLICE_S) == pytest.approx(0.51)
    assert bucket.fill(2.51) == pytest.approx(1)


def test_a_rate_in_a_long_period_comes_evenly():
    bucket = TokenBucket(60, 60, 0.0)
    bucket.tokens -= 60

    assert bucket.wait_s(SLICE_S) == pytest.approx(1)
    assert bucket.fill(30.0) == pytest.approx(30)


def test_time_that_stands_still_adds_nothing():
    bucket = TokenBucket(10, 1, 5.0)
    bucket.tokens = 0.0

    assert bucket.fill(5.0) == 0
    assert bucket.fill(4.0) == 0
    assert bucket.fill(5.5) == pytest.approx(5)


def test_another_rate_keeps_the_debt_and_no_more_than_it_has():
    bucket = TokenBucket(1_000, 1, 0.0)
    bucket.change(10, 1, 0.0)
    assert bucket.tokens == 10

    bucket.tokens = -30.0
    bucket.change(100, 1, 0.0)
    assert bucket.tokens == -30


def test_what_is_added_to_the_rate_counts_for_its_time():
    bucket = TokenBucket(10, 1, 0.0)
    bucket.tokens = 0.0

    assert bucket.fill(1.0, extra_per_s=90.0) == pytest.approx(100)
    assert bucket.fill(2.0) == 10


@given(
    amount=st.integers(1, 1_000),
    period_s=st.integers(1, 60),
    steps=st.lists(st.tuples(st.floats(0, 5), st.integers(1, 2_000)), max_size=60),
)
def test_no_more_passes_in_any_time_than_the_rate_allows(amount, period_s, steps):
    bucket, now_s = TokenBucket(amount, period_s, 0.0), 0.0
    passed = []
    for step_s, charge in steps:
        now_s += step_s
        if bucket.fill(now_s) > 0:
            assert bucket.spend(charge, now_s) == (bucket.tokens > 0)
            passed.append((now_s, charge))

    for index, (began_s, _) in enumerate(passed):
        for ended in range(index, len(passed)):
            charges = [charge for _, charge in passed[index : ended + 1]]
            allowed = amount + (passed[ended][0] - began_s) * amount / period_s
            assert sum(charges) <= allowed + charges[-1] + 1e-6
