"""Slots and shards of routing keys, computed by Spark: the same as ``nextgen.kernel`` gives.

key in UTF-8 --XXH3--> hash --low 14 bits--> slot --table--> shard
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.slots import SlotTable
from pipelines.columns.name_parts import path_of, topic_path_of
from pipelines.columns.xxh3 import with_hash64

_HASH = "_slot_hash"


def with_slot(frame: DataFrame, key: str, slot: str = "slot") -> DataFrame:
    """Return ``frame`` with the slot (int) of the routing keys in the text column ``key``.

    The other columns stay. The slot of a null key is null. No row goes through Python.
    """
    hashed = with_hash64(frame, key, _HASH)
    low_bits = f.col(_HASH).bitwiseAND(f.lit(SLOT_COUNT - 1)).cast("int")
    return hashed.withColumn(slot, low_bits).drop(_HASH)


def slot_owners(
    spark: SparkSession, table: SlotTable, slot: str = "slot", shard: str = "shard_id"
) -> DataFrame:
    """Return one row per slot, with the id (int) of the shard that has it. Small: broadcast it."""
    owner = owner_in(f.lit(bytearray(table.to_bytes())), f.col("id"))
    slots = spark.range(SLOT_COUNT, numPartitions=1)
    return slots.select(f.col("id").cast("int").alias(slot), owner.alias(shard))


def owner_in(packed: Column, slot: Column) -> Column:
    """Return the id (int) of the shard that has ``slot`` in the bytes of ``SlotTable.to_bytes``."""
    return f.conv(f.hex(f.substring(packed, slot * 2 + 1, f.lit(2))), 16, 10).cast("int")


def topic_routing_key(name: Column) -> Column:
    """Return the routing key of a whole topic's canonical name: the part behind its domain."""
    return path_of(name)


def unit_routing_key(name: Column, unit: Column) -> Column:
    """Return the routing key of an assigned unit's name, which is the key of its topic.

    ``unit`` is the stable text form: empty, ``p3`` or ``s17``.
    """
    return topic_path_of(name, unit)
