"""Availability from windows of lookups: by minute, day and month, of nodes and of the cluster.

    windows --add up--> minutes --judge--> days, months        the same as ``nextgen slo`` live

A minute is good or bad as a whole. Minutes without lookups are neither, and have no row. Lookups
are not recorded by topic. About topics the log only has the ownership changes in bad minutes:
``ownership_changes``.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from nextgen.kernel.governance.lookup_slo import LOOKUP_WINDOW_MS
from pipelines.slo.windows import COUNTED, added_up

CLUSTER = ""
"""The node id of sums over all nodes, as in the live meter."""

MINUTES_OF_A_DAY = 24 * 60

CHANGE_EVENTS = ("topic_assigned", "topic_unassigned")

CHANGE_COLUMNS = ("name", "began_at_ms", "event_type", "reason", "changes")


def minutes_of(windows: DataFrame) -> DataFrame:
    """Return the minutes of each node, its processes added up, and those of all nodes together.

    ``windows`` is the result of ``classified``; only counted windows are used. Columns: node_id
    (empty: the cluster), began_at_ms, minute (timestamp), and those of ``added_up``.
    """
    counted = windows.where(f.col("fate") == COUNTED)
    minute = f.timestamp_millis("began_at_ms").alias("minute")
    nodes = added_up(counted, "node_id", "began_at_ms")
    cluster = added_up(counted, "began_at_ms").withColumn("node_id", f.lit(CLUSTER))
    return nodes.unionByName(cluster).select(
        "node_id", "began_at_ms", minute, *(n for n in nodes.columns if n not in _MINUTE_KEYS)
    )


def days_of(minutes: DataFrame, objective_per_cent: float) -> DataFrame:
    """Return the UTC days of each node and of the cluster that have lookups.

    Columns: node_id, month (yyyy-MM), day (date), minutes (with lookups), bad_minutes,
    availability_per_cent, lookups, errors, too_slow, p50_ms_at_most, p99_ms_at_most,
    latency_counts, bad_minutes_of_month (so far), budget_left_per_cent (of the calendar month's
    budget, at the end of the day; negative when it is overdrawn).
    """
    day = f.to_date("minute").alias("day")
    days = _totals(minutes, "node_id", day).withColumn("month", _month(f.col("day")))
    so_far = (
        Window.partitionBy("node_id", "month")
        .orderBy("day")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    budget = _calendar_minutes(f.col("day")) * _tolerated(objective_per_cent)
    return days.withColumn("bad_minutes_of_month", f.sum("bad_minutes").over(so_far)).select(
        "node_id",
        "month",
        "day",
        *_TOTALS,
        "bad_minutes_of_month",
        (100 * (1 - f.col("bad_minutes_of_month") / budget)).alias("budget_left_per_cent"),
    )


def months_of(minutes: DataFrame, objective_per_cent: float) -> DataFrame:
    """Return the UTC months of each node and of the cluster: availability and error budget.

    Columns: node_id, month (yyyy-MM), and as ``days_of`` minutes to latency_counts; then
    tolerated_minutes (bad minutes that the objective allows among those with lookups),
    budget_burned_per_cent (bad by tolerated minutes), calendar_minutes (of the whole month),
    calendar_budget_minutes, calendar_budget_burned_per_cent, is_met.
    """
    first_day = f.trunc("minute", "month").alias("first_day")
    months = _totals(minutes, "node_id", first_day)
    tolerated = f.col("minutes") * _tolerated(objective_per_cent)
    calendar = _calendar_minutes(f.col("first_day"))
    budget = calendar * _tolerated(objective_per_cent)
    return months.select(
        "node_id",
        _month(f.col("first_day")).alias("month"),
        *_TOTALS,
        tolerated.alias("tolerated_minutes"),
        (100 * f.col("bad_minutes") / tolerated).alias("budget_burned_per_cent"),
        calendar.alias("calendar_minutes"),
        budget.alias("calendar_budget_minutes"),
        (100 * f.col("bad_minutes") / budget).alias("calendar_budget_burned_per_cent"),
        (f.col("bad_minutes") <= tolerated + _ROUNDING).alias("is_met"),
    )


def worst_minutes(minutes: DataFrame, changes: DataFrame) -> DataFrame:
    """Return the bad minutes of nodes and cluster with the ownership changes in them, worst first.

    Order: share of lookups that failed, share above a second, the minute, the node. Columns: those
    of ``minutes_of``, failed_per_cent, slow_per_cent, changes (null: none), rank (from 1).
    """
    order = (f.desc("failed_per_cent"), f.desc("slow_per_cent"), "began_at_ms", "node_id")
    in_minute = changes.groupBy("began_at_ms").agg(f.sum("changes").alias("changes"))
    lookups = f.col("lookups")
    return (
        minutes.where("is_bad")
        .withColumns(
            {
                "failed_per_cent": 100 * f.col("errors") / lookups,
                "slow_per_cent": 100 * f.col("slow") / lookups,
            }
        )
        .join(in_minute, "began_at_ms", "left")
        .withColumn("rank", f.row_number().over(Window.orderBy(*order)))
    )


# Ownership ------------------------------------------------------------------------------------


def ownership_events(events: DataFrame) -> DataFrame:
    """Return every event of shards, with the columns of an ownership change.

    Columns: is_change, event_type, began_at_ms (of the minute of the decision, by the shard
    leader's clock), name, reason (both null unless ``is_change``).
    """
    assigned, unassigned = (f.col(name) for name in CHANGE_EVENTS)
    return events.select(
        f.col("event_type").isin(*CHANGE_EVENTS).alias("is_change"),
        "event_type",
        (f.unix_millis("time") - f.pmod(f.unix_millis("time"), f.lit(LOOKUP_WINDOW_MS))).alias(
            "began_at_ms"
        ),
        f.coalesce(assigned["name"], unassigned["name"]).alias("name"),
        f.coalesce(assigned["reason"], unassigned["reason"]).alias("reason"),
    )


def with_bad_minutes(events: DataFrame, minutes: DataFrame) -> DataFrame:
    """Add is_bad to ``ownership_events``: a change in a minute that was bad for any node.

    Every row of ``events`` is in the result once.
    """
    bad = minutes.where("is_bad").select("began_at_ms").distinct()
    joined = events.join(f.broadcast(bad.withColumn("_bad", f.lit(True))), "began_at_ms", "left")
    is_bad = f.col("is_change") & f.coalesce("_bad", f.lit(False))
    return joined.withColumn("is_bad", is_bad).drop("_bad")


def ownership_changes(events: DataFrame) -> DataFrame:
    """Return how often the ownership of each unit changed in bad minutes, by minute and reason.

    ``events`` is the result of ``with_bad_minutes``. Columns: ``CHANGE_COLUMNS``; name is the
    canonical name of the topic or partition.
    """
    keys = CHANGE_COLUMNS[:-1]
    return events.where("is_bad").groupBy(*keys).agg(f.count(f.lit(1)).alias("changes"))


def worst_topics(changes: DataFrame) -> DataFrame:
    """Return units by ownership changes in bad minutes, most first, then by name.

    Columns: name, changes, bad_minutes (different ones), reassigned (assigned for another reason
    than its first lookup), first_began_at_ms, last_began_at_ms.
    """
    by_minute = changes.groupBy("name", "began_at_ms").agg(
        f.sum("changes").alias("changes"),
        f.sum(f.when(_is_reassignment(), f.col("changes")).otherwise(0)).alias("reassigned"),
    )
    return (
        by_minute.groupBy("name")
        .agg(
            f.sum("changes").alias("changes"),
            f.count(f.lit(1)).alias("bad_minutes"),
            f.sum("reassigned").alias("reassigned"),
            f.min("began_at_ms").alias("first_began_at_ms"),
            f.max("began_at_ms").alias("last_began_at_ms"),
        )
        .orderBy(f.desc("changes"), "name")
    )


def change_reasons(changes: DataFrame) -> DataFrame:
    """Return event types and reasons of the changes in bad minutes, most frequent first."""
    return (
        changes.groupBy("event_type", "reason")
        .agg(f.sum("changes").alias("changes"))
        .orderBy(f.desc("changes"), "event_type", "reason")
    )


# Inside ---------------------------------------------------------------------------------------

_ROUNDING = 1e-9
"""Tolerance in minutes: 99.9 per cent is not a binary fraction."""

_MINUTE_KEYS = ("node_id", "began_at_ms")
_TOTALS = (
    "minutes",
    "bad_minutes",
    "availability_per_cent",
    "lookups",
    "errors",
    "too_slow",
    "p50_ms_at_most",
    "p99_ms_at_most",
    "latency_counts",
)


def _totals(minutes: DataFrame, *keys: str | Column) -> DataFrame:
    totals = added_up(minutes, *keys)
    share = 100 * (1 - f.col("bad_parts") / f.col("parts"))
    return totals.withColumns(
        {
            "minutes": f.col("parts"),
            "bad_minutes": f.col("bad_parts"),
            "availability_per_cent": share,
        }
    )


def _month(day: Column) -> Column:
    return f.date_format(day, "yyyy-MM")


def _calendar_minutes(day: Column) -> Column:
    return f.dayofmonth(f.last_day(day)) * MINUTES_OF_A_DAY


def _tolerated(objective_per_cent: float) -> float:
    """Return the part of minutes that may be bad."""
    assert 0 < objective_per_cent < 100, "a budget of nothing cannot be burned"
    return (100 - objective_per_cent) / 100


def _is_reassignment() -> Column:
    is_first = f.col("reason") == "first_lookup"
    return (f.col("event_type") == "topic_assigned") & ~is_first
