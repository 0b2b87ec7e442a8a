"""Narrow events in the lives of tenants, namespaces and topics."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipelines.generate.chance import below, happens
from pipelines.generate.clock import by_day
from pipelines.generate.inventory import is_scalable
from pipelines.generate.narrow import narrow, together
from pipelines.generate.world import World

DELETION_STEP_MS = 40
"""Time between the steps of deleting a parent: started, gates closed, deleted."""

POLICY_CHANGES_MAX = 3

_ATTEMPT_BASE = 2**32


def inventory_events(
    tenants: DataFrame, namespaces: DataFrame, topics: DataFrame, world: World
) -> DataFrame:
    """Return all events of tenants, namespaces, topics, their policies and parent gates."""
    of_tenants = tenants.withColumnsRenamed({"tenant_no": "number", "tenant_name": "name"})
    of_namespaces = namespaces.withColumnsRenamed(
        {"namespace_no": "number", "namespace_name": "name", "tenant_id": "parent_id"}
    )
    return together(
        [
            _parent_events(of_tenants, "tenant", world),
            _parent_events(of_namespaces, "namespace", world),
            _gates_closed(of_tenants, "tenant", world),
            _gates_closed(of_namespaces, "namespace", world),
            _tenant_gates(of_namespaces),
            _namespace_gates(topics),
            _topic_events(topics, world),
        ]
    )


def _parent_events(parents: DataFrame, kind: str, world: World) -> DataFrame:
    """Return the life of tenants or namespaces; deleting one takes two events."""
    number, created = f.col("number"), f.col("created_even_ms")
    ends = f.coalesce(f.col("deleted_even_ms"), f.lit(world.length_ms))
    deleted_ms = by_day(f.col("deleted_even_ms"))
    is_changed = happens(world, 0.2, f"{kind} properties", number)
    middle = by_day(created + f.floor((ends - created) * 0.55).cast("long"))
    life = f.array(
        _event(f.lit(f"{kind}_created"), by_day(created)),
        _event(f.when(is_changed, f"{kind}_properties_set"), middle),
        _event(f.lit(f"{kind}_deletion_started"), deleted_ms),
        _event(f.lit(f"{kind}_deleted"), deleted_ms + 2 * DELETION_STEP_MS),
        *_policy_events(world, kind, number, created, ends, share=0.6),
    )
    parent = "parent_id" if kind == "namespace" else f.lit(None)
    lives = parents.withColumn("happened", f.explode(life))
    return _narrowed(lives, kind, number, parent)


def _topic_events(topics: DataFrame, world: World) -> DataFrame:
    number, created = f.col("topic_no"), f.col("created_even_ms")
    ends = f.col("ends_even_ms")
    is_changed = happens(world, 0.2, "topic properties", number)
    middle = by_day(created + f.floor((ends - created) * 0.55).cast("long"))
    life = f.array(
        _event(f.lit("topic_created"), f.col("created_ms"), f.col("partitions")),
        _event(f.when(is_changed, "topic_properties_set"), middle),
        _event(f.lit("topic_deleted"), f.col("deleted_ms")),
        *_policy_events(world, "topic", number, created, ends, share=0.08),
    )
    lives = topics.withColumn("happened", f.explode(life))
    if world.auto_scaled_percent:
        # Scalable topics have policies of their own, which their layouts follow.
        is_policy = f.col("happened.kind").startswith("policy_")
        lives = lives.where(~(is_scalable(f.col("name")) & is_policy))
    return _narrowed(lives, "topic", number, "namespace_id")


def _event(kind: Column, time_ms: Column, number: Column | None = None) -> Column:
    """Return one event of a life. An event with a null kind or time did not happen."""
    counted = f.coalesce(number if number is not None else f.lit(0), f.lit(0)).cast("long")
    return f.struct(
        kind.alias("kind"), time_ms.cast("long").alias("at_ms"), counted.alias("number")
    )


def _policy_events(
    world: World, kind: str, number: Column, created: Column, ends: Column, *, share: float
) -> list[Column]:
    """Return up to ``POLICY_CHANGES_MAX`` changes with versions from 1; the last may clear all."""
    has_any = happens(world, share, f"{kind} has policies", number)
    changes = f.when(
        has_any, f.lit(1) + below(world, POLICY_CHANGES_MAX, f"{kind} policies", number)
    ).otherwise(f.lit(0))
    is_cleared = happens(world, 0.2, f"{kind} policies cleared", number)
    events = []
    for version in range(1, POLICY_CHANGES_MAX + 1):
        at = created + f.floor((ends - created) * version / (POLICY_CHANGES_MAX + 1)).cast("long")
        is_last_cleared = is_cleared & (changes == version) & f.lit(version > 1)
        change = f.when(is_last_cleared, "policy_cleared").otherwise("policy_set")
        events.append(_event(f.when(changes >= version, change), by_day(at), f.lit(version)))
    return events


def _narrowed(lives: DataFrame, kind: str, number: Column, parent: Column | str) -> DataFrame:
    happened = lives.where(f.col("happened.kind").isNotNull() & f.col("happened.at_ms").isNotNull())
    return narrow(
        happened,
        event_type=f.col("happened.kind"),
        shard_id="shard_id",
        time_ms="happened.at_ms",
        object=number,
        seq="happened.number",
        name="name",
        id="object_id",
        parent_id=parent,
        detail=kind,
        number="happened.number",
    )


def _tenant_gates(namespaces: DataFrame) -> DataFrame:
    """Return the gates of tenants: each shard opens one for the tenant's first namespace there."""
    opened = namespaces.groupBy("shard_id", "parent_id", "tenant_name").agg(
        f.min("created_even_ms").alias("first_even_ms"), f.min("tenant_no").alias("tenant_no")
    )
    return _gates_opened(opened, "tenant", by_day(f.col("first_even_ms")))


def _namespace_gates(topics: DataFrame) -> DataFrame:
    opened = topics.groupBy("shard_id", "namespace_no").agg(
        f.min("created_ms").alias("first_ms"),
        # All rows of a group have the same value.
        f.first("namespace_id").alias("parent_id"),
        f.first("namespace_name").alias("namespace_name"),
    )
    return _gates_opened(opened, "namespace", f.col("first_ms"))


def _gates_opened(opened: DataFrame, kind: str, time_ms: Column) -> DataFrame:
    return narrow(
        opened,
        event_type="parent_gate_opened",
        shard_id="shard_id",
        time_ms=time_ms,
        object=f"{kind}_no",
        part=_gate_part(kind),
        name=f"{kind}_name",
        id="parent_id",
        detail=kind,
        number=0,
    )


def _gates_closed(parents: DataFrame, kind: str, world: World) -> DataFrame:
    """Return the closings of a deleted parent's gates: in every shard, even one without a child."""
    everywhere = f.explode(f.sequence(f.lit(1), f.lit(world.shards)))
    gone = parents.where(f.col("deleted_even_ms").isNotNull()).withColumn("in_shard", everywhere)
    return narrow(
        gone,
        event_type="parent_gate_closed",
        shard_id="in_shard",
        time_ms=by_day(f.col("deleted_even_ms")) + DELETION_STEP_MS,
        object="number",
        part=_gate_part(kind),
        name="name",
        id="object_id",
        detail=kind,
        number=f.lit(_ATTEMPT_BASE) + f.col("number") + 1,
    )


def _gate_part(kind: str) -> int:
    """Return a number that distinguishes gates of tenants from those of namespaces."""
    return 0 if kind == "tenant" else 1
