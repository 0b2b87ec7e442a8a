"""Shard and position packed into one number that sorts as they do, for aggregations."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

POSITION_BITS = 46
"""Bits for the position; the rest holds a shard id of 5 digits. Room for 7e13 events a shard."""


def place_of() -> Column:
    """Return the place (long) of a row by its shard_id and position."""
    shard = f.shiftleft(f.col("shard_id").cast("long"), POSITION_BITS)
    return shard.bitwiseOR(f.col("position"))


def shard_and_position(place: str, shard: str, position: str) -> list[Column]:
    """Unpack the column ``place`` into two columns, called ``shard`` and ``position``."""
    return [
        f.shiftright(place, POSITION_BITS).cast("int").alias(shard),
        f.col(place).bitwiseAND(f.lit((1 << POSITION_BITS) - 1)).alias(position),
    ]
