"""What an audit remembers of each event: one slim row of fixed width.

Names and ids are 64-bit hashes here. Among ten million of them the chance of a collision is three
in a million. Findings are shown with the names of their events, so a person would notice one.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipelines.columns.name_parts import namespace_of, tenant_of_namespace
from pipelines.columns.slots import topic_routing_key
from pipelines.exports.slot_homes import event_home, with_home_slot

TENANT, NAMESPACE, TOPIC = "tenant", "namespace", "topic"

_LIFE = ("created", "properties_set", "deletion_started", "deletion_aborted", "deleted")
_LIFE_OF = {
    TENANT: _LIFE,
    NAMESPACE: _LIFE,
    TOPIC: ("created", "properties_set", "partitions_grown", "renamed", "deleted"),
}
LIFE_TYPES = tuple(f"{scope}_{what}" for scope, types in _LIFE_OF.items() for what in types)

GROWN, RENAMED, TOPIC_DELETED = "topic_partitions_grown", "topic_renamed", "topic_deleted"
POLICY_TYPES = ("policy_set", "policy_cleared")
UNIT_TYPES = ("topic_assigned", "topic_unassigned")
GATE_TYPES = ("parent_gate_opened", "parent_gate_closed")
ESTABLISHED, ENDED = "broker_session_established", "broker_session_ended"
GRANTED, DRAIN, LOAD = "capacity_granted", "broker_drain_set", "broker_load_reported"
CAPACITY = "broker_capacity_set"
LEASED, RELEASED, RECORDED = "capacity_leased", "capacity_lease_released", "broker_recorded"
BROKER_TYPES = (ESTABLISHED, ENDED, GRANTED, DRAIN, CAPACITY, LOAD, LEASED, RELEASED, RECORDED)
WINDOW, QUOTAS = "lookup_window_recorded", "quotas_set"
MAP, MAP_CHANGE = "shard_map_changed", "shard_changed"
ADOPTED = "slots_adopted"

_HOME = "home"

LAYOUT_CREATED, LAYOUT_RESTORED = "scalable_topic_created", "scalable_topic_restored"
LAYOUT_DELETED, LAYOUT_CHANGED = "scalable_topic_deleted", "layout_changed"
PLANNED, ABANDONED = "layout_change_planned", "layout_change_abandoned"
CHILDREN_READY, SEALED = "segment_children_ready", "segment_sealed"
STORAGE_REMOVED = "segment_storage_removed"
LAYOUT_TYPES = (
    LAYOUT_CREATED,
    LAYOUT_RESTORED,
    LAYOUT_DELETED,
    LAYOUT_CHANGED,
    PLANNED,
    ABANDONED,
    CHILDREN_READY,
    SEALED,
    STORAGE_REMOVED,
)
"""Events about the segments of scalable topics."""

_OBJECT_IDS = (
    *(f"{scope}_{what}.{scope}_id" for scope in _LIFE_OF for what in ("created", "deleted")),
    f"{GROWN}.topic_id",
    f"{RENAMED}.topic_id",
    *(f"{policy}.object_id" for policy in POLICY_TYPES),
    *(f"{unit}.topic_id" for unit in UNIT_TYPES),
    *(f"{layout}.topic_id" for layout in LAYOUT_TYPES),
)
_PARENT_IDS = (
    "namespace_created.tenant_id",
    "topic_created.namespace_id",
    f"{RENAMED}.namespace_id",
)
"""Of children. Those of gates: ``_of_gate``."""
_CHILDREN = {NAMESPACE: ("created", "deleted"), TOPIC: ("created", "renamed", "deleted")}
"""Changes that the gate of the parent counts: of a renamed topic that of its former name."""

_NUMBERS = (
    *(f"{policy}.version" for policy in POLICY_TYPES),
    *(f"{unit}.epoch" for unit in UNIT_TYPES),
    *(f"{gate}.attempt" for gate in GATE_TYPES),
    "topic_created.partitions",
    f"{GROWN}.partitions",
    f"{RENAMED}.policies_version",
    f"{ESTABLISHED}.epoch",
    f"{ENDED}.epoch",
    f"{RECORDED}.epoch",
    f"{GRANTED}.units",
    f"{DRAIN}.revision",
    f"{CAPACITY}.revision",
    f"{LEASED}.version",
    f"{WINDOW}.began_at_ms",
    f"{MAP}.version",
    f"{MAP_CHANGE}.version",
    f"{QUOTAS}.version",
    f"{LAYOUT_RESTORED}.epoch",
    f"{LAYOUT_CHANGED}.epoch",
)
_UNITS = (f"{LEASED}.units", f"{ESTABLISHED}.capacity_units", f"{CAPACITY}.capacity_units")


def facts_of(events: DataFrame, *, with_slots: bool = False) -> DataFrame:
    """Return one row per event of ``events`` (columns of ``pipelines.exports.event_schema``).

    ==============  ==============================================================================
    shard_id (int), position, term (long), event_type, schema_version (int): as exported
    time_ms         long, Unix time
    file            long, hash of the file's path in the export
    subject         long, what the event is about: a tenant, namespace, topic (by name), broker,
                    or discovery process
    object          long, the tenant's, namespace's or topic's id
    parent          long, the parent's id: of children and gates
    gate            long, the gate in this shard that the event concerns
    unit            long, which part of the topic is assigned
    partition       int, its number if it is a partition
    key             string, routing key of what is created: tenant, namespace, topic or session
    command         long, the command that caused the event
    session, broker long, of assignments and of everything that brokers do
    number          long, the number that has to grow: epoch, version, revision, attempt, ...; of a
                    new or grown topic the number of its partitions, of a renamed one the version of
                    its policies
    units           long, of leases and capacities
    of_shard        long, the shard that a lease is for
    reason          string, of assignments
    details         struct, fields that few events have: used_epoch of an assignment that was
                    raised, term and expires_at_ms of a lease, revision and is_live of a broker's
                    record, slots of the map, of its changes and of a shard
    names           struct, of renames and of deletions of renamed topics: new_subject and new_gate
                    of the new name, until_ms of the former one, freed: the subjects of names that
                    do not lead to the topic any more
    layout          struct, of scalable topics: operation, next_segment_id, segments as they are
                    from here on or are planned (id, range, whether it takes messages), gone (what
                    leaves the layout; the one that an assignment is of)
    ==============  ==============================================================================

    A field that an event does not have is null. Reads the events once, and nothing else. Where
    slots have moved, ``with_slots`` adds ``slot`` (int), that of what the event is about.
    """
    home = (event_home().alias(_HOME),) if with_slots else ()
    facts = events.select(
        "shard_id",
        "position",
        "term",
        "event_type",
        "schema_version",
        f.unix_millis("time").alias("time_ms"),
        _file().alias("file"),
        _subject().alias("subject"),
        _hashed(_first_of(_OBJECT_IDS)).alias("object"),
        _hashed(f.coalesce(_first_of(_PARENT_IDS), _of_gate("parent_id"))).alias("parent"),
        _gate().alias("gate"),
        _hashed(_unit()).alias("unit"),
        _partition().alias("partition"),
        _created_key().alias("key"),
        f.when(f.col("causation_id").isNotNull(), f.xxhash64("causation_id")).alias("command"),
        _hashed(_first_of(_broker_fields("session_id"))).alias("session"),
        _hashed(_first_of(_broker_fields("broker_id"))).alias("broker"),
        _first_of(_NUMBERS).alias("number"),
        _first_of(_UNITS).alias("units"),
        _first_of([f"{LEASED}.shard_id", f"{RELEASED}.shard_id"]).alias("of_shard"),
        _first_of([f"{unit}.reason" for unit in UNIT_TYPES]).alias("reason"),
        _details().alias("details"),
        _names().alias("names"),
        _layout().alias("layout"),
        *home,
    )
    return with_home_slot(facts, _HOME, "slot") if with_slots else facts


def named_events(events: DataFrame) -> DataFrame:
    """Return shard_id, position, event_type and name (of the event's object) of ``events``."""
    named = (*LIFE_TYPES, *POLICY_TYPES, *UNIT_TYPES, *LAYOUT_TYPES)
    names = [f"{event_type}.name" for event_type in named]
    names += [f"{event_type}.broker_id" for event_type in BROKER_TYPES]
    names += [f"{event_type}.parent_name" for event_type in GATE_TYPES]
    return events.select("shard_id", "position", "event_type", _first_of(names).alias("name"))


def file_hash(path: Column) -> Column:
    """Return the value of ``file`` for a path relative to the export."""
    return f.xxhash64(path)


def _file() -> Column:
    # shard=N/date=D/FIRST-LAST.parquet, whatever the export's own address is.
    return file_hash(f.substring_index(f.col("_metadata.file_path"), "/", -3))


def _first_of(fields: list[str] | tuple[str, ...]) -> Column:
    # At most one of them is not null: an event has one payload.
    return f.coalesce(*(f.col(field) for field in fields))


def _hashed(value: Column, scope: str = "") -> Column:
    return f.when(value.isNotNull(), f.xxhash64(f.lit(scope), value))


def _broker_fields(name: str) -> list[str]:
    return [f"topic_assigned.{name}", *(f"{event_type}.{name}" for event_type in BROKER_TYPES)]


def _subject() -> Column:
    hashes = [
        _hashed(_first_of([f"{scope}_{what}.name" for what in types]), scope)
        for scope, types in _LIFE_OF.items()
    ]
    for scope in _LIFE_OF:
        for policy in POLICY_TYPES:
            is_of_scope = f.col(f"{policy}.scope") == scope
            hashes.append(f.when(is_of_scope, _hashed(f.col(f"{policy}.name"), scope)))
    hashes.append(_hashed(_first_of([f"{kind}.broker_id" for kind in BROKER_TYPES]), "broker"))
    process = f.concat_ws("/", f.col(f"{WINDOW}.node_id"), f.col(f"{WINDOW}.process"))
    hashes.append(f.when(f.col(f"{WINDOW}.node_id").isNotNull(), f.xxhash64(process)))
    return f.coalesce(*hashes)


def _of_gate(field: str) -> Column:
    """Return a field of an event of a gate; null if the gate is one of a source of shadow topics.

    The audit finds the parent of a topic by the topic's name. The name of a shadow does not contain
    its source, so the audit leaves these gates out.
    """
    kind = _first_of([f"{gate}.parent_kind" for gate in GATE_TYPES])
    return f.when(kind != TOPIC, _first_of([f"{gate}.{field}" for gate in GATE_TYPES]))


def _gate() -> Column:
    kind, name = _of_gate("parent_kind"), _of_gate("parent_name")
    namespace, topic = (
        _first_of([f"{child}_{what}.name" for what in whats]) for child, whats in _CHILDREN.items()
    )
    return f.coalesce(
        f.when(name.isNotNull(), f.xxhash64(kind, name)),
        f.when(namespace.isNotNull(), f.xxhash64(f.lit(TENANT), tenant_of_namespace(namespace))),
        f.when(topic.isNotNull(), f.xxhash64(f.lit(NAMESPACE), namespace_of(topic))),
    )


def _names() -> Column:
    """Return what an event says about further names of its topic, null for all other events."""
    renamed, new_name = f.col(RENAMED), f.col(f"{RENAMED}.new_name")
    freed = f.concat(
        f.coalesce(f"{TOPIC_DELETED}.former_names", f.array()),
        f.coalesce(renamed["dropped_names"], f.array()),
    )
    names = f.struct(
        _hashed(new_name, TOPIC).alias("new_subject"),
        f.xxhash64(f.lit(NAMESPACE), namespace_of(new_name)).alias("new_gate"),
        f.try_element_at(renamed["former_names"], f.lit(-1))["until_ms"].alias("until_ms"),
        f.transform(freed, lambda name: _hashed(name, TOPIC)).alias("freed"),
    )
    return f.when(renamed.isNotNull() | (f.size(freed) > 0), names)


def _unit() -> Column:
    return _first_of([f"{unit}.unit" for unit in UNIT_TYPES])


def _partition() -> Column:
    unit = _unit()
    return f.when(unit.startswith("p"), f.substring(unit, 2, 10).try_cast("int"))


def _created_key() -> Column:
    names = ("tenant_created.name", "namespace_created.name", f"{ESTABLISHED}.broker_id")
    return f.coalesce(*map(f.col, names), topic_routing_key(f.col("topic_created.name")))


def _details() -> Column:
    """Return the fields that few events have as one struct, null for all other events.

    A column for each of them would take room in every row.
    """
    details = f.struct(
        f.col("topic_assigned.used_epoch").alias("used_epoch"),
        f.col(f"{LEASED}.term").alias("term"),
        f.col(f"{LEASED}.expires_at_ms").alias("expires_at_ms"),
        f.col(f"{RECORDED}.revision").alias("revision"),
        f.col(f"{RECORDED}.is_live").alias("is_live"),
        f.col(f"{MAP}.slot_owners").alias("slot_owners"),
        f.col(f"{MAP_CHANGE}.slots").alias("slot_runs"),
        f.when(f.col(f"{ADOPTED}.move_id") == 0, f.col(f"{ADOPTED}.ranges")).alias("slot_ranges"),
    )
    is_raised = f.coalesce(f.col("topic_assigned.used_epoch") > 0, f.lit(False))
    have_some = (LEASED, RECORDED, MAP, MAP_CHANGE, ADOPTED)
    return f.when(is_raised | f.col("event_type").isin(*have_some), details)


def _layout() -> Column:
    """Return what an event tells of a scalable topic's segments, null for all other events."""
    kind = f.col("event_type")
    segments = f.coalesce(
        f"{LAYOUT_CREATED}.segments",
        f"{LAYOUT_RESTORED}.segments",
        f"{LAYOUT_CHANGED}.changed",
        f"{PLANNED}.children",
    )
    slim = f.transform(
        segments,
        lambda each: f.struct(
            each["segment_id"].alias("segment_id"),
            each["hash_start"].alias("hash_start"),
            each["hash_end"].alias("hash_end"),
            (~each["is_sealed"]).alias("is_active"),
        ),
    )
    operations = (CHILDREN_READY, SEALED, LAYOUT_CHANGED, PLANNED, ABANDONED)
    used = f.substring(f.col("topic_assigned.unit"), 2, 20).try_cast("bigint")
    is_used = f.col("topic_assigned.unit").startswith("s")
    layout = f.struct(
        f.coalesce(
            *(f.col(f"{one}.operation_id") for one in operations),
            f.col(f"{LAYOUT_RESTORED}.last_operation_id"),
        ).alias("operation"),
        f.coalesce(
            f.col(f"{LAYOUT_RESTORED}.next_segment_id"),
            f.size(f"{LAYOUT_CREATED}.segments").cast("bigint"),
            f.array_max(f.transform(f"{PLANNED}.children", lambda each: each["segment_id"])) + 1,
        ).alias("next_segment_id"),
        slim.alias("segments"),
        f.when(is_used, f.array(used)).otherwise(f.col(f"{LAYOUT_CHANGED}.removed")).alias("gone"),
    )
    return f.when(kind.isin(*LAYOUT_TYPES) | is_used, layout)
