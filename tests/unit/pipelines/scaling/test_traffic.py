"""The traffic of a topic over its hashes, whatever its segments are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.governance.broker_load import Rates
from nextgen.kernel.scalable.segment_load import in_order
from pipelines.scaling.traffic import Traffic

WHOLE, LOWER, UPPER = (0, 0xFFFF), (0, 0x7FFF), (0x8000, 0xFFFF)


def test_a_load_spreads_evenly_over_its_segment() -> None:
    traffic = Traffic()
    traffic.record(*WHOLE, Rates(100, 200, 300, 400))

    assert traffic.of(*LOWER) == Rates(50, 100, 150, 200)
    assert traffic.of(0, 0x3FFF) == Rates(25, 50, 75, 100)


def test_a_merged_segment_keeps_the_proportions_of_its_parents() -> None:
    traffic = Traffic()
    traffic.record(*LOWER, Rates(90, 0, 0, 0))
    traffic.record(*UPPER, Rates(10, 0, 0, 0))
    traffic.record(*WHOLE, Rates(1_000, 0, 0, 0))

    assert traffic.of(*LOWER).messages_in == pytest.approx(900)
    assert traffic.of(*UPPER).messages_in == pytest.approx(100)
    assert traffic.of(*WHOLE).messages_in == pytest.approx(1_000)


def test_a_rate_that_was_zero_spreads_evenly() -> None:
    traffic = Traffic()
    traffic.record(*LOWER, Rates(90, 0, 0, 0))
    traffic.record(*UPPER, Rates(10, 0, 0, 0))
    traffic.record(*WHOLE, Rates(0, 80, 0, 0))
    traffic.record(*WHOLE, Rates(40, 80, 0, 0))

    assert in_order(traffic.of(*LOWER)) == (20, 40, 0, 0)


_RANGES = st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF)).map(
    lambda pair: (min(pair), max(pair))
)


@given(st.lists(st.tuples(_RANGES, st.floats(0, 1e9)), max_size=12), st.integers(1, 0xFFFF))
def test_what_was_recorded_last_is_there_and_parts_add_up(
    loads: list[tuple[tuple[int, int], float]], cut: int
) -> None:
    traffic = Traffic()
    for within, rate in loads:
        traffic.record(*within, Rates(rate, rate / 2, 0, rate))
        assert traffic.of(*within).messages_in == pytest.approx(rate)

    whole = traffic.of(*WHOLE)
    parts = (traffic.of(0, cut - 1), traffic.of(cut, 0xFFFF))
    for place, rate in enumerate(in_order(whole)):
        assert sum(in_order(each)[place] for each in parts) == pytest.approx(rate)
