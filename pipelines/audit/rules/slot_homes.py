"""Slots and their shards: an object is created in the shard that has the slot of its key.

map in shard 0, slots that shards adopted  →  claims (slot, shard)  →  created keys, hashed to slots

A shard adopts its first slots by its first event. Slots that never moved are in the shards that
have them by a map or by that event. Of slots that moved, the moves say which shard decides where in
its log (``nextgen.audit.slot_legs``): every event about them has to be in one of these legs.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nextgen.audit.slot_legs import SlotLegs
from nextgen.kernel.limits.cluster import SLOT_COUNT
from pipelines.audit.facts import ADOPTED, MAP, MAP_CHANGE
from pipelines.audit.finding import Broken, findings
from pipelines.audit.rules.place_number import place_of, shard_and_position
from pipelines.columns.slots import owner_in, with_slot
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID


def home_findings(facts: DataFrame) -> DataFrame:
    """Return findings: slots of two shards, and objects created in a shard without their slot.

    A slot that neither a map nor a shard's own log mentions gives no finding.
    """
    is_of_map = f.col("is_of_map")
    adoption = f.struct("shard", "place")
    slots = (
        _claims(facts)
        .groupBy("slot")
        .agg(
            f.min("place").alias("first"),
            f.collect_set("shard").alias("shards"),
            f.collect_set(f.when(is_of_map, f.col("shard"))).alias("map_shards"),
            f.collect_list(f.when(~is_of_map, adoption)).alias("adoptions"),
        )
    )
    return _taken_slots(slots).unionByName(_strangers(facts, slots))


def moved_findings(spark: SparkSession, facts: DataFrame, legs: SlotLegs) -> list[DataFrame]:
    """Return findings about slots that moved: none if none did. ``facts`` have their slots."""
    if not legs.legs:
        return []
    found = _outside_legs(spark, facts, legs)
    if not legs.broken:
        return [found]
    rows = [
        (each.to_shard, each.to_position, each.from_shard, each.from_position)
        for each in legs.broken
    ]
    frame = spark.createDataFrame(
        rows, "shard_id int, position long, from_shard int, from_position long"
    )
    rule = Broken("move_from_nowhere", f.lit(True), f.col("from_position"), f.col("from_shard"))
    return [found, findings(frame, [rule])]


def _outside_legs(spark: SparkSession, facts: DataFrame, legs: SlotLegs) -> DataFrame:
    rows = [
        (leg.first, leg.last, leg.shard, leg.first_position, leg.last_position) for leg in legs.legs
    ]
    schema = "first int, last int, shard int, first_position long, last_position long"
    leg = f.struct("shard", "first_position", "last_position")
    by_slot = (
        spark.createDataFrame(rows, schema)
        .select(f.explode(f.sequence("first", "last")).alias("slot"), leg.alias("leg"))
        .groupBy("slot")
        .agg(f.collect_list("leg").alias("legs"))
    )
    placed = facts.where(f.col("shard_id") != CLUSTER_MANAGER_SHARD_ID).join(
        f.broadcast(by_slot), "slot"
    )
    is_within = f.exists(
        "legs",
        lambda each: (
            (each["shard"] == f.col("shard_id"))
            & (f.col("position") >= each["first_position"])
            & (f.col("position") <= f.coalesce(each["last_position"], f.col("position")))
        ),
    )
    rule = Broken("decided_elsewhere", ~is_within, found=f.col("slot"))
    return findings(placed, [rule])


def _claims(facts: DataFrame) -> DataFrame:
    """Return the claims of shards to slots: slot, shard (int), place (of the event), is_of_map.

    A claim comes from a shard map or from the shard's own adoption. The cluster manager's log is
    shard 0, so a claim by a map has a lower place than any adoption.
    """
    maps = (
        facts.where((f.col("event_type") == MAP) & (f.octet_length("details.slot_owners") > 0))
        .groupBy(f.col("details.slot_owners").alias("slot_owners"))
        .agg(f.min(place_of()).alias("place"))
        .select(
            "slot_owners",
            "place",
            f.explode(f.sequence(f.lit(0), f.lit(SLOT_COUNT - 1))).alias("slot"),
        )
        .select("slot", owner_in(f.col("slot_owners"), f.col("slot")).alias("shard"), "place")
        .withColumn("is_of_map", f.lit(True))
    )
    changed = facts.where(f.col("event_type") == MAP_CHANGE).select(
        f.explode("details.slot_runs").alias("range"),
        f.col("range.shard_id").cast("int").alias("shard"),
        place_of().alias("place"),
        f.lit(True).alias("is_of_map"),
    )
    adopted = facts.where(f.col("event_type") == ADOPTED).select(
        f.explode("details.slot_ranges").alias("range"),
        f.col("shard_id").alias("shard"),
        place_of().alias("place"),
        f.lit(False).alias("is_of_map"),
    )
    return maps.where("shard > 0").unionByName(_by_slot(changed)).unionByName(_by_slot(adopted))


def _by_slot(ranges: DataFrame) -> DataFrame:
    """Return a row per slot of ``range``, with the other columns of ``ranges``."""
    return (
        # A damaged range may name slots that do not exist: do not count up to them.
        ranges.withColumn("last", f.least(f.col("range.last"), f.lit(SLOT_COUNT - 1)))
        .where(f.col("range.first") <= f.col("last"))
        .withColumn("slot", f.explode(f.sequence(f.col("range.first"), f.col("last"))))
        .select(f.col("slot").cast("int").alias("slot"), "shard", "place", "is_of_map")
    )


def _taken_slots(slots: DataFrame) -> DataFrame:
    """Return findings: one for each adoption of slots that are another shard's.

    Slots belong to the shards that the map names; without a map, to the lowest shard that has them.
    """
    judged = slots.select("first", "map_shards", f.explode("adoptions").alias("adoption")).select(
        "first", "map_shards", "adoption.*"
    )
    by_map = ~f.array_contains("map_shards", f.col("shard"))
    is_taken = f.when(f.size("map_shards") > 0, by_map).otherwise(f.col("first") < f.col("place"))
    taken = (
        judged.where(is_taken)
        .groupBy("place")
        .agg(f.count("*").alias("slots"), f.min("first").alias("first"))
        .select(
            "slots",
            *shard_and_position("place", "shard_id", "position"),
            *shard_and_position("first", "first_shard", "first_position"),
        )
    )
    rule = Broken(
        "slots_of_another",
        f.col("slots") > 0,
        f.col("first_position"),
        f.col("first_shard"),
        found=f.col("slots"),
    )
    return findings(taken, [rule])


def _strangers(facts: DataFrame, slots: DataFrame) -> DataFrame:
    created = facts.where(
        f.col("key").isNotNull() & (f.col("shard_id") != CLUSTER_MANAGER_SHARD_ID)
    ).select("shard_id", "position", "key")
    placed = (
        with_slot(created, "key")
        .join(f.broadcast(slots.select("slot", "first", "shards")), "slot")
        .withColumn("home", f.element_at("shards", 1))
        .select(
            *("shard_id", "position", "shards", "home"),
            *shard_and_position("first", "first_shard", "first_position"),
        )
    )
    rule = Broken(
        "wrong_shard",
        ~f.array_contains("shards", f.col("shard_id")),
        f.col("first_position"),
        f.col("first_shard"),
        found=f.col("shard_id"),
        expected=f.col("home"),
    )
    return findings(placed, [rule])
