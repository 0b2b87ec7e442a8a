"""Pseudo-random numbers: hashes of the seed, a purpose and keys.

``rand()`` depends on how Spark cuts the data. These depend on the seed, the purpose and the keys
alone, so the same seed gives the same history on any master.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from nextgen.kernel.routing.hashing import hash64
from pipelines.generate.world import World

_FRACTION_BITS = 53


def drawn(world: World, purpose: str, *keys: Column) -> Column:
    """Return 64 drawn bits as a long."""
    signed = hash64(f"{world.seed}/{purpose}") - 2**63
    # An int and a long hash to different values: all keys are longs.
    return f.xxhash64(f.lit(signed), *(key.cast("long") for key in keys))


def fraction(world: World, purpose: str, *keys: Column) -> Column:
    """Return a double of at least 0 and below 1."""
    bits = f.shiftrightunsigned(drawn(world, purpose, *keys), 64 - _FRACTION_BITS)
    return bits.cast("double") * f.lit(2.0**-_FRACTION_BITS)


def below(world: World, bound: Column | int, purpose: str, *keys: Column) -> Column:
    """Return a long of at least 0 and below ``bound``."""
    limit = f.lit(bound) if isinstance(bound, int) else bound
    return f.floor(fraction(world, purpose, *keys) * limit).cast("long")


def happens(world: World, share: float, purpose: str, *keys: Column) -> Column:
    """Return true for ``share`` of all keys."""
    return fraction(world, purpose, *keys) < f.lit(share)


def one_of(world: World, words: tuple[str, ...], purpose: str, *keys: Column) -> Column:
    """Return one of ``words``, all equally likely."""
    place = below(world, len(words), purpose, *keys).cast("int") + 1
    return f.element_at(f.array(*map(f.lit, words)), place)


def hex_digits(world: World, digits: int, purpose: str, *keys: Column) -> Column:
    """Return a text of up to 32 lower-case hexadecimal digits."""
    halves = [f.lpad(f.lower(f.hex(drawn(world, f"{purpose}/{i}", *keys))), 16, "0") for i in "ab"]
    return f.substring(f.concat(*halves), 1, digits)
