"""The cluster manager's log: leases within their grants, windows and maps that only go forward."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pipelines.audit.facts import GRANTED, LEASED, MAP, QUOTAS, RELEASED, WINDOW
from pipelines.audit.finding import Broken, findings


def ledger_findings(facts: DataFrame) -> DataFrame:
    """Return findings about the events of shard 0, of which ``facts`` are. Empty without them."""
    return _lease_findings(facts).unionByName(_forward_findings(facts))


def _lease_findings(facts: DataFrame) -> DataFrame:
    told = facts.where(f.col("event_type").isin(GRANTED, LEASED, RELEASED)).select(
        "shard_id", "position", "event_type", "session", "of_shard", "number", "units"
    )
    lease = Window.partitionBy("session", "of_shard").orderBy("position")
    account = Window.partitionBy("session").orderBy("position")
    so_far = account.rowsBetween(Window.unboundedPreceding, 0)
    kind = f.col("event_type")
    units = f.when(kind == LEASED, f.col("units")).when(kind == RELEASED, f.lit(0))
    frame = told.withColumns(
        {
            "before": f.lag("position").over(lease),
            "before_version": f.lag(f.when(kind == LEASED, f.col("number"))).over(lease),
            "added": units - f.coalesce(f.lag(units).over(lease), f.lit(0)),
        }
    ).withColumns(
        {
            "leased": f.sum("added").over(so_far),
            "granted": f.last(f.when(kind == GRANTED, f.col("number")), ignorenulls=True).over(
                so_far
            ),
        }
    )
    is_lease = kind == LEASED
    rules = [
        Broken(
            "lease_version",
            is_lease & (f.col("number") < f.col("before_version")),
            f.col("before"),
            found=f.col("number"),
            expected=f.col("before_version"),
        ),
        Broken(
            "lease_overdraft",
            is_lease & (f.col("leased") > f.coalesce("granted", f.lit(0))),
            f.col("before"),
            found=f.col("leased"),
            expected=f.coalesce("granted", f.lit(0)),
        ),
    ]
    return findings(frame, rules)


def _forward_findings(facts: DataFrame) -> DataFrame:
    told = facts.where(f.col("event_type").isin(WINDOW, MAP, QUOTAS)).select(
        "shard_id", "position", "event_type", "subject", "number"
    )
    in_order = Window.partitionBy("event_type", "subject").orderBy("position")
    frame = told.withColumns(
        {"before": f.lag("position").over(in_order), "last": f.lag("number").over(in_order)}
    )
    number, after = f.col("number"), f.coalesce(f.col("last"), f.lit(0)) + 1
    return findings(
        frame,
        [
            _not_forward("window_not_later", WINDOW, number < after),
            _not_forward("map_version", MAP, number < after),
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
