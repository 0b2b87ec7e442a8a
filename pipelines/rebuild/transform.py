"""The fold: from events (``pipelines.exports.event_schema``) to rows as of the last event.

An event has the same effect as in ``shards/projections/evolution.py`` and its aggregates; a test
folds the same events both ways. The fold relies on two properties of a log: positions give the
order, and events before the last creation of an object do not affect it.

    tenants, namespaces, sessions   one sort by name and position
    topics                          the same, and a sort by id within each name
    assignments                     one hash aggregation, of numbers only

A renamed topic keeps its id. To the fold, a rename ends the topic under its former name, and is its
creation under the new one: the event has the whole topic. A name may be several topics' in turn, so
the events of a name are told apart by the ids of the topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F

from nextgen.kernel.limits.placement import SESSIONS_STARTED_MAX
from pipelines.columns.name_parts import tenant_of
from pipelines.rebuild import tables
from pipelines.rebuild.layouts import removed_units
from pipelines.rebuild.tables import (
    ACTIVE,
    ASSIGNED,
    ASSIGNMENT_TYPES,
    CAPACITY_SET,
    DELETING,
    DRAIN_SET,
    ENDED,
    ESTABLISHED,
    FORMER_NAMES,
    GRANTED,
    POLICY_CLEARED,
    POLICY_SET,
    RENAMED,
    SCHEMAS,
    SESSION_TYPES,
    ObjectTable,
)

UNBORN = "unborn"
"""Name of the observed count of events about objects that were never created."""


def fold_objects(
    events: DataFrame, table: ObjectTable, unborn: Observation | None = None
) -> DataFrame:
    """Return the rows of ``SCHEMAS[table.name]``: the objects that exist after the last event.

    ``version`` is 1 at the creation and grows with each event about the object. Names of topics are
    those that they have by then. ``unborn`` counts events about objects that were never created, as
    ``UNBORN``; in a valid log there are none.
    """
    kind, key = F.col("event_type"), list(_BY_NAME)
    changes = _changes_of(events, table)
    if table.renamed:
        changes = _with_ids(_with_both_names(changes, table), table)
        key.append("object_id")
    changes = _with_birth(changes, key, table.created, unborn)
    # Events before the last creation are about an earlier life under the same name.
    folded = (
        changes.where("position >= born_at")
        .groupBy(*key)
        .agg(
            F.first("object_id", ignorenulls=True).alias(f"{table.scope}_id"),
            F.first("parent_id", ignorenulls=True).alias(f"{table.parent}_id"),
            _latest("partitions", kind.isin(table.created, table.grown)),
            F.first("created_time", ignorenulls=True).alias("created_time"),
            _latest("properties", kind.isin(table.created, table.properties_set)),
            (F.max("born_version") + F.count(F.lit(1)) - 1).alias("version"),
            _latest("life", kind.isin(table.deletion_started, table.deletion_aborted)),
            _latest("policies", F.col("policies_version").isNotNull()),
            _latest("policies_version", F.col("policies_version").isNotNull()),
            F.first("former_names", ignorenulls=True).alias("former_names"),
            F.max(F.when(kind == table.deleted, F.col("position"))).alias("deleted_at"),
            F.max("position").alias("position"),
        )
    )
    there = folded.where(F.col("deleted_at").isNull())
    there = there.withColumns(
        {
            "life": F.coalesce("life", F.lit(ACTIVE)),
            "policies_version": F.coalesce("policies_version", F.lit(0)),
            "former_names": F.coalesce("former_names", F.array()),
        }
    )
    return _with_columns_of(there, table.name)


def fold_assignments(events: DataFrame) -> DataFrame:
    """Return the rows of ``SCHEMAS["assignments"]``: one for every unit that was ever assigned.

    ``broker_id`` and ``session_id`` of an unowned unit are empty, ``name`` is the one that it was
    assigned by last. When a topic is deleted, its units and their epochs are removed too; likewise
    a segment whose messages are gone.
    """
    changes = _assignment_changes(events)
    order = F.col("position")
    latest = changes.groupBy("shard_id", "topic_id", "unit", "name").agg(
        # Numbers only, so that Spark aggregates by hash and does not sort: the owner is carried as
        # a hash, and looked up below.
        F.max_by("owner", order).alias("owner"),
        F.max_by("epoch", order).alias("epoch"),
        F.max(order).alias("position"),
    )
    there = (
        _under_last_names(latest, changes, events)
        .join(_deleted_topics(events), ["shard_id", "topic_id"], "left_anti")
        .join(removed_units(events), ["shard_id", "topic_id", "unit"], "left_anti")
    )
    known = there.join(F.broadcast(_owners(changes)), "owner", "left")
    return _with_columns_of(
        known.withColumns(
            {
                "broker_id": F.coalesce("broker_id", F.lit("")),
                "session_id": F.coalesce("session_id", F.lit("")),
            }
        ),
        tables.ASSIGNMENTS,
    )


def fold_sessions(events: DataFrame, unborn: Observation | None = None) -> DataFrame:
    """Return the rows of ``SCHEMAS["sessions"]``: the latest session of every broker ever seen.

    ``started_at_ms`` has the times at which the broker's last sessions began, oldest first.
    ``unborn`` as in ``fold_objects``.
    """
    kind, order = F.col("event_type"), F.col("position")
    changes = _with_birth(_session_changes(events), _BY_BROKER, ESTABLISHED, unborn).where(
        F.col("born_at").isNotNull()
    )
    is_of_latest = order >= F.col("born_at")
    latest = kind.isin(ESTABLISHED) & is_of_latest
    # Count from the end, so that memory holds only the sessions that are kept.
    starts_from_here = F.count(F.when(F.col("established_at_ms") > 0, 1)).over(
        Window.partitionBy(*_BY_BROKER)
        .orderBy("position")
        .rowsBetween(Window.currentRow, Window.unboundedFollowing)
    )
    start = F.struct("position", "established_at_ms")
    is_kept = (F.col("established_at_ms") > 0) & (F.col("starts") <= SESSIONS_STARTED_MAX)
    folded = (
        changes.withColumn("starts", starts_from_here)
        .groupBy(*_BY_BROKER)
        .agg(
            *(F.max_by(name, F.when(latest, order)).alias(name) for name in _ESTABLISHED_FIELDS),
            F.max(F.when((kind == ENDED) & is_of_latest, order)).isNull().alias("is_live"),
            *(
                F.coalesce(
                    F.max_by(name, F.when(kind.isin(*event_types) & is_of_latest, order)),
                    F.lit(nothing),
                ).alias(name)
                for name, (event_types, nothing) in _CHANGED_FIELDS.items()
            ),
            F.transform(
                F.array_sort(F.collect_list(F.when(is_kept, start))),
                lambda pair: pair["established_at_ms"],
            ).alias("started_at_ms"),
            F.max(order).alias("position"),
        )
    )
    return _with_columns_of(folded, tables.SESSIONS)


def policies_of(folded: Mapping[str, DataFrame]) -> DataFrame:
    """Return the rows of ``SCHEMAS["policies"]``, from the rows of the three object tables.

    There is a row for every object whose policies were ever set; cleared ``policies`` are null.
    """
    parts = [
        folded[table.name]
        .where("policies_version > 0")
        .select(
            "shard_id",
            F.lit(table.scope).alias("scope"),
            "name",
            F.col(f"{table.scope}_id").alias("object_id"),
            "policies",
            "policies_version",
        )
        for table in tables.OBJECT_TABLES
    ]
    return _with_columns_of(reduce(DataFrame.unionByName, parts), tables.POLICIES)


def topics_by_tenant(topics: DataFrame) -> DataFrame:
    """Return tenant, topics, partitions, most topics first, from the table of topics."""
    counted = topics.groupBy(tenant_of(F.col("name")).alias("tenant")).agg(
        F.count(F.lit(1)).alias("topics"), F.sum("partitions").alias("partitions")
    )
    return counted.orderBy(F.desc("topics"), "tenant")


def up_to(events: DataFrame, positions: Mapping[int, int]) -> DataFrame:
    """Return the events of the shards in ``positions``, up to these; none of the others."""
    return events.where(is_up_to(positions))


def is_up_to(positions: Mapping[int, int]) -> Column:
    """Return whether an event is of a shard in ``positions`` and not behind its position."""
    shards: dict[int, list[int]] = {}
    for shard_id, position in sorted(positions.items()):
        shards.setdefault(position, []).append(shard_id)
    return reduce(
        Column.__or__,
        (
            F.col("shard_id").isin(*some) & (F.col("position") <= position)
            for position, some in shards.items()
        ),
        F.lit(False),
    )


# Helpers of the folds ------------------------------------------------------------------------

_NOBODY = 0
"""Stands for the owner of an unowned unit."""

_TOPIC_DELETED = "topic_deleted"

_ESTABLISHED_FIELDS = (
    "session_id",
    "epoch",
    "pulsar_url",
    "grpc",
    "http",
    "zone",
    "rack",
    "quarantined_until_ms",
)
_CHANGED_FIELDS: dict[str, tuple[tuple[str, ...], bool | int]] = {
    "capacity_units": ((ESTABLISHED, CAPACITY_SET), 0),
    "granted_units": ((GRANTED, CAPACITY_SET), 0),
    "draining": ((DRAIN_SET,), False),
    "drain_units_per_second": ((DRAIN_SET,), 0),
    "revision": ((DRAIN_SET, CAPACITY_SET), 0),
}
"""Columns that change during a session: the events that change each, and the initial value."""

_BY_BROKER = ("shard_id", "broker_id")
_BY_NAME = ("shard_id", "name")


def _with_birth(
    changes: DataFrame, key: Sequence[str], birth: str, unborn: Observation | None
) -> DataFrame:
    """Add ``born_at``: the position of the last birth of the object, null if it has none."""
    # Sort by position too, so that the aggregation behind it gets its input in order.
    whole = (
        Window.partitionBy(*key)
        .orderBy("position")
        .rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    born = F.max(F.when(F.col("event_type") == birth, F.col("position"))).over(whole)
    dated = changes.withColumn("born_at", born)
    if unborn is None:
        return dated
    # Count in the stage that writes: a retry of that stage does not count rows twice.
    return dated.observe(unborn, F.count_if(F.col("born_at").isNull()).alias(UNBORN))


def _latest(column: str, counts: Column) -> Column:
    """Return an aggregate: ``column`` of the last event for which ``counts`` holds."""
    return F.max_by(column, F.when(counts, F.col("position"))).alias(column)


def _with_columns_of(rows: DataFrame, table: str) -> DataFrame:
    return rows.select(*(F.col(field.name).cast(field.dataType) for field in SCHEMAS[table].fields))


def _changes_of(events: DataFrame, table: ObjectTable) -> DataFrame:
    """Return one row for each event about objects of this table. ``renamed`` is a rename's payload,
    and ``object_id`` the id in the event, null if it has none; of other tables than topics only
    creations have one."""
    kind = F.col("event_type")
    scope = F.coalesce(F.col("policy_set.scope"), F.col("policy_cleared.scope"))
    is_policy = kind.isin(POLICY_SET, POLICY_CLEARED) & (scope == table.scope)
    named = (*table.event_types, POLICY_SET, POLICY_CLEARED)
    life = (
        F.when(kind == table.deletion_started, DELETING).when(
            kind == table.deletion_aborted, ACTIVE
        )
        if table.has_life
        else F.lit(None).cast("string")
    )
    created = table.created
    own = events.where(kind.isin(*named))  # Alone, so that Parquet skips row groups without them.
    return own.where(kind.isin(*table.event_types) | is_policy).select(
        "shard_id",
        "position",
        "event_type",
        F.coalesce(*(F.col(f"{one}.name") for one in named)).alias("name"),
        _id_of(table).alias("object_id"),
        _created_field(created, f"{table.parent}_id" if table.parent else "", "parent_id"),
        _partitions_of(table).alias("partitions"),
        F.when(kind == created, F.col("time")).alias("created_time"),
        F.coalesce(f"{created}.properties", f"{table.properties_set}.properties").alias(
            "properties"
        ),
        life.alias("life"),
        F.col("policy_set.policy").alias("policies"),
        F.coalesce("policy_set.version", "policy_cleared.version").alias("policies_version"),
        F.lit(1).cast("long").alias("born_version"),
        F.lit(None).cast(FORMER_NAMES).alias("former_names"),
        *([F.col(table.renamed).alias("renamed")] if table.renamed else ()),
    )


def _with_both_names(changes: DataFrame, table: ObjectTable) -> DataFrame:
    """Return ``changes`` with two rows for each rename: the object is deleted under its former
    name, and created as it is under the new one."""
    renamed = F.col("renamed")
    ways = F.array(F.lit(table.deleted), F.lit(table.created))
    both = F.when(renamed.isNotNull(), ways).otherwise(F.array("event_type"))
    is_birth = renamed.isNotNull() & (F.col("event_type") == table.created)
    policies = F.when(F.octet_length(renamed["policies"]) > 0, renamed["policies"])
    created_time = F.timestamp_millis(renamed["created_time_ms"])
    taken = {
        "name": F.when(is_birth, renamed["new_name"]).otherwise(F.col("name")),
        "parent_id": F.coalesce("parent_id", renamed[f"{table.parent}_id"]),
        "partitions": F.coalesce("partitions", renamed["partitions"]),
        "created_time": F.coalesce("created_time", created_time),
        "properties": F.coalesce("properties", renamed["properties"]),
        "policies": F.coalesce("policies", policies),
        "policies_version": F.coalesce("policies_version", renamed["policies_version"]),
        "born_version": F.coalesce(renamed["version"], "born_version"),
        "former_names": renamed["former_names"].cast(FORMER_NAMES),
    }
    return changes.withColumn("event_type", F.explode(both)).withColumns(taken)


def _with_ids(changes: DataFrame, table: ObjectTable) -> DataFrame:
    """Return ``changes`` with an id in each row. An event without one is of a log from before names
    changed, and about the topic that was created last under its name."""
    so_far = Window.partitionBy(*_BY_NAME).orderBy("position")
    created = F.when(F.col("event_type") == table.created, F.col("object_id"))
    told = F.when(F.col("renamed").isNull(), created)
    last = F.last(told, ignorenulls=True).over(so_far)
    return changes.withColumn("object_id", F.coalesce("object_id", last)).drop("renamed")


def _id_of(table: ObjectTable) -> Column:
    if not table.renamed:
        return F.col(f"{table.created}.{table.scope}_id")
    ids = [f"{one}.{table.scope}_id" for one in table.event_types]
    ids += [f"{one}.object_id" for one in (POLICY_SET, POLICY_CLEARED)]
    return F.nullif(F.coalesce(*ids), F.lit(""))


def _partitions_of(table: ObjectTable) -> Column:
    if not table.grown:
        return F.lit(None).cast("long")
    return F.coalesce(f"{table.created}.partitions", f"{table.grown}.partitions")


def _created_field(created: str, field: str, name: str) -> Column:
    return (F.col(f"{created}.{field}") if field else F.lit(None).cast("string")).alias(name)


def _assignment_changes(events: DataFrame) -> DataFrame:
    """Return one row for each event about a unit; ``owner`` stands for broker and session."""
    both = {
        name: F.coalesce(*(F.col(f"{one}.{name}") for one in ASSIGNMENT_TYPES))
        for name in ("topic_id", "unit", "name", "epoch")
    }
    broker, session = F.col("topic_assigned.broker_id"), F.col("topic_assigned.session_id")
    is_assigned = F.col("event_type") == ASSIGNED
    owner = F.when(is_assigned, F.xxhash64(broker, session)).otherwise(F.lit(_NOBODY))
    return events.where(F.col("event_type").isin(*ASSIGNMENT_TYPES)).select(
        "shard_id",
        "position",
        *(column.alias(name) for name, column in both.items()),
        owner.alias("owner"),
        broker.alias("broker_id"),
        session.alias("session_id"),
    )


def _under_last_names(latest: DataFrame, changes: DataFrame, events: DataFrame) -> DataFrame:
    """Return the rows of ``latest``, one for each unit and name, that are the last of their unit.

    Only units of renamed topics have several names.
    """
    renamed = events.where(F.col("event_type") == RENAMED).select(
        "shard_id", F.col(f"{RENAMED}.topic_id").alias("topic_id")
    )
    last = (
        changes.join(renamed, ["shard_id", "topic_id"], "left_semi")
        .groupBy("shard_id", "topic_id", "unit")
        .agg(F.max("position").alias("last"))
    )
    known = latest.join(last, ["shard_id", "topic_id", "unit"], "left")
    return known.where(F.col("position") == F.coalesce("last", "position")).drop("last")


def _deleted_topics(events: DataFrame) -> DataFrame:
    return events.where(F.col("event_type") == _TOPIC_DELETED).select(
        "shard_id", F.col(f"{_TOPIC_DELETED}.topic_id").alias("topic_id")
    )


def _owners(changes: DataFrame) -> DataFrame:
    """Return the broker and session of each owner hash."""
    distinct = (
        changes.where(F.col("owner") != _NOBODY)
        .select("owner", "broker_id", "session_id")
        .distinct()
    )
    alike = F.concat(F.lit("two owners of units have the hash "), F.col("owner").cast("string"))
    one_each = distinct.groupBy("owner").agg(
        F.max(F.struct("broker_id", "session_id")).alias("pair"), F.count(F.lit(1)).alias("owners")
    )
    # Two owners collide in one of a billion histories. Fail then, rather than name a wrong owner.
    pair = F.when(F.col("owners") == 1, F.col("pair")).otherwise(F.raise_error(alike))
    return one_each.select("owner", pair.alias("pair")).select("owner", "pair.*")


def _session_changes(events: DataFrame) -> DataFrame:
    """Return one row for each event about a broker's session, load reports excluded."""
    born = F.col(ESTABLISHED)
    return events.where(F.col("event_type").isin(*SESSION_TYPES)).select(
        "shard_id",
        "position",
        "event_type",
        F.coalesce(*(F.col(f"{one}.broker_id") for one in SESSION_TYPES)).alias("broker_id"),
        *(born[name].alias(name) for name in ("session_id", "epoch", "zone", "rack")),
        *(born["endpoints"][name].alias(name) for name in ("pulsar_url", "grpc", "http")),
        born["quarantined_until_ms"].alias("quarantined_until_ms"),
        born["established_at_ms"].alias("established_at_ms"),
        F.coalesce(born["capacity_units"], f"{CAPACITY_SET}.capacity_units").alias(
            "capacity_units"
        ),
        F.coalesce(f"{GRANTED}.units", f"{CAPACITY_SET}.granted_units").alias("granted_units"),
        F.col(f"{DRAIN_SET}.draining").alias("draining"),
        F.col(f"{DRAIN_SET}.units_per_second").alias("drain_units_per_second"),
        F.coalesce(f"{DRAIN_SET}.revision", f"{CAPACITY_SET}.revision").alias("revision"),
    )
