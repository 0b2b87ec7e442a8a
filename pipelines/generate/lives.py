"""The owners of units over time: assignments, moves, failovers and idle ends, with growing epochs.

A unit's life is divided into stays. During a stay one broker owns it. While that broker is out,
another one owns it, and it returns afterwards. Outages do not overlap, and stays begin and end
outside of them. So an outage of a stay's broker is wholly within the stay, and adds two
assignments.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from pipelines.durations import DAY_MS, MINUTE_MS, SECOND_MS
from pipelines.generate.chance import below, fraction, happens, one_of
from pipelines.generate.clock import (
    broker_returns,
    is_death,
    on_clock,
    outage_begins,
    outage_broker,
    returns_before,
    session_ends,
    spread,
)
from pipelines.generate.inventory import is_scalable
from pipelines.generate.world import BROKERS_MAX, IDLE_SHARE, OUTAGE_MS, USED_SHARE, World

WHOLE = -1
"""``part`` of a unit that is a whole topic; else it is the partition's number."""

ASSIGNED = "topic_assigned"
UNASSIGNED = "topic_unassigned"
FIRST = "first_lookup"

STAYS_MAX = 200
MOVE_REASONS = ("rebalanced", "rebalanced", "moved", "broker_full", "pinned")

_ITSELF = -1
"""Number of a pseudo-outage that stands for the stay itself in the join with outages."""

_OF_UNIT = ("topic_no", "part", "name", "object_id", "shard_id")

_SKEW = 1.15
"""Exponent of the draw of brokers: 1 is uniform, higher ones favour the first brokers."""


def outages(spark: SparkSession, world: World) -> DataFrame:
    """Return the outages: outage (number), broker, is_death, and their times.

    These are out_began_ms, out_ended_ms (the broker's session ends), returned_ms (its next session
    begins), settled_ms (its units are back).
    """
    outage = f.col("outage")
    numbers = spark.range(world.outages, numPartitions=1).select(f.col("id").alias("outage"))
    return numbers.select(
        outage,
        outage_broker(world, outage).alias("broker"),
        outage_begins(world, outage).alias("out_began_ms"),
        session_ends(world, outage).alias("out_ended_ms"),
        broker_returns(world, outage).alias("returned_ms"),
        (outage_begins(world, outage) + OUTAGE_MS).alias("settled_ms"),
        is_death(world, outage).alias("is_death"),
    )


def session_numbers(spark: SparkSession, world: World) -> DataFrame:
    """Return the session of each broker by ``returns``, the number of outages that are over.

    Columns: returns, broker, session. A broker's first session has the number 1; the number is the
    session's epoch too.
    """
    brokers = spark.range(world.brokers, numPartitions=1).select(
        f.col("id").cast("int").alias("broker"),
        f.explode(f.sequence(f.lit(0), f.lit(world.outages))).alias("returns"),
    )
    over = outages(spark, world).select("broker", (f.col("outage") + 1).alias("over_after"))
    each = over.groupBy("broker").agg(f.collect_list("over_after").alias("over"))
    grid = brokers.join(f.broadcast(each), "broker", "left")
    before = f.size(f.filter(f.coalesce("over", f.array()), lambda over: over <= f.col("returns")))
    return grid.select(
        f.col("returns").cast("long").alias("returns"), "broker", (before + 1).alias("session")
    )


def units(topics: DataFrame, world: World) -> DataFrame:
    """Return the units of used topics, one row each, with the columns that their lives need."""
    number = f.col("topic_no")
    used = topics.where(happens(world, USED_SHARE, "topic is used", number)).select(
        "topic_no",
        "name",
        "object_id",
        "shard_id",
        "created_even_ms",
        "ends_even_ms",
        "deleted_ms",
        "partitions",
    )
    parts = f.when(
        f.col("partitions") > 0, f.sequence(f.lit(0), f.greatest("partitions", f.lit(1)) - 1)
    ).otherwise(f.array(f.lit(WHOLE)))
    # One shuffle, by topic: all later steps need a unit's rows together, and keep them so.
    return used.repartition(f.col("topic_no")).withColumn("part", f.explode(parts))


def stays(units: DataFrame, world: World) -> DataFrame:
    """Return one row per stay: stay (from 0), began_ms, ended_ms, is_idle, was_idle, home, away.

    ``ended_ms`` is null for a stay that lasts to the end of the history. ``was_idle``: the unit had
    no owner before. ``home`` and ``away`` are the broker of the stay and its stand-in.
    """
    number, part = f.col("topic_no"), f.col("part")
    mean = world.stays_mean - 1.0
    count = f.floor(-f.log(f.lit(1.0) - fraction(world, "stays", number, part)) * mean + 0.5)
    count = f.least(f.lit(STAYS_MAX), count + 1).cast("int")
    all_stays = units.withColumn("stays", count).withColumn(
        "stay", f.explode(f.sequence(f.lit(0), f.col("stays") - 1))
    )
    all_stays = all_stays.withColumn("first_ms", f.col("created_even_ms") + _first_delay(world))
    stay = f.col("stay")
    all_stays = all_stays.withColumns(
        {
            "is_last": stay + 1 >= f.col("stays"),
            "began_even_ms": _stay_begins(world, stay),
            "after_even_ms": _stay_begins(world, stay + 1),
            "is_idle": happens(world, IDLE_SHARE, "idle", number, part, stay),
            "was_idle": (stay == 0) | happens(world, IDLE_SHARE, "idle", number, part, stay - 1),
        }
    )
    until = f.when(f.col("is_last"), f.col("ends_even_ms")).otherwise(f.col("after_even_ms"))
    share = f.lit(0.2) + fraction(world, "idle after", number, part, stay) * 0.7
    quits = f.col("began_even_ms") + (until - f.col("began_even_ms")) * share
    ended = f.when(f.col("is_idle"), quits).when(~f.col("is_last"), f.col("after_even_ms"))
    all_stays = all_stays.withColumn("ended_even_ms", ended)
    timed = on_clock(all_stays, world, {"began_even_ms": "began_ms", "ended_even_ms": "ended_ms"})
    return timed.select(
        *_OF_UNIT,
        "stay",
        "is_last",
        "began_ms",
        f.coalesce("ended_ms", f.when(f.col("is_last"), f.col("deleted_ms"))).alias("ended_ms"),
        "is_idle",
        "was_idle",
        *_brokers_of_stay(world),
    )


def assignments(
    stays: DataFrame, outages: DataFrame, sessions: DataFrame, world: World
) -> DataFrame:
    """Return the events of units: event_type, time_ms, epoch, broker, session, reason, unit.

    ``broker`` is the owner after the event; for an unassignment, the owner before it.
    ``previous_broker`` is the owner before an assignment, null if the unit had none.
    """
    pairs = stays.join(f.broadcast(_with_the_stay(outages)), _meets(world))
    events = pairs.select(
        *_OF_UNIT,
        "stay",
        f.inline(f.array(_gone_to(world), _left_or_back(world))),
    ).where(f.col("event_type").isNotNull())
    # Order by stay first, because two of them may begin in the same millisecond.
    ordered = Window.partitionBy("topic_no", "part").orderBy("stay", "time_ms", "step")
    is_assigned = f.col("event_type") == ASSIGNED
    before = f.lag(f.when(is_assigned, f.col("broker"))).over(ordered)
    so_far = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    numbered = events.select(
        "*",
        f.sum(is_assigned.cast("long")).over(so_far).alias("epoch"),
        before.alias("previous_broker"),
        returns_before(world, f.col("time_ms")).alias("returns"),
    )
    return numbered.join(f.broadcast(sessions), ["returns", "broker"]).drop(
        "stay", "step", "returns"
    )


def unit_history(topics: DataFrame, sessions: DataFrame, world: World) -> DataFrame:
    """Return ``assignments`` of all units of ``topics``; ``sessions`` are ``session_numbers``.

    Segments of scalable topics have none.
    """
    over = outages(topics.sparkSession, world)
    classic = topics.where(~is_scalable(f.col("name")))
    return assignments(stays(units(classic, world), world), over, sessions, world)


def _with_the_stay(outages: DataFrame) -> DataFrame:
    """Return the outages, and for each broker a pseudo-outage that stands for the stay itself."""
    spark = outages.sparkSession
    return outages.withColumnRenamed("broker", "out_home").unionByName(
        spark.range(BROKERS_MAX, numPartitions=1).select(
            f.col("id").cast("int").alias("out_home"), f.lit(_ITSELF).cast("long").alias("outage")
        ),
        allowMissingColumns=True,
    )


def _meets(world: World) -> Column:
    """Return the condition that joins a stay (left) with itself and with the outages in it."""
    ends = f.coalesce(f.col("ended_ms"), f.lit(world.length_ms))
    is_within = (f.col("out_began_ms") > f.col("began_ms")) & (f.col("settled_ms") < ends)
    return (f.col("home") == f.col("out_home")) & ((f.col("outage") == _ITSELF) | is_within)


def _gone_to(world: World) -> Column:
    """Return the stay's beginning, or the move to another broker when its own is out."""
    key = (f.col("topic_no"), f.col("part"), f.col("outage"))
    moved = one_of(world, MOVE_REASONS, "why moved", *key[:2], f.col("stay"))
    begins = _happening(
        ASSIGNED, f.col("began_ms"), 0, "home", f.when(f.col("was_idle"), FIRST).otherwise(moved)
    )
    # A dead broker's units move when its session ends, a drained one's before it stops.
    lost = f.col("out_ended_ms") + 50 + spread(world, MINUTE_MS, "lost", *key)
    drained = f.col("out_began_ms") + SECOND_MS + spread(world, 2 * MINUTE_MS, "drained", *key)
    away_ms = f.when(f.col("is_death"), lost).otherwise(drained)
    reason = f.when(f.col("is_death"), "broker_lost").otherwise("drained")
    away = _happening(ASSIGNED, away_ms, 1, "away", reason)
    return f.when(f.col("outage") == _ITSELF, begins).otherwise(away)


def _left_or_back(world: World) -> Column:
    """Return the unassignment at the end of an idle stay, or the return to the stay's broker."""
    key = (f.col("topic_no"), f.col("part"), f.col("outage"))
    left_idle = f.when(f.col("is_idle"), "idle").otherwise("topic_deleted")
    ends = _happening(UNASSIGNED, f.col("ended_ms"), 2, "home", left_idle)
    is_left = f.col("ended_ms").isNotNull() & (f.col("is_idle") | f.col("is_last"))
    width_ms = f.col("settled_ms") - f.col("returned_ms") - 5 * SECOND_MS
    delay = f.floor(fraction(world, "back", *key) * width_ms).cast("long")
    back_ms = f.col("returned_ms") + 5 * SECOND_MS + delay
    back = _happening(ASSIGNED, back_ms, 1, "home", f.lit("rebalanced"))
    return f.when(f.col("outage") != _ITSELF, back).otherwise(f.when(is_left, ends))


def _happening(kind: str, time_ms: Column, step: int, broker: str, reason: Column) -> Column:
    return f.struct(
        f.lit(kind).alias("event_type"),
        time_ms.alias("time_ms"),
        f.lit(step).alias("step"),
        f.col(broker).alias("broker"),
        reason.alias("reason"),
    )


def _first_delay(world: World) -> Column:
    """Return the time from a unit's creation to its first lookup, which is mostly short."""
    drawn = fraction(world, "first lookup", f.col("topic_no"), f.col("part"))
    life = f.col("ends_even_ms") - f.col("created_even_ms")
    return f.lit(1) + f.least(f.pow(drawn, f.lit(3.0)) * DAY_MS, life / f.col("stays") * 0.9)


def _stay_begins(world: World, stay: Column) -> Column:
    """Return when a stay begins, on the even clock: the life has a part for each stay."""
    drawn = fraction(world, "stay begins", f.col("topic_no"), f.col("part"), stay)
    life = f.col("ends_even_ms") - f.col("created_even_ms")
    place = (stay + f.lit(0.05) + drawn * 0.9) / f.col("stays")
    return f.when(stay == 0, f.col("first_ms")).otherwise(f.col("created_even_ms") + life * place)


def _brokers_of_stay(world: World) -> tuple[Column, Column]:
    """Return home and away: two different brokers, and another home than in the stay before."""
    unit = (f.col("topic_no"), f.col("part"))
    first = f.floor(f.pow(fraction(world, "home", *unit), f.lit(_SKEW)) * world.brokers)
    stride = f.lit(1) + below(world, world.brokers - 1, "stride", *unit)
    home = (first.cast("long") + f.col("stay") * stride) % world.brokers
    other = f.lit(1) + below(world, world.brokers - 1, "away", *unit, f.col("stay"))
    away = (home + other) % world.brokers
    return home.cast("int").alias("home"), away.cast("int").alias("away")
