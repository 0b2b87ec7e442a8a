"""Windows of lookups as columns: which of them count, how they add up, and the verdict on a sum.

The rule and its numbers are those of ``kernel.governance.lookup_slo``, which the live meter uses
too. A frame of sums has ``errors`` and ``latency_counts``; ``judged`` adds the verdict.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from nextgen.kernel.governance.lookup_slo import (
    LATENCY_CLASSES,
    LOOKUP_WINDOW_BOUNDS_MS,
    LOOKUP_WINDOW_MS,
)
from nextgen.kernel.limits.placement import LOOKUPS_PER_WINDOW_MAX
from pipelines.columns.lookup_verdict import filled, slow_of, sum_of, too_slow_of, why_bad

WINDOW_EVENT = "lookup_window_recorded"

COUNTED = "counted"
REPEATED = "repeated"
IMPOSSIBLE = "impossible"
OUTSIDE = "outside"
"""The fates of a recorded window. ``outside``: not in the requested time."""


def recorded_windows(events: DataFrame) -> DataFrame:
    """Return the windows among events of shard 0, one row each, as they were recorded.

    Columns: position, recorded_at_ms (the cluster manager's clock), node_id, process, began_at_ms,
    recorded_lookups, recorded_errors, recorded_too_slow, latency_counts, told_bad (the recorded
    verdict; its name is a published column).
    """
    window = f.col(WINDOW_EVENT)
    return events.where(f.col("event_type") == WINDOW_EVENT).select(
        "position",
        f.unix_millis("time").alias("recorded_at_ms"),
        window["node_id"].alias("node_id"),
        window["process"].alias("process"),
        window["began_at_ms"].alias("began_at_ms"),
        window["lookups"].alias("recorded_lookups"),
        window["errors"].alias("recorded_errors"),
        window["too_slow"].alias("recorded_too_slow"),
        window["latency_counts"].alias("latency_counts"),
        window["is_bad"].alias("told_bad"),
    )


def classified(
    windows: DataFrame, *, since_ms: int | None = None, until_ms: int | None = None
) -> DataFrame:
    """Add to each recorded window its fate, and a description of what is wrong with it.

    Of several valid windows of one process and minute, the first by position counts. ``since_ms``
    and ``until_ms`` bound the beginning of windows, the latter excluded. Added columns: fate, why
    (null if nothing is wrong), delay_ms (from the minute's end to the record: negative if clocks
    differ), is_contradicted (the recorded verdict differs from the computed one), errors and
    latency_counts (null for an impossible window) and those of ``judged``.
    """
    same = Window.partitionBy("node_id", "process", "began_at_ms")
    possible_position = f.when(f.col("why").isNull(), f.col("position"))
    is_outside = f.lit(False)
    if since_ms is not None:
        is_outside |= f.col("began_at_ms") < since_ms
    if until_ms is not None:
        is_outside |= f.col("began_at_ms") >= until_ms
    checked = windows.withColumn("why", _why_impossible()).withColumn(
        "first_position", f.min(possible_position).over(same)
    )
    fated = checked.select(
        *(name for name in checked.columns if name != "latency_counts"),
        f.when(f.col("why").isNotNull(), IMPOSSIBLE)
        .when(f.col("position") != f.col("first_position"), REPEATED)
        .when(is_outside, OUTSIDE)
        .otherwise(COUNTED)
        .alias("fate"),
        # Impossible numbers are kept out of the sums.
        f.when(f.col("why").isNull(), f.col("recorded_errors")).alias("errors"),
        f.when(f.col("why").isNull(), f.col("latency_counts")).alias("latency_counts"),
        f.try_subtract("recorded_at_ms", f.try_add("began_at_ms", f.lit(LOOKUP_WINDOW_MS))).alias(
            "delay_ms"
        ),
    )
    repeats = f.concat(f.lit("repeats position "), f.col("first_position").cast("string"))
    verdicts = judged(fated).withColumns(
        {
            "why": f.when(f.col("fate") == REPEATED, repeats).otherwise(f.col("why")),
            "is_contradicted": (f.col("fate") != IMPOSSIBLE)
            & (f.coalesce("told_bad", f.lit(False)) != f.col("is_bad")),
        }
    )
    internal = ("first_position", "recorded_lookups", "recorded_errors", "recorded_too_slow")
    return verdicts.drop(*internal)


def added_up(windows: DataFrame, *keys: str | Column) -> DataFrame:
    """Return the sums of windows by ``keys``, with the verdict on each sum.

    Columns: the keys, errors, latency_counts, parts (windows in the sum), bad_parts, and those of
    ``judged``. The order is Spark's.
    """
    # One sum per class: Spark aggregates by hash only with buffers of fixed width.
    classes = [f"class_{number}" for number in range(LATENCY_CLASSES)]
    sums = [
        f.sum(f.get("latency_counts", f.lit(number))).alias(name)
        for number, name in enumerate(classes)
    ]
    total = windows.groupBy(*keys).agg(
        f.sum("errors").alias("errors"),
        f.count(f.lit(1)).alias("parts"),
        f.count_if("is_bad").alias("bad_parts"),
        *sums,
    )
    return judged(total.withColumn("latency_counts", f.array(*classes)).drop(*classes))


def judged(sums: DataFrame) -> DataFrame:
    """Add the verdict on sums, from their ``errors`` and ``latency_counts``.

    Added columns: lookups, slow (above a second), too_slow, p50_ms_at_most and p99_ms_at_most
    (bounds of the quantile's class; null above 3,000 ms), is_bad, why_bad (in the words of the live
    meter; empty for a good one).
    """
    counts = f.col("latency_counts")
    with_totals = sums.withColumns(
        {"lookups": sum_of(counts), "too_slow": too_slow_of(counts), "slow": slow_of(counts)}
    )
    verdict = why_bad(f.col("lookups"), f.col("slow"), f.col("too_slow"), f.col("errors"))
    return with_totals.withColumn("why_bad", verdict).withColumns(
        {
            "is_bad": f.col("why_bad") != "",
            "p50_ms_at_most": _quantile_ms(50),
            "p99_ms_at_most": _quantile_ms(99),
        }
    )


# Inside ---------------------------------------------------------------------------------------


def _why_impossible() -> Column:
    """Return a description of an impossible window, null for a possible one."""
    counts = f.col("latency_counts")
    classes = f.coalesce(f.size(counts), f.lit(0))
    lookups = sum_of(counts)
    too_slow = too_slow_of(counts)
    is_countable = f.forall(counts, lambda count: count.between(0, LOOKUPS_PER_WINDOW_MAX))
    return (
        f.when(
            classes != LATENCY_CLASSES,
            filled(f"has {{}} classes of latency, not {LATENCY_CLASSES}", classes),
        )
        .when(
            ~is_countable | ~lookups.between(1, LOOKUPS_PER_WINDOW_MAX),
            filled(
                f"has {{}} lookups, 1 to {LOOKUPS_PER_WINDOW_MAX} are possible",
                f.col("recorded_lookups"),
            ),
        )
        .when(
            (lookups != f.col("recorded_lookups")) | (too_slow != f.col("recorded_too_slow")),
            filled(
                "says {} lookups, {} of them too slow; its classes have {} and {}",
                f.col("recorded_lookups"),
                f.col("recorded_too_slow"),
                lookups,
                too_slow,
            ),
        )
        .when(
            ~f.col("recorded_errors").between(too_slow, lookups),
            filled(
                "has {} errors of {} lookups, of which {} took too long",
                f.col("recorded_errors"),
                lookups,
                too_slow,
            ),
        )
        .when(
            f.col("began_at_ms") % LOOKUP_WINDOW_MS != 0,
            f.lit("does not begin with a minute"),
        )
        .when(
            (f.col("node_id") == "") | (f.col("process") == ""),
            f.lit("names no node, or no process"),
        )
    )


def _quantile_ms(per_cent: int) -> Column:
    """Return the bound of the first class that reaches the quantile's rank, null for the last."""
    rank = f.floor((f.col("lookups") * per_cent + 99) / 100)
    bound = f.when(f.col("lookups") == 0, f.lit(0))
    reached = f.lit(0).cast("long")
    for number, limit_ms in enumerate(LOOKUP_WINDOW_BOUNDS_MS):
        reached = reached + f.get("latency_counts", f.lit(number))
        bound = bound.when(reached >= rank, f.lit(limit_ms))
    return bound.cast("int")
