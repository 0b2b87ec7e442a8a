"""From names to slots, from slots to moves. Pure: DataFrame -> DataFrame.

The content of slots is counted in one pass. All later steps work on 16,384 rows.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from nextgen.client.scalable_topics.fold import LAYOUT_EVENTS
from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.slots import SlotTable
from pipelines.columns.slots import slot_owners, topic_routing_key, unit_routing_key, with_slot
from pipelines.exports.slot_homes import home_of, with_home_slot

VOLUMES = ("tenants", "namespaces", "topics", "units", "events")
"""The counts by slot; ``events`` are the events in the history about the slot's names."""

ITEMS = ("tenants", "namespaces", "topics", "units")
"""The rows of a shard's view that are copied when a slot moves."""

GENERATED_TENANTS = 10_000
GENERATED_NAMESPACES = 8


def generated_keys(spark: SparkSession, names: int, partitions: int) -> DataFrame:
    """Return ``names`` different routing keys of topics, column ``key``.

    A tenth of the tenants has about half of the names. Equal arguments give equal names.
    """
    number = f.col("id")
    # The cube of a uniform fraction favours low numbers.
    even = f.pmod(f.xxhash64(number), f.lit(1_000_000)) / 1_000_000
    tenant = (even * even * even * GENERATED_TENANTS).cast("int")
    namespace = f.pmod(number, f.lit(GENERATED_NAMESPACES))
    words = (f.lit("tenant-"), tenant, f.lit("/namespace-"), namespace, f.lit("/topic-"), number)
    return spark.range(0, names, 1, partitions).select(f.concat(*words).alias("key"))


def volumes_of_keys(keys: DataFrame) -> DataFrame:
    """Return the number of ``topics`` by slot; the other volumes are 0. Empty slots have no row.

    The column ``astray`` is 0: see ``volumes_of_events``.
    """
    counted = with_slot(keys, "key").groupBy("slot").agg(f.count("*").alias("topics"))
    zero = f.lit(0).cast("long")
    others = [zero.alias(name) for name in VOLUMES if name != "topics"]
    return counted.select("slot", "topics", *others, zero.alias("astray"))


def volumes_of_events(events: DataFrame, owners: DataFrame) -> DataFrame:
    """Return the volumes by slot after all ``events``, and ``astray``: names in a wrong shard.

    ``owners`` is the result of ``slot_owners``. The events that belong to no slot (of brokers,
    capacity and the cluster) are counted in a row whose slot is null.
    """
    keyed = events.select(
        "shard_id",
        "position",
        "event_type",
        home_of(_key()).alias("home"),
        f.coalesce("topic_assigned.topic_id", "topic_unassigned.topic_id").alias("topic_id"),
        _unit().alias("unit"),
    )
    kind_of = f.col("event_type")
    # Only a unit's last event counts. It is one long, so that Spark aggregates by hash.
    word = f.shiftleft("position", 1).bitwiseOR((kind_of == "topic_assigned").cast("long"))
    per_unit = (
        with_home_slot(keyed, "home", "slot")
        .groupBy("slot", "shard_id", "topic_id", "unit")
        .agg(
            *(_live(kind).alias(f"{kind}s") for kind in ("tenant", "namespace", "topic")),
            f.max(f.when(f.col("topic_id").isNotNull(), word)).alias("word"),
            f.count("*").alias("events"),
        )
    )
    units = f.sum(f.coalesce(f.col("word"), f.lit(0)).bitwiseAND(f.lit(1)))
    others = [f.sum(name).alias(name) for name in VOLUMES if name != "units"]
    by_shard = per_unit.groupBy("slot", "shard_id").agg(units.alias("units"), *others)
    at_home = owners.select("slot", f.col("shard_id").alias("owner"))
    known = by_shard.join(f.broadcast(at_home), "slot", "left")
    astray = f.when(f.col("shard_id") != f.col("owner"), f.col("topics")).otherwise(0)
    sums = [f.sum(name).alias(name) for name in VOLUMES]
    return known.groupBy("slot").agg(*sums, f.sum(astray).alias("astray"))


def planned_slots(
    volumes: DataFrame, spark: SparkSession, before: SlotTable, after: SlotTable
) -> DataFrame:
    """Return all slots with their volumes, ``from_shard``, ``to_shard`` and ``moves``."""
    placed = slot_owners(spark, before, shard="from_shard").join(
        f.broadcast(slot_owners(spark, after, shard="to_shard")), "slot"
    )
    held = placed.join(f.broadcast(volumes.where("slot is not null")), "slot", "left")
    zeros = {name: 0 for name in (*VOLUMES, "astray")}
    return held.na.fill(zeros).withColumn("moves", f.col("from_shard") != f.col("to_shard"))


def shard_volumes(slots: DataFrame) -> DataFrame:
    """Return a row per shard: slots and volumes before and after. Ordered by shard."""
    sides = []
    for side, shard in (("before", "from_shard"), ("after", "to_shard")):
        other = "after" if side == "before" else "before"
        counted = [f.lit(1).cast("long").alias(f"slots_{side}")]
        counted += [f.col(name).alias(f"{name}_{side}") for name in VOLUMES]
        empty = [f.lit(0).cast("long").alias(f"{name}_{other}") for name in ("slots", *VOLUMES)]
        sides.append(slots.select(f.col(shard).alias("shard_id"), *counted, *empty))
    names = [f"{name}_{side}" for name in ("slots", *VOLUMES) for side in ("before", "after")]
    both = sides[0].unionByName(sides[1])
    sums = [f.sum(name).alias(name) for name in names]
    return both.groupBy("shard_id").agg(*sums).orderBy("shard_id")


def planned_moves(slots: DataFrame, items_per_second: float) -> DataFrame:
    """Return a row per pair of shards between which slots move, with its place in the plan.

    Pairs of a ``round`` run at the same time and share no shard: each shard sends to one and
    receives from one. A round ends with its longest pair, at ``items_per_second`` for each.
    Columns: round, from_shard, to_shard, slots, the volumes, items, starts_s, ends_s.
    """
    sums = [f.sum(name).alias(name) for name in VOLUMES]
    moving = slots.where("moves").groupBy("from_shard", "to_shard")
    pairs = moving.agg(f.count("*").alias("slots"), *sums).withColumn("items", _items())
    source = f.dense_rank().over(Window.orderBy("from_shard"))
    target = f.dense_rank().over(Window.orderBy("to_shard"))
    ranked = pairs.withColumns({"_source": source, "_target": target})
    # Pairs of one diagonal of the square of sources and targets share neither.
    size = f.greatest(
        f.max("_source").over(Window.partitionBy()), f.max("_target").over(Window.partitionBy())
    )
    rounds = ranked.withColumn("round", f.pmod(f.col("_target") - f.col("_source"), size) + 1)
    lengths = rounds.groupBy("round").agg((f.max("items") / items_per_second).alias("_length_s"))
    ends = f.sum("_length_s").over(Window.orderBy("round"))
    timed = lengths.withColumn("starts_s", ends - f.col("_length_s"))
    placed = rounds.join(f.broadcast(timed), "round")
    placed = placed.withColumn("ends_s", f.col("starts_s") + f.col("items") / items_per_second)
    return placed.select(
        "round", "from_shard", "to_shard", "slots", *VOLUMES, "items", "starts_s", "ends_s"
    ).orderBy("round", "from_shard")


def ordered_slot_moves(slots: DataFrame, moves: DataFrame) -> DataFrame:
    """Return every slot that moves, in the order of the plan: fullest first within a pair."""
    rounds = moves.select("round", "from_shard", "to_shard")
    moving = slots.where("moves").withColumn("items", _items())
    placed = moving.join(f.broadcast(rounds), ["from_shard", "to_shard"])
    order = Window.orderBy("round", "from_shard", f.desc("items"), "slot")
    return placed.select(
        f.row_number().over(order).alias("number"),
        "round",
        "slot",
        "from_shard",
        "to_shard",
        *VOLUMES,
        "items",
    ).orderBy("number")


def slot_skew(slots: DataFrame) -> DataFrame:
    """Return one row: how evenly topics lie in slots.

    ``chi_square_z`` is the distance of the chi-square statistic from that of a uniform random
    placement, in standard deviations. Above 4 the hash spreads these names unevenly.
    """
    mean = f.col("topics_total") / SLOT_COUNT
    expected = f.lit(float(SLOT_COUNT - 1))
    summed = slots.agg(
        f.sum("topics").alias("topics_total"),
        f.min("topics").alias("topics_min"),
        f.max("topics").alias("topics_max"),
        f.expr("percentile(topics, array(0.5, 0.99))").alias("_percentiles"),
        f.stddev_pop("topics").alias("topics_deviation"),
        f.sum(f.col("topics") * f.col("topics")).alias("_squares"),
    )
    square = f.when(mean > 0, f.col("_squares") / mean - f.col("topics_total"))
    return summed.select(
        "topics_total",
        mean.alias("topics_mean"),
        "topics_min",
        f.col("_percentiles")[0].alias("topics_p50"),
        f.col("_percentiles")[1].alias("topics_p99"),
        "topics_max",
        "topics_deviation",
        square.alias("chi_square"),
        ((square - expected) / f.sqrt(2 * expected)).alias("chi_square_z"),
    )


def _items() -> Column:
    total = f.col(ITEMS[0])
    for name in ITEMS[1:]:
        total = total + f.col(name)
    return total


def _key() -> Column:
    """Return the routing key of an event's object; null for events about no name. Events about
    topics need it in logs whose ids say no slot."""
    plain = [
        f.col(f"{kind}_{change}.name")
        for kind in ("tenant", "namespace")
        for change in (
            "created",
            "properties_set",
            "deletion_started",
            "deletion_aborted",
            "deleted",
        )
    ]
    topics = [
        topic_routing_key(f.col(f"topic_{change}.name"))
        for change in ("created", "properties_set", "partitions_grown", "deleted")
    ]
    layouts = [topic_routing_key(f.col(f"{change}.name")) for change in sorted(LAYOUT_EVENTS)]
    units = [
        unit_routing_key(f.col(f"{change}.name"), f.col(f"{change}.unit"))
        for change in ("topic_assigned", "topic_unassigned")
    ]
    policies = [
        f.when(
            f.col(f"{change}.scope") == "topic", topic_routing_key(f.col(f"{change}.name"))
        ).otherwise(f.col(f"{change}.name"))
        for change in ("policy_set", "policy_cleared")
    ]
    return f.coalesce(*topics, *units, *plain, *policies, *layouts)


def _unit() -> Column:
    return f.coalesce("topic_assigned.unit", "topic_unassigned.unit")


def _live(kind: str) -> Column:
    kind_of = f.col("event_type")
    created, deleted = kind_of == f"{kind}_created", kind_of == f"{kind}_deleted"
    return f.sum(f.when(created, 1).when(deleted, -1).otherwise(0))
