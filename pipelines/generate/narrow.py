"""Events without payloads: one narrow row each, for sorting and numbering.

| column | what it is |
|---|---|
| `shard_id`, `time_ms` | the shard, and the time from the beginning of the history |
| `rank`, `object`, `part`, `seq` | settle the order of events of one millisecond, in this order |
| `event_type` | as in exports |
| `name`, `id`, `parent_id` | of the object that the event is about |
| `detail` | reason, scope or kind of parent |
| `number` | epoch, version, partitions, units or attempt |
| `broker`, `session` | numbers; a session's number is its epoch |
| `rate` | bytes a second; of a split, when its parent was created |
| `busiest`, `ranges` | busiest units of a load report, slots of a shard |
| `payload` | the whole payload as JSON, of scalable topics with loads |
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

NARROW = {
    "shard_id": "int",
    "time_ms": "bigint",
    "rank": "int",
    "event_type": "string",
    "object": "bigint",
    "part": "int",
    "seq": "bigint",
    "name": "string",
    "id": "string",
    "parent_id": "string",
    "detail": "string",
    "number": "bigint",
    "broker": "int",
    "session": "int",
    "rate": "bigint",
    "busiest": "array<struct<rate:bigint,name:string,unit:string>>",
    "ranges": "array<struct<first:bigint,last:bigint>>",
    "payload": "string",
}

ORDER = ("time_ms", "rank", "object", "part", "seq")
"""Order of events within a shard. No two events of a shard are equal in all these columns."""

RANKS = {
    "shard_map_changed": 0,
    "slots_adopted": 0,
    "node_registered": 1,
    "broker_session_ended": 2,
    "broker_session_established": 3,
    "capacity_granted": 4,
    "broker_drain_set": 5,
    "broker_recorded": 6,
    "capacity_lease_released": 7,
    "capacity_leased": 8,
    "broker_load_reported": 9,
    "tenant_created": 10,
    "tenant_properties_set": 11,
    "parent_gate_opened": 20,
    "namespace_created": 30,
    "namespace_properties_set": 31,
    "topic_created": 40,
    "topic_properties_set": 41,
    "topic_partitions_grown": 42,
    "scalable_topic_created": 43,
    "scalable_subscription_created": 44,
    "scalable_subscription_ready": 44,
    "policy_set": 45,
    "policy_cleared": 45,
    "layout_change_planned": 46,
    "segment_children_ready": 47,
    "segment_sealed": 48,
    "layout_changed": 49,
    "topic_assigned": 50,
    "topic_unassigned": 50,
    "topic_deleted": 60,
    "scalable_topic_deleted": 61,
    "namespace_deletion_started": 70,
    "tenant_deletion_started": 71,
    "parent_gate_closed": 72,
    "namespace_deleted": 73,
    "tenant_deleted": 74,
    "lookup_window_recorded": 80,
}
"""Order of event types within one millisecond: causes before their consequences."""


def narrow(frame: DataFrame, **columns: Column | str | int) -> DataFrame:
    """Return the narrow rows of ``frame``: ``columns`` as given, the others null, the rank added.

    A text is a column's name for ``NARROW`` columns other than ``event_type`` and ``detail``, where
    it is the value itself.
    """
    kind = _column("event_type", columns.pop("event_type"))
    chosen = {name: _column(name, given) for name, given in columns.items()}
    defaults = {"object": f.lit(0), "part": f.lit(-1), "seq": f.lit(0)}
    chosen = {"event_type": kind, "rank": _rank(kind), **defaults, **chosen}
    return frame.select(
        *(chosen.get(name, f.lit(None)).cast(type_).alias(name) for name, type_ in NARROW.items())
    )


def together(frames: Iterable[DataFrame]) -> DataFrame:
    """Return all rows of several narrow frames."""
    return reduce(DataFrame.unionByName, frames)


def _column(name: str, given: Column | str | int) -> Column:
    if isinstance(given, str):
        return f.lit(given) if name in ("event_type", "detail") else f.col(given)
    return f.lit(given) if isinstance(given, int) else given


def _rank(kind: Column) -> Column:
    pairs = [f.lit(part) for pair in RANKS.items() for part in pair]
    return f.element_at(f.create_map(*pairs), kind)
