"""The first events of shards, and the cluster manager's log: map, nodes, lookups by the minute."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from nextgen.kernel.governance.lookup_slo import LATENCY_CLASSES
from pipelines.columns.lookup_verdict import too_slow_of
from pipelines.columns.slots import slot_owners
from pipelines.durations import HOUR_MS, MINUTE_MS
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID
from pipelines.generate.chance import below, fraction, happens
from pipelines.generate.clock import is_death, outage_at, session_ends, traffic_at
from pipelines.generate.narrow import narrow, together
from pipelines.generate.world import World

NODES = ("node-1", "node-2", "node-3")
DISCOVERY_NODES = 2

LOOKUPS_OPEN_MS = HOUR_MS
"""Time of the first recorded window: when the first topics are created."""

_SHARES = (0.62, 0.18, 0.1, 0.05, 0.03, 0.012, 0.005, 0.0019, 0.0006, 0.0003)
"""Parts of a good minute's lookups by class of latency. The classes above get none."""

_RARELY = 0.0004
"""Part of the minutes without a dying broker that are bad."""


def first_events(spark: SparkSession, world: World) -> DataFrame:
    """Return the first events: each shard's slots, the shard map, and the nodes."""
    owned = slot_owners(spark, world.slot_table)
    in_order = Window.partitionBy("shard_id").orderBy("slot")
    islands = owned.withColumn("island", f.col("slot") - f.row_number().over(in_order))
    ranges = islands.groupBy("shard_id", "island").agg(
        f.min("slot").cast("long").alias("first"), f.max("slot").cast("long").alias("last")
    )
    adopted = ranges.groupBy("shard_id").agg(
        f.sort_array(f.collect_list(f.struct("first", "last"))).alias("ranges")
    )
    nodes = spark.range(len(NODES) + DISCOVERY_NODES, numPartitions=1)
    name = f.when(f.col("id") < len(NODES), f.concat(f.lit("node-"), f.col("id") + 1)).otherwise(
        f.concat(f.lit("discovery-"), f.col("id") - len(NODES) + 1)
    )
    kind = f.when(f.col("id") < len(NODES), "shard").otherwise("discovery")
    return together(
        [
            narrow(
                adopted, event_type="slots_adopted", shard_id="shard_id", time_ms=5, ranges="ranges"
            ),
            narrow(
                spark.range(1, numPartitions=1),
                event_type="shard_map_changed",
                shard_id=CLUSTER_MANAGER_SHARD_ID,
                time_ms=0,
            ),
            narrow(
                nodes.select("id", name.alias("name"), kind.alias("kind")),
                event_type="node_registered",
                shard_id=CLUSTER_MANAGER_SHARD_ID,
                time_ms=f.col("id") + 1,
                object="id",
                name="name",
                detail=f.col("kind"),
            ),
        ]
    )


def lookup_windows(spark: SparkSession, world: World) -> DataFrame:
    """Return a window per discovery node and minute, good ones and those while a broker dies."""
    first, last = LOOKUPS_OPEN_MS // MINUTE_MS, world.length_ms // MINUTE_MS - 2
    minutes = spark.range(first, last + 1, numPartitions=2).withColumn(
        "node", f.explode(f.sequence(f.lit(0), f.lit(DISCOVERY_NODES - 1)))
    )
    recorded = (f.col("id") + 1) * MINUTE_MS + 40 + f.col("node") * 15
    return narrow(
        minutes,
        event_type="lookup_window_recorded",
        shard_id=CLUSTER_MANAGER_SHARD_ID,
        time_ms=recorded,
        object="node",
        name=f.concat(f.lit("discovery-"), f.col("node") + 1),
        number=f.col("id") * MINUTE_MS,
        rate=_lookups(world, f.col("id"), f.col("node")),
        detail=f.when(_is_bad(world, f.col("id"), f.col("node")), "bad").otherwise("good"),
    )


def latency_counts(world: World) -> Column:
    """Return the counts of a window's narrow row by class of latency. Adds up to its lookups."""
    lookups, key = f.col("rate"), (f.col("number"), f.col("object"))
    slow = f.ceil(lookups * (fraction(world, "slow share", *key) * 0.06 + 0.012)).cast("long")
    slow = f.when(f.col("detail") == "bad", slow).otherwise(f.lit(0))
    much = [f.floor((lookups - slow) * share).cast("long") for share in _SHARES]
    # The remainder from rounding goes to the fastest class.
    rest = lookups - slow
    for count in much[1:]:
        rest = rest - count
    above = f.floor(slow / 4).cast("long")
    late = [slow - above, f.lit(0).cast("long"), above]
    counts = [rest, *much[1:], *late]
    assert len(counts) == LATENCY_CLASSES, "one count for each class"
    return f.array(*counts)


def window_errors(world: World) -> Column:
    """Return the number of failed lookups of a window, too slow ones included."""
    key = (f.col("number"), f.col("object"))
    failed = f.floor(f.col("rate") * fraction(world, "errors", *key) * 0.03).cast("long")
    too_slow = too_slow_of(f.col("latency_counts"))
    return f.when(f.col("detail") == "bad", too_slow + failed).otherwise(too_slow)


def _lookups(world: World, minute: Column, node: Column) -> Column:
    base = max(40.0, world.topics / 4_000)
    noise = f.lit(0.8) + fraction(world, "lookups", minute, node) * 0.4
    return f.floor(traffic_at(world, minute * MINUTE_MS) * noise * base).cast("long") + 1


def _is_bad(world: World, minute: Column, node: Column) -> Column:
    """Return whether a broker dies in the minute; its units are looked up at once."""
    began = minute * MINUTE_MS
    outage = outage_at(world, began + MINUTE_MS)
    dies = session_ends(world, outage)
    is_now = is_death(world, outage) & (dies >= began) & (dies < began + MINUTE_MS)
    felt = below(world, 10, "death is felt", outage, node) < 9
    return (is_now & felt) | happens(world, _RARELY, "bad minute", minute, node)
