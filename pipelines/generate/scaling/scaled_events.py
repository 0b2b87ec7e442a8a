"""Narrow events of scalable topics that grow and shrink by themselves, drawn topic by topic.

The decision is a function of Python, so topics go through Python, in Arrow batches (ADR 0142).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from pipelines.generate.inventory import is_scalable
from pipelines.generate.narrow import RANKS, narrow
from pipelines.generate.scaling.topic_history import TopicLife, history_of
from pipelines.generate.world import STARTS_MS, World

SCALED_TYPES = (
    "scalable_topic_created",
    "scalable_topic_deleted",
    "scalable_subscription_created",
    "scalable_subscription_ready",
    "scalable_consumer_registered",
    "scalable_consumer_left",
    "segment_loads_recorded",
    "auto_scale_decided",
    "layout_change_planned",
    "segment_children_ready",
    "segment_sealed",
    "layout_changed",
    "segment_drained",
    "segment_storage_removed",
    "policy_set",
)
"""Event types of which ``payload`` has the whole payload."""

_TOLD = "array<struct<at_ms:bigint,kind:string,payload:string>>"
_FIELDS = [("at_ms", pa.int64()), ("kind", pa.string()), ("payload", pa.string())]
_ARROW = pa.list_(pa.struct(_FIELDS))

_TOPICS_PER_TASK = 250


def scaled_events(topics: DataFrame, world: World) -> DataFrame:
    """Return the narrow events of all scalable topics; ``payload`` is theirs as JSON."""
    seed, starts_ms = world.seed, STARTS_MS

    def told(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        for columns in batches:
            lives = zip(*(column.to_pylist() for column in columns), strict=True)
            yield pa.array([history_of(seed, TopicLife(*life)) for life in lives], _ARROW)

    def at(time_ms: Column) -> Column:
        return time_ms + f.lit(starts_ms)

    chosen = topics.where(is_scalable(f.col("name"))).select(
        "topic_no",
        "shard_id",
        "name",
        "object_id",
        at(f.col("created_ms")).alias("began_ms"),
        at(f.coalesce("deleted_ms", f.lit(world.length_ms))).alias("ends_ms"),
        at(f.col("deleted_ms")).alias("gone_ms"),
    )
    tasks = max(2, world.topics // _TOPICS_PER_TASK)
    arguments = ("topic_no", "name", "object_id", "began_ms", "ends_ms", "gone_ms")
    drawn = f.arrow_udf(told, _TOLD).asNondeterministic()(*arguments)
    happened = chosen.repartition(tasks, "topic_no").withColumn("told", drawn)
    each = happened.select("*", f.posexplode("told").alias("seq", "happened"))
    kind = f.col("happened.kind")
    last = f.lit(RANKS["scalable_topic_deleted"])
    # One rank for all of them: their order within a millisecond is that of the topic.
    rank = f.when(kind == "scalable_topic_deleted", last).otherwise(RANKS["layout_changed"])
    return narrow(
        each,
        event_type=kind,
        rank=rank,
        shard_id="shard_id",
        time_ms=f.col("happened.at_ms") - f.lit(starts_ms),
        object="topic_no",
        seq="seq",
        name="name",
        id="object_id",
        payload="happened.payload",
    )


def payload_in(type_: t.StructType) -> Column:
    """Return the payload of a scaled topic's event, null for all others."""
    return f.from_json("payload", type_)
