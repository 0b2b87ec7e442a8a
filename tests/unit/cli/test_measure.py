"""What is said about latencies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nextgen.cli.load.measure import Latencies, quantile


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
