"""Narrow events in the lives of scalable topics, and what the payloads of their changes hold.

    created: segment 0 ─▶ split: 1 and 2 ─▶ 1 split: 3 and 4

Each is created with one segment and a subscription. Most are split once, some twice. Nobody looks
their segments up, so they have no units.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from nextgen.kernel.scalable.ranges import WHOLE_RANGE
from pipelines.generate.chance import happens
from pipelines.generate.clock import by_day
from pipelines.generate.inventory import is_scalable
from pipelines.generate.narrow import narrow
from pipelines.generate.world import STARTS_MS, World

SUBSCRIPTION = "readers"
SPLITS_MAX = 2

_LOWER, _UPPER = WHOLE_RANGE.split()
_FIRST, _SECOND = _LOWER.split()
_PARENTS = {1: (0, WHOLE_RANGE), 2: (1, _LOWER)}
_CHILDREN = {1: ((1, _LOWER), (2, _UPPER)), 2: ((3, _FIRST), (4, _SECOND))}
"""Segments by the number of the split, each with its range."""

_SPLIT_SHARES = {1: 0.7, 2: 0.4}
_READY_MS, _ENDED_MS = 20, 30
"""From the plan until the children are ready, and until the parent has ended."""

_SUBSCRIBED_MS = 5


def layout_events(topics: DataFrame, world: World) -> DataFrame:
    """Return the events of the layouts of all scalable topics."""
    number, created = f.col("topic_no"), f.col("created_even_ms")
    life_ms = f.col("ends_even_ms") - created
    first = by_day(created + f.floor(life_ms * 0.4).cast("long"))
    second = by_day(created + f.floor(life_ms * 0.7).cast("long"))
    is_split = happens(world, _SPLIT_SHARES[1], "layout is split", number)
    is_split_again = is_split & happens(world, _SPLIT_SHARES[2], "layout is split again", number)
    made_ms = f.col("created_ms")
    lives = (
        topics.where(is_scalable(f.col("name")))
        .withColumns(
            {
                "split_1_ms": f.when(is_split, first),
                "split_2_ms": f.when(is_split_again, second),
            }
        )
        .withColumn(
            "happened",
            f.explode(
                f.array(
                    _event("scalable_topic_created", made_ms, 0, made_ms),
                    _event("scalable_subscription_created", made_ms, 0, made_ms),
                    _event("scalable_subscription_ready", made_ms + _SUBSCRIBED_MS, 0, made_ms),
                    *_split(1, f.col("split_1_ms"), made_ms),
                    *_split(2, f.col("split_2_ms"), f.col("split_1_ms") + _ENDED_MS),
                    _event("scalable_topic_deleted", f.col("deleted_ms"), 0, made_ms),
                )
            ),
        )
    )
    return narrow(
        lives.where(f.col("happened.at_ms").isNotNull()),
        event_type=f.col("happened.kind"),
        shard_id="shard_id",
        time_ms="happened.at_ms",
        object=number,
        seq="happened.number",
        name="name",
        id="object_id",
        number="happened.number",
        rate="happened.parent_ms",
    )


def layout_payloads() -> dict[str, dict[str, Column]]:
    """Return the fields of each type of event, from the columns of narrow rows.

    ``number`` is that of the split, ``rate`` the time at which its parent was created.
    """
    topic = {"name": f.col("name"), "topic_id": f.col("id")}
    operation = {**topic, "operation_id": f.col("number")}
    subscription = {**topic, "subscription": f.lit(SUBSCRIPTION)}
    now_ms, parent_ms = f.col("time_ms") + STARTS_MS, f.col("rate") + STARTS_MS
    whole = _segment(0, WHOLE_RANGE.start, WHOLE_RANGE.end, f.lit(0), now_ms)
    split, children = f.lit("split"), _children(now_ms)
    parents = _by_split({number: [f.lit(each)] for number, (each, _) in _PARENTS.items()})
    return {
        "scalable_topic_created": {**topic, "segments": f.array(whole)},
        "scalable_topic_deleted": topic,
        "scalable_subscription_created": {
            **subscription,
            "type": f.lit("stream"),
            "created_at_ms": now_ms,
        },
        "scalable_subscription_ready": subscription,
        "layout_change_planned": {
            **operation,
            "kind": split,
            "parents": parents,
            "children": children,
            "asked_by": f.lit("operator"),
            "planned_at_ms": now_ms,
        },
        "segment_children_ready": operation,
        "segment_sealed": {
            **operation,
            "segment_id": f.element_at(parents, 1),
            "end": _end(f.col("number")),
        },
        "layout_changed": {
            **operation,
            "epoch": f.col("number"),
            "kind": split,
            "changed": f.concat(_sealed(parent_ms, now_ms), children),
        },
    }


def _children(now_ms: Column) -> Column:
    """Return the segments that a split makes."""
    return _by_split(
        {
            number: [
                _segment(each, within.start, within.end, f.lit(number), now_ms, _PARENTS[number][0])
                for each, within in made
            ]
            for number, made in _CHILDREN.items()
        }
    )


def _sealed(created_ms: Column, now_ms: Column) -> Column:
    """Return the segment that a split ends, as it is afterwards."""
    return _by_split(
        {
            number: [
                _segment(
                    parent,
                    within.start,
                    within.end,
                    f.lit(number - 1),
                    created_ms,
                    *([] if number == 1 else [0]),
                    children=[each for each, _ in _CHILDREN[number]],
                    sealed_at=(number, now_ms),
                )
            ]
            for number, (parent, within) in _PARENTS.items()
        }
    )


def _split(number: int, at_ms: Column, parent_ms: Column) -> list[Column]:
    return [
        _event("layout_change_planned", at_ms, number, parent_ms),
        _event("segment_children_ready", at_ms + _READY_MS, number, parent_ms),
        _event("segment_sealed", at_ms + _ENDED_MS, number, parent_ms),
        _event("layout_changed", at_ms + _ENDED_MS, number, parent_ms),
    ]


def _event(kind: str, at_ms: Column, number: int, parent_ms: Column) -> Column:
    return f.struct(
        f.lit(kind).alias("kind"),
        at_ms.cast("long").alias("at_ms"),
        f.lit(number).cast("long").alias("number"),
        parent_ms.cast("long").alias("parent_ms"),
    )


def _by_split(parts: dict[int, list[Column]]) -> Column:
    chosen = f.when(f.col("number") == 1, f.array(*parts[1]))
    return chosen.otherwise(f.array(*parts[2]))


def _end(split: Column) -> Column:
    """Return where the parent of a split ended."""
    return f.struct(split.cast("long").alias("ledger_id"), (split * 1_000).alias("entry_id"))


def _segment(
    segment_id: int,
    start: int,
    end: int,
    epoch: Column,
    created_at_ms: Column,
    *parents: int,
    children: list[int] | None = None,
    sealed_at: tuple[int, Column] | None = None,
) -> Column:
    """Return a segment with the fields of the message, in its order."""
    sealed_epoch, sealed_ms = (0, f.lit(0)) if sealed_at is None else sealed_at
    no_end = f.lit(None).cast("struct<ledger_id:bigint,entry_id:bigint>")
    fields: dict[str, Column] = {
        "segment_id": f.lit(segment_id),
        "hash_start": f.lit(start),
        "hash_end": f.lit(end),
        "created_at_epoch": epoch,
        "created_at_ms": created_at_ms,
        "parents": f.array(*map(f.lit, parents)).cast("array<bigint>"),
        "children": f.array(*map(f.lit, children or ())).cast("array<bigint>"),
        "is_sealed": f.lit(sealed_at is not None),
        "sealed_at_epoch": f.lit(sealed_epoch),
        "sealed_at_ms": sealed_ms,
        "end": no_end if sealed_at is None else _end(f.col("number")),
        "bucket_starts": f.array().cast("array<bigint>"),
        "merge_depth": f.lit(0),
        "legacy_topic_name": f.lit(""),
    }
    others = ("parents", "children", "is_sealed", "end", "bucket_starts", "legacy_topic_name")
    return f.struct(
        *(
            (value if name in others else value.cast("long")).alias(name)
            for name, value in fields.items()
        )
    )
