"""The rebuild: up to where it folds, what it counts, how Spark goes about it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession

from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from pipelines.exports.input import open_export
from pipelines.rebuild import layouts, tables, transform
from pipelines.rebuild.as_of import AsOf
from pipelines.rebuild.job import choose_input, read_table, run
from protos.nextgen.v1.events_pb2 import Event, TopicCreated, TopicPropertiesSet
from tests.support.logs.export_logs import FakeLog
from tests.support.spark.histories import HOUR_MS, TOLD_FROM_MS, told_history
from tests.support.spark.plans import plan_of, unwanted_in


async def test_a_time_cuts_each_shard_before_its_first_later_event(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A clock that goes back behind that event brings nothing in again."""
    until_ms = TOLD_FROM_MS + HOUR_MS
    history = told_history()
    kept = {
        shard: sum(event.time_ms <= until_ms for event in log)
        for shard, log in history.logs.items()
        if shard
    }
    history.logs[1][-1].time_ms = TOLD_FROM_MS
    export = open_export(await history.export(tmp_path / "export", file_rows=10))

    chosen = choose_input(spark, export, AsOf(time=datetime.fromtimestamp(until_ms / 1_000, UTC)))

    assert chosen.positions == kept
    assert 0 < kept[1] < len(history.logs[1])
    assert chosen.rows < export.rows


async def test_before_the_first_event_there_was_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = told_history()
    export = await history.export(tmp_path / "export")
    ages_ago = AsOf(time=datetime(2000, 1, 1, tzinfo=UTC))

    summary = run(spark, export, tmp_path / "out", ages_ago)

    assert (summary.rows_in, summary.rows_read, summary.findings) == (0, 0, [])
    assert summary.numbers["rows"] == dict.fromkeys(tables.TABLE_NAMES, 0)
    assert summary.numbers["events_not_opened"] == history.rows
    assert read_table(spark, tmp_path / "out", tables.TOPICS).schema == tables.SCHEMAS["topics"]


async def test_events_about_things_that_were_never_created_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    known, unknown = "persistent://acme/orders/known", "persistent://acme/orders/unknown"
    log = [
        Event(position=1, shard_id=1, topic_properties_set=TopicPropertiesSet(name=unknown)),
        Event(position=2, shard_id=1, topic_created=TopicCreated(name=known, topic_id="2")),
        Event(position=3, shard_id=1, topic_properties_set=TopicPropertiesSet(name=known)),
    ]
    await export_log(FakeLog({1: log}), LocalStore(tmp_path / "export"))
    events = open_export(tmp_path / "export").events(spark)
    unborn = Observation("unborn")

    (topic,) = transform.fold_objects(events, tables.OBJECT_TABLES[2], unborn).collect()

    assert (topic["name"], topic["version"], topic["position"]) == (known, 2, 3)
    assert unborn.get == {transform.UNBORN: 1}


async def test_the_folds_read_once_sort_once_and_run_no_python(
    spark: SparkSession, tmp_path: Path
) -> None:
    export = await told_history().export(tmp_path / "export")
    events = open_export(export).events(spark)

    for table in tables.OBJECT_TABLES:
        plan = fold_plan_of(transform.fold_objects(events, table))
        assert plan.count("FileScan") == 1, plan
        # Renamed topics: the events of a name are sorted once more, by the topic's id.
        assert plan.count("Sort [") == (2 if table.renamed else 1), plan
        assert plan.count("Exchange hashpartitioning") == 1, plan
    plan = fold_plan_of(transform.fold_sessions(events))
    assert plan.count("FileScan") == 1, plan
    plan = fold_plan_of(transform.fold_assignments(events))
    # Units, those of renamed topics and which these are, the topics and the segments that are gone,
    # and who is meant by which hash.
    assert plan.count("FileScan") == 6, plan
    assert "HashAggregate(keys=[shard_id" in plan, plan
    assert "SortAggregate(key=[shard_id" not in plan, plan
    for fold, scans in (
        (layouts.fold_layouts, 2),
        (layouts.fold_segments, 2),
        (layouts.fold_subscriptions, 3),
    ):
        # The events, the topics that are gone, and the segments that marks of count no more.
        assert fold_plan_of(fold(events)).count("FileScan") == scans, fold


def fold_plan_of(rows: DataFrame) -> str:
    plan = plan_of(rows)
    assert unwanted_in(plan) == []
    return plan
