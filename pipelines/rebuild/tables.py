"""The tables that a rebuild makes, and the events that each one is folded from.

A table has one row for each existing object, with the columns of the shard's view
(``shards/projections``) and two more: ``shard_id``, and ``position``, of the last event that
changed the row.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import types as t

TENANTS = "tenants"
NAMESPACES = "namespaces"
TOPICS = "topics"
POLICIES = "policies"
ASSIGNMENTS = "assignments"
SESSIONS = "sessions"
LAYOUTS = "layouts"
SEGMENTS = "segments"
SUBSCRIPTIONS = "subscriptions"

ACTIVE = "active"
DELETING = "deleting"

RENAMED = "topic_renamed"

POLICY_SET = "policy_set"
POLICY_CLEARED = "policy_cleared"
"""Event types of tenants, namespaces and topics alike: ``scope`` says which of them is meant."""


@dataclass(frozen=True, slots=True)
class ObjectTable:
    """A table of objects that are created, changed and deleted under a name."""

    name: str
    scope: str
    """The kind's name in events: the first word of their types and of the field with its id."""

    parent: str = ""
    """Scope of the parent whose id it keeps."""

    has_life: bool = True
    """Whether its deletion takes two events."""

    grown: str = ""
    """The event that changes its number of partitions; "" if it has none."""

    renamed: str = ""
    """The event that gives it another name; "" if it keeps its name."""

    @property
    def created(self) -> str:
        return f"{self.scope}_created"

    @property
    def properties_set(self) -> str:
        return f"{self.scope}_properties_set"

    @property
    def deletion_started(self) -> str:
        return f"{self.scope}_deletion_started"

    @property
    def deletion_aborted(self) -> str:
        return f"{self.scope}_deletion_aborted"

    @property
    def deleted(self) -> str:
        return f"{self.scope}_deleted"

    @property
    def event_types(self) -> tuple[str, ...]:
        """Event types of this kind alone, without the policies'."""
        own: tuple[str, ...] = (self.created, self.properties_set, self.deleted)
        own = (*own, *filter(None, (self.grown, self.renamed)))
        return (*own, self.deletion_started, self.deletion_aborted) if self.has_life else own


OBJECT_TABLES = (
    ObjectTable(TENANTS, "tenant"),
    ObjectTable(NAMESPACES, "namespace", parent="tenant"),
    ObjectTable(
        TOPICS,
        "topic",
        parent="namespace",
        has_life=False,
        grown="topic_partitions_grown",
        renamed=RENAMED,
    ),
)

ASSIGNED = "topic_assigned"
UNASSIGNED = "topic_unassigned"
ASSIGNMENT_TYPES = (ASSIGNED, UNASSIGNED)

ESTABLISHED = "broker_session_established"
ENDED = "broker_session_ended"
GRANTED = "capacity_granted"
DRAIN_SET = "broker_drain_set"
CAPACITY_SET = "broker_capacity_set"
SESSION_TYPES = (ESTABLISHED, ENDED, GRANTED, DRAIN_SET, CAPACITY_SET)

LAYOUT_CREATED = "scalable_topic_created"
LAYOUT_RESTORED = "scalable_topic_restored"
LAYOUT_DELETED = "scalable_topic_deleted"
PLANNED = "layout_change_planned"
CHILDREN_READY = "segment_children_ready"
SEALED = "segment_sealed"
LAYOUT_CHANGED = "layout_changed"
ABANDONED = "layout_change_abandoned"
STORAGE_REMOVED = "segment_storage_removed"
POSTPONED = "segment_prune_postponed"
EXPLAINED = "auto_scale_decided"
LAYOUT_TYPES = (
    LAYOUT_CREATED,
    LAYOUT_RESTORED,
    LAYOUT_DELETED,
    PLANNED,
    CHILDREN_READY,
    SEALED,
    LAYOUT_CHANGED,
    ABANDONED,
    STORAGE_REMOVED,
    POSTPONED,
    EXPLAINED,
)

SUBSCRIBED = "scalable_subscription_created"
SOUGHT = "scalable_subscription_sought"
READY = "scalable_subscription_ready"
DELETION_STARTED = "scalable_subscription_deletion_started"
UNSUBSCRIBED = "scalable_subscription_deleted"
DRAINED = "segment_drained"
REGISTERED = "scalable_consumer_registered"
LEFT = "scalable_consumer_left"
SEGMENTS_ASSIGNED = "segments_assigned"
SUBSCRIPTION_TYPES = (
    SUBSCRIBED,
    SOUGHT,
    READY,
    DELETION_STARTED,
    UNSUBSCRIBED,
    DRAINED,
    REGISTERED,
    LEFT,
    SEGMENTS_ASSIGNED,
)

TABLE_NAMES = (
    TENANTS,
    NAMESPACES,
    TOPICS,
    POLICIES,
    ASSIGNMENTS,
    SESSIONS,
    LAYOUTS,
    SEGMENTS,
    SUBSCRIPTIONS,
)

FOLDED_TYPES = (
    *(event_type for table in OBJECT_TABLES for event_type in table.event_types),
    POLICY_SET,
    POLICY_CLEARED,
    *ASSIGNMENT_TYPES,
    *SESSION_TYPES,
    *LAYOUT_TYPES,
    *SUBSCRIPTION_TYPES,
)
"""Event types that change a row of some table. All others leave no trace in these tables."""


def _fields(*columns: tuple[str, t.DataType]) -> t.StructType:
    return t.StructType([t.StructField(name, data_type) for name, data_type in columns])


_PROPERTIES = ("properties", t.MapType(t.StringType(), t.StringType()))
_POLICIES = (("policies", t.BinaryType()), ("policies_version", t.LongType()))

FORMER_NAMES = t.ArrayType(_fields(("name", t.StringType()), ("until_ms", t.LongType())))
"""Names that may lead to a topic and until when, the latest last."""

_IDS = t.ArrayType(t.LongType())

OPERATION_FIELDS = (
    ("operation_id", t.LongType()),
    ("operation_kind", t.StringType()),
    ("operation_parents", _IDS),
    ("operation_children", _IDS),
    ("are_children_ready", t.BooleanType()),
    ("operation_sealed", _IDS),
)
"""The operation that is under way: id 0, no kind and no segments if there is none."""

SEGMENT_FIELDS = (
    ("segment_id", t.LongType()),
    ("hash_start", t.LongType()),
    ("hash_end", t.LongType()),
    ("is_sealed", t.BooleanType()),
    ("created_at_epoch", t.LongType()),
    ("created_at_ms", t.LongType()),
    ("sealed_at_epoch", t.LongType()),
    ("sealed_at_ms", t.LongType()),
    ("parents", _IDS),
    ("children", _IDS),
    ("end_ledger_id", t.LongType()),
    ("end_entry_id", t.LongType()),
    ("bucket_starts", _IDS),
    ("merge_depth", t.LongType()),
    ("legacy_topic_name", t.StringType()),
    ("stored_bytes", t.LongType()),
    ("postponed_until_ms", t.LongType()),
)

SUBSCRIPTION_FIELDS = (
    ("subscription", t.StringType()),
    ("type", t.StringType()),
    ("phase", t.StringType()),
    ("created_at_ms", t.LongType()),
    ("seek_to_ms", t.LongType()),
    ("skips_all", t.BooleanType()),
    (
        "consumers",
        t.ArrayType(_fields(("name", t.StringType()), ("takes_buckets", t.BooleanType()))),
    ),
    ("drained", _IDS),
    (
        "assigned",
        t.ArrayType(
            _fields(("consumer_name", t.StringType()), ("segments", _IDS), ("shared", _IDS))
        ),
    ),
)

LAYOUT_STATE = _fields(
    ("next_segment_id", t.LongType()),
    ("last_operation_id", t.LongType()),
    *OPERATION_FIELDS,
    ("removals", _IDS),
    ("segments", t.ArrayType(_fields(*SEGMENT_FIELDS))),
    ("subscriptions", t.ArrayType(_fields(*SUBSCRIPTION_FIELDS))),
)
"""A whole layout as one value, as it is compared: segments by id, subscriptions by name."""

POLICIES_SCHEMA = _fields(
    ("shard_id", t.IntegerType()),
    ("scope", t.StringType()),
    ("name", t.StringType()),
    ("object_id", t.StringType()),
    *_POLICIES,
)

SCHEMAS: dict[str, t.StructType] = {
    TENANTS: _fields(
        ("shard_id", t.IntegerType()),
        ("name", t.StringType()),
        ("tenant_id", t.StringType()),
        _PROPERTIES,
        ("version", t.LongType()),
        ("life", t.StringType()),
        *_POLICIES,
        ("position", t.LongType()),
    ),
    NAMESPACES: _fields(
        ("shard_id", t.IntegerType()),
        ("name", t.StringType()),
        ("namespace_id", t.StringType()),
        ("tenant_id", t.StringType()),
        _PROPERTIES,
        ("version", t.LongType()),
        ("life", t.StringType()),
        *_POLICIES,
        ("position", t.LongType()),
    ),
    TOPICS: _fields(
        ("shard_id", t.IntegerType()),
        ("name", t.StringType()),
        ("topic_id", t.StringType()),
        ("namespace_id", t.StringType()),
        ("partitions", t.LongType()),
        ("created_time", t.TimestampType()),
        _PROPERTIES,
        ("version", t.LongType()),
        *_POLICIES,
        ("former_names", FORMER_NAMES),
        ("position", t.LongType()),
    ),
    POLICIES: POLICIES_SCHEMA,
    ASSIGNMENTS: _fields(
        ("shard_id", t.IntegerType()),
        ("topic_id", t.StringType()),
        ("unit", t.StringType()),
        ("name", t.StringType()),
        ("epoch", t.LongType()),
        ("broker_id", t.StringType()),
        ("session_id", t.StringType()),
        ("position", t.LongType()),
    ),
    SESSIONS: _fields(
        ("shard_id", t.IntegerType()),
        ("broker_id", t.StringType()),
        ("session_id", t.StringType()),
        ("epoch", t.LongType()),
        ("is_live", t.BooleanType()),
        ("pulsar_url", t.StringType()),
        ("grpc", t.StringType()),
        ("http", t.StringType()),
        ("capacity_units", t.LongType()),
        ("granted_units", t.LongType()),
        ("zone", t.StringType()),
        ("rack", t.StringType()),
        ("quarantined_until_ms", t.LongType()),
        ("draining", t.BooleanType()),
        ("drain_units_per_second", t.LongType()),
        ("revision", t.LongType()),
        ("started_at_ms", t.ArrayType(t.LongType())),
        ("position", t.LongType()),
    ),
    LAYOUTS: _fields(
        ("shard_id", t.IntegerType()),
        ("name", t.StringType()),
        ("topic_id", t.StringType()),
        ("epoch", t.LongType()),
        ("next_segment_id", t.LongType()),
        ("version", t.LongType()),
        ("last_operation_id", t.LongType()),
        *OPERATION_FIELDS,
        ("removals", _IDS),
        ("position", t.LongType()),
    ),
    SEGMENTS: _fields(
        ("shard_id", t.IntegerType()),
        ("name", t.StringType()),
        ("topic_id", t.StringType()),
        *SEGMENT_FIELDS,
        ("position", t.LongType()),
    ),
    SUBSCRIPTIONS: _fields(
        ("shard_id", t.IntegerType()),
        ("name", t.StringType()),
        ("topic_id", t.StringType()),
        *SUBSCRIPTION_FIELDS,
        ("position", t.LongType()),
    ),
}
"""Columns of each table, in order. Unsigned numbers of the view are longs."""
