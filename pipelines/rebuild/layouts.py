"""The fold of scalable topics: layouts, their segments, and their subscriptions.

An event has the same effect as in ``shards/domain/scalable/state.py``; a test folds the same events
both ways. Events have the segments as they are afterwards, a topic has one layout for its whole
life, and no segment id is used twice. So the last event with a segment has its state, and nothing
is sorted but the changes of subscriptions.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as t

from pipelines.exports.event_schema import spark_schema
from pipelines.rebuild import tables
from pipelines.rebuild.tables import (
    ABANDONED,
    CHILDREN_READY,
    DELETION_STARTED,
    DRAINED,
    LAYOUT_CHANGED,
    LAYOUT_CREATED,
    LAYOUT_DELETED,
    LAYOUT_RESTORED,
    LAYOUT_TYPES,
    LEFT,
    PLANNED,
    POSTPONED,
    READY,
    REGISTERED,
    SCHEMAS,
    SEALED,
    SEGMENTS_ASSIGNED,
    SOUGHT,
    STORAGE_REMOVED,
    SUBSCRIBED,
    SUBSCRIPTION_TYPES,
    UNSUBSCRIBED,
)

_BY_TOPIC = ("shard_id", "topic_id")
_BY_SUBSCRIPTION = (*_BY_TOPIC, "subscription")
_IDS = t.ArrayType(t.LongType())
_ASSIGNED = dict(tables.SUBSCRIPTION_FIELDS)["assigned"]
_PHASE_CREATING, _PHASE_SEEKING, _PHASE_LIVE, _PHASE_DELETING = (
    "creating",
    "seeking",
    "live",
    "deleting",
)
_CHECKPOINT = "checkpoint"


def fold_segments(events: DataFrame) -> DataFrame:
    """Return the rows of ``SCHEMAS["segments"]``: the segments in the layouts that there are."""
    with_segments = (LAYOUT_CREATED, LAYOUT_RESTORED, LAYOUT_CHANGED, SEALED, POSTPONED)
    told = _of_topics(events, with_segments).select(
        *_BY_TOPIC, "name", "position", F.explode(_told_of_segments()).alias("told")
    )
    has_segment = F.when(F.col("told.segment").isNotNull(), F.col("position"))
    folded = told.groupBy(*_BY_TOPIC, F.col("told.segment_id").alias("segment_id")).agg(
        F.max("name").alias("name"),
        F.max_by("told.segment", has_segment).alias("segment"),
        F.max("told.stored_bytes").alias("stored_bytes"),
        F.max_by(
            "told.until_ms", F.when(F.col("told.until_ms").isNotNull(), F.col("position"))
        ).alias("postponed_until_ms"),
        F.max("told.is_gone").alias("is_gone"),
        F.max("position").alias("position"),
    )
    there = _without_deleted(folded.where(~F.col("is_gone") & F.col("segment").isNotNull()), events)
    flat = {
        "end_ledger_id": F.col("segment.end.ledger_id"),
        "end_entry_id": F.col("segment.end.entry_id"),
        "stored_bytes": F.coalesce("stored_bytes", F.lit(0)),
        "postponed_until_ms": F.coalesce("postponed_until_ms", F.lit(0)),
    }
    plain = [name for name, _ in tables.SEGMENT_FIELDS if name not in flat and name != "segment_id"]
    return _with_columns_of(
        there.withColumns(flat | {name: F.col(f"segment.{name}") for name in plain}),
        tables.SEGMENTS,
    )


def fold_layouts(events: DataFrame) -> DataFrame:
    """Return the rows of ``SCHEMAS["layouts"]``: one for each scalable topic that there is."""
    kind, order = F.col("event_type"), F.col("position")
    epoch = F.coalesce(
        F.when(kind == LAYOUT_CREATED, F.lit(0).cast("long")),
        F.col(f"{LAYOUT_RESTORED}.epoch"),
        F.col(f"{LAYOUT_CHANGED}.epoch"),
    )
    children = F.transform(f"{PLANNED}.children", lambda each: each["segment_id"])
    next_id = F.coalesce(
        F.when(kind == LAYOUT_CREATED, F.size(f"{LAYOUT_CREATED}.segments").cast("long")),
        F.col(f"{LAYOUT_RESTORED}.next_segment_id"),
        F.array_max(children) + 1,
    )
    planned = F.struct(
        F.col(f"{PLANNED}.operation_id").alias("operation_id"),
        F.col(f"{PLANNED}.kind").alias("kind"),
        F.col(f"{PLANNED}.parents").alias("parents"),
        children.alias("children"),
    )
    sealed = F.struct(f"{SEALED}.operation_id", f"{SEALED}.segment_id")
    # Of all events about the layout, of its subscriptions too: each raises the version by one.
    all_types = (*LAYOUT_TYPES, *SUBSCRIPTION_TYPES)
    folded = (
        _of_topics(events, all_types)
        .groupBy(*_BY_TOPIC)
        .agg(
            F.max("name").alias("name"),
            F.max_by(epoch, F.when(epoch.isNotNull(), order)).alias("epoch"),
            F.max(next_id).alias("next_segment_id"),
            F.count(F.lit(1)).alias("version"),
            F.max(
                F.coalesce(f"{PLANNED}.operation_id", f"{LAYOUT_RESTORED}.last_operation_id")
            ).alias("last_operation_id"),
            F.max_by(planned, F.when(kind == PLANNED, order)).alias("planned"),
            F.max(F.coalesce(f"{LAYOUT_CHANGED}.operation_id", f"{ABANDONED}.operation_id")).alias(
                "ended"
            ),
            F.max(f"{CHILDREN_READY}.operation_id").alias("ready"),
            F.collect_set(F.when(kind == SEALED, sealed)).alias("sealed"),
            F.flatten(F.collect_list(f"{LAYOUT_CHANGED}.removed")).alias("removed"),
            F.flatten(
                F.collect_list(
                    F.transform(f"{LAYOUT_RESTORED}.removals", lambda each: each["segment_id"])
                )
            ).alias("restored"),
            F.collect_list(F.when(kind == PLANNED, planned)).alias("plans"),
            F.collect_set(f"{ABANDONED}.operation_id").alias("abandoned"),
            F.collect_set(f"{STORAGE_REMOVED}.segment_id").alias("stored_no_more"),
            F.max(order).alias("position"),
        )
    )
    is_under_way = F.col("planned.operation_id") > F.coalesce("ended", F.lit(0))
    return _with_columns_of(
        _without_deleted(folded, events).withColumns(
            {
                "last_operation_id": F.coalesce("last_operation_id", F.lit(0)),
                "operation_id": _if(is_under_way, F.col("planned.operation_id"), F.lit(0)),
                "operation_kind": F.when(is_under_way, F.col("planned.kind")),
                "operation_parents": _if(is_under_way, F.col("planned.parents"), _no_ids()),
                "operation_children": _if(is_under_way, F.col("planned.children"), _no_ids()),
                "are_children_ready": _if(
                    is_under_way, F.col("ready") == F.col("planned.operation_id"), F.lit(False)
                ),
                "operation_sealed": _if(is_under_way, _sealed_of_the_last(), _no_ids()),
                "removals": _removals(),
            }
        ),
        tables.LAYOUTS,
    )


def fold_subscriptions(events: DataFrame) -> DataFrame:
    """Return the rows of ``SCHEMAS["subscriptions"]``: the subscriptions of scalable topics."""
    kind, order = F.col("event_type"), F.col("position")
    changes = _subscription_changes(events)
    whole = Window.partitionBy(*_BY_SUBSCRIPTION)
    of_consumer = Window.partitionBy(*_BY_SUBSCRIPTION, "consumer_name").orderBy("position")
    dated = changes.withColumns(
        {
            "born_at": F.max(F.when(kind == SUBSCRIBED, order)).over(whole),
            "sought_at": F.max(F.when(kind == SOUGHT, order)).over(whole),
            "ending_at": F.max(F.when(kind == DELETION_STARTED, order)).over(whole),
            "is_last": F.lead("position").over(of_consumer).isNull(),
        }
    )
    is_drained = (kind == DRAINED) & (order > F.coalesce("sought_at", F.lit(0)))
    is_there = (kind == REGISTERED) & F.col("is_last") & (order > F.coalesce("ending_at", F.lit(0)))
    folded = (
        # Events before the last creation are about another subscription of the same name.
        dated.where("position >= born_at")
        .groupBy(*_BY_SUBSCRIPTION)
        .agg(
            F.max("name").alias("name"),
            F.max("type").alias("type"),
            _latest("phase"),
            F.max("created_at_ms").alias("created_at_ms"),
            _latest("seek_to_ms"),
            _latest("skips_all"),
            _latest("assigned"),
            F.array_sort(
                F.collect_list(
                    F.when(
                        is_there,
                        F.struct(F.col("consumer_name").alias("name"), F.col("takes_buckets")),
                    )
                )
            ).alias("consumers"),
            F.collect_set(F.when(is_drained, F.col("segment_id"))).alias("drained"),
            F.max(F.when(kind == UNSUBSCRIBED, order)).alias("deleted_at"),
            F.max(order).alias("position"),
        )
        .where(F.col("deleted_at").isNull())
    )
    known = _without_deleted(folded, events).join(_removed(events), [*_BY_TOPIC], "left")
    left = F.array_except("drained", F.coalesce("removed", _no_ids()))
    return _with_columns_of(known.withColumn("drained", F.array_sort(left)), tables.SUBSCRIPTIONS)


def removed_units(events: DataFrame) -> DataFrame:
    """Return shard_id, topic_id and unit of the segments whose messages are gone: their assignments
    are removed with them."""
    removed = F.col(STORAGE_REMOVED)
    return events.where(F.col("event_type") == STORAGE_REMOVED).select(
        "shard_id",
        removed["topic_id"].alias("topic_id"),
        F.concat(F.lit("s"), removed["segment_id"].cast("string")).alias("unit"),
    )


# Helpers -----------------------------------------------------------------------------------------


def _of_topics(events: DataFrame, types: tuple[str, ...]) -> DataFrame:
    """Return the events of ``types`` with the name and id of their topic."""
    return events.where(F.col("event_type").isin(*types)).withColumns(
        {
            field: F.coalesce(*(F.col(f"{one}.{field}") for one in types))
            for field in ("name", "topic_id")
        }
    )


def _without_deleted(rows: DataFrame, events: DataFrame) -> DataFrame:
    deleted = events.where(F.col("event_type") == LAYOUT_DELETED).select(
        "shard_id", F.col(f"{LAYOUT_DELETED}.topic_id").alias("topic_id")
    )
    return rows.join(deleted, [*_BY_TOPIC], "left_anti")


def _removed(events: DataFrame) -> DataFrame:
    """Return the segments that left each layout: drain marks of them count no more."""
    changed = F.col(LAYOUT_CHANGED)
    return (
        events.where((F.col("event_type") == LAYOUT_CHANGED) & (F.size(changed["removed"]) > 0))
        .groupBy("shard_id", changed["topic_id"].alias("topic_id"))
        .agg(F.flatten(F.collect_list(changed["removed"])).alias("removed"))
    )


def _told_of_segments() -> Column:
    """Return what an event says of each segment, as an array."""
    segments = F.coalesce(
        f"{LAYOUT_CREATED}.segments", f"{LAYOUT_RESTORED}.segments", f"{LAYOUT_CHANGED}.changed"
    )
    nothing = F.lit(None).cast("long")

    def told(segment_id: Column, **known: Column) -> Column:
        return F.struct(
            segment_id.cast("long").alias("segment_id"),
            known.get("segment", F.lit(None).cast(_SEGMENT)).cast(_SEGMENT).alias("segment"),
            known.get("stored_bytes", nothing).alias("stored_bytes"),
            known.get("until_ms", nothing).alias("until_ms"),
            F.lit("is_gone" in known).alias("is_gone"),
        )

    stored = F.col(f"{SEALED}.stored_bytes")
    parts = [
        F.transform(segments, lambda each: told(each["segment_id"], segment=each)),
        F.transform(f"{LAYOUT_CHANGED}.removed", lambda each: told(each, is_gone=F.lit(True))),
        F.when(stored > 0, F.array(told(F.col(f"{SEALED}.segment_id"), stored_bytes=stored))),
        F.when(
            F.col(f"{POSTPONED}.segment_id").isNotNull(),
            F.array(
                told(F.col(f"{POSTPONED}.segment_id"), until_ms=F.col(f"{POSTPONED}.until_ms"))
            ),
        ),
    ]
    return F.flatten(F.array_compact(F.array(*parts)))


def _segment_type() -> t.StructType:
    """Return the type of a segment in an event, with its fields in the order of the message."""
    created = spark_schema()[LAYOUT_CREATED].dataType
    assert isinstance(created, t.StructType)
    segments = created["segments"].dataType
    assert isinstance(segments, t.ArrayType)
    assert isinstance(segments.elementType, t.StructType)
    return segments.elementType


_SEGMENT = _segment_type()


def _subscription_changes(events: DataFrame) -> DataFrame:
    """Return one row for each event about a subscription."""
    kind = F.col("event_type")
    subscription = F.coalesce(*(F.col(f"{one}.subscription") for one in SUBSCRIPTION_TYPES))
    born_phase = F.when(F.col(f"{SUBSCRIBED}.type") == _CHECKPOINT, _PHASE_LIVE).otherwise(
        _PHASE_CREATING
    )
    phase = (
        F.when(kind == SUBSCRIBED, born_phase)
        .when(kind == READY, _PHASE_LIVE)
        .when(kind == SOUGHT, _PHASE_SEEKING)
        .when(kind == DELETION_STARTED, _PHASE_DELETING)
    )
    is_settled = kind.isin(SUBSCRIBED, READY)
    assigned = F.when(kind.isin(SUBSCRIBED, DELETION_STARTED), F.array().cast(_ASSIGNED)).otherwise(
        F.col(f"{SEGMENTS_ASSIGNED}.assigned").cast(_ASSIGNED)
    )
    return _of_topics(events, SUBSCRIPTION_TYPES).select(
        *_BY_TOPIC,
        "name",
        "position",
        "event_type",
        subscription.alias("subscription"),
        F.col(f"{SUBSCRIBED}.type").alias("type"),
        phase.alias("phase"),
        F.col(f"{SUBSCRIBED}.created_at_ms").alias("created_at_ms"),
        F.when(is_settled, F.lit(0)).otherwise(F.col(f"{SOUGHT}.seek_to_ms")).alias("seek_to_ms"),
        F.when(is_settled, F.lit(False)).otherwise(F.col(f"{SOUGHT}.skips_all")).alias("skips_all"),
        assigned.alias("assigned"),
        F.coalesce(f"{REGISTERED}.consumer_name", f"{LEFT}.consumer_name").alias("consumer_name"),
        F.col(f"{REGISTERED}.takes_buckets").alias("takes_buckets"),
        F.col(f"{DRAINED}.segment_id").alias("segment_id"),
    )


def _latest(column: str) -> Column:
    """Return an aggregate: ``column`` of the last event that has it."""
    return F.max_by(column, F.when(F.col(column).isNotNull(), F.col("position"))).alias(column)


def _sealed_of_the_last() -> Column:
    of_it = F.filter("sealed", lambda each: each["operation_id"] == F.col("planned.operation_id"))
    return F.array_sort(F.transform(of_it, lambda each: each["segment_id"]))


def _removals() -> Column:
    """Return the segments that left the layout, or never came into it, and whose messages are not
    gone yet."""
    abandoned = F.filter("plans", lambda each: F.array_contains("abandoned", each["operation_id"]))
    children = F.flatten(F.transform(abandoned, lambda each: each["children"]))
    all_of_them = F.concat("restored", "removed", children)
    return F.array_sort(F.array_except(all_of_them, F.col("stored_no_more")))


def _if(condition: Column, value: Column, otherwise: Column) -> Column:
    return F.when(F.coalesce(condition & value.isNotNull(), F.lit(False)), value).otherwise(
        otherwise
    )


def _no_ids() -> Column:
    return F.array().cast(_IDS)


def _with_columns_of(rows: DataFrame, table: str) -> DataFrame:
    return rows.select(*(F.col(field.name).cast(field.dataType) for field in SCHEMAS[table].fields))
