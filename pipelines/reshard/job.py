"""Plans the move to another number of shards; writes slots, shards, pairs and the slots' order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nextgen.kernel.routing.slots import SlotTable
from pipelines.columns.slots import slot_owners
from pipelines.errors import JobRefused
from pipelines.exports.input import ExportInput, open_export
from pipelines.reshard import maps
from pipelines.reshard.report import write_report
from pipelines.reshard.transform import (
    generated_keys,
    ordered_slot_moves,
    planned_moves,
    planned_slots,
    shard_volumes,
    slot_skew,
    volumes_of_events,
    volumes_of_keys,
)
from pipelines.running.output import replaced_folder
from pipelines.running.summary import Summary

JOB = "reshard"
GENERATED = "generated:"

ITEMS_PER_SECOND = 5_000.0
"""Default number of rows of a view that one shard sends to another per second."""

NAMES_PER_PARTITION = 500_000
CHI_SQUARE_Z_MAX = 4.0
"""Above this the hash spreads the names unevenly. Chance alone exceeds it once in 10,000 runs."""

TABLES = ("slots", "shards", "moves", "slot_moves")


@dataclass(frozen=True, slots=True)
class ReshardOptions:
    """``names`` is an export, or generated:N. Without ``shards_from`` and ``map_file`` the present
    map is the one in the export."""

    names: str
    shards_to: int
    shards_from: int | None = None
    map_file: Path | None = None
    items_per_second: float = ITEMS_PER_SECOND


def run(
    spark: SparkSession, options: ReshardOptions, out: Path, report: Path | None = None
) -> Summary:
    """Write the plan to ``out``: one folder of Parquet each for ``TABLES``.

    Raises:
        JobRefused: The names or the map cannot be read.
        ExportRefused: The export is none, or of a newer schema.
    """
    summary = Summary(JOB)
    generated = _generated(options.names)
    export = None if generated is not None else open_export(options.names)
    before = _table_before(spark, options, export)
    after = maps.table_after(before, options.shards_to)
    with replaced_folder(out, JOB) as folder:
        volumes = _volumes(spark, export, generated or 0, before)
        # 16,385 rows: written to disk once, because everything below is made from them.
        volumes.coalesce(1).write.parquet(str(folder / "volumes"))
        counted = spark.read.parquet(str(folder / "volumes"))
        tables = _tables(spark, counted, before, after, options.items_per_second)
        for name in TABLES:
            tables[name].coalesce(1).write.parquet(str(folder / name))
        written = {name: spark.read.parquet(str(folder / name)) for name in TABLES}
        _account(summary, counted, export.rows if export else generated or 0, bool(export))
        summary.reconcile()
        _tell(summary, written, before, after)
        if report is not None:
            write_report(report, summary, written)
            summary.outputs["report"] = str(report)
    summary.outputs["plan"] = str(out)
    return summary


def _generated(names: str) -> int | None:
    if not names.startswith(GENERATED):
        return None
    digits = names.removeprefix(GENERATED).replace("_", "")
    if not digits.isdecimal() or int(digits) < 1:
        raise JobRefused(f"{names!r} is not {GENERATED}N with a count of names")
    return int(digits)


def _table_before(
    spark: SparkSession, options: ReshardOptions, export: ExportInput | None
) -> SlotTable:
    if options.map_file is not None:
        return maps.table_of_file(options.map_file)
    if options.shards_from is not None:
        return maps.table_of_shards(options.shards_from)
    if export is None:
        raise JobRefused("generated names need --shards-from or --map")
    return maps.table_of_export(spark, export)


def _volumes(
    spark: SparkSession, export: ExportInput | None, generated: int, before: SlotTable
) -> DataFrame:
    if export is None:
        partitions = max(2, -(-generated // NAMES_PER_PARTITION))
        return volumes_of_keys(generated_keys(spark, generated, partitions))
    return volumes_of_events(export.events(spark), slot_owners(spark, before))


def _tables(
    spark: SparkSession,
    volumes: DataFrame,
    before: SlotTable,
    after: SlotTable,
    items_per_second: float,
) -> dict[str, DataFrame]:
    slots = planned_slots(volumes, spark, before, after)
    moves = planned_moves(slots, items_per_second)
    return {
        "slots": slots.orderBy("slot"),
        "shards": shard_volumes(slots),
        "moves": moves,
        "slot_moves": ordered_slot_moves(slots, moves),
    }


def _account(summary: Summary, volumes: DataFrame, rows_in: int, of_events: bool) -> None:
    """Account for the rows: some belong to a slot, the others to none."""
    rows = "events" if of_events else "topics"
    of_slot = f.sum(f.when(f.col("slot").isNotNull(), f.col(rows)).otherwise(0))
    of_none = f.sum(f.when(f.col("slot").isNull(), f.col(rows)).otherwise(0))
    counted = volumes.agg(of_slot.alias("slot"), of_none.alias("none"), f.sum("astray")).first()
    assert counted is not None, "a sum has a row"
    summary.rows_in = rows_in
    summary.rows_accounted = {"of_a_slot": counted[0] or 0, "of_no_slot": counted[1] or 0}
    summary.rows_read = sum(summary.rows_accounted.values())
    if counted[2]:
        summary.find(
            f"{counted[2]} topics are in another shard than the map says: the map is of another "
            "cluster; give this cluster's map by --map"
        )


def _tell(
    summary: Summary, tables: dict[str, DataFrame], before: SlotTable, after: SlotTable
) -> None:
    moves = tables["moves"].agg(
        f.count("*").alias("pairs"),
        f.sum("slots").alias("slots"),
        f.sum("topics").alias("topics"),
        f.sum("units").alias("units"),
        f.max("round").alias("rounds"),
        f.max("ends_s").alias("duration_s"),
    )
    moved, skew = moves.first(), slot_skew(tables["slots"]).first()
    loads = tables["shards"].agg(f.max("topics_after"), f.avg("topics_after")).first()
    assert moved is not None, "a sum has a row"
    assert skew is not None, "a sum has a row"
    assert loads is not None, "a sum has a row"
    summary.numbers = {
        "shards_before": len(before.shard_ids),
        "shards_after": len(after.shard_ids),
        "slots_moved": moved.slots or 0,
        "topics_moved": moved.topics or 0,
        "units_moved": moved.units or 0,
        "rounds": moved.rounds or 0,
        "duration_s": round(moved.duration_s or 0.0, 1),
        "fullest_shard_to_mean": round(loads[0] / loads[1], 4) if loads[1] else None,
        "skew": skew.asDict(),
    }
    if (skew.chi_square_z or 0.0) > CHI_SQUARE_Z_MAX:
        summary.find(
            f"names are less even over slots than chance makes them: chi-square is "
            f"{skew.chi_square_z:.1f} deviations from what is expected"
        )
