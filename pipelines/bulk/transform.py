"""Names to load files, as pure DataFrame functions."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipelines.bulk.names import canonical_name, refusal
from pipelines.columns.name_parts import namespace_of
from pipelines.columns.slots import topic_routing_key, with_slot

_KEY = "_routing_key"


def validated(inventory: DataFrame) -> DataFrame:
    """Return ``given``, ``name`` and ``reason`` of each row of ``inventory``, a column ``name``.

    For the name of a topic, ``name`` is its canonical form and the other two are null. For any
    other row, ``given`` is the text, ``reason`` says why it is refused, and ``name`` is null.
    """
    text = f.col("name")
    judged = inventory.select(text, refusal(text).alias("reason"))
    is_name = f.col("reason").isNull()
    return judged.select(
        f.when(~is_name, text).alias("given"),
        f.when(is_name, canonical_name(text)).alias("name"),
        "reason",
    )


def placed(names: DataFrame, owners: DataFrame) -> DataFrame:
    """Return ``names`` with ``shard_id`` (int), the shard that has the slot of its routing key.

    Rows without a name have no shard. ``owners``: see ``slot_owners``; it is broadcast.
    """
    keyed = names.withColumn(_KEY, topic_routing_key(f.col("name")))
    slotted = with_slot(keyed, _KEY).drop(_KEY)
    return slotted.join(f.broadcast(owners), "slot", "left").drop("slot")


def distinct_by_shard(names: DataFrame, partitions: int) -> DataFrame:
    """Return ``shard_id``, ``name`` and ``times``, the number of occurrences of the name.

    Each name is there once, and all names of a shard are in one of ``partitions``.
    """
    sharded = names.repartition(partitions, "shard_id")
    # All rows of a name are in one partition already, so this needs no shuffle of its own.
    return sharded.groupBy("shard_id", "name").agg(f.count("*").alias("times"))


def ascending(distinct: DataFrame) -> DataFrame:
    """Return ``shard_id`` and ``name``, ascending in each partition.

    Write the result directly: another operator in between may make the writer sort again, by shard
    alone.
    """
    return distinct.select("shard_id", "name").sortWithinPartitions("shard_id", "name")


def namespaces(names: DataFrame) -> DataFrame:
    """Return ``namespace`` and its number of ``topics``, ascending; ``names`` has no repetition."""
    return (
        names.groupBy(namespace_of(f.col("name")).alias("namespace"))
        .agg(f.count("*").alias("topics"))
        .orderBy("namespace")
    )


def rejects(judged: DataFrame) -> DataFrame:
    """Return ``given`` and ``reason`` of the rows that are not a topic's name, ascending."""
    refused = judged.where(f.col("reason").isNotNull())
    return refused.select("given", "reason").orderBy("given", "reason")


def reject_counts(judged: DataFrame) -> DataFrame:
    """Return ``reason`` and ``rows``, the most frequent first."""
    refused = judged.where(f.col("reason").isNotNull())
    counted = refused.groupBy("reason").agg(f.count("*").alias("rows"))
    return counted.orderBy(f.desc("rows"), "reason")
