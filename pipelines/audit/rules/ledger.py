"""The cluster manager's log: records and versions only grow, and leases stay within grants."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pipelines.audit.facts import (
    GRANTED,
    LEASED,
    MAP,
    MAP_CHANGE,
    QUOTAS,
    RECORDED,
    RELEASED,
    WINDOW,
)
from pipelines.audit.finding import Broken, findings
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID


def ledger_findings(facts: DataFrame, settled_ms: int) -> DataFrame:
    """Return findings about the events of shard 0, and about the grants in the other shards' logs.

    The counterpart of an event after ``settled_ms`` may be in another shard's log and not exported
    yet.
    """
    own = facts.where(f.col("shard_id") == CLUSTER_MANAGER_SHARD_ID)
    return (
        _account_findings(own)
        .unionByName(_forward_findings(own))
        .unionByName(_grant_findings(facts, settled_ms))
    )


def _account_findings(own: DataFrame) -> DataFrame:
    events = own.where(f.col("event_type").isin(RECORDED, GRANTED, LEASED, RELEASED)).select(
        *("shard_id", "position", "event_type", "subject", "session"),
        *("of_shard", "number", "units"),
        *(f.col(f"details.{name}") for name in ("term", "expires_at_ms", "revision", "is_live")),
    )
    # By broker, so that one shuffle serves the windows: of a broker, a session and a lease.
    frame = _with_lease_state(_with_record_state(events.repartition("subject")))
    return findings(frame, [*_record_rules(), *_lease_rules()])


def _with_record_state(events: DataFrame) -> DataFrame:
    broker = Window.partitionBy("subject").orderBy("position")
    before = broker.rowsBetween(Window.unboundedPreceding, -1)
    is_record = f.col("event_type") == RECORDED

    def last(name: str) -> Column:
        return f.last(f.when(is_record, f.col(name)), ignorenulls=True).over(before)

    return events.withColumns(
        {
            "at_position": last("position"),
            "at_session": last("session"),
            "at_epoch": last("number"),
            "at_revision": last("revision"),
            "was_live": f.coalesce(last("is_live"), f.lit(False)),
        }
    )


def _with_lease_state(events: DataFrame) -> DataFrame:
    lease = Window.partitionBy("subject", "session", "of_shard").orderBy("position")
    so_far = (
        Window.partitionBy("subject", "session")
        .orderBy("position")
        .rowsBetween(Window.unboundedPreceding, 0)
    )
    kind = f.col("event_type")
    units = f.when(kind == LEASED, f.col("units")).when(kind == RELEASED, f.lit(0))

    def before(value: Column) -> Column:
        # A release ends a lease: the next one has units, and no earlier bounds to keep to.
        return f.lag(f.when(kind == LEASED, value)).over(lease)

    def last_grant(name: str) -> Column:
        return f.last(f.when(kind == GRANTED, f.col(name)), ignorenulls=True).over(so_far)

    return events.withColumns(
        {
            "before": f.lag("position").over(lease),
            "before_version": before(f.col("number")),
            "before_units": before(f.col("units")),
            "before_term": before(f.col("term")),
            "before_expires_at_ms": before(f.col("expires_at_ms")),
            "added": units - f.coalesce(f.lag(units).over(lease), f.lit(0)),
        }
    ).withColumns(
        {
            "leased": f.sum("added").over(so_far),
            "granted": f.coalesce(last_grant("number"), f.lit(0)),
            "granted_at": last_grant("position"),
        }
    )


def _record_rules() -> list[Broken]:
    is_record = f.col("event_type") == RECORDED
    epoch, at_epoch, at = f.col("number"), f.col("at_epoch"), f.col("at_position")
    revision, at_revision = f.col("revision"), f.col("at_revision")
    is_same = is_record & (epoch == at_epoch)
    is_other = f.col("session") != f.col("at_session")
    wants_live = f.col("event_type").isin(GRANTED, LEASED)
    is_live = f.col("was_live") & ~f.coalesce(is_other, f.lit(True))
    return [
        Broken("record_back", is_record & (epoch < at_epoch), at, found=epoch, expected=at_epoch),
        Broken("record_back", is_same & (is_other | ~f.col("was_live")), at),
        Broken(
            "record_back",
            is_same & ~is_other & f.col("was_live") & f.col("is_live") & (revision < at_revision),
            at,
            found=revision,
            expected=at_revision,
        ),
        Broken("lease_not_live", wants_live & ~is_live, at),
    ]


def _lease_rules() -> list[Broken]:
    is_lease = f.col("event_type") == LEASED
    is_changed = f.col("units") != f.col("before_units")
    version_after = f.col("before_version") + is_changed.cast("int")
    return [
        Broken(
            "lease_version",
            is_lease & (f.col("number") != version_after),
            f.col("before"),
            found=f.col("number"),
            expected=version_after,
        ),
        _not_before("lease_term", "term", "before_term"),
        _not_before("lease_expiry", "expires_at_ms", "before_expires_at_ms"),
        Broken(
            "lease_overdraft",
            is_lease & (f.col("added") > 0) & (f.col("leased") > f.col("granted")),
            f.col("granted_at"),
            found=f.col("leased"),
            expected=f.col("granted"),
        ),
    ]


def _not_before(rule: str, name: str, before: str) -> Broken:
    is_back = (f.col("event_type") == LEASED) & (f.col(name) < f.col(before))
    return Broken(rule, is_back, f.col("before"), found=f.col(name), expected=f.col(before))


def _grant_findings(facts: DataFrame, settled_ms: int) -> DataFrame:
    """Return findings: sessions whose units at the cluster manager exceed the shard's grant."""
    is_counted = f.col("shard_id") == CLUSTER_MANAGER_SHARD_ID
    counted = f.when(is_counted & (f.col("time_ms") < settled_ms), f.col("number"))
    given = f.when(~is_counted, f.col("number"))
    by_session = (
        facts.where(f.col("event_type") == GRANTED)
        .groupBy("session")
        .agg(
            f.max(counted).alias("counted"),
            f.max(given).alias("given"),
            f.max_by("position", counted).alias("position"),
            f.max_by("shard_id", given).alias("given_shard"),
            f.max_by("position", given).alias("given_position"),
        )
        .withColumns(
            {
                "shard_id": f.lit(CLUSTER_MANAGER_SHARD_ID),
                "given": f.coalesce("given", f.lit(0)),
            }
        )
    )
    rule = Broken(
        "grant_not_given",
        f.col("counted") > f.col("given"),
        f.col("given_position"),
        f.col("given_shard"),
        found=f.col("counted"),
        expected=f.col("given"),
    )
    return findings(by_session, [rule])


def _forward_findings(own: DataFrame) -> DataFrame:
    # A whole map and a difference of it are versions of one thing.
    kind = f.when(f.col("event_type") == MAP_CHANGE, f.lit(MAP)).otherwise(f.col("event_type"))
    events = own.where(f.col("event_type").isin(WINDOW, MAP, MAP_CHANGE, QUOTAS)).select(
        "shard_id", "position", kind.alias("event_type"), "subject", "number"
    )
    in_order = Window.partitionBy("event_type", "subject").orderBy("position")
    frame = events.withColumns(
        {"before": f.lag("position").over(in_order), "last": f.lag("number").over(in_order)}
    )
    number, after = f.col("number"), f.coalesce(f.col("last"), f.lit(0)) + 1
    return findings(
        frame,
        [
            _not_forward("window_not_later", WINDOW, number < after),
            _not_forward("map_version", MAP, number != after),
            _not_forward("quotas_version", QUOTAS, number != after),
        ],
    )


def _not_forward(rule: str, event_type: str, when: Column) -> Broken:
    return Broken(
        rule,
        (f.col("event_type") == event_type) & when,
        f.col("before"),
        found=f.col("number"),
        expected=f.coalesce(f.col("last"), f.lit(0)) + 1,
    )
