"""Compares the rebuilt tables with the objects of a live cluster. DataFrames only."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from pipelines.rebuild import tables

ASSIGNMENT = "assignment"
SCALABLE_TOPIC = "scalable_topic"

MISSING_LIVE = "the cluster does not have it"
MISSING_REBUILT = "the events do not give it"
DIFFERS = "it differs"

_STATE: dict[str, t.DataType] = {
    "object_id": t.StringType(),
    "parent_id": t.StringType(),
    "partitions": t.LongType(),
    "created_time_ms": t.LongType(),
    "properties": t.ArrayType(
        t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.StringType())])
    ),
    "version": t.LongType(),
    "life": t.StringType(),
    "policies": t.BinaryType(),
    "policies_version": t.LongType(),
    "name": t.StringType(),
    "epoch": t.LongType(),
    "broker_id": t.StringType(),
    "session_id": t.StringType(),
    "layout": tables.LAYOUT_STATE,
    "former_names": tables.FORMER_NAMES,
}
"""The compared columns. A column that a kind of object does not have is null on both sides."""

_KEY = ("kind", "shard_id", "key")


def differences(rebuilt: DataFrame, live: DataFrame) -> DataFrame:
    """Return one row for each object that differs: kind, shard_id, key, what, rebuilt, live.

    ``rebuilt`` and ``live`` are made by ``comparable_tables`` and ``comparable_live``. In a row
    they are the object's two states as JSON, null where it is missing.
    """
    ours = rebuilt.select(*_KEY, F.col("state").alias("ours"))
    theirs = live.select(*_KEY, F.col("state").alias("theirs"))
    joined = ours.join(theirs, list(_KEY), "full_outer")
    what = (
        F.when(F.col("theirs").isNull(), MISSING_LIVE)
        .when(F.col("ours").isNull(), MISSING_REBUILT)
        .otherwise(DIFFERS)
    )
    return joined.where(~F.col("ours").eqNullSafe(F.col("theirs"))).select(
        *_KEY,
        what.alias("what"),
        F.to_json("ours").alias("rebuilt"),
        F.to_json("theirs").alias("live"),
    )


def comparable_tables(folded: Mapping[str, DataFrame]) -> DataFrame:
    """Return the rows of rebuilt tables as ``differences`` takes them.

    Assignments without an owner are left out, because a cluster does not report them.
    """
    objects = [_objects(folded[table.name], table) for table in tables.OBJECT_TABLES]
    assigned = folded[tables.ASSIGNMENTS].where("broker_id != ''")
    return reduce(DataFrame.unionByName, [*objects, _assignments(assigned), _layouts(folded)])


def comparable_live(live: DataFrame) -> DataFrame:
    """Return the items of ``LIVE_SCHEMA`` as ``differences`` takes them."""
    is_assignment = F.col("kind") == ASSIGNMENT
    key = F.when(is_assignment, _unit_key(F.col("object_id"))).otherwise(F.col("name"))
    return live.select(
        "kind",
        "shard_id",
        key.alias("key"),
        _state({"properties": _entries(F.col("properties"))}, live.columns),
    )


def _objects(rows: DataFrame, table: tables.ObjectTable) -> DataFrame:
    held = {
        "object_id": F.col(f"{table.scope}_id"),
        "properties": _entries(F.col("properties")),
    }
    if table.parent:
        held["parent_id"] = F.col(f"{table.parent}_id")
    if "created_time" in rows.columns:
        held["created_time_ms"] = F.unix_millis("created_time")
    return rows.select(
        F.lit(table.scope).alias("kind"),
        "shard_id",
        F.col("name").alias("key"),
        _state(held, rows.columns),
    )


def _assignments(rows: DataFrame) -> DataFrame:
    return rows.select(
        F.lit(ASSIGNMENT).alias("kind"),
        "shard_id",
        _unit_key(F.col("topic_id")).alias("key"),
        _state({"object_id": F.col("topic_id")}, rows.columns),
    )


def _layouts(folded: Mapping[str, DataFrame]) -> DataFrame:
    """Return a row for each layout, with its segments and subscriptions."""
    rows = folded[tables.LAYOUTS]
    for name, key in ((tables.SEGMENTS, "segment_id"), (tables.SUBSCRIPTIONS, "subscription")):
        table = folded[name]
        of_layout = tables.LAYOUT_STATE[name].dataType
        assert isinstance(of_layout, t.ArrayType)
        assert isinstance(of_layout.elementType, t.StructType)
        assert of_layout.elementType.names[0] == key, "they are sorted by it"
        parts = table.groupBy("shard_id", "topic_id").agg(
            F.array_sort(F.collect_list(F.struct(*of_layout.elementType.names))).alias(name)
        )
        rows = rows.join(parts, ["shard_id", "topic_id"], "left").withColumn(
            name, F.coalesce(name, F.array().cast(of_layout))
        )
    layout = F.struct(
        *(F.col(field.name).cast(field.dataType) for field in tables.LAYOUT_STATE.fields)
    )
    return rows.select(
        F.lit(SCALABLE_TOPIC).alias("kind"),
        "shard_id",
        F.col("name").alias("key"),
        _state({"object_id": F.col("topic_id"), "layout": layout}, rows.columns),
    )


def _unit_key(topic_id: Column) -> Column:
    return F.concat_ws("/", topic_id, F.col("unit"))


def _entries(properties: Column) -> Column:
    """Return a map as sorted entries: Spark cannot compare maps, and their order is undefined."""
    return F.array_sort(F.map_entries(properties))


def _state(held: Mapping[str, Column], columns: list[str]) -> Column:
    fields = [
        held.get(name, F.col(name) if name in columns else F.lit(None)).cast(of_type).alias(name)
        for name, of_type in _STATE.items()
    ]
    return F.struct(*fields).alias("state")
