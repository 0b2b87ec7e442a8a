"""When a minute of lookups is a bad one, at each bound and one beyond it."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextgen.kernel.governance.lookup_slo import (
    LATENCY_CLASSES,
    LOOKUP_MS_MAX,
    LOOKUP_P99_MS_MAX,
    LOOKUP_WINDOW_BOUNDS_MS,
    LookupWindow,
    merged_windows,
)

LATENCIES = st.lists(st.floats(0, 5_000), min_size=1, max_size=300)


def window(errors: int = 0, node: str = "d1", minute: int = 0, **counts: int) -> LookupWindow:
    """A window with so many lookups in the classes ``up_to_1000=...``; ``beyond`` has no bound."""
    classes = [counts.get(f"up_to_{bound}", 0) for bound in LOOKUP_WINDOW_BOUNDS_MS]
    return LookupWindow(node, "w1-0", minute * 60_000, errors, (*classes, counts.get("beyond", 0)))


def of_latencies(latencies: list[float], failed: int = 0) -> LookupWindow:
    """Counted by a second way: class by class."""
    edges = (-math.inf, *LOOKUP_WINDOW_BOUNDS_MS, math.inf)
    counts = tuple(
        sum(low < each <= high for each in latencies) for low, high in itertools.pairwise(edges)
    )
    return LookupWindow("d1", "w1-0", 0, failed + counts[-1], counts)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (window(up_to_1=990, up_to_1000=10), ""),
        (window(up_to_1=990, up_to_2000=10), ""),
        (window(up_to_1=989, up_to_2000=11), "p99 above 1000 ms: 11 of 1000 were slower"),
        (window(up_to_1=990, errors=9), ""),
        (window(up_to_1=1_000, errors=10), ""),
        (window(up_to_1=1_000, errors=11), "11 of 1000 failed, more than 1 %"),
        (window(up_to_1=999, up_to_3000=1), ""),
        (window(up_to_1=999, beyond=1, errors=1), "1 took longer than 3000 ms"),
        (window(), ""),
    ],
)
def test_a_window_is_bad_one_beyond_each_bound_and_not_at_it(made, reason):
    assert (made.is_bad, made.why_bad) == (bool(reason), reason)


@given(LATENCIES)
def test_the_verdict_on_p99_is_that_of_the_sorted_latencies(latencies):
    rank = math.ceil(0.99 * len(latencies))
    p99 = sorted(latencies)[rank - 1]

    found = of_latencies(latencies)

    assert ("p99" in found.why_bad) == (p99 > LOOKUP_P99_MS_MAX)
    assert ("longer" in found.why_bad) == (max(latencies) > LOOKUP_MS_MAX)


@given(LATENCIES, st.sampled_from([50, 99, 100]))
def test_a_quantile_lies_in_the_class_of_the_latency_at_its_rank(latencies, per_cent):
    exact = sorted(latencies)[math.ceil(len(latencies) * per_cent / 100) - 1]

    bound = of_latencies(latencies).quantile_ms(per_cent)

    below = [each for each in (0, *LOOKUP_WINDOW_BOUNDS_MS) if each < bound]
    assert below[-1] <= exact <= bound or (exact == 0 and bound == 1)


@given(st.lists(LATENCIES, min_size=1, max_size=4))
def test_windows_of_processes_add_up_to_that_of_all_their_lookups(parts):
    whole = of_latencies([each for part in parts for each in part])

    (merged,) = merged_windows(map(of_latencies, parts), "d1").values()

    assert merged.latency_counts == whole.latency_counts
    assert (merged.errors, merged.why_bad) == (whole.errors, whole.why_bad)


def test_windows_are_added_up_minute_by_minute_in_order():
    windows = [window(minute=2, up_to_1=1), window(minute=1, up_to_1=2), window(minute=2, beyond=3)]

    merged = merged_windows(windows)

    assert [(start, each.lookups) for start, each in merged.items()] == [(60_000, 2), (120_000, 4)]
    assert len(merged[60_000].latency_counts) == LATENCY_CLASSES


def test_what_one_process_hides_shows_in_the_sum_and_the_other_way_round():
    slow, quiet = window(up_to_1=98, up_to_2000=2), window(up_to_1=200)

    (together,) = merged_windows([slow, quiet]).values()

    assert slow.is_bad
    assert not together.is_bad
