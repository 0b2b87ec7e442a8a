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

ACTIVE = "active"
DELETING = "deleting"

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
        if self.grown:
            own = (*own, self.grown)
        return (*own, self.deletion_started, self.deletion_aborted) if self.has_life else own


OBJECT_TABLES = (
    ObjectTable(TENANTS, "tenant"),
    ObjectTable(NAMESPACES, "namespace", parent="tenant"),
    ObjectTable(
        TOPICS, "topic", parent="namespace", has_life=False, grown="topic_partitions_grown"
    ),
)

ASSIGNED = "topic_assigned"
UNASSIGNED = "topic_unassigned"
ASSIGNMENT_TYPES = (ASSIGNED, UNASSIGNED)

ESTABLISHED = "broker_session_established"
ENDED = "broker_session_ended"
GRANTED = "capacity_granted"
DRAIN_SET = "broker_drain_set"
SESSION_TYPES = (ESTABLISHED, ENDED, GRANTED, DRAIN_SET)

TABLE_NAMES = (TENANTS, NAMESPACES, TOPICS, POLICIES, ASSIGNMENTS, SESSIONS)

FOLDED_TYPES = (
    *(event_type for table in OBJECT_TABLES for event_type in table.event_types),
    POLICY_SET,
    POLICY_CLEARED,
    *ASSIGNMENT_TYPES,
    *SESSION_TYPES,
)
"""Event types that change a row of some table. All others leave no trace in these tables."""


def _fields(*columns: tuple[str, t.DataType]) -> t.StructType:
    return t.StructType([t.StructField(name, data_type) for name, data_type in columns])


_PROPERTIES = ("properties", t.MapType(t.StringType(), t.StringType()))
_POLICIES = (("policies", t.BinaryType()), ("policies_version", t.LongType()))

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
}
"""Columns of each table, in order. Unsigned numbers of the view are longs."""
