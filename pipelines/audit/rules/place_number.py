"""Shard and position packed into one number that sorts as they do, for aggregations."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from pipelines.exports.slot_homes import real_position, real_shard

POSITION_BITS = 46
"""Bits for the position; the rest holds a shard id of 5 digits. Room for 7e13 events a shard."""


def place_of() -> Column:
    """Return the place (long) of a row by its shard_id and position.

    That of an event of a slot that moved is its real one, in the log that it is in.
    """
    position = f.col("position")
    shard = real_shard(f.col("shard_id"), position).cast("long")
    return f.shiftleft(shard, POSITION_BITS).bitwiseOR(real_position(position))


def shard_and_position(place: str, shard: str, position: str) -> list[Column]:
    """Unpack the column ``place`` into two columns, called ``shard`` and ``position``."""
    return [
        f.shiftright(place, POSITION_BITS).cast("int").alias(shard),
        f.col(place).bitwiseAND(f.lit((1 << POSITION_BITS) - 1)).alias(position),
    ]
