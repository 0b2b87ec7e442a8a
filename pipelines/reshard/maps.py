"""The two slot tables of a plan: the present one, and the one for the new number of shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from nextgen.kernel.input.json_fields import parse_json
from nextgen.kernel.limits.cluster import SHARDS_MAX, SLOT_COUNT
from nextgen.kernel.routing.slots import SlotRun, SlotTable, initial_table, rebalanced
from pipelines.errors import JobRefused
from pipelines.exports.input import CLUSTER_MANAGER_SHARD_ID, ExportInput


def table_of_shards(shards: int) -> SlotTable:
    """Return the first table of a new cluster with shards 1 to ``shards``."""
    _check_count(shards)
    return initial_table(range(1, shards + 1))


def table_after(before: SlotTable, shards: int) -> SlotTable:
    """Return the next table for ``shards`` shards; as few slots as possible move.

    New shards get ids behind the highest one. If there are fewer, the highest ids are removed.
    """
    _check_count(shards)
    ids = list(before.shard_ids)[:shards]
    ids += range(max(before.shard_ids) + 1, max(before.shard_ids) + 1 + shards - len(ids))
    return rebalanced(before, ids)


def table_of_file(path: Path) -> SlotTable:
    """Return the table of a JSON file: ``version``, and ``shards``: [first, last] slots by id.

    Raises:
        JobRefused: It is not such a file, or does not give each slot to one shard.
    """
    try:
        fields: dict[str, Any] = parse_json(path.read_bytes())
        owners: dict[int, int] = {}
        for shard_id, ranges in fields["shards"].items():
            for first, last in ranges:
                _give(owners, int(shard_id), first, last)
        packed = b"".join(owners[slot].to_bytes(2, "big") for slot in sorted(owners))
        return SlotTable.from_bytes(_version(fields["version"]), packed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise JobRefused(f"{path} is not a map of slots to shards: {error}") from error


def table_of_export(spark: SparkSession, export: ExportInput) -> SlotTable:
    """Return the latest slot table in the export's log of the cluster manager.

    Raises:
        JobRefused: The export does not have that log, or no table is in it.
    """
    shard = export.manifest.shards.get(CLUSTER_MANAGER_SHARD_ID)
    latest = None
    if shard is not None:
        events = export.events(spark, shard.files)
        newest = f.max_by("shard_map_changed", "position").alias("whole")
        whole = events.where("shard_map_changed is not null")
        latest = whole.agg(newest, f.max("position").alias("position")).first()
    if latest is None or latest.whole is None:
        raise JobRefused(
            f"{export.url} does not say how slots were placed: give --shards-from or --map"
        )
    table = SlotTable.from_bytes(latest.whole.version, bytes(latest.whole.slot_owners))
    differences = events.where(f.col("position") > latest.position).select(
        "position", "shard_changed.version", "shard_changed.slots"
    )
    for change in differences.where("version is not null").orderBy("position").collect():
        runs = [SlotRun(run.first, run.last, run.shard_id) for run in change.slots or ()]
        table = table.with_runs(change.version, runs)
    return table


def _give(owners: dict[int, int], shard_id: int, first: int, last: int) -> None:
    if not 0 <= first <= last < SLOT_COUNT:
        raise ValueError(f"[{first}, {last}] are no slots, they are 0 to {SLOT_COUNT - 1}")
    slots = range(first, last + 1)
    if twice := owners.keys() & set(slots):
        raise ValueError(f"slot {min(twice)} is given to two shards")
    owners |= dict.fromkeys(slots, shard_id)


def _version(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no version")
    return value


def _check_count(shards: int) -> None:
    if not 1 <= shards <= SHARDS_MAX:
        raise JobRefused(f"{shards} shards, allowed are 1 to {SHARDS_MAX}")
