"""Findings: rows that say which promise an event breaks, and which event it contradicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from pipelines.exports.slot_homes import real_position, real_shard


class Basis(StrEnum):
    """The events that a rule needs, besides the one that it names.

    A finding is doubtful if events of its basis are missing.
    """

    EVENT = "event"
    """The event alone."""
    SHARD = "shard"
    """All earlier events of the shard."""
    ALL_SHARDS = "all_shards"
    """Events of any shard."""


RULES: dict[str, tuple[Basis, str]] = {
    # Places and files.
    "gap": (Basis.EVENT, "positions are missing"),
    "duplicate_position": (Basis.EVENT, "a position is there more than once"),
    "term_back": (Basis.EVENT, "the term goes back"),
    "wrong_file": (Basis.EVENT, "the file holds events of another shard"),
    "outside_range": (Basis.EVENT, "the file holds positions outside the range in its name"),
    "rows_differ": (Basis.EVENT, "the file has another number of rows than the manifest says"),
    "times_differ": (Basis.EVENT, "the file's times are not those of the manifest"),
    "newer_schema": (Basis.EVENT, "the event was written in a newer schema"),
    "command_twice": (Basis.SHARD, "its command was carried out before"),
    # Slots.
    "slots_of_another": (Basis.EVENT, "slots were adopted that another shard has"),
    "wrong_shard": (Basis.EVENT, "its slot is another shard's"),
    "move_from_nowhere": (Basis.EVENT, "slots came from a shard that did not have them"),
    "decided_elsewhere": (Basis.EVENT, "its shard had released the slot, or not adopted it yet"),
    # Tenants, namespaces and topics.
    "two_homes": (Basis.EVENT, "it is in another shard too"),
    "created_twice": (Basis.SHARD, "created, and was there already"),
    "not_there": (Basis.SHARD, "changed or deleted, and is not there"),
    "other_id": (Basis.SHARD, "the event is about another id than the one that is there"),
    "id_given_twice": (Basis.EVENT, "the id was given before"),
    "deletion_not_started": (Basis.SHARD, "deleted or given up, and no deletion was started"),
    "being_deleted": (Basis.SHARD, "changed while it was being deleted"),
    "name_still_leads": (Basis.SHARD, "the name went to a topic while it led to a renamed one"),
    "policies_version": (Basis.SHARD, "the policies' version does not grow by one"),
    # Parents.
    "gate_shut": (Basis.SHARD, "created while the gate of its parent was not open for it"),
    "gate_over_children": (Basis.SHARD, "the gate was closed over children"),
    "attempt_back": (Basis.SHARD, "a gate obeyed an attempt earlier than one that it had obeyed"),
    "orphan_parent_unknown": (Basis.ALL_SHARDS, "its parent was never created in any shard"),
    "orphan_parent_deleted": (Basis.ALL_SHARDS, "it is there, and its parent was deleted"),
    "gate_left_open": (Basis.ALL_SHARDS, "the gate is open for a parent that was deleted"),
    # Owners.
    "epoch": (Basis.SHARD, "the epoch is not one more than the last, and no ledger knew a later"),
    "overlap": (Basis.SHARD, "two live owners"),
    "takeover_of_nothing": (Basis.SHARD, "taken over, and had no owner"),
    "given_to_its_owner": (Basis.SHARD, "given to the session that had it"),
    "raised_elsewhere": (Basis.SHARD, "its epoch was raised, and it went to another session"),
    "not_owned": (Basis.SHARD, "lost an owner that it did not have"),
    "unknown_reason": (Basis.EVENT, "no such reason"),
    "orphan_assignment": (Basis.SHARD, "assigned, and its topic is not there"),
    "no_such_partition": (Basis.SHARD, "assigned as a part that the topic does not have"),
    "renamed_with_owners": (Basis.SHARD, "the topic was renamed and has owners"),
    "deleted_with_owners": (Basis.SHARD, "the topic was deleted and has owners"),
    "unknown_session": (Basis.ALL_SHARDS, "assigned to a session that was not, or not yet"),
    "session_of_another": (Basis.ALL_SHARDS, "assigned to a broker that never had the session"),
    "ended_session": (Basis.ALL_SHARDS, "assigned to a session that had ended"),
    "not_lost": (Basis.ALL_SHARDS, "taken as lost from a session that had not ended"),
    # Layouts of scalable topics.
    "layout_epoch": (Basis.SHARD, "the layout's epoch is not one more than the last"),
    "ranges_uneven": (Basis.SHARD, "a hash has no active segment, or more than one"),
    "segment_id_again": (Basis.SHARD, "a segment has an id that was used before"),
    "unknown_segment": (Basis.SHARD, "a segment came that was never planned"),
    "unlisted_segment": (Basis.SHARD, "assigned, and no segment of the layout"),
    "operation_beside_another": (Basis.SHARD, "begun while another operation was under way"),
    "operation_id": (Basis.SHARD, "the operation's id is not one more than the last"),
    "no_such_operation": (Basis.SHARD, "about an operation that is not under way"),
    # Brokers.
    "session_epoch": (Basis.SHARD, "the broker's epoch is not one more than the last"),
    "session_overlap": (Basis.SHARD, "two live sessions of one broker"),
    "session_not_live": (Basis.SHARD, "about a session that is not the broker's live one"),
    "grant": (Basis.SHARD, "granted less than before, or more than the broker has"),
    "drain_revision": (Basis.SHARD, "the drain's revision is not one more than the last"),
    # The cluster manager's log.
    "record_back": (Basis.SHARD, "a broker's record goes back, or its session returns"),
    "lease_not_live": (Basis.SHARD, "granted or leased of a session that is not the live one"),
    "lease_version": (Basis.SHARD, "the lease's version is not that of its units"),
    "lease_term": (Basis.SHARD, "leased to a leader of an earlier term"),
    "lease_expiry": (Basis.SHARD, "the lease ends before its announced expiry"),
    "lease_overdraft": (Basis.SHARD, "more units are leased out than were granted"),
    "grant_not_given": (Basis.ALL_SHARDS, "more is counted on than the broker's shard granted"),
    "window_not_later": (Basis.SHARD, "a window is not later than the last of its process"),
    "quotas_version": (Basis.SHARD, "the quotas' version is not one more than the last"),
    "map_version": (Basis.SHARD, "the shard map's version is not one more than the last"),
}
"""Rules by name. The names are stored; the sentences are shown."""

FINDING_SCHEMA = t.StructType(
    [
        t.StructField("rule", t.StringType(), nullable=False),
        t.StructField("shard_id", t.IntegerType(), nullable=False),
        t.StructField("position", t.LongType(), nullable=False),
        t.StructField("other_shard_id", t.IntegerType()),
        t.StructField("other_position", t.LongType()),
        t.StructField("found", t.LongType()),
        t.StructField("expected", t.LongType()),
    ]
)
"""``position`` is the event that breaks the rule, ``other_position`` the one that it contradicts.
``found`` and ``expected`` are numbers, where the rule is about numbers."""


@dataclass(frozen=True, slots=True)
class Broken:
    """One rule over the columns of a frame: it is broken where ``when`` is true."""

    rule: str
    when: Column
    other_position: Column | None = None
    other_shard_id: Column | None = None
    found: Column | None = None
    expected: Column | None = None


def findings(frame: DataFrame, broken: Sequence[Broken]) -> DataFrame:
    """Return a row of ``FINDING_SCHEMA`` for each row of ``frame`` and rule that it breaks.

    ``frame`` has shard_id and position; a condition that is null is not broken.
    """
    cases = [f.when(each.when, _finding_of(each)) for each in broken]
    any_broken = reduce(or_, (f.coalesce(each.when, f.lit(False)) for each in broken))
    found = frame.where(any_broken).select(
        "shard_id", "position", f.explode(f.array_compact(f.array(*cases))).alias("finding")
    )
    # Frames of slots that moved have orders for positions.
    position, other = f.col("position"), f.col("finding.other_position")
    return found.select(
        "finding.rule",
        real_shard(f.col("shard_id"), position).alias("shard_id"),
        real_position(position).alias("position"),
        real_shard(f.col("finding.other_shard_id"), other).alias("other_shard_id"),
        real_position(other).alias("other_position"),
        "finding.found",
        "finding.expected",
    )


def _finding_of(broken: Broken) -> Column:
    assert broken.rule in RULES, f"{broken.rule} is not a rule"
    # Without another shard id, the other position is in the same shard.
    other_shard = broken.other_shard_id
    if other_shard is None:
        other_shard = f.col("shard_id") if broken.other_position is not None else f.lit(None)
    return f.struct(
        f.lit(broken.rule).alias("rule"),
        other_shard.cast("int").alias("other_shard_id"),
        _number(broken.other_position).alias("other_position"),
        _number(broken.found).alias("found"),
        _number(broken.expected).alias("expected"),
    )


def _number(value: Column | None) -> Column:
    return (f.lit(None) if value is None else value).cast("long")
