"""Slots and shards of routing keys, computed by Spark: the same as ``nextgen.kernel`` gives.

key in UTF-8 --XXH3--> hash --low 14 bits--> slot --table--> shard

The hash is that of the library that every process uses. But for the decisions of ADR 0142 it is
the only function of Python that runs over rows (ADR 0078). Executors need xxhash and pyarrow, but
not this package.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import xxhash
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.slots import SlotTable
from pipelines.columns.name_parts import path_of, topic_path_of


def with_slot(frame: DataFrame, key: str, slot: str = "slot") -> DataFrame:
    """Return ``frame`` with the slot (int) of the routing keys in the text column ``key``.

    The other columns stay. The slot of a null key is null.
    """
    return frame.withColumn(slot, _hashing()(f.col(f"`{key.replace('`', '``')}`")))


@cache
def _hashing() -> Any:
    """Return the function that maps Arrow batches of keys to their slots."""
    low_bits = SLOT_COUNT - 1

    # As an inner function it is sent to executors whole, not as a name for them to import.
    def slots_of(keys: pa.Array) -> pa.Array:
        digest = xxhash.xxh3_64_intdigest
        values = keys.cast(pa.binary()).to_pylist()
        slots = [None if key is None else digest(key) & low_bits for key in values]
        return pa.array(slots, pa.int32())

    # Spark would hash a second time below a filter or a join on the slot, were it deterministic.
    return f.arrow_udf(slots_of, "int").asNondeterministic()


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
