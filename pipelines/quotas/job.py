"""Reads an export once, and writes the quotas that follow from its history."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as f

from nextgen.export.format.schema import UNKNOWN_TYPE
from nextgen.kernel.governance.quota_file import QuotaFile, to_bytes
from nextgen.kernel.limits.cluster import BROKERS_MAX
from nextgen.kernel.limits.placement import QUOTA_TENANTS_MAX
from pipelines.durations import HOUR_MS
from pipelines.errors import JobRefused
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID, ExportInput, open_export
from pipelines.quotas import transform
from pipelines.quotas.model import Question, Shares
from pipelines.quotas.report import write_report
from pipelines.running.output import replaced_folder
from pipelines.running.summary import Summary

JOB = "quotas"
FILE = "quotas.json"
"""The file that ``nextgen quotas apply`` reads."""

BROKERS, TENANTS = "brokers", "tenants"
"""Tables beside it, which explain each quota."""

_NEEDS = "needs"

ROWS_SHOWN_MAX = 200
"""Rows of each table on the page."""

CLOCK_BACK_MS = HOUR_MS
"""A note reports a leader whose clock is behind its predecessor's by more than this."""

NOTES_MAX = 10


def run(
    spark: SparkSession,
    url: str | os.PathLike[str],
    out: Path,
    question: Question | None = None,
    *,
    report: Path | None = None,
) -> Summary:
    """Write ``quotas.json`` and the tables brokers and tenants to the folder ``out``.

    The same export and question give the same ``quotas.json``, byte by byte.

    Raises:
        ExportRefused: There is no export that this release reads.
        JobRefused: The export is damaged, no broker lives at its end, or not every tenant can
            have the floor.
        RowsLost: A bug: not every event was accounted for.
    """
    question = question or Question()
    export = open_export(url)
    if not _shard_ids(export):
        raise JobRefused(f"{export.url} holds no shard: there is nothing to make quotas from")
    summary = Summary(JOB, rows_in=export.rows)
    with replaced_folder(out, JOB) as folder:
        made = _Making(spark, export, question, folder)
        found = made.facts(summary)
        try:
            made.write_brokers(found)
            made.write_needs(found)
            version = question.version or made.next_version(found)
        finally:
            found.unpersist()
        summary.reconcile()
        shares = made.write_tenants()
        quotas = made.write_file(version)
        _tell(summary, made, shares, quotas)
        made.drop_needs()
        if report is not None:
            write_report(report, quotas, question, shares, summary, *made.shown())
            summary.outputs["report"] = str(report)
    summary.outputs |= {"file": str(out / FILE), "tables": str(out)}
    return summary


class _Making:
    """The steps of one run. Each one writes a table to the folder, which the next one reads."""

    def __init__(
        self, spark: SparkSession, export: ExportInput, question: Question, folder: Path
    ) -> None:
        self.spark = spark
        self.export = export
        self.question = question
        self._folder = folder
        self._shards = len(_shard_ids(export))
        # Each shard gets one unit at least: without it no topic there could be assigned.
        self.floor_units = max(question.floor_units, self._shards)

    def facts(self, summary: Summary) -> DataFrame:
        """Return the facts, and count for the summary how each event is used."""
        events = self.export.events(self.spark)
        read = Observation("read")
        kind = transform.kind_of()
        counted = events.observe(
            read,
            f.count(f.lit(1)).alias("read"),
            *[f.count_if(kind == each).alias(each) for each in set(transform.FACT_TYPES.values())],
            f.count_if(f.col("event_type") == UNKNOWN_TYPE).alias("of_unknown_types"),
        )
        found = transform.facts(counted).persist(StorageLevel.MEMORY_AND_DISK)
        found.count()
        counts = dict(read.get)
        summary.rows_read = counts.pop("read")
        others = summary.rows_read - sum(counts.values())
        summary.rows_accounted = {name: counts[name] for name in sorted(counts)}
        summary.rows_accounted["of_other_types"] = others
        if counts["of_unknown_types"]:
            summary.find(
                f"{counts['of_unknown_types']} events are of types that this release does not "
                "know: quotas do not reflect them; export again with the newer release"
            )
        return found

    def write_brokers(self, found: DataFrame) -> None:
        brokers = transform.broker_quotas(found, self.question)
        self._write(BROKERS, brokers.orderBy("broker_id"))

    def write_needs(self, found: DataFrame) -> None:
        in_shards = transform.shard_units(found, _end_hour(self.export))
        needs = transform.tenant_needs(
            found, in_shards, self.question, self._shards, self.floor_units
        )
        self._write(_NEEDS, needs)

    def next_version(self, found: DataFrame) -> int:
        set_before = found.where(f.col("kind") == transform.QUOTAS).agg(f.max("units")).collect()
        return int(set_before[0][0] or 0) + 1

    def write_tenants(self) -> Shares:
        """Divide the available units among tenants; return the totals.

        Raises:
            JobRefused: There are too few units for the floors, or none.
        """
        brokers = (
            self.read(BROKERS)
            .agg(
                f.count(f.lit(1)).alias("count"),
                f.coalesce(f.sum("quota_units"), f.lit(0)).alias("units"),
            )
            .collect()[0]
        )
        if not brokers["count"]:
            raise JobRefused(
                f"{self.export.url}: no broker lives at its end, so there is nothing to divide"
            )
        if brokers["count"] > BROKERS_MAX:
            raise JobRefused(f"{brokers['count']} brokers live, at most {BROKERS_MAX} can")
        chosen = transform.largest_tenants(self.read(_NEEDS), QUOTA_TENANTS_MAX)
        tenants = chosen.agg(
            f.count(f.lit(1)).alias("count"),
            f.coalesce(f.sum("need_units"), f.lit(0)).alias("units"),
        ).collect()[0]
        shares = Shares(brokers["units"], tenants["count"], tenants["units"], self.floor_units)
        if shares.spare_units < 0:
            raise JobRefused(
                f"{shares.tenants} tenants with {shares.floor_units} units each need more than the "
                f"{shares.available_units} units of brokers that may be leased"
            )
        self._write(TENANTS, transform.tenant_quotas(chosen, shares).orderBy("tenant"))
        return shares

    def write_file(self, version: int) -> QuotaFile:
        """Write the file of quotas; return its content."""
        brokers = transform.as_object(self.read(BROKERS), "broker_id").collect()[0]["units"]
        tenants = transform.as_object(self.read(TENANTS), "tenant").collect()[0]["units"]
        positions = {str(key): last for key, last in sorted(self.export.positions().items())}
        quotas = QuotaFile(
            version,
            json.loads(brokers),
            json.loads(tenants),
            source_of(self.export),
            {
                "cluster_id": self.export.manifest.cluster_id,
                "positions": positions,
                "headroom_percent": self.question.headroom_percent,
                "floor_units": self.floor_units,
            },
        )
        (self._folder / FILE).write_bytes(to_bytes(quotas))
        return quotas

    def shown(self) -> tuple[list[Row], list[Row]]:
        """Return the rows of brokers and of tenants that the page shows."""
        brokers = self.read(BROKERS).orderBy(f.desc("quota_units"), "broker_id")
        tenants = self.read(TENANTS).orderBy(f.desc("quota_units"), "tenant")
        return brokers.limit(ROWS_SHOWN_MAX).collect(), tenants.limit(ROWS_SHOWN_MAX).collect()

    def tenants_over_quota(self) -> int:
        """Return how many tenants have more units than their quota; they keep those units."""
        return int(self.read(TENANTS).where(f.col("units") > f.col("quota_units")).count())

    def tenants_left_out(self, shares: Shares) -> int:
        """Return how many tenants have no quota, because a file holds a limited number of them."""
        return int(self.read(_NEEDS).count()) - shares.tenants

    def drop_needs(self) -> None:
        """Remove the table that is only needed between two steps."""
        shutil.rmtree(self._folder / _NEEDS)

    def read(self, name: str) -> DataFrame:
        return self.spark.read.parquet(str(self._folder / name))

    def _write(self, name: str, rows: DataFrame) -> None:
        rows.coalesce(1).write.parquet(str(self._folder / name))


def source_of(export: ExportInput) -> str:
    """Return a digest that identifies an export: the cluster, and the last position by shard."""
    held = {
        "cluster_id": export.manifest.cluster_id,
        "shards": {
            str(shard_id): {
                "position": shard.position,
                "last_event_sha256": shard.last_event_sha256,
                "accepted_gaps": [
                    [gap.first_position, gap.last_position] for gap in shard.accepted_gaps
                ],
            }
            for shard_id, shard in export.manifest.shards.items()
        },
    }
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


def _shard_ids(export: ExportInput) -> Sequence[int]:
    return [each for each in export.positions() if each != CLUSTER_MANAGER_SHARD_ID]


def _end_hour(export: ExportInput) -> int:
    return max((file.last_time_ms for file in export.files), default=0) // HOUR_MS


def _tell(summary: Summary, made: _Making, shares: Shares, quotas: QuotaFile) -> None:
    summary.numbers = {
        "version": quotas.version,
        "source": quotas.source,
        "brokers": len(quotas.brokers),
        "broker_units": shares.available_units,
        "tenants": shares.tenants,
        "tenants_left_out": made.tenants_left_out(shares),
        "tenants_over_quota": made.tenants_over_quota(),
        "tenant_units_needed": shares.needed_units,
        "tenant_units": sum(quotas.tenants.values()),
        "is_scarce": shares.is_scarce,
        "notes": _notes(made.export),
    }


def _notes(export: ExportInput) -> list[str]:
    """Return remarks about the export that a reader of the quotas needs."""
    notes = _clock_notes(export)
    if CLUSTER_MANAGER_SHARD_ID not in export.positions():
        notes.append(
            "the export has no log of the cluster manager, so the version of the present quotas is "
            "not known: the version is 1 unless --quota-version gives another"
        )
    for shard_id, shard in sorted(export.manifest.shards.items()):
        if shard.accepted_gaps:
            notes.append(f"events of shard {shard_id} were lost: units may be counted wrongly")
    return notes[:NOTES_MAX]


def _clock_notes(export: ExportInput) -> list[str]:
    notes = []
    for shard_id, shard in sorted(export.manifest.shards.items()):
        back_ms = max(
            (
                before.last_time_ms - after.first_time_ms
                for before, after in zip(shard.files, shard.files[1:], strict=False)
            ),
            default=0,
        )
        if back_ms > CLOCK_BACK_MS:
            notes.append(
                f"the clock of shard {shard_id} goes back by {back_ms // 1_000} s between two "
                "files: figures by the hour, and percentiles over hours, may be wrong"
            )
    return notes
