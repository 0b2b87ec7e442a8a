"""The verdict on a window of lookups, as columns: the rule and words of ``nextgen.kernel``.

A window's ``latency_counts`` are by the classes of ``nextgen.kernel.governance.lookup_slo``.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from nextgen.kernel.governance.lookup_slo import (
    LATENCY_CLASSES,
    LOOKUP_ERRORS_PER_CENT_MAX,
    LOOKUP_MS_MAX,
    LOOKUP_P99_MS_MAX,
    LOOKUP_WINDOW_BOUNDS_MS,
)

_SLOW_CLASSES = LOOKUP_WINDOW_BOUNDS_MS.index(LOOKUP_P99_MS_MAX) + 1


def sum_of(counts: Column) -> Column:
    """Return the sum of an array of counts; null if it overflows a long."""
    return f.aggregate(counts, f.lit(0).cast("long"), lambda total, one: f.try_add(total, one))


def slow_of(counts: Column) -> Column:
    """Return how many lookups took longer than a second."""
    return sum_of(f.slice(counts, _SLOW_CLASSES + 1, LATENCY_CLASSES - _SLOW_CLASSES))


def too_slow_of(counts: Column) -> Column:
    """Return the number of lookups slower than ``LOOKUP_MS_MAX``; null without such a class."""
    return f.get(counts, f.lit(LATENCY_CLASSES - 1))


def why_bad(lookups: Column, slow: Column, too_slow: Column, errors: Column) -> Column:
    """Return why the objective is missed, in the live meter's words; empty if it is met."""
    return f.concat_ws(
        "; ",
        f.when(
            slow * 100 > lookups,
            filled(f"p99 above {LOOKUP_P99_MS_MAX} ms: {{}} of {{}} were slower", slow, lookups),
        ),
        f.when(too_slow > 0, filled(f"{{}} took longer than {LOOKUP_MS_MAX} ms", too_slow)),
        f.when(
            errors * 100 > lookups * LOOKUP_ERRORS_PER_CENT_MAX,
            filled(
                f"{{}} of {{}} failed, more than {LOOKUP_ERRORS_PER_CENT_MAX} %", errors, lookups
            ),
        ),
    )


def filled(template: str, *values: Column) -> Column:
    """Return ``template`` with each ``{}`` replaced by the value in its place."""
    return f.format_string(template.replace("%", "%%").replace("{}", "%s"), *values)
