"""What is said about latencies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.harness.load.measure import Latencies, microsecond_counts, quantile, summary_of_counts


def test_the_summary_of_a_hundred_even_steps():
    latencies = Latencies()
    for milliseconds in range(100, 0, -1):
        latencies.add(milliseconds / 1000)

    assert latencies.summary() == {"p50": 50.0, "p99": 99.0, "max": 100.0}


def test_the_summary_without_samples_is_zero():
    assert Latencies().summary() == {"p50": 0.0, "p99": 0.0, "max": 0.0}


@given(st.lists(st.integers(0, 10_000), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_a_sample_with_enough_of_them_at_or_below_it(samples, fraction):
    ordered = sorted(samples)

    found = quantile(ordered, fraction)

    assert found in ordered
    assert sum(sample <= found for sample in ordered) >= fraction * len(ordered) - 1e-9


def test_counts_of_microseconds_give_the_same_quantiles():
    first = [milliseconds / 1000 for milliseconds in range(1, 51)]
    second = [milliseconds / 1000 for milliseconds in range(51, 101)]

    summary = summary_of_counts(map(microsecond_counts, (first, second)))

    # A float's microseconds are cut off, so a sample may be counted one lower.
    assert summary["p50"] == pytest.approx(50.0, abs=0.0011)
    assert summary["p99"] == pytest.approx(99.0, abs=0.0011)
    assert summary["max"] == pytest.approx(100.0, abs=0.0011)


def test_no_counts_give_zeros():
    assert summary_of_counts([{}]) == {"p50": 0.0, "p99": 0.0, "max": 0.0}
