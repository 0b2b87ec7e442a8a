"""The steps of a generated history, as DataFrames.

    world -> objects and lives -> narrow events -> positions -> events, in the columns of exports

All randomness follows from the seed and the numbers of objects (``pipelines.generate.chance``), so
a step that runs again gives the same result.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from pipelines.durations import DAY_MS
from pipelines.generate.broker_events import session_events
from pipelines.generate.cluster_events import first_events, lookup_windows
from pipelines.generate.inventory_events import inventory_events
from pipelines.generate.layout_events import layout_events
from pipelines.generate.lives import UNASSIGNED
from pipelines.generate.narrow import ORDER, narrow, together
from pipelines.generate.scaling.scaled_events import scaled_events
from pipelines.generate.world import STARTS_MS, World


@dataclass(frozen=True, slots=True)
class Cast:
    """The objects of a history, each the result of the function of its name. The job keeps them on
    disk, because all are used several times."""

    tenants: DataFrame
    namespaces: DataFrame
    topics: DataFrame
    brokers: DataFrame
    sessions: DataFrame
    lives: DataFrame
    reports: DataFrame


def narrow_events(spark: SparkSession, cast: Cast, world: World) -> DataFrame:
    """Return all narrow events of the history, with file_shard and file_day (since 1970)."""
    every = together(
        [
            first_events(spark, world),
            session_events(cast.brokers, cast.sessions, world),
            inventory_events(cast.tenants, cast.namespaces, cast.topics, world),
            _layouts(cast.topics, world),
            unit_events(cast.lives),
            cast.reports,
            lookup_windows(spark, world),
        ]
    )
    return every.withColumns({"file_shard": f.col("shard_id"), "file_day": _day()})


def _layouts(topics: DataFrame, world: World) -> DataFrame:
    return (scaled_events if world.auto_scaled_percent else layout_events)(topics, world)


def unit_events(lives: DataFrame) -> DataFrame:
    """Return the narrow events of ``pipelines.generate.lives.assignments``."""
    # An unassignment has the epoch that it ends, and comes before the next assignment.
    seq = f.col("epoch") * 2 + (f.col("event_type") == UNASSIGNED).cast("long")
    return narrow(
        lives,
        event_type=f.col("event_type"),
        shard_id="shard_id",
        time_ms="time_ms",
        object="topic_no",
        part="part",
        seq=seq,
        name="name",
        id="object_id",
        detail=f.col("reason"),
        number="epoch",
        broker="broker",
        session="session",
    )


def events_before_days(narrow: DataFrame) -> DataFrame:
    """Return file_shard, file_day, rows, and before: the shard's events of earlier days."""
    earlier = (
        Window.partitionBy("file_shard")
        .orderBy("file_day")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    rows = narrow.groupBy("file_shard", "file_day").agg(f.count("*").alias("rows"))
    before = f.coalesce(f.sum("rows").over(earlier), f.lit(0))
    return rows.withColumn("before", before)


def numbered(narrow: DataFrame, before_days: DataFrame) -> DataFrame:
    """Return the narrow events with ``position``: dense from 1 in each shard, in their order.

    The rows of one file are together, in the order of their positions. They are partitioned by the
    columns of files, so that Spark need not sort them again to write them.
    """
    in_order = Window.partitionBy("file_shard", "file_day").orderBy(*ORDER)
    placed = narrow.withColumn("place", f.row_number().over(in_order))
    before = f.broadcast(before_days.select("file_shard", "file_day", "before"))
    return placed.join(before, ["file_shard", "file_day"]).withColumn(
        "position", (f.col("before") + f.col("place")).cast("long")
    )


def _day() -> Column:
    return f.floor((f.col("time_ms") + STARTS_MS) / DAY_MS).cast("int")
