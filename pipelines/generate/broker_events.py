"""Narrow events of brokers: sessions, capacity and load reports."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pipelines.durations import MINUTE_MS, SECOND_MS
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID
from pipelines.generate.chance import below, fraction
from pipelines.generate.clock import is_out, returns_before, traffic_at
from pipelines.generate.lives import ASSIGNED, outages
from pipelines.generate.narrow import narrow, together
from pipelines.generate.world import World

REPORT_MS = 10 * MINUTE_MS
"""Between two load reports of a broker."""

BUSIEST_MAX = 10
"""Units that a load report names."""

HOT_UNITS_PER_BROKER = 12
"""Mean number of units with enough traffic to be named in a report."""

TRAFFIC_TOP = 4_000_000
"""Bytes a second of the busiest unit, without the daily shape. The unit of rank k has 1 / k^0.8 of
it."""

_FIRST_SESSIONS_MS = MINUTE_MS

_OF_SESSION: dict[str, Column | str | int] = {
    "object": "broker",
    "broker": "broker",
    "session": "session",
    "name": "broker_id",
}
"""Columns of every event of a session."""


def session_events(home: DataFrame, sessions: DataFrame, world: World) -> DataFrame:
    """Return the events of sessions, in the broker's home shard and in the cluster manager's log.

    The manager's log has each change as ``broker_recorded``, the granted capacity, and a lease of
    the broker for each shard.
    """
    over = outages(home.sparkSession, world).withColumn("returns", f.col("outage"))
    first = home.select(
        "broker",
        "broker_id",
        "shard_id",
        f.lit(1).alias("session"),
        (f.lit(_FIRST_SESSIONS_MS) + f.col("broker") * 7).cast("long").alias("established_ms"),
    )
    numbered = over.join(sessions, ["returns", "broker"]).join(f.broadcast(home), "broker")
    later = numbered.select(
        "broker",
        "broker_id",
        "shard_id",
        (f.col("session") + 1).alias("session"),
        f.col("returned_ms").alias("established_ms"),
    )
    ended = numbered.select(
        "broker", "broker_id", "shard_id", "session", "out_began_ms", "out_ended_ms", "is_death"
    )
    return together([*_established(first.unionByName(later), world), *_ended(ended, world)])


def _established(sessions: DataFrame, world: World) -> list[DataFrame]:
    at = f.col("established_ms")
    return [
        narrow(
            sessions,
            event_type="broker_session_established",
            shard_id="shard_id",
            time_ms=at,
            **_OF_SESSION,
        ),
        narrow(
            sessions,
            event_type="capacity_granted",
            shard_id="shard_id",
            time_ms=at + 15,
            **_OF_SESSION,
        ),
        narrow(
            sessions,
            event_type="broker_recorded",
            shard_id=CLUSTER_MANAGER_SHARD_ID,
            time_ms=at + 30,
            number=1,
            **_OF_SESSION,
        ),
        narrow(
            sessions,
            event_type="capacity_granted",
            shard_id=CLUSTER_MANAGER_SHARD_ID,
            time_ms=at + 45,
            **_OF_SESSION,
        ),
        narrow(
            _leases(sessions, world),
            event_type="capacity_leased",
            shard_id=CLUSTER_MANAGER_SHARD_ID,
            time_ms=at + 500,
            seq="lease",
            number="lease",
            **_OF_SESSION,
        ),
    ]


def _ended(sessions: DataFrame, world: World) -> list[DataFrame]:
    at = f.col("out_ended_ms")
    expired = f.when(f.col("session") % 2 == 0, "disconnected").otherwise("expired")
    return [
        narrow(
            sessions,
            event_type="broker_session_ended",
            shard_id="shard_id",
            time_ms=at,
            detail=f.when(f.col("is_death"), expired).otherwise("closed"),
            **_OF_SESSION,
        ),
        narrow(
            sessions.where(~f.col("is_death")),
            event_type="broker_drain_set",
            shard_id="shard_id",
            time_ms="out_began_ms",
            number=1,
            **_OF_SESSION,
        ),
        narrow(
            sessions,
            event_type="broker_recorded",
            shard_id=CLUSTER_MANAGER_SHARD_ID,
            time_ms=at + 20,
            number=0,
            **_OF_SESSION,
        ),
        narrow(
            _leases(sessions, world),
            event_type="capacity_lease_released",
            shard_id=CLUSTER_MANAGER_SHARD_ID,
            time_ms=at + 40,
            seq="lease",
            number="lease",
            detail="session_ended",
            **_OF_SESSION,
        ),
    ]


def _leases(sessions: DataFrame, world: World) -> DataFrame:
    """Return a row for each session and shard: ``lease`` is the shard's id."""
    return sessions.withColumn("lease", f.explode(f.sequence(f.lit(1), f.lit(world.shards))))


def unit_rate(world: World, topic: Column, part: Column) -> Column:
    """Return bytes a second of a unit, without the daily shape: few units have most (Zipf)."""
    rank = f.floor(fraction(world, "traffic", topic, part) * world.topics) + 1
    return f.floor(f.lit(TRAFFIC_TOP) / f.pow(rank, f.lit(0.8))).cast("long")


def load_reports(home: DataFrame, sessions: DataFrame, lives: DataFrame, world: World) -> DataFrame:
    """Return load reports: units and rates are sums over the broker's units in the log."""
    ticks = home.withColumn(
        "tick", f.explode(f.sequence(f.lit(0), f.lit(world.length_ms // REPORT_MS - 2)))
    )
    measured = (f.col("tick") + 1).cast("long") * REPORT_MS
    offset = below(world, 30 * SECOND_MS, "report", f.col("broker"))
    ticks = ticks.withColumn("measured_ms", measured).withColumn("time_ms", measured + offset)
    # A broker that is out, when a load is measured or recorded, reports nothing.
    live = ~is_out(world, f.col("broker"), f.col("measured_ms")) & ~is_out(
        world, f.col("broker"), f.col("time_ms")
    )
    sums = _sums(ticks, lives, world)
    reports = (
        ticks.where(live)
        .join(sums, ["broker", "tick"])
        .join(_busiest(lives, world), ["broker", "tick"], "left")
        .withColumn("returns", returns_before(world, f.col("time_ms")))
        .join(f.broadcast(sessions), ["returns", "broker"])
    )
    factor = traffic_at(world, f.col("measured_ms"))
    return narrow(
        reports,
        event_type="broker_load_reported",
        shard_id="shard_id",
        time_ms="time_ms",
        object="broker",
        broker="broker",
        session="session",
        name="broker_id",
        number="units",
        rate=f.floor(f.col("bytes") * factor).cast("long"),
        seq="measured_ms",
        busiest=f.transform(
            f.col("busiest"),
            lambda one: f.struct(
                f.floor(one["rate"] * factor).cast("long").alias("rate"), one["name"], one["unit"]
            ),
        ),
    )


def _sums(ticks: DataFrame, lives: DataFrame, world: World) -> DataFrame:
    """Return units and bytes of each broker at the end of each tick."""
    tick = f.floor(f.col("time_ms") / REPORT_MS).cast("int")
    rate = unit_rate(world, f.col("topic_no"), f.col("part"))
    gained = f.when(f.col("event_type") == ASSIGNED, f.col("broker"))
    changes = lives.select(
        tick.alias("tick"),
        rate.alias("rate"),
        f.inline(
            f.array(
                f.struct(gained.alias("of"), f.lit(1).alias("change")),
                f.struct(f.col("previous_broker").alias("of"), f.lit(-1).alias("change")),
            )
        ),
    ).where(f.col("of").isNotNull())
    by_tick = changes.groupBy(f.col("of").alias("broker"), "tick").agg(
        f.sum("change").alias("unit_change"),
        f.sum(f.col("change") * f.col("rate")).alias("byte_change"),
    )
    so_far = (
        Window.partitionBy("broker")
        .orderBy("tick")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    every = ticks.select("broker", "tick").join(by_tick, ["broker", "tick"], "left")
    return every.select(
        "broker",
        "tick",
        f.coalesce(f.sum("unit_change").over(so_far), f.lit(0)).alias("units"),
        f.coalesce(f.sum("byte_change").over(so_far), f.lit(0)).alias("bytes"),
    )


def _busiest(lives: DataFrame, world: World) -> DataFrame:
    """Return the busiest units of each broker at the end of each tick, the busiest first."""
    rate = unit_rate(world, f.col("topic_no"), f.col("part"))
    least = int(TRAFFIC_TOP / (HOT_UNITS_PER_BROKER * world.brokers) ** 0.8)
    of_unit = Window.partitionBy("topic_no", "part").orderBy("epoch", "event_type")
    until = f.coalesce(f.lead("time_ms").over(of_unit), f.lit(world.length_ms))
    held = (
        lives.withColumn("rate", rate)
        .where(f.col("rate") >= least)
        .withColumn("until_ms", until)
        .where(f.col("event_type") == ASSIGNED)
    )
    first = f.floor(f.col("time_ms") / REPORT_MS)
    last = f.floor(f.col("until_ms") / REPORT_MS) - 1
    spans = held.withColumns({"first": first, "last": last})
    at_ticks = spans.where(f.col("last") >= f.col("first")).withColumn(
        "tick", f.explode(f.sequence(f.col("first").cast("int"), f.col("last").cast("int")))
    )
    unit = f.when(f.col("part") < 0, "").otherwise(f.concat(f.lit("p"), "part"))
    listed = f.struct("rate", "name", unit.alias("unit"))
    return at_ticks.groupBy("broker", "tick").agg(
        f.slice(f.sort_array(f.collect_list(listed), asc=False), 1, BUSIEST_MAX).alias("busiest")
    )
