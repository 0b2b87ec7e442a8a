"""Reads an export, folds it, and writes the tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from nextgen.audit.slot_legs import HomeLeg, homes_at, legs_of
from nextgen.export.format.manifest import ExportFile
from nextgen.export.format.schema import UNKNOWN_TYPE
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID, ExportInput, open_export
from pipelines.exports.slot_homes import (
    at_home,
    check_reached,
    is_ordered,
    moves_in,
    needed_positions,
    real_position,
)
from pipelines.iso_time import unix_ms
from pipelines.rebuild import layouts, tables, transform
from pipelines.rebuild.as_of import END, AsOf, check_positions
from pipelines.running.output import replaced_folder
from pipelines.running.summary import Summary

JOB = "rebuild"

_ROWS = "rows"
_POSITION = "position"

_FOLDED = "folded"
_NO_TRACE = "without_a_trace"
_UNKNOWN = "of_unknown_types"
_BEHIND = "behind_as_of"
"""Names under which the fold counts events, by how it used them."""

_WITH_BIRTH = (tables.TENANTS, tables.NAMESPACES, tables.TOPICS, tables.SESSIONS)


@dataclass(frozen=True, slots=True)
class FoldInput:
    """The events to fold: those of each shard up to a position. ``files`` contain all of them.

    ``homes`` are of slots that moved: their earlier history is in other shards' logs.
    """

    export: ExportInput
    positions: Mapping[int, int]
    files: tuple[ExportFile, ...]
    homes: tuple[HomeLeg, ...] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def is_cut(self) -> bool:
        """Whether the files hold events behind the positions."""
        return self.rows > sum(self.positions.values()) - self.lost_events

    @property
    def lost_events(self) -> int:
        """Events up to the positions that are missing in gaps that an operator accepted."""
        return sum(
            max(0, min(gap.last_position, self.positions.get(shard_id, 0)) - gap.first_position + 1)
            for shard_id, shard in self.export.manifest.shards.items()
            for gap in shard.accepted_gaps
        )


def run(
    spark: SparkSession, export_url: str | os.PathLike[str], out: Path, as_of: AsOf = END
) -> Summary:
    """Fold the export as of ``as_of`` and write the tables to the folder ``out``.

    Raises:
        ExportRefused: There is no export that this release reads.
        JobRefused: The export is damaged, does not reach so far, or ``out`` cannot be replaced.
        RowsLost: A bug: not every event was accounted for.
    """
    chosen = choose_input(spark, open_export(export_url), as_of)
    summary = Summary(JOB)
    with replaced_folder(out, JOB) as draft:
        write_tables(spark, chosen, draft, summary)
    summary.outputs["tables"] = str(out)
    return summary


def choose_input(spark: SparkSession, export: ExportInput, as_of: AsOf) -> FoldInput:
    """Return the events to fold. Files that begin behind the last position are not opened.

    Raises:
        JobRefused: The export does not reach so far, or lacks what a slot brought along.
    """
    exported = {
        shard_id: position
        for shard_id, position in export.positions().items()
        if shard_id != CLUSTER_MANAGER_SHARD_ID
    }
    if as_of.time is not None:
        positions = _positions_at(spark, export, exported, as_of.time)
    else:
        positions = check_positions(as_of.positions or {}, exported)
    homes = tuple(homes_at(legs_of(moves_in(spark, export)).legs, positions))
    check_reached(homes, exported)
    needed = needed_positions(homes)
    files = tuple(
        file
        for shard_id, shard in sorted(export.manifest.shards.items())
        for file in shard.files
        if file.first_position <= max(positions.get(shard_id, 0), needed.get(shard_id, 0))
    )
    return FoldInput(export, positions, files, homes)


def write_tables(spark: SparkSession, chosen: FoldInput, folder: Path, summary: Summary) -> None:
    """Write every table into ``folder``; put rows and totals into ``summary``.

    Raises:
        RowsLost: Not every event was accounted for.
    """
    every = chosen.export.events(spark, chosen.files)
    _account(summary, chosen, every)
    events = _chosen_events(spark, chosen, every)
    written = {name: Observation(name) for name in tables.TABLE_NAMES}
    unborn = {name: Observation(f"unborn {name}") for name in _WITH_BIRTH}
    folded = {
        table.name: transform.fold_objects(events, table, unborn[table.name])
        for table in tables.OBJECT_TABLES
    }
    folded[tables.ASSIGNMENTS] = transform.fold_assignments(events)
    folded[tables.SESSIONS] = transform.fold_sessions(events, unborn[tables.SESSIONS])
    folded[tables.LAYOUTS] = layouts.fold_layouts(events)
    folded[tables.SEGMENTS] = layouts.fold_segments(events)
    folded[tables.SUBSCRIPTIONS] = layouts.fold_subscriptions(events)
    for name, rows in folded.items():
        _write(rows, folder / name, written[name])
    # Read the written tables, so that nothing is folded twice.
    stored = {name: read_table(spark, folder, name) for name in folded}
    _write(transform.policies_of(stored), folder / tables.POLICIES, written[tables.POLICIES])
    summary.numbers["rows"] = {name: rows.get[_ROWS] for name, rows in written.items()}
    for name, events_of_none in unborn.items():
        if count := events_of_none.get[transform.UNBORN]:
            summary.find(
                f"{count} events are about {name} that were never created: they changed nothing; "
                "'nextgen pipeline audit' names them"
            )


def _chosen_events(spark: SparkSession, chosen: FoldInput, every: DataFrame) -> DataFrame:
    if not chosen.homes:
        return transform.up_to(every, chosen.positions) if chosen.is_cut else every
    settled = at_home(spark, every, chosen.homes)
    # What a slot brought along counts to its own end, everything else up to the position.
    return settled.where(transform.is_up_to(chosen.positions) | is_ordered(F.col("position")))


def read_table(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    """Return a table that a rebuild wrote into ``folder``."""
    return spark.read.schema(tables.SCHEMAS[name]).parquet(str(folder / name))


def _write(rows: DataFrame, path: Path, counted: Observation) -> None:
    if _POSITION in rows.columns:
        rows = rows.withColumn(_POSITION, real_position(F.col(_POSITION)))
    rows.observe(counted, F.count(F.lit(1)).alias(_ROWS)).write.mode("error").parquet(str(path))


def _account(summary: Summary, chosen: FoldInput, events: DataFrame) -> None:
    """Count how the fold uses the events.

    This is a pass of its own, over three narrow columns. An ``Observation`` before a shuffle counts
    rows again when an executor is lost, so its totals would not add up.
    """
    kind = F.col("event_type")
    becomes = (
        F.when(~transform.is_up_to(chosen.positions), _BEHIND)
        .when(kind.isin(*tables.FOLDED_TYPES), _FOLDED)
        .when(kind == UNKNOWN_TYPE, _UNKNOWN)
        .otherwise(_NO_TRACE)
    )
    counted = events.groupBy(becomes.alias("becomes")).count().collect()
    counts = {row["becomes"]: row["count"] for row in counted}
    summary.rows_in = chosen.rows
    summary.rows_read = sum(counts.values())
    summary.rows_accounted = {
        name: counts.get(name, 0) for name in (_FOLDED, _NO_TRACE, _UNKNOWN, _BEHIND)
    }
    summary.numbers |= {
        "positions": {str(shard): position for shard, position in chosen.positions.items()},
        "events_not_opened": chosen.export.rows - chosen.rows,
        "events_lost_by_accepted_gaps": chosen.lost_events,
    }
    if counts.get(_UNKNOWN):
        summary.find(
            f"{counts[_UNKNOWN]} events are of types that this release does not know: their "
            "changes are not in the tables; export again with the newer release"
        )
    summary.reconcile()


def _positions_at(
    spark: SparkSession, export: ExportInput, exported: Mapping[int, int], time: datetime
) -> dict[int, int]:
    """Return the last position of each shard before its first event later than ``time``.

    Clocks may go back when a shard's leader changes, positions do not. So an event with an earlier
    time behind one that is later than ``time`` is left out.
    """
    time_ms = unix_ms(time)
    later = [file for file in export.shard_files if file.last_time_ms > time_ms]
    at = F.timestamp_millis(F.lit(time_ms))
    first_later = (
        export.events(spark, later)
        .where(F.col("time") > at)
        .groupBy("shard_id")
        .agg(F.min("position").alias("position"))
        .limit(len(exported))
    )
    found = {row["shard_id"]: row["position"] - 1 for row in first_later.collect()}
    return {shard_id: found.get(shard_id, last) for shard_id, last in exported.items()}
