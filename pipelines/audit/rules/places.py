"""Positions, terms, times and files: whether the export has each event once, in its place."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from nextgen.export.format.schema import SCHEMA_VERSION, UNKNOWN_TYPE
from pipelines.audit.finding import Broken, findings

BLOCK = 64
"""Positions in a block: one bit of a long for each. Blocks are folded by hashing, without a sort.
A block shows exactly which of its positions are missing, and whether any occurs more than once."""

GAP_SCHEMA = t.StructType(
    [
        t.StructField("shard_id", t.IntegerType(), nullable=False),
        t.StructField("first_position", t.LongType(), nullable=False),
        t.StructField("last_position", t.LongType(), nullable=False),
    ]
)
"""A range of positions: an accepted gap, or the positions that the manifest gives for a shard."""

FILE_SCHEMA = t.StructType(
    [
        t.StructField("path", t.StringType(), nullable=False),
        t.StructField("shard_id", t.IntegerType(), nullable=False),
        t.StructField("first_position", t.LongType(), nullable=False),
        t.StructField("last_position", t.LongType(), nullable=False),
        t.StructField("rows", t.LongType()),
        t.StructField("first_time_ms", t.LongType()),
        t.StructField("last_time_ms", t.LongType()),
    ]
)
"""Files as the manifest describes them; a field that it does not have is null."""

_BACK = "time_back_ms"


def blocks_of(facts: DataFrame) -> DataFrame:
    """Return one row per shard, term and block of ``BLOCK`` positions.

    Columns: shard_id, term, block, rows, bits, first_position, last_position, first_time_ms,
    last_time_ms. All of fixed width, so it is one hash aggregation.
    """
    block = f.floor(f.col("position") / BLOCK).cast("long")
    return facts.groupBy("shard_id", "term", block.alias("block")).agg(
        f.count("*").alias("rows"),
        f.bit_or(f.expr(f"shiftleft(1L, cast(position % {BLOCK} as int))")).alias("bits"),
        f.min("position").alias("first_position"),
        f.max("position").alias("last_position"),
        f.min("time_ms").alias("first_time_ms"),
        f.max("time_ms").alias("last_time_ms"),
    )


def holes_of(blocks: DataFrame, accepted: DataFrame, promised: DataFrame) -> DataFrame:
    """Return the position ranges that are missing: shard_id, first_position, last_position.

    Positions in ``accepted`` (``GAP_SCHEMA``) do not count as missing. ``promised`` has the last
    position of each shard. Several holes inside one block are reported as one range, from the first
    to the last of them.
    """
    there = blocks.select("shard_id", "block", "bits").unionByName(_blocks_of_gaps(accepted))
    merged = there.groupBy("shard_id", "block").agg(f.bit_or("bits").alias("bits"))
    first = f.col("block") * BLOCK + _trailing_zeros(f.col("bits"))
    last = f.col("block") * BLOCK + BLOCK - 1 - _leading_zeros(f.col("bits"))
    placed = merged.withColumns({"first": first, "last": last})
    in_order = Window.partitionBy("shard_id").orderBy("block")
    previous = f.coalesce(f.lag("last").over(in_order), f.lit(0))
    between = placed.withColumn("previous", previous).where("first > previous + 1")
    # Number of ones from the first position present up to the lowest missing one.
    ones = _trailing_zeros(f.bitwise_not(_shifted_to_first()))
    # Number of ones from the last position present down to the highest missing one.
    ones_above = _leading_zeros(f.bitwise_not(_shifted_to_last()))
    inside = placed.withColumn("missing", f.col("last") - f.col("first") + 1 - f.bit_count("bits"))
    ends = placed.groupBy("shard_id").agg(f.max("last").alias("end"))
    behind = promised.join(ends, "shard_id", "left").where(
        f.col("last_position") > f.coalesce("end", f.lit(0))
    )
    return (
        between.select("shard_id", *_range(f.col("previous") + 1, f.col("first") - 1))
        .unionAll(
            inside.where("missing > 0").select(
                "shard_id", *_range(f.col("first") + ones, f.col("last") - ones_above)
            )
        )
        .unionAll(
            behind.select(
                "shard_id", *_range(f.coalesce("end", f.lit(0)) + 1, f.col("last_position"))
            )
        )
    )


def crowded_blocks(blocks: DataFrame) -> DataFrame:
    """Return (shard_id, block) of the blocks in which a position occurs more than once."""
    summed = blocks.groupBy("shard_id", "block").agg(
        f.sum("rows").alias("rows"), f.bit_or("bits").alias("bits")
    )
    return summed.where(f.col("rows") > f.bit_count("bits")).select("shard_id", "block")


def duplicates_of(facts: DataFrame, crowded: DataFrame) -> DataFrame:
    """Return findings: the positions of ``crowded`` blocks that occur more than once."""
    block = f.floor(f.col("position") / BLOCK).cast("long")
    counted = (
        facts.select("shard_id", "position", block.alias("block"))
        .join(f.broadcast(crowded), ["shard_id", "block"], "left_semi")
        .groupBy("shard_id", "position")
        .agg(f.count("*").alias("rows"))
    )
    twice = Broken("duplicate_position", f.col("rows") > 1, found=f.col("rows"), expected=f.lit(1))
    return findings(counted, [twice])


def holes_as_findings(holes: DataFrame) -> DataFrame:
    """Return findings: ``position`` is the first of a hole, ``other_position`` the last."""
    frame = holes.withColumnRenamed("first_position", "position")
    missing = f.col("last_position") - f.col("position") + 1
    always = f.col("last_position").isNotNull()
    return findings(
        frame,
        [Broken("gap", always, other_position=f.col("last_position"), found=missing)],
    )


def terms_back(blocks: DataFrame) -> DataFrame:
    """Return findings: a term that begins before an earlier one has ended."""
    spans = blocks.groupBy("shard_id", "term").agg(
        f.min("first_position").alias("first"), f.max("last_position").alias("last")
    )
    earlier = (
        Window.partitionBy("shard_id").orderBy("term").rowsBetween(Window.unboundedPreceding, -1)
    )
    spans = spans.withColumn("position", f.max("last").over(earlier))
    back = Broken("term_back", f.col("position") > f.col("first"), other_position=f.col("first"))
    return findings(spans, [back])


def clocks_of(blocks: DataFrame) -> DataFrame:
    """Return one row per shard: rows, first_time_ms, last_time_ms, time_back_ms, back_at.

    ``time_back_ms`` is the most by which a block's time lies before that of an earlier block,
    ``back_at`` the first position of that block. The clocks of the shard's leaders differed, or one
    was set. Order follows from positions, not from times, so this is no finding.
    """
    merged = blocks.groupBy("shard_id", "block").agg(
        f.sum("rows").alias("rows"),
        f.min("first_position").alias("first_position"),
        f.min("first_time_ms").alias("first_time_ms"),
        f.max("last_time_ms").alias("last_time_ms"),
    )
    earlier = (
        Window.partitionBy("shard_id").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    )
    back = f.max("last_time_ms").over(earlier) - f.col("first_time_ms")
    return (
        merged.withColumn(_BACK, f.greatest(f.coalesce(back, f.lit(0)), f.lit(0)))
        .groupBy("shard_id")
        .agg(
            f.sum("rows").alias("rows"),
            f.min("first_time_ms").alias("first_time_ms"),
            f.max("last_time_ms").alias("last_time_ms"),
            f.max(_BACK).alias(_BACK),
            f.max_by("first_position", _BACK).alias("back_at"),
        )
    )


def files_read(facts: DataFrame) -> DataFrame:
    """Return positions, times and rows that were read: one row per ``file`` and shard."""
    return facts.groupBy("file", "shard_id").agg(
        f.count("*").alias("rows_read"),
        f.min("position").alias("first_read"),
        f.max("position").alias("last_read"),
        f.min("time_ms").alias("first_time_read_ms"),
        f.max("time_ms").alias("last_time_read_ms"),
        f.max("schema_version").alias("schema_read"),
        f.count_if(f.col("event_type") == UNKNOWN_TYPE).alias("unknown_rows"),
    )


def compared_files(listed: DataFrame, read: DataFrame) -> DataFrame:
    """Return findings: files whose rows in ``read`` differ from ``listed``.

    ``listed`` has the columns of ``FILE_SCHEMA`` and ``file``.
    ``position`` is the first position in the file's name, ``other_position`` the first one read.
    """
    named = listed.select(
        "file",
        f.col("shard_id").alias("named_shard"),
        "first_position",
        "last_position",
        "rows",
        "first_time_ms",
        "last_time_ms",
    )
    joined = named.join(read, "file", "left")
    of_file = joined.groupBy("file").agg(
        f.max("named_shard").alias("shard_id"),
        f.max("first_position").alias("position"),
        f.max("rows").alias("rows"),
        f.coalesce(f.sum("rows_read"), f.lit(0)).alias("rows_read"),
    )
    differ = Broken(
        "rows_differ",
        f.col("rows_read") != f.col("rows"),
        found=f.col("rows_read"),
        expected=f.col("rows"),
    )
    is_own = f.col("shard_id") == f.col("named_shard")
    read_of = joined.where(f.col("shard_id").isNotNull())
    read_of = read_of.withColumn("position", f.col("first_read"))
    outside = (f.col("first_read") < f.col("first_position")) | (
        f.col("last_read") > f.col("last_position")
    )
    times = (f.col("first_time_read_ms") != f.col("first_time_ms")) | (
        f.col("last_time_read_ms") != f.col("last_time_ms")
    )
    is_whole = f.col("rows_read") == f.col("rows")
    rules = [
        Broken("wrong_file", ~is_own, f.col("first_position"), f.col("named_shard")),
        Broken("outside_range", is_own & outside, f.col("first_position")),
        Broken("times_differ", is_own & ~outside & is_whole & times, f.col("last_position")),
        Broken(
            "newer_schema",
            f.col("schema_read") > SCHEMA_VERSION,
            found=f.col("schema_read"),
            expected=f.lit(SCHEMA_VERSION),
        ),
    ]
    return findings(of_file, [differ]).unionByName(findings(read_of, rules))


def _blocks_of_gaps(gaps: DataFrame) -> DataFrame:
    first_block = f.floor(f.col("first_position") / BLOCK).cast("long")
    last_block = f.floor(f.col("last_position") / BLOCK).cast("long")
    spread = gaps.withColumn("block", f.explode(f.sequence(first_block, last_block)))
    low = f.greatest(f.col("first_position") - f.col("block") * BLOCK, f.lit(0)).cast("int")
    high = f.least(f.col("last_position") - f.col("block") * BLOCK, f.lit(BLOCK - 1)).cast("int")
    bounded = spread.withColumns({"low": low, "high": high})
    bits = f.expr(f"shiftleft(shiftrightunsigned(-1L, {BLOCK - 1} - (high - low)), low)")
    return bounded.select("shard_id", "block", bits.alias("bits"))


def _range(first: Column, last: Column) -> list[Column]:
    return [
        first.cast("long").alias("first_position"),
        last.cast("long").alias("last_position"),
    ]


def _trailing_zeros(bits: Column) -> Column:
    text = f.bin(bits)
    return f.length(text) - f.length(f.rtrim(text, f.lit("0")))


def _leading_zeros(bits: Column) -> Column:
    return f.lit(BLOCK) - f.length(f.bin(bits))


def _shifted_to_first() -> Column:
    zeros = _trailing_zeros(f.col("bits")).cast("int")
    return f.call_function("shiftrightunsigned", f.col("bits"), zeros)


def _shifted_to_last() -> Column:
    zeros = _leading_zeros(f.col("bits")).cast("int")
    return f.call_function("shiftleft", f.col("bits"), zeros)
