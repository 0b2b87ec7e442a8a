"""Load reports become hourly series of brokers, units, namespaces and tenants.

The source is the event ``broker_load_reported``: totals of a broker, and its busiest units. A unit
is seen while it is among the busiest of its broker; of the others only the sum is known.
Windows are by the event's ``time``, the leader's clock, because those of brokers differ.

| column of a series | what it is |
|---|---|
| `level`, `name` | broker, topic (canonical name, its units added up), namespace or tenant |
| `hour` | beginning of the hour, UTC |
| `samples` | reports about it in that hour |
| `bytes_per_second` | in and out, mean of the hour |
| `units` | mean of the hour; null but for brokers |
| `cpu_fraction`, `memory_bytes` | mean and most of the hour; null but for brokers |
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pipelines.columns.name_parts import namespace_of, tenant_of, topic_of
from pipelines.durations import MINUTE_MS
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID

REPORTED = "broker_load_reported"
GRANTED = "capacity_granted"
ESTABLISHED = "broker_session_established"
ENDED = "broker_session_ended"

USED_TYPES = (REPORTED, GRANTED, ESTABLISHED, ENDED)
"""The event types that this job uses. All others are only counted."""

BROKER, TOPIC, NAMESPACE, TENANT = "broker", "topic", "namespace", "tenant"

SKEW_OF_CLOCKS_MAX_MS = 5 * MINUTE_MS
"""Difference of a broker's clock from the leader's above which a report counts as skewed."""

PERCENTILES = (0.5, 0.95, 0.99)

_SECONDS_PER_DAY = 86_400.0


def used_events(events: DataFrame) -> DataFrame:
    """Return the events that load is computed from, with the columns that this job needs."""
    return events.where(f.col("event_type").isin(*USED_TYPES)).select(
        "shard_id", "position", "time", "event_type", *USED_TYPES
    )


def reports(used: DataFrame) -> DataFrame:
    """Return one row per load report: broker_id, time, hour, its figures, busiest, is_skewed."""
    load = f.col(f"{REPORTED}.load")
    skew_ms = f.abs(load["measured_at_ms"] - f.unix_millis("time"))
    return used.where(f.col("event_type") == REPORTED).select(
        "shard_id",
        "position",
        f.col(f"{REPORTED}.broker_id").alias("broker_id"),
        "time",
        f.date_trunc("hour", "time").alias("hour"),
        load["topics"].alias("units"),
        (load["bytes_in_per_second"] + load["bytes_out_per_second"]).alias("bytes_per_second"),
        load["cpu_fraction"].alias("cpu_fraction"),
        load["memory_bytes"].alias("memory_bytes"),
        load["busiest"].alias("busiest"),
        ((load["measured_at_ms"] > 0) & (skew_ms > SKEW_OF_CLOCKS_MAX_MS)).alias("is_skewed"),
    )


def broker_series(reports: DataFrame) -> DataFrame:
    """Return the hourly series of brokers."""
    return reports.groupBy(f.col("broker_id").alias("name"), "hour").agg(
        f.lit(BROKER).alias("level"),
        f.count("*").alias("samples"),
        f.avg("bytes_per_second").alias("bytes_per_second"),
        f.avg("units").alias("units"),
        f.avg("cpu_fraction").alias("cpu_fraction"),
        f.max("memory_bytes").alias("memory_bytes"),
    )


def topic_series(reports: DataFrame) -> DataFrame:
    """Return the hourly series of topics that were among the busiest.

    Partitions and segments of a topic add up.
    """
    seen = reports.select("hour", f.explode("busiest").alias("unit")).select(
        "hour",
        f.col("unit.name").alias("unit_name"),
        topic_of(f.col("unit.name"), f.col("unit.unit")).alias("name"),
        (f.col("unit.bytes_in_per_second") + f.col("unit.bytes_out_per_second")).alias("bytes"),
    )
    # The mean of a unit first, then the sum over a topic's units: brokers report at other times.
    by_unit = seen.groupBy("name", "unit_name", "hour").agg(
        f.avg("bytes").alias("bytes"), f.count("*").alias("samples")
    )
    return _summed(by_unit, f.col("name"), TOPIC)


def parent_series(topics: DataFrame, level: str) -> DataFrame:
    """Return the hourly series of namespaces or tenants: sums of their topics that were seen."""
    parent_of = namespace_of if level == NAMESPACE else tenant_of
    renamed = topics.withColumnRenamed("bytes_per_second", "bytes")
    return _summed(renamed, parent_of(f.col("name")), level)


def statistics(series: DataFrame) -> DataFrame:
    """Return one row per level and name: hours, mean, p50, p95, p99, max, growth_per_day.

    ``growth_per_day`` is the slope of the straight line through the hourly values, as a part of
    their mean; null below two hours. Figures are bytes a second.
    """
    value, days = f.col("bytes_per_second"), _days("hour")
    ranks = f.percentile(value, f.array(*map(f.lit, PERCENTILES)))
    found = series.groupBy("level", "name").agg(
        f.count("*").alias("hours"),
        f.sum("samples").alias("samples"),
        f.avg(value).alias("mean"),
        ranks.alias("ranks"),
        f.max(value).alias("max"),
        f.regr_slope(value, days).alias("slope"),
        f.max("units").alias("units_max"),
        f.max("cpu_fraction").alias("cpu_fraction_max"),
        f.max("memory_bytes").alias("memory_bytes_max"),
    )
    growth = f.when(f.col("mean") > 0, f.col("slope") / f.col("mean"))
    named = [
        f.element_at("ranks", place).alias(f"p{round(100 * rank)}")
        for place, rank in enumerate(PERCENTILES, start=1)
    ]
    return found.select(
        "level",
        "name",
        "hours",
        "samples",
        "mean",
        *named,
        "max",
        growth.alias("growth_per_day"),
        "units_max",
        "cpu_fraction_max",
        "memory_bytes_max",
    )


def daily_shape(brokers: DataFrame) -> DataFrame:
    """Return hour_of_day and relative: the cluster's load in that hour, by the mean of all."""
    cluster = cluster_series(brokers)
    by_hour = cluster.groupBy(f.hour("hour").alias("hour_of_day")).agg(
        f.avg("bytes_per_second").alias("mean"), f.count("*").alias("hours")
    )
    # These are 24 rows: one window over all of them is cheap.
    whole = Window.partitionBy()
    overall = f.sum(f.col("mean") * f.col("hours")).over(whole) / f.sum("hours").over(whole)
    return by_hour.withColumn("overall", overall).select(
        "hour_of_day",
        "hours",
        f.when(f.col("overall") > 0, f.col("mean") / f.col("overall")).alias("relative"),
    )


def cluster_series(brokers: DataFrame) -> DataFrame:
    """Return hour, brokers, bytes_per_second, units: sums over the brokers that reported then."""
    return brokers.groupBy("hour").agg(
        f.count("*").alias("brokers"),
        f.sum("bytes_per_second").alias("bytes_per_second"),
        f.sum("units").alias("units"),
    )


def skew(statistics: DataFrame) -> DataFrame:
    """Return per level: names, mean, most, max_over_mean, variation (deviation by mean)."""
    return statistics.groupBy("level").agg(
        f.count("*").alias("names"),
        f.avg("mean").alias("mean"),
        f.max("mean").alias("most"),
        f.when(f.avg("mean") > 0, f.max("mean") / f.avg("mean")).alias("max_over_mean"),
        f.when(f.avg("mean") > 0, f.stddev_pop("mean") / f.avg("mean")).alias("variation"),
    )


def shard_activity(events: DataFrame) -> DataFrame:
    """Return per shard, without shard 0: events, topics_created, assignments."""
    kinds = events.where(f.col("shard_id") != CLUSTER_MANAGER_SHARD_ID).groupBy("shard_id")
    created = f.count_if(f.col("event_type") == "topic_created")
    assigned = f.count_if(f.col("event_type") == "topic_assigned")
    return kinds.agg(
        f.count("*").alias("events"),
        created.alias("topics_created"),
        assigned.alias("assignments"),
    )


def capacity(used: DataFrame) -> DataFrame:
    """Return broker_id and units granted of each broker whose latest session lives.

    A broker's sessions are events of one shard, so they are folded by position. The cluster
    manager's own log repeats the grants, but its positions are not comparable with the shard's.
    """
    of_shards = f.col("shard_id") != CLUSTER_MANAGER_SHARD_ID
    session_events = used.where(of_shards & (f.col("event_type") != REPORTED)).select(
        "position",
        "event_type",
        _either("broker_id").alias("broker_id"),
        _either("session_id").alias("session_id"),
        f.col(f"{GRANTED}.units").alias("units"),
    )
    changes = session_events.where(f.col("event_type").isin(ESTABLISHED, ENDED))
    latest = changes.groupBy("broker_id").agg(
        f.max_by(f.struct("session_id", "event_type"), "position").alias("last")
    )
    live = latest.where(f.col("last.event_type") == ESTABLISHED).select(
        "broker_id", f.col("last.session_id").alias("session_id")
    )
    granted = (
        session_events.where(f.col("event_type") == GRANTED)
        .groupBy("broker_id", "session_id")
        .agg(f.max_by("units", "position").alias("units"))
    )
    return live.join(granted, ["broker_id", "session_id"], "left").select(
        "broker_id", f.coalesce("units", f.lit(0)).alias("units")
    )


def forecast(brokers: DataFrame, capacity: DataFrame) -> DataFrame:
    """Return when the straight line through the units of each broker meets its capacity.

    Columns: scope (a broker's id, ``cluster``, or ``cluster, largest broker lost``), units_now (the
    line's value at the last hour), units_per_day, fit (r squared), capacity_units, days_left (0 if
    the line is there already, null if it never gets there).
    """
    of_broker = brokers.select(f.col("name").alias("scope"), "hour", "units")
    whole = f.explode(f.array(f.lit("cluster"), f.lit("cluster, largest broker lost")))
    of_cluster = cluster_series(brokers).select(whole.alias("scope"), "hour", "units")
    lines = (
        of_broker.unionByName(of_cluster)
        .groupBy("scope")
        .agg(
            f.regr_slope("units", _days("hour")).alias("units_per_day"),
            f.regr_intercept("units", _days("hour")).alias("intercept"),
            f.regr_r2("units", _days("hour")).alias("fit"),
            f.max(_days("hour")).alias("last_day"),
            f.count("*").alias("hours"),
        )
    )
    total, most = f.sum("units"), f.max("units")
    sums = capacity.agg(
        f.array(
            f.struct(f.lit("cluster").alias("scope"), total.alias("units")),
            f.struct(
                f.lit("cluster, largest broker lost").alias("scope"), (total - most).alias("units")
            ),
        ).alias("sums")
    ).select(f.inline("sums"))
    limits = capacity.select(f.col("broker_id").alias("scope"), "units").unionByName(sums)
    now = f.col("intercept") + f.col("units_per_day") * f.col("last_day")
    room = f.col("units") - f.col("units_now")
    left = f.when(room <= 0, f.lit(0.0)).when(
        f.col("units_per_day") > 0, room / f.col("units_per_day")
    )
    return (
        lines.join(f.broadcast(limits), "scope")
        .withColumn("units_now", now)
        .select(
            "scope",
            "hours",
            "units_now",
            "units_per_day",
            "fit",
            f.col("units").alias("capacity_units"),
            left.alias("days_left"),
        )
    )


def _summed(by_unit: DataFrame, name: Column, level: str) -> DataFrame:
    none = f.lit(None)
    return by_unit.groupBy(name.alias("name"), "hour").agg(
        f.lit(level).alias("level"),
        f.sum("samples").alias("samples"),
        f.sum("bytes").alias("bytes_per_second"),
        f.max(none.cast("double")).alias("units"),
        f.max(none.cast("double")).alias("cpu_fraction"),
        f.max(none.cast("long")).alias("memory_bytes"),
    )


def _days(hour: str) -> Column:
    return f.unix_timestamp(f.col(hour)) / f.lit(_SECONDS_PER_DAY)


def _either(field: str) -> Column:
    return f.coalesce(*(f.col(f"{kind}.{field}") for kind in (GRANTED, ESTABLISHED, ENDED)))
