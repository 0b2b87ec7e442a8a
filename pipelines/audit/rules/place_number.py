"""Shard and position as one number, which sorts as they do: what aggregations compare."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

POSITION_BITS = 46
"""Of a position beside its shard of 5 digits: 70 million million events of one shard."""


def place_of() -> Column:
    """Return the place (long) of a row by its shard_id and position."""
    shard = f.shiftleft(f.col("shard_id").cast("long"), POSITION_BITS)
    return shard.bitwiseOR(f.col("position"))


def shard_and_position(place: str, shard: str, position: str) -> list[Column]:
    """Return the two columns, called ``shard`` and ``position``, that the column ``place`` says."""
    return [
        f.shiftright(place, POSITION_BITS).cast("int").alias(shard),
        f.col(place).bitwiseAND(f.lit((1 << POSITION_BITS) - 1)).alias(position),
    ]
