"""Verifies a rebuild: the tables at a live cluster's positions equal the cluster's snapshot.

The snapshot is taken first, at whatever positions the shards are. The export then has to reach
these positions, and the fold ends there. So writers need not pause for the comparison.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.errors import JobRefused
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID, ExportInput, open_export
from pipelines.rebuild import compare, tables
from pipelines.rebuild.as_of import AsOf
from pipelines.rebuild.job import JOB, choose_input, read_table, write_tables
from pipelines.rebuild.live import COMPLETE, LIVE_SCHEMA, live_snapshots, unavailable
from pipelines.rebuild.shard_snapshot import shards_of
from pipelines.running.output import replaced_folder
from pipelines.running.summary import FINDINGS_SHOWN_MAX, RowsLost, Summary

LIVE = "live"
DIFFERENCES = "differences"

LOOK_S = 0.25
"""Between two reads of a manifest that does not reach the snapshot's positions yet."""

REACHED_WITHIN_S = 60.0
"""Time for a running exporter to reach the snapshot's positions."""


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """The objects of a cluster, on disk. ``positions`` by shard; ``items`` of all shards."""

    rows: DataFrame
    positions: Mapping[int, int]
    items: int


def run_verified(
    spark: SparkSession,
    export_url: str,
    out: Path,
    targets: Sequence[str],
    reached_within_s: float = REACHED_WITHIN_S,
) -> Summary:
    """Rebuild at the cluster's present positions, compare, and write tables and differences.

    Each difference is a finding; the folder ``differences`` has all of them.

    Raises:
        ExportRefused: There is no export that this release reads.
        JobRefused: It is damaged, of another cluster, or does not reach the cluster's positions.
        MetadataError: The cluster cannot be read.
        RowsLost: A bug: not every event or item was accounted for.
    """
    open_export(export_url)  # Refuse an unreadable export before reading the cluster.
    summary = Summary(JOB)
    with replaced_folder(out, JOB) as draft:
        live = take_snapshot(spark, targets, draft)
        export = _reaching(export_url, live.positions, reached_within_s)
        chosen = choose_input(spark, export, AsOf(positions=live.positions))
        write_tables(spark, chosen, draft, summary)
        _compare(spark, live, draft, summary)
    summary.outputs |= {"tables": str(out), "differences": str(out / DIFFERENCES)}
    return summary


def take_snapshot(spark: SparkSession, targets: Sequence[str], folder: Path) -> LiveSnapshot:
    """Write the objects of every shard of the cluster to ``folder``.

    Raises:
        MetadataError: The cluster cannot be read.
        RowsLost: A bug: items went missing on the way.
    """
    shards = asyncio.run(shards_of(targets))
    path = str(folder / LIVE)
    try:
        live_snapshots(spark, targets, shards).write.parquet(path)
    except PySparkException as error:
        raise unavailable(error) from error
    rows = spark.read.schema(LIVE_SCHEMA).parquet(path)
    is_end = F.col("kind") == COMPLETE
    by_shard = (
        rows.groupBy("shard_id")
        .agg(
            F.max("as_of_position").alias("position"),
            F.count_if(~is_end).alias("items"),
            F.sum(F.when(is_end, F.col("items"))).alias("sent"),
        )
        .limit(len(shards) + 1)
        .collect()
    )
    if [row for row in by_shard if row["items"] != row["sent"]] or len(by_shard) != len(shards):
        raise RowsLost(f"{JOB}: the shards {shards} sent other items than were read: {by_shard}")
    return LiveSnapshot(
        rows.where(~is_end),
        {row["shard_id"]: row["position"] for row in by_shard},
        sum(row["items"] for row in by_shard),
    )


def _reaching(export_url: str, positions: Mapping[int, int], within_s: float) -> ExportInput:
    """Wait until the export, which another process writes, reaches ``positions``; return it.

    Raises:
        JobRefused: It does not reach them in time, or it has other shards.
    """
    give_up_at = time.monotonic() + within_s
    while True:
        export = open_export(export_url)
        exported = export.positions()
        others = sorted(set(exported) - {CLUSTER_MANAGER_SHARD_ID} - set(positions))
        if others:
            raise JobRefused(
                f"the export has the shards {others}, the cluster has {sorted(positions)}: "
                "it is another cluster's"
            )
        behind = {
            shard_id: position
            for shard_id, position in sorted(positions.items())
            if exported.get(shard_id, 0) < position
        }
        if not behind:
            return export
        if time.monotonic() >= give_up_at:
            shard_id, position = next(iter(behind.items()))
            raise JobRefused(
                f"the export of shard {shard_id} ends at position {exported.get(shard_id, 0)}, "
                f"the cluster is at {position}: run 'nextgen export run' beside the verification"
            )
        time.sleep(LOOK_S)


def _compare(spark: SparkSession, live: LiveSnapshot, folder: Path, summary: Summary) -> None:
    folded = {name: read_table(spark, folder, name) for name in tables.SCHEMAS}
    rebuilt = compare.comparable_tables(folded)
    found = compare.differences(rebuilt, compare.comparable_live(live.rows))
    path = str(folder / DIFFERENCES)
    found.write.parquet(path)
    written = spark.read.schema(found.schema).parquet(path)
    counts = {
        f"{row['kind']}: {row['what']}": row["count"]
        for row in written.groupBy("kind", "what").count().orderBy("kind", "what").collect()
    }
    total = sum(counts.values())
    shown = written.orderBy("kind", "shard_id", "key").limit(FINDINGS_SHOWN_MAX).collect()
    for row in shown:
        summary.find(
            f"{row['kind']} {row['key']} in shard {row['shard_id']}: {row['what']}; "
            f"rebuilt {row['rebuilt']}, live {row['live']}"
        )
    summary.findings_total += total - len(shown)
    summary.numbers |= {
        "verified": True,
        "live_items": live.items,
        "differences": total,
        "differences_by_kind": counts,
    }
