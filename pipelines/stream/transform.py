"""The folds of the stream: present counts and loads, and assignment changes by the minute.

Pure: DataFrame -> DataFrame. ``table_rows`` is the stateful one.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipelines.durations import MINUTE_MS
from pipelines.stream.source import SEEN

INVENTORY, BROKERS, CHANGES = "inventory", "brokers", "changes"

ROWS_SCHEMA = (
    "table string, shard_id int, broker_id string, minute timestamp, change string, "
    "reason string, is_late boolean, events long, position long, latest_event_time timestamp, "
    "assignment_events long, inventory_events long, broker_events long, tenants long, "
    "namespaces long, topics long, established_position long, ended_position long, units long, "
    "cpu_fraction double, memory_bytes long, messages_in_per_second double, "
    "messages_out_per_second double, bytes_in_per_second double, bytes_out_per_second double, "
    "connections long, load_time timestamp"
)
"""Columns of ``table_rows`` and of the files with its rows. Each table uses some of them."""

PART = "part"
"""Key of the rows written together: one table, or one day of assignment changes."""

_KEYS = ("table", "shard_id", "broker_id", "minute_end", "change", "reason", "is_late")

_MINUTE = "INTERVAL 1 MINUTE"

_KINDS = {"tenants": "tenant", "namespaces": "namespace", "topics": "topic"}
_LOAD = (
    "units",
    "cpu_fraction",
    "memory_bytes",
    "messages_in_per_second",
    "messages_out_per_second",
    "bytes_in_per_second",
    "bytes_out_per_second",
    "connections",
)
_MEASURES = ("position", "time", "event_type", *_LOAD)
_ASSIGNED, _UNASSIGNED = "topic_assigned", "topic_unassigned"


def table_rows(events: DataFrame, delay_ms: int) -> DataFrame:
    """Return the rows of all tables, by ``table``: one aggregation, so one state for the stream.

    The row of a shard or broker covers all events since position 1. The row of a minute, change,
    reason and lateness counts assignments, and its state is dropped after the delay. So the state
    grows with shards and brokers, not with topics or time. In update mode, the result has the rows
    that a batch changed.
    """
    kind_of = f.col("event_type")
    is_load = kind_of == "broker_load_reported"
    counts = [
        f.sum(_delta(f"{kind}_created", f"{kind}_deleted")).alias(name)
        for name, kind in _KINDS.items()
    ]
    # One column each: fixed-width buffers allow a hash aggregation, a struct would need a sort.
    reported = [f.max_by(name, _where(is_load)).alias(name) for name in _LOAD]
    # The end of a minute may be up to a minute later than the latest event; the watermark is not.
    keyed = _keyed(events, delay_ms).withWatermark(
        "minute_end", f"{delay_ms + MINUTE_MS} milliseconds"
    )
    return (
        keyed.groupBy(*_KEYS)
        .agg(
            f.count("*").alias("events"),
            f.max("position").alias("position"),
            f.max("time").alias("latest_event_time"),
            f.sum(_is_change(kind_of).cast("long")).alias("assignment_events"),
            f.sum(_is_inventory(kind_of).cast("long")).alias("inventory_events"),
            f.sum(f.col("is_of_broker").cast("long")).alias("broker_events"),
            *counts,
            f.max(_where(kind_of == "broker_session_established")).alias("established_position"),
            f.max(_where(kind_of == "broker_session_ended")).alias("ended_position"),
            *reported,
            f.max_by("time", _where(is_load)).alias("load_time"),
        )
        .withColumn("minute", f.col("minute_end") - f.expr(_MINUTE))
        .drop("minute_end")
    )


def _keyed(events: DataFrame, delay_ms: int) -> DataFrame:
    """Return each event once for its shard, and once more for its broker or for its minute.

    An event is late if its minute ended more than ``delay_ms`` before the latest event of the
    previous batches. Spark would drop it silently. So it is counted in the minute of that latest
    event, with ``is_late``, and no event is lost.

    Rows of shards and brokers have no time: they neither move the watermark nor lose their state
    to it.
    """
    is_change = _is_change(f.col("event_type"))
    is_of_broker = f.col("broker_id").isNotNull()
    further = f.when(is_change, CHANGES).when(is_of_broker, BROKERS)
    tables = f.array_compact(f.array(f.lit(INVENTORY), further))
    closed = f.col(SEEN) - f.expr(f"INTERVAL '{delay_ms / 1000:.3f}' SECOND")
    is_late = f.coalesce(_minute_end("time") <= closed, f.lit(False))
    assigned = f.col("event_type") == _ASSIGNED

    def only(table: str, column: Column) -> Column:
        return f.when(f.col("table") == table, column)

    return (
        events.withColumn("table", f.explode(tables))
        .withColumn("is_late", only(CHANGES, is_late))
        .select(
            "table",
            f.when(f.col("table") != CHANGES, f.col("shard_id")).alias("shard_id"),
            only(BROKERS, f.col("broker_id")).alias("broker_id"),
            only(
                CHANGES,
                f.when(f.col("is_late"), _minute_end(SEEN)).otherwise(_minute_end("time")),
            ).alias("minute_end"),
            only(CHANGES, f.when(assigned, "assigned").otherwise("unassigned")).alias("change"),
            only(CHANGES, f.coalesce("reason", f.lit(""))).alias("reason"),
            "is_late",
            is_of_broker.alias("is_of_broker"),
            *_MEASURES,
        )
    )


def merged(before: DataFrame, changed: DataFrame) -> DataFrame:
    """Return ``before`` with the changed rows applied, with ``PART``, ordered by it and the keys.

    The number of events in a row only grows: of two rows with the same keys, the one with more
    events is the later. Rows are few, so one task merges them without a shuffle.
    """
    keys = [name if name != "minute_end" else "minute" for name in _KEYS]
    others = [f"max_by({name}, events) AS {name}" for name in before.columns if name not in keys]
    both = before.unionByName(changed).coalesce(1).groupBy(*keys).agg(*map(f.expr, others))
    day = "concat(table, '-', date_format(minute, 'yyyy-MM-dd'))"
    part = f.expr(f"if(table = '{CHANGES}', {day}, table)")
    return both.withColumn(PART, part).orderBy(PART, *keys).select(*before.columns, PART)


def inventory(rows: DataFrame) -> DataFrame:
    """Return a row per shard of ``table_rows``: events, last position, and numbers of objects.

    Columns: shard_id, events, position, latest_event_time, tenants, namespaces, topics,
    inventory_events, assignment_events, broker_events.
    """
    return rows.where(f"table = '{INVENTORY}'").select(
        "shard_id",
        "events",
        "position",
        "latest_event_time",
        *_KINDS,
        "inventory_events",
        "assignment_events",
        "broker_events",
    )


def brokers(rows: DataFrame) -> DataFrame:
    """Return a row per broker of ``table_rows``: whether it has a session, and its last report.

    Columns: broker_id, shard_id, is_live, and those of the load report, which are null for a broker
    without one. ``load_time`` is the leader's clock when the report was recorded.
    """
    is_live = "coalesce(established_position, 0) > coalesce(ended_position, 0) AS is_live"
    columns = ("broker_id", "shard_id", is_live, *_LOAD, "load_time")
    return rows.where(f"table = '{BROKERS}'").selectExpr(*columns)


def changes(rows: DataFrame) -> DataFrame:
    """Return counts of ``table_rows`` by minute, change, reason and lateness."""
    return rows.where(f"table = '{CHANGES}'").select(
        "minute", "change", "reason", "is_late", "events"
    )


def _minute_end(time: str) -> Column:
    return f.date_trunc("minute", f.col(time)) + f.expr(_MINUTE)


def _delta(created: str, deleted: str) -> Column:
    kind_of = f.col("event_type")
    return f.when(kind_of == created, 1).when(kind_of == deleted, -1).otherwise(0)


def _where(condition: Column) -> Column:
    return f.when(condition, f.col("position"))


def _is_change(kind_of: Column) -> Column:
    return kind_of.isin(_ASSIGNED, _UNASSIGNED)


def _is_inventory(kind_of: Column) -> Column:
    whats = "created|deleted|properties_set|renamed|deletion_.*"
    return kind_of.rlike(f"^(tenant|namespace|topic)_({whats})$")
