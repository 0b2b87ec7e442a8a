"""What a stream of events is folded into: counts and loads as they are, changes by the minute.

Pure: DataFrame -> DataFrame. ``current_state`` and ``assignment_changes`` are the stateful ones.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipelines.stream.source import SEEN

MINUTE = "1 minute"

_KINDS = {"tenants": "tenant", "namespaces": "namespace", "topics": "topic"}
_BROKER_EVENTS = (
    "broker_session_established",
    "broker_session_ended",
    "broker_drain_set",
    "broker_load_reported",
)
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
_CHANGES = {"topic_assigned": "assigned", "topic_unassigned": "unassigned"}


def current_state(events: DataFrame) -> DataFrame:
    """Return one row per shard, and one for each broker of it: everything since position 1.

    Rows of brokers have ``broker_id``, and what was said of the broker at the highest position.
    The state grows with shards and brokers, not with topics or time.
    """
    kind_of = f.col("event_type")
    is_load = kind_of == "broker_load_reported"
    counts = [
        f.sum(_delta(f"{kind}_created", f"{kind}_deleted")).alias(name)
        for name, kind in _KINDS.items()
    ]
    # One by one: fixed-width buffers keep this a hash aggregation, a struct would make it a sort.
    reported = [f.max_by(name, _where(is_load)).alias(name) for name in _LOAD]
    return events.groupBy("shard_id", "broker_id").agg(
        f.count("*").alias("events"),
        f.max("position").alias("position"),
        f.max("time").alias("latest_event_time"),
        f.sum(kind_of.isin(*_CHANGES).cast("long")).alias("assignment_events"),
        f.sum(_is_inventory(kind_of).cast("long")).alias("inventory_events"),
        *counts,
        f.max(_where(kind_of == "broker_session_established")).alias("established_position"),
        f.max(_where(kind_of == "broker_session_ended")).alias("ended_position"),
        *reported,
        f.max_by("time", _where(is_load)).alias("load_time"),
    )


def inventory(state: DataFrame) -> DataFrame:
    """Return a row per shard: events, position reached, and what is there, counted.

    Columns: shard_id, events, position, latest_event_time, tenants, namespaces, topics,
    inventory_events, assignment_events, broker_events. Ordered by shard.
    """
    is_broker = f.col("broker_id").isNotNull()
    summed = ("tenants", "namespaces", "topics", "inventory_events", "assignment_events")
    return (
        state.groupBy("shard_id")
        .agg(
            f.sum("events").alias("events"),
            f.max("position").alias("position"),
            f.max("latest_event_time").alias("latest_event_time"),
            *(f.sum(name).alias(name) for name in summed),
            f.sum(f.when(is_broker, f.col("events")).otherwise(0)).alias("broker_events"),
        )
        .orderBy("shard_id")
    )


def brokers(state: DataFrame) -> DataFrame:
    """Return a row per broker: has it a session, and what it reported last. Ordered by broker.

    Columns: broker_id, shard_id, is_live, and those of the load report; ``load_time`` is the
    leader's clock when it was recorded. Null for a broker that has reported nothing.
    """
    established = f.coalesce("established_position", f.lit(0))
    ended = f.coalesce("ended_position", f.lit(0))
    return (
        state.where("broker_id is not null")
        .select(
            "broker_id",
            "shard_id",
            (established > ended).alias("is_live"),
            *_LOAD,
            "load_time",
        )
        .orderBy("broker_id")
    )


def assignment_changes(events: DataFrame, delay_ms: int) -> DataFrame:
    """Return counts by minute, change, reason and lateness; a minute's state ends with the delay.

    An event is late if its minute had ended ``delay_ms`` before the latest event of the batches
    before. Spark would drop it without a word. It is counted in the minute of that latest event,
    with ``is_late``: so the counts are those of all events, and none is lost.
    """
    delay = f"{delay_ms} milliseconds"
    minute_end = f.date_trunc("minute", f.col("time")) + f.expr(f"INTERVAL {MINUTE}")
    closed = f.col(SEEN) - f.expr(f"INTERVAL '{delay_ms / 1000:.3f}' SECOND")
    is_late = f.coalesce(minute_end <= closed, f.lit(False))
    change = f.when(f.col("event_type") == "topic_assigned", "assigned").otherwise("unassigned")
    changes = events.where(f.col("event_type").isin(*_CHANGES)).select(
        change.alias("change"),
        f.coalesce("reason", f.lit("")).alias("reason"),
        is_late.alias("is_late"),
        f.when(is_late, f.col(SEEN)).otherwise(f.col("time")).alias("counted_at"),
    )
    counted = changes.withWatermark("counted_at", delay).groupBy(
        f.window("counted_at", MINUTE), "change", "reason", "is_late"
    )
    return counted.agg(f.count("*").alias("events")).select(
        f.col("window.start").alias("minute"), "change", "reason", "is_late", "events"
    )


def merged_changes(before: DataFrame, changed: DataFrame) -> DataFrame:
    """Return ``before`` with the rows that changed. Counts of a minute only grow."""
    keys = ("minute", "change", "reason", "is_late")
    return before.unionByName(changed).groupBy(*keys).agg(f.max("events").alias("events"))


def with_date(changes: DataFrame) -> DataFrame:
    """Return the rows with the UTC day of their minute, as folders of the table are named."""
    return changes.withColumn("date", f.date_format("minute", "yyyy-MM-dd"))


def _delta(created: str, deleted: str) -> Column:
    kind_of = f.col("event_type")
    return f.when(kind_of == created, 1).when(kind_of == deleted, -1).otherwise(0)


def _where(condition: Column) -> Column:
    return f.when(condition, f.col("position"))


def _is_inventory(kind_of: Column) -> Column:
    return kind_of.rlike("^(tenant|namespace|topic)_(created|deleted|properties_set|deletion_.*)$")
