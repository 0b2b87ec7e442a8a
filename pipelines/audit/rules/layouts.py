"""Layouts of scalable topics: their ranges, epochs, segment ids and operations, by the topic's id.

Every change of the segments says what they are afterwards. So the ranges that take messages are
counted by their bounds: a segment that becomes active adds its range, one that ends takes it away,
and whatever happens the sum must stay the whole space of hashes, each covered once.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from nextgen.kernel.scalable.ranges import HASHES
from pipelines.audit.facts import (
    ABANDONED,
    CHILDREN_READY,
    LAYOUT_CHANGED,
    LAYOUT_CREATED,
    LAYOUT_DELETED,
    LAYOUT_RESTORED,
    LAYOUT_TYPES,
    PLANNED,
    SEALED,
)
from pipelines.audit.finding import Broken, findings

_ASSIGNED = "topic_assigned"
_BIRTHS = (LAYOUT_CREATED, LAYOUT_RESTORED)
_CARRIERS = (*_BIRTHS, LAYOUT_CHANGED)
"""Events with segments as they are in the layout from then on."""

_NONE = 0
"""Stands for no operation."""


def layout_findings(facts: DataFrame) -> DataFrame:
    """Return all findings about layouts. Only events of scalable topics are shuffled."""
    events = facts.where(f.col("layout").isNotNull()).select(
        "shard_id", "position", "event_type", "object", "number", "layout.*"
    )
    return (
        _change_findings(events)
        .unionByName(_range_findings(events))
        .unionByName(_assignment_findings(events))
    )


def _change_findings(events: DataFrame) -> DataFrame:
    """Return findings about epochs, operations and new ids, in the order of a topic's events."""
    kind = f.col("event_type")
    before = (
        Window.partitionBy("shard_id", "object")
        .orderBy("position")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    is_end = kind.isin(LAYOUT_CHANGED, ABANDONED) & (f.col("operation") > _NONE)
    under_way = f.when(kind == PLANNED, f.col("operation")).when(
        is_end | kind.isin(*_BIRTHS), f.lit(_NONE)
    )
    state = f.when(kind.isin(*_BIRTHS), f.lit(True)).when(kind == LAYOUT_DELETED, f.lit(False))
    highest = f.col("next_segment_id") - 1

    def last(value: Column) -> Column:
        return f.last(value, ignorenulls=True).over(before)

    frame = events.where(kind.isin(*LAYOUT_TYPES)).withColumns(
        {
            "is_there": f.coalesce(last(state), f.lit(False)),
            "since": last(f.when(state.isNotNull(), f.col("position"))),
            "epoch": last(
                f.when(kind == LAYOUT_CREATED, f.lit(0)).when(
                    kind.isin(*_CARRIERS), f.col("number")
                )
            ),
            "changed_at": last(f.when(kind.isin(*_CARRIERS), f.col("position"))),
            "under_way": f.coalesce(last(under_way), f.lit(_NONE)),
            "planned_at": last(f.when(under_way.isNotNull(), f.col("position"))),
            "last_operation": f.coalesce(
                f.max(f.when(kind.isin(PLANNED, LAYOUT_RESTORED), f.col("operation"))).over(before),
                f.lit(_NONE),
            ),
            "highest": f.coalesce(f.max(highest).over(before), f.lit(-1)),
        }
    )
    return findings(frame, _change_rules())


def _change_rules() -> list[Broken]:
    kind, is_there = f.col("event_type"), f.col("is_there")
    ids = f.transform("segments", lambda each: each["segment_id"])
    is_step = kind.isin(CHILDREN_READY, SEALED, ABANDONED) | (
        (kind == LAYOUT_CHANGED) & (f.col("operation") > _NONE)
    )
    return [
        Broken("created_twice", kind.isin(*_BIRTHS) & is_there, f.col("since")),
        Broken("not_there", ~kind.isin(*_BIRTHS) & ~is_there, f.col("since")),
        Broken(
            "layout_epoch",
            (kind == LAYOUT_CHANGED) & (f.col("number") != f.col("epoch") + 1),
            f.col("changed_at"),
            found=f.col("number"),
            expected=f.col("epoch") + 1,
        ),
        Broken(
            "operation_beside_another",
            (kind == PLANNED) & (f.col("under_way") != _NONE),
            f.col("planned_at"),
            found=f.col("operation"),
            expected=f.col("under_way"),
        ),
        Broken(
            "operation_id",
            (kind == PLANNED) & (f.col("operation") != f.col("last_operation") + 1),
            f.col("planned_at"),
            found=f.col("operation"),
            expected=f.col("last_operation") + 1,
        ),
        Broken(
            "no_such_operation",
            is_step & is_there & (f.col("operation") != f.col("under_way")),
            f.col("planned_at"),
            found=f.col("operation"),
            expected=f.col("under_way"),
        ),
        Broken(
            "segment_id_again",
            (kind == PLANNED) & (f.array_min(ids) <= f.col("highest")),
            f.col("changed_at"),
            found=f.array_min(ids),
            expected=f.col("highest") + 1,
        ),
        Broken(
            "unknown_segment",
            (kind == LAYOUT_CHANGED) & (f.array_max(ids) > f.col("highest")),
            f.col("changed_at"),
            found=f.array_max(ids),
            expected=f.col("highest"),
        ),
    ]


def _range_findings(events: DataFrame) -> DataFrame:
    """Return findings: changes behind which some hash has no active segment, or two."""
    kind = f.col("event_type")
    gone = f.transform("gone", lambda each: _range_of(each, f.lit(None), f.lit(None)))
    whole = f.array(_range_of(f.lit(None), f.lit(0), f.lit(HASHES - 1)))
    active = f.transform(
        "segments",
        lambda each: _range_of(
            each["segment_id"],
            f.when(each["is_active"], each["hash_start"]),
            f.when(each["is_active"], each["hash_end"]),
        ),
    )
    told = (
        events.where(kind.isin(*_CARRIERS))
        .select(
            "shard_id",
            "object",
            "position",
            f.explode(
                f.concat(
                    active,
                    f.when(kind == LAYOUT_CHANGED, gone).otherwise(f.array().cast(_RANGES)),
                    f.when(kind.isin(*_BIRTHS), whole).otherwise(f.array().cast(_RANGES)),
                )
            ).alias("range"),
        )
        .select("shard_id", "object", "position", "range.*")
    )
    in_order = Window.partitionBy("shard_id", "object", "segment_id").orderBy("position")
    is_segment = f.col("segment_id").isNotNull()
    # The whole space is taken away once, at the creation: what is left must be nothing.
    sign = f.when(is_segment, 1).otherwise(-1)
    before = {
        "start_before": f.when(is_segment, f.lag("start").over(in_order)),
        "end_before": f.when(is_segment, f.lag("end").over(in_order)),
    }
    bounds = told.withColumns(before).select(
        "shard_id",
        "object",
        "position",
        f.explode(
            f.array(
                _bound(f.col("start"), sign),
                _bound(f.col("end") + 1, -sign),
                _bound(f.col("start_before"), f.lit(-1)),
                _bound(f.col("end_before") + 1, f.lit(1)),
            )
        ).alias("bound"),
    )
    uneven = (
        bounds.where("bound.at is not null")
        .groupBy("shard_id", "object", "position", "bound.at")
        .agg(f.sum("bound.sign").alias("sum"))
        .where("sum != 0")
        .groupBy("shard_id", "object", "position")
        .agg(f.min("at").alias("at"))
    )
    always = f.col("at").isNotNull()
    return findings(uneven, [Broken("ranges_uneven", always, found=f.col("at"))])


_RANGES = "array<struct<segment_id:bigint,start:bigint,end:bigint>>"


def _range_of(segment_id: Column, start: Column, end: Column) -> Column:
    return f.struct(
        segment_id.cast("long").alias("segment_id"),
        start.cast("long").alias("start"),
        end.cast("long").alias("end"),
    )


def _bound(at: Column, sign: Column) -> Column:
    return f.struct(at.alias("at"), sign.cast("int").alias("sign"))


def _assignment_findings(events: DataFrame) -> DataFrame:
    """Return findings: assignments of segments that the layout does not list.

    Listed are those of the layout, and the children of the operation that is under way.
    """
    kind = f.col("event_type")
    by_topic = (
        Window.partitionBy("shard_id", "object")
        .orderBy("position")
        .rowsBetween(Window.unboundedPreceding, 0)
    )
    ids = f.transform("segments", lambda each: each["segment_id"])
    planned = f.last(f.when(kind == PLANNED, ids), ignorenulls=True).over(by_topic)
    wanted = (*_CARRIERS, PLANNED, ABANDONED, _ASSIGNED)
    known = events.where(kind.isin(*wanted)).withColumn("planned", planned)
    come = f.when(kind.isin(*_CARRIERS, PLANNED), ids)
    left = f.when(kind == LAYOUT_CHANGED, f.col("gone")).when(kind == ABANDONED, f.col("planned"))
    used = f.when(kind == _ASSIGNED, f.col("gone"))
    one_each = known.select(
        "shard_id",
        "object",
        "position",
        f.explode(
            f.flatten(
                f.array_compact(f.array(_each(come, True), _each(left, False), _each(used, None)))
            )
        ).alias("one"),
    ).select("shard_id", "object", "position", "one.*")
    before = (
        Window.partitionBy("shard_id", "object", "segment_id")
        .orderBy("position")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    frame = one_each.withColumns(
        {
            "was_listed": f.last("is_listed", ignorenulls=True).over(before),
            "since": f.last(
                f.when(f.col("is_listed").isNotNull(), f.col("position")), ignorenulls=True
            ).over(before),
        }
    )
    is_unlisted = f.col("is_listed").isNull() & ~f.coalesce("was_listed", f.lit(False))
    rule = Broken("unlisted_segment", is_unlisted, f.col("since"), found=f.col("segment_id"))
    return findings(frame, [rule])


def _each(ids: Column, is_listed: bool | None) -> Column:
    """Return an array of the segments, each with whether it is listed from here on; None: it is
    used here."""
    return f.transform(
        ids,
        lambda each: f.struct(
            each.cast("long").alias("segment_id"),
            f.lit(is_listed).cast("boolean").alias("is_listed"),
        ),
    )
