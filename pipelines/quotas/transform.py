"""From events to quotas: DataFrame to DataFrame, without actions.

    events ──facts──┬─ loads and sessions ──▶ broker_quotas
                    └─ changes of units ────▶ shard_units ──▶ tenant_needs ──▶ tenant_quotas

A tenant's units are folded in the order of positions, shard by shard, as the shards count them.
The result is the largest number in each hour, hours without a change included.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pipelines.columns.name_parts import tenant_of
from pipelines.durations import HOUR_MS
from pipelines.quotas.model import PERMILLE, Question, Shares

UNITS, LOAD, SESSION, TENANT, QUOTAS = "units", "load", "session", "tenant", "quotas"
"""Kinds of facts."""

FACT_TYPES = {
    "topic_assigned": UNITS,
    "topic_unassigned": UNITS,
    "broker_load_reported": LOAD,
    "broker_session_established": SESSION,
    "broker_session_ended": SESSION,
    "tenant_created": TENANT,
    "tenant_deleted": TENANT,
    "quotas_set": QUOTAS,
}
"""Event types that quotas are made from, and the kind of fact that each one gives."""

FIRST_ASSIGNMENT = "first_lookup"
"""Reason of an assignment of an unowned unit; every other reason moves an owned one."""

LOAD_SPEAKS_PERMILLE = 50
"""Load below which a report does not show how many units the broker could carry."""

P95 = 0.95


def kind_of() -> Column:
    """Return the kind of fact that an event gives, null for events that quotas do not use."""
    pairs = [f.lit(text) for pair in FACT_TYPES.items() for text in pair]
    return f.element_at(f.create_map(*pairs), f.col("event_type"))


def facts(events: DataFrame) -> DataFrame:
    """Return one narrow row for each event that quotas are made from.

    Columns: kind, shard_id, position, hour (of the event's time, since 1970), name (of the tenant
    or broker), and by kind
        units    change: +1, -1, or 0 for a unit that changed its broker
        load     units, permille (of the fuller of CPU and memory)
        session  epoch, units (its capacity), change: 1 begun, -1 ended
        tenant   change: 1 created, -1 deleted
        quotas   units: the version that was set
    """
    assigned, unassigned = f.col("topic_assigned"), f.col("topic_unassigned")
    begun, ended = f.col("broker_session_established"), f.col("broker_session_ended")
    reported = f.col("broker_load_reported")
    of_unit = f.coalesce(assigned["name"], unassigned["name"])
    change = (
        f.when(assigned["reason"] == FIRST_ASSIGNMENT, 1)
        .when(assigned.isNotNull(), 0)
        .when(unassigned.isNotNull() | ended.isNotNull(), -1)
        .when(begun.isNotNull() | f.col("tenant_created").isNotNull(), 1)
        .when(f.col("tenant_deleted").isNotNull(), -1)
    )
    return events.select(
        kind_of().alias("kind"),
        "shard_id",
        "position",
        f.floor(f.unix_millis("time") / HOUR_MS).alias("hour"),
        f.coalesce(
            tenant_of(of_unit),
            reported["broker_id"],
            begun["broker_id"],
            ended["broker_id"],
            f.col("tenant_created.name"),
            f.col("tenant_deleted.name"),
        ).alias("name"),
        change.cast("long").alias("change"),
        f.coalesce(begun["epoch"], ended["epoch"]).alias("epoch"),
        f.coalesce(
            reported["load"]["topics"], begun["capacity_units"], f.col("quotas_set.version")
        ).alias("units"),
        _permille(reported["load"]).alias("permille"),
    ).where(f.col("kind").isNotNull())


def broker_quotas(found: DataFrame, question: Question) -> DataFrame:
    """Return the brokers whose latest session is live, with their quotas.

    Columns: broker_id, capacity_units, units_peak, units_p95, permille_peak, permille_p95 (both
    over hours, null without a report), quota_units. A quota is the capacity less the headroom, or
    the number of units at which the load would reach that level, if that is less.
    """
    sessions = (
        found.where((f.col("kind") == SESSION) & f.col("name").isNotNull())
        .groupBy(f.col("name").alias("broker_id"))
        .agg(
            f.max(f.col("epoch") * 2 + (f.col("change") < 0).cast("long")).alias("last"),
            f.max_by(f.when(f.col("change") > 0, f.col("units")), _begun_epoch()).alias(
                "capacity_units"
            ),
        )
        .where((f.col("last") % 2 == 0) & f.col("capacity_units").isNotNull())
        .drop("last")
    )
    hours = (
        found.where(f.col("kind") == LOAD)
        .groupBy(f.col("name").alias("broker_id"), "hour")
        .agg(f.max("units").alias("units"), f.max("permille").alias("permille"))
    )
    carried = hours.groupBy("broker_id").agg(
        f.max("units").alias("units_peak"),
        f.ceil(f.percentile("units", P95)).alias("units_p95"),
        f.max("permille").alias("permille_peak"),
        f.ceil(f.percentile("permille", P95)).alias("permille_p95"),
    )
    free = _part(f.col("capacity_units"), question.target_permille)
    speaks = (f.col("permille_p95") >= LOAD_SPEAKS_PERMILLE) & (f.col("units_p95") > 0)
    by_load = f.when(
        speaks,
        f.floor(f.col("units_p95") * question.target_permille / f.col("permille_p95")),
    )
    # A broker that a single unit overloads still gets a quota of one.
    quota = f.least(f.col("capacity_units"), f.greatest(f.lit(1), f.least(free, by_load)))
    return sessions.join(carried, "broker_id", "left").withColumn("quota_units", quota)


def shard_units(found: DataFrame, end_hour: int) -> DataFrame:
    """Return the assigned units of each tenant in each shard, over the hours until ``end_hour``.

    Columns: tenant, shard_id, units (at the end), units_peak, units_p95 (over hours, from the
    first that the tenant had anything in).
    """
    changes = found.where((f.col("kind") == UNITS) & (f.col("change") != 0))
    so_far = Window.partitionBy("shard_id", "name").orderBy("position")
    counted = changes.withColumn("units", f.sum("change").over(so_far))
    hours = counted.groupBy("shard_id", f.col("name").alias("tenant"), "hour").agg(
        f.max(f.greatest("units", f.col("units") - f.col("change"))).alias("most"),
        f.max_by("units", "position").alias("left"),
        f.max("position").alias("position"),
    )
    later = Window.partitionBy("shard_id", "tenant").orderBy("hour")
    next_hour = f.coalesce(f.lead("hour").over(later), f.lit(end_hour + 1))
    with_quiet = hours.withColumn(
        "quiet_hours", f.greatest(f.lit(0), next_hour - f.col("hour") - 1)
    )
    # An hour with changes counts with its largest number, the quiet hours after it with its last.
    changed = f.struct(f.col("most").alias("units"), f.lit(1).cast("long").alias("hours"))
    quiet = f.struct(f.col("left").alias("units"), f.col("quiet_hours").alias("hours"))
    weighed = with_quiet.select(
        "tenant", "shard_id", "position", "left", f.explode(f.array(changed, quiet)).alias("held")
    ).where(f.col("held.hours") > 0)
    return weighed.groupBy("tenant", "shard_id").agg(
        f.max_by("left", "position").alias("units"),
        f.max("held.units").alias("units_peak"),
        f.ceil(f.percentile("held.units", P95, f.col("held.hours"))).alias("units_p95"),
    )


def tenant_needs(
    found: DataFrame, in_shards: DataFrame, question: Question, shards: int, floor_units: int
) -> DataFrame:
    """Return the need of each existing tenant.

    Columns: tenant, units (at the end), units_peak, units_p95 (sums over the shards),
    need_units. The need in a shard is the most units that the tenant had there, or its 95th
    percentile over hours plus the headroom. Quotas are divided evenly among shards, so
    ``need_units`` is the need in the fullest shard, times ``shards``.
    """
    shard_need = f.greatest(
        f.col("units_peak"),
        f.ceil(f.col("units_p95") * question.growth_permille / PERMILLE),
    )
    used = in_shards.groupBy("tenant").agg(
        f.sum("units").alias("units"),
        f.sum("units_peak").alias("units_peak"),
        f.sum("units_p95").alias("units_p95"),
        f.max(shard_need).alias("fullest"),
    )
    # The last known change counts: later ones may have been lost with an accepted gap.
    lives = (
        found.where(f.col("kind") == TENANT)
        .groupBy(f.col("name").alias("tenant"))
        .agg(f.max_by("change", "position").alias("last_change"))
    )
    # Of a tenant whose creation was lost only its units are known.
    present = used.join(lives, "tenant", "full").where(f.coalesce("last_change", f.lit(1)) > 0)
    need = f.greatest(f.lit(floor_units), f.coalesce(f.col("fullest"), f.lit(0)) * shards)
    return present.select(
        "tenant",
        *[f.coalesce(each, f.lit(0)).alias(each) for each in ("units", "units_peak", "units_p95")],
        need.alias("need_units"),
    )


def largest_tenants(needs: DataFrame, most: int) -> DataFrame:
    """Return the tenants with the largest needs; equal needs are ordered by name."""
    return needs.orderBy(f.desc("need_units"), "tenant").limit(most)


def tenant_quotas(needs: DataFrame, shares: Shares) -> DataFrame:
    """Return ``needs`` with quota_units, whose sum is at most the available units.

    Every tenant gets its floor. If the rest does not suffice for all needs, it is divided in
    proportion to the needs beyond the floors.
    """
    beyond = f.col("need_units") - shares.floor_units
    if shares.is_scarce:
        # Decimals, because the product of two numbers of units may overflow a long.
        product = beyond.cast("decimal(19,0)") * f.lit(shares.spare_units).cast("decimal(19,0)")
        beyond = f.floor(product / shares.wished_units).cast("long")
    return needs.withColumn("quota_units", f.lit(shares.floor_units) + beyond)


def as_object(named: DataFrame, name: str) -> DataFrame:
    """Return one row with ``units``: all quotas as one JSON object, by name."""
    pairs = f.sort_array(f.collect_list(f.struct(name, "quota_units")))
    return named.agg(f.to_json(f.map_from_entries(pairs)).alias("units"))


def _begun_epoch() -> Column:
    return f.when(f.col("change") > 0, f.col("epoch"))


def _part(units: Column, permille: int) -> Column:
    return f.floor(units * permille / PERMILLE)


def _permille(load: Column) -> Column:
    """Return how full the fuller of CPU and memory is: ``broker_load.busiest_permille``."""
    cpu = f.try_divide(load["cpu_fraction"], load["cores"])
    memory = f.try_divide(load["memory_bytes"], load["memory_limit_bytes"])
    fuller = f.greatest(f.coalesce(cpu, f.lit(0.0)), f.coalesce(memory, f.lit(0.0)))
    permille = f.least(f.lit(PERMILLE), f.bround(fuller * PERMILLE))
    return f.when(load.isNotNull(), permille.cast("long"))
