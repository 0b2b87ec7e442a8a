"""All rules over the facts of an export, as one frame of findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nextgen.audit.slot_legs import SlotLegs, homes_at
from pipelines.audit.finding import RULES, Basis
from pipelines.audit.rules import commands, inventory, layouts, ledger, ownership, slot_homes
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID
from pipelines.exports.slot_homes import placed_at_home


@dataclass(frozen=True, slots=True)
class Clocks:
    """Bounds for conclusions from times, in Unix milliseconds.

    Shards are exported one after another, and their leaders' clocks differ. So the counterpart of
    an event after ``settled_ms`` may be in another shard's log and not exported yet. ``lag_ms`` is
    how long after a session's end, by its own shard, another shard's event may still use it.
    """

    settled_ms: int
    lag_ms: int


@dataclass(frozen=True, slots=True)
class MovedSlots:
    """Slots that moved between shards. ``positions`` are the last exported ones, by shard."""

    spark: SparkSession
    legs: SlotLegs = field(default_factory=SlotLegs)
    positions: Mapping[int, int] = field(default_factory=dict)

    def at_home(self, facts: DataFrame) -> DataFrame:
        """Return ``facts`` as if each slot had always been in the shard that has it last."""
        homes = homes_at(self.legs.legs, self.positions)
        return placed_at_home(self.spark, facts, "slot", homes) if homes else facts

    def without(self, facts: DataFrame) -> DataFrame:
        """Return ``facts`` without what is about slots that moved."""
        if not self.legs.legs:
            return facts
        moved = self.spark.createDataFrame(
            [(leg.first, leg.last) for leg in self.legs.legs if leg.number == 1],
            "first int, last int",
        ).select(f.explode(f.sequence("first", "last")).alias("slot"))
        return facts.join(f.broadcast(moved), "slot", "left_anti")


def rule_findings(
    facts: DataFrame, clocks: Clocks, moved: MovedSlots, *, has_ledger: bool
) -> DataFrame:
    """Return the findings (``FINDING_SCHEMA``) of all rules about the order of events.

    The caller persists ``facts``, which is used several times. ``has_ledger``: the facts include
    the cluster manager's log.
    """
    settled_ms, lag_ms = clocks.settled_ms, clocks.lag_ms
    settled = moved.at_home(facts)
    sessions = ownership.sessions_of(settled)
    deleted = inventory.deleted_parents(settled)
    of_shards = settled.where(f.col("shard_id") != CLUSTER_MANAGER_SHARD_ID)
    # Gates stay where they are when the slots of children go.
    of_gates = moved.without(facts.where(f.col("shard_id") != CLUSTER_MANAGER_SHARD_ID))
    parts = [
        commands.command_findings(facts),
        slot_homes.home_findings(moved.without(facts)),
        *slot_homes.moved_findings(moved.spark, facts, moved.legs),
        inventory.life_findings(of_shards, deleted, settled_ms, lag_ms),
        inventory.ids_given_twice(of_shards),
        inventory.gate_findings(of_gates),
        inventory.gates_left_open(of_shards, deleted, settled_ms),
        inventory.unknown_parents(of_shards, settled_ms),
        ownership.unit_findings(of_shards, sessions, settled_ms, lag_ms),
        ownership.assigned_sessions(of_shards, sessions, settled_ms, lag_ms),
        ownership.broker_findings(of_shards),
        layouts.layout_findings(of_shards),
    ]
    if has_ledger:
        parts.append(ledger.ledger_findings(facts, settled_ms))
    union = parts[0]
    for part in parts[1:]:
        union = union.unionByName(part)
    return union


def with_doubts(findings: DataFrame, troubles: DataFrame, *, is_any_troubled: bool) -> DataFrame:
    """Return ``findings`` with ``is_doubtful``: missing or repeated events could explain it.

    ``troubles`` has one row per shard with such events: shard_id, from_position (the first one).
    ``is_any_troubled`` is whether it has rows.
    """
    by_basis = {basis: [rule for rule, (of, _) in RULES.items() if of is basis] for basis in Basis}
    joined = findings.join(f.broadcast(troubles), "shard_id", "left")
    of_shard = f.col("rule").isin(by_basis[Basis.SHARD]) & (
        f.col("position") >= f.col("from_position")
    )
    of_all = f.col("rule").isin(by_basis[Basis.ALL_SHARDS]) & f.lit(is_any_troubled)
    doubtful = f.coalesce(of_shard, f.lit(False)) | of_all
    return joined.withColumn("is_doubtful", doubtful).select(*findings.columns, "is_doubtful")
