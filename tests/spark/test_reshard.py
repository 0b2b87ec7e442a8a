"""Plans for another number of shards: what moves is what two tables say, and nothing is lost."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nextgen.kernel.limits.cluster import SLOT_COUNT
from nextgen.kernel.routing.ids import slot_of_id
from nextgen.kernel.routing.slots import SlotRun, initial_table, rebalanced
from pipelines.columns.slots import slot_owners
from pipelines.errors import JobRefused
from pipelines.exports.input import open_export
from pipelines.reshard.job import ReshardOptions, run
from pipelines.reshard.maps import table_after, table_of_export, table_of_file
from pipelines.reshard.transform import generated_keys, volumes_of_events
from protos.nextgen.v1.events_pb2 import ShardChanged, ShardMapChanged
from protos.nextgen.v1.events_pb2 import SlotRun as EventRun
from tests.support.spark.histories import AGAIN, History, told_history
from tests.support.spark.plans import plan_of, unwanted_in
from tests.support.spark.renames import rename_topic

NAMES = 20_000


def live_topics(history: History) -> Counter[int]:
    """Return the live topics by slot, folded in Python: a renamed one stays in that of its id."""
    topics: Counter[int] = Counter()
    for log in history.logs.values():
        for event in log:
            if event.HasField("topic_created"):
                topics[slot_of_id(event.topic_created.topic_id)] += 1
            if event.HasField("topic_deleted"):
                topics[slot_of_id(event.topic_deleted.topic_id)] -= 1
    return +topics


def live_units(history: History) -> int:
    units: dict[tuple[str, str], bool] = {}
    for log in history.logs.values():
        for event in log:
            if event.HasField("topic_assigned"):
                units[event.topic_assigned.topic_id, event.topic_assigned.unit] = True
            if event.HasField("topic_unassigned"):
                units[event.topic_unassigned.topic_id, event.topic_unassigned.unit] = False
    return sum(units.values())


async def test_the_plan_of_an_export_moves_what_two_tables_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = told_history()
    assert rename_topic(history, AGAIN, f"{AGAIN}-and-again")
    export = await history.export(tmp_path / "export")
    options = ReshardOptions(str(export), shards_to=5, shards_from=3, items_per_second=10.0)

    summary = run(spark, options, tmp_path / "plan", tmp_path / "plan.html")

    before = initial_table([1, 2, 3])
    after = rebalanced(before, range(1, 6))
    slots = spark.read.parquet(str(tmp_path / "plan" / "slots"))
    moved = [slot for slot in range(SLOT_COUNT) if before.owners[slot] != after.owners[slot]]
    topics = live_topics(history)
    assert summary.findings == []
    assert summary.rows_in == summary.rows_read == history.rows
    assert summary.numbers["slots_moved"] == len(moved)
    assert summary.numbers["topics_moved"] == sum(topics[slot] for slot in moved)
    held = slots.where("topics > 0").select("slot", "topics").collect()
    assert {row.slot: row.topics for row in held} == dict(topics)
    assert slots.agg({"units": "sum"}).collect()[0][0] == live_units(history)
    shards = spark.read.parquet(str(tmp_path / "plan" / "shards")).collect()
    assert {row.shard_id: (row.slots_before, row.slots_after) for row in shards} == {
        shard_id: (len(before.slots_of(shard_id)), len(after.slots_of(shard_id)))
        for shard_id in range(1, 6)
    }
    page = (tmp_path / "plan.html").read_text()
    assert "Reshard plan" in page
    assert "<svg" in page


def test_rounds_share_no_shard_and_every_moving_slot_is_in_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = ReshardOptions(
        f"generated:{NAMES}", shards_to=6, shards_from=4, items_per_second=100.0
    )

    summary = run(spark, options, tmp_path / "plan")

    moves = spark.read.parquet(str(tmp_path / "plan" / "moves")).collect()
    order = spark.read.parquet(str(tmp_path / "plan" / "slot_moves"))
    by_round: dict[int, list[Any]] = {}
    for move in moves:
        by_round.setdefault(move.round, []).append(move)
    for of_round in by_round.values():
        assert len({move.from_shard for move in of_round}) == len(of_round)
        assert len({move.to_shard for move in of_round}) == len(of_round)
    ends = {number: max(move.ends_s for move in some) for number, some in by_round.items()}
    for number, some in by_round.items():
        begins_s = pytest.approx(ends.get(number - 1, 0.0))
        assert [move.starts_s for move in some] == [begins_s] * len(some)
    assert summary.numbers["duration_s"] == pytest.approx(max(ends.values()), abs=0.1)
    assert sum(move.slots for move in moves) == order.count() == summary.numbers["slots_moved"]
    assert order.select("slot").distinct().count() == order.count()
    assert summary.numbers["skew"]["topics_total"] == summary.rows_read == NAMES


def test_generated_names_are_different_and_many_tenants_are_small(spark: SparkSession) -> None:
    keys = generated_keys(spark, NAMES, 4)

    tenants = keys.selectExpr("substring_index(key, '/', 1) as tenant").groupBy("tenant").count()

    assert keys.distinct().count() == NAMES
    counts = [
        row["count"] for row in tenants.orderBy("count", ascending=False).limit(1_000).collect()
    ]
    assert counts[0] > 20 * counts[-1]
    assert sum(counts[:1_000]) > 0.4 * NAMES


async def test_an_export_of_another_cluster_than_the_map_says_is_a_finding(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = told_history()
    export = await history.export(tmp_path / "export")

    summary = run(spark, ReshardOptions(str(export), 9, shards_from=7), tmp_path / "plan")

    assert not summary.is_ok
    assert "in another shard" in summary.findings[0]


async def test_a_count_needs_one_scan_and_hashes_keys_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    export = open_export(await told_history().export(tmp_path / "export"))
    owners = slot_owners(spark, initial_table([1, 2, 3]))

    plan = plan_of(volumes_of_events(export.events(spark), owners))

    assert plan.count("FileScan parquet") == 1
    assert unwanted_in(plan, hashes=1) == []
    assert "SortAggregate" not in plan


async def test_without_a_map_the_latest_of_the_export_holds(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = told_history()
    tables = [initial_table([1, 2, 3]), rebalanced(initial_table([1, 2, 3]), [1, 2, 3, 4])]
    for table in tables:
        changed = ShardMapChanged(version=table.version, slot_owners=table.to_bytes())
        history.add(0, shard_map_changed=changed)
    export = open_export(await history.export(tmp_path / "export"))
    # Two later versions are stored as their differences: the last one moves no slot.
    runs = [SlotRun(0, 99, 2), SlotRun(50, 50, 1)]
    stored = [EventRun(first=run.first, last=run.last, shard_id=run.shard_id) for run in runs]
    history.add(0, shard_changed=ShardChanged(version=3, slots=stored))
    history.add(0, shard_changed=ShardChanged(version=4, removed=[9]))
    changed_export = open_export(await history.export(tmp_path / "changed"))
    unplaced = open_export(await told_history().export(tmp_path / "unplaced"))

    assert table_of_export(spark, export) == tables[-1]
    assert table_of_export(spark, changed_export) == tables[-1].with_runs(4, runs)
    with pytest.raises(JobRefused, match="--shards-from or --map"):
        table_of_export(spark, unplaced)


def test_a_map_file_says_who_has_each_slot_or_is_refused(tmp_path: Path) -> None:
    table = initial_table([1, 2, 9])
    path = tmp_path / "map.json"
    shards = {str(shard_id): table.ranges_of(shard_id) for shard_id in table.shard_ids}
    path.write_text(json.dumps({"version": 1, "shards": shards}))
    assert table_of_file(path) == table

    del shards["9"]
    path.write_text(json.dumps({"version": 1, "shards": shards}))
    with pytest.raises(JobRefused, match="not a map"):
        table_of_file(path)


@pytest.mark.parametrize(
    ("shards", "why"),
    [
        ({"1": [[0, 16_383]], "2": [[5, 5]]}, "slot 5 is given to two shards"),
        # As many slots as there should be, and one of them does not exist.
        ({"1": [[1, 16_384]]}, "are no slots"),
        ({"1": [[-1, 16_383]]}, "are no slots"),
        ({"1": [[0, 10**15]]}, "are no slots"),
    ],
)
def test_a_map_file_gives_each_slot_to_one_shard(
    shards: dict[str, list[list[int]]], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({"version": 1, "shards": shards}))
    with pytest.raises(JobRefused, match=why):
        table_of_file(path)


def test_a_map_file_has_a_version(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({"version": -1, "shards": {"1": [[0, 16_383]]}}))
    with pytest.raises(JobRefused, match="-1 is no version"):
        table_of_file(path)


def test_fewer_shards_take_the_highest_ids_away() -> None:
    before = initial_table([1, 2, 9])

    assert table_after(before, 2).shard_ids == (1, 2)
    assert table_after(before, 4).shard_ids == (1, 2, 9, 10)
    with pytest.raises(JobRefused, match="allowed are"):
        table_after(before, 0)


def test_names_without_a_map_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobRefused, match="--shards-from"):
        run(spark, ReshardOptions("generated:10", 2), tmp_path / "plan")
    with pytest.raises(JobRefused, match="count of names"):
        run(spark, ReshardOptions("generated:many", 2, shards_from=1), tmp_path / "plan")
