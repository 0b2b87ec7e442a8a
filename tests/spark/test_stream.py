"""A stream over a growing export: each event is in its tables once, whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from nextgen.export.writing.shard_files import FileLimits
from pipelines.errors import JobRefused
from pipelines.running.summary import Summary
from pipelines.stream.job import StreamOptions, StreamTables, run, start
from pipelines.stream.transform import ROWS_SCHEMA, merged
from protos.nextgen.v1.events_pb2 import Event, TopicAssigned
from tests.support.logs.export_logs import FakeLog
from tests.support.spark.histories import AGAIN, DAY_MS, MINUTE_MS, History, told_history
from tests.support.spark.plans import plan_of, unwanted_in
from tests.support.spark.renames import rename_topic

PATIENT_MS = 30 * DAY_MS
"""Longer than any history here: nothing is late."""

KILLED_WITHIN_S = 240.0


def once(spark: SparkSession, export: Path, out: Path, **options: Any) -> Summary:
    return run(spark, str(export), out, StreamOptions(is_once=True, **options))


def all_events(logs: dict[int, list[Any]]) -> list[Any]:
    return [event for log in logs.values() for event in log]


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def tables_of(spark: SparkSession, out: Path) -> list[list[tuple[Any, ...]]]:
    tables = StreamTables(out)
    return [rows_of(one) for one in (tables.inventory(spark), tables.changes(spark))]


async def grow(directory: Path, logs: dict[int, list[Any]], file_rows: int) -> None:
    await export_log(FakeLog(logs), LocalStore(directory), limits=FileLimits(rows=file_rows))


def first_half(history: History) -> dict[int, list[Any]]:
    return {shard_id: log[: len(log) // 2] for shard_id, log in history.logs.items() if log[1:]}


async def test_tables_of_an_export_that_grew_are_those_that_its_events_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = told_history()
    assert rename_topic(history, AGAIN, f"{AGAIN}-and-again")
    export, out = tmp_path / "export", tmp_path / "out"
    await grow(export, first_half(history), file_rows=4)
    before = once(spark, export, out, rows_per_batch=30, delay_ms=PATIENT_MS)
    await grow(export, history.logs, file_rows=4)

    after = once(spark, export, out, rows_per_batch=30, delay_ms=PATIENT_MS)

    events = all_events(history.logs)
    kinds = Counter(event.WhichOneof("payload") for event in events)
    assert 0 < before.rows_read < after.rows_read == after.rows_in == len(events)
    assert after.findings == []
    for kind in ("tenant", "namespace", "topic"):
        expected = kinds[f"{kind}_created"] - kinds[f"{kind}_deleted"]
        assert after.numbers[f"{kind}s_live"] == expected, kind
    shards = StreamTables(out).inventory(spark).where("shard_id > 0").collect()
    assert {row.shard_id: row.inventory_events for row in shards} == Counter(
        event.shard_id for event in events if INVENTORY_EVENT.fullmatch(event.WhichOneof("payload"))
    )
    expected_changes = Counter(_change(event) for event in events if _is_change(event))
    changes = StreamTables(out).changes(spark).collect()
    counted = {(row.minute.timestamp(), row.change, row.reason): row.events for row in changes}
    assert counted == expected_changes
    assert not any(row.is_late for row in changes)
    loads = StreamTables(out).brokers(spark).collect()
    assert {row.broker_id: row.units for row in loads} == _last_loads(events)
    assert {row.broker_id for row in loads if not row.is_live} == _ended(events)


INVENTORY_EVENT = re.compile(
    "(tenant|namespace|topic)_(created|properties_set|renamed|deletion_started|deletion_aborted|deleted)"
)


def _is_change(event: Any) -> bool:
    return event.WhichOneof("payload") in ("topic_assigned", "topic_unassigned")


def _change(event: Any) -> tuple[float, str, str]:
    kind = event.WhichOneof("payload")
    minute_s = event.time_ms // MINUTE_MS * 60
    return (float(minute_s), kind.removeprefix("topic_"), getattr(event, kind).reason)


def _last_loads(events: list[Any]) -> dict[str, int | None]:
    loads: dict[str, int | None] = {}
    for event in events:
        if event.HasField("broker_session_established"):
            loads.setdefault(event.broker_session_established.broker_id, None)
        if event.HasField("broker_load_reported"):
            reported = event.broker_load_reported
            loads[reported.broker_id] = reported.load.topics
    return loads


def _ended(events: list[Any]) -> set[str]:
    ended: set[str] = set()
    for event in events:
        if event.HasField("broker_session_established"):
            ended.discard(event.broker_session_established.broker_id)
        if event.HasField("broker_session_ended"):
            ended.add(event.broker_session_ended.broker_id)
    return ended


async def test_a_batch_whose_end_was_not_noted_is_not_counted_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A kill between the tables' publication and Spark's note of the batch's end.

    1. The first half is read. 2. The note of the last batch vanishes. 3. The export grows, and the
    stream goes on: it runs that batch again.
    """
    history = told_history()
    export, out = tmp_path / "export", tmp_path / "out"
    await grow(export, first_half(history), file_rows=1_000)
    once(spark, export, out)
    commits = out / "checkpoint" / "commits"
    last = max(commits.glob("[0-9]*"), key=lambda path: int(path.name))
    for note in commits.glob(f"*{last.name}*"):
        note.unlink()
    await grow(export, history.logs, file_rows=1_000)

    summary = once(spark, export, out)

    assert summary.rows_read == summary.rows_in == history.rows
    changes = StreamTables(out).changes(spark).collect()
    assert sum(row.events for row in changes) == sum(map(_is_change, all_events(history.logs)))


async def test_an_event_behind_the_watermark_is_counted_as_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    export, out = tmp_path / "export", tmp_path / "out"
    start_ms = 1_764_000_000_000
    log = [_assigned(position, start_ms + position * MINUTE_MS) for position in range(1, 21)]
    await grow(export, {1: log}, file_rows=100)
    once(spark, export, out, delay_ms=5 * MINUTE_MS)
    # Minute 15 ended at 16, and the latest event was of minute 20: one minute within the delay.
    log += [_assigned(21, start_ms + 2 * MINUTE_MS), _assigned(22, start_ms + 15 * MINUTE_MS)]
    await grow(export, {1: log}, file_rows=100)

    summary = once(spark, export, out, delay_ms=5 * MINUTE_MS)

    changes = StreamTables(out).changes(spark).collect()
    assert summary.findings == []
    assert (summary.numbers["late_events"], summary.numbers["assignment_events"]) == (1, 22)
    late = [row for row in changes if row.is_late]
    assert [(row.minute.timestamp() * 1000, row.events) for row in late] == [
        ((start_ms + 20 * MINUTE_MS) // MINUTE_MS * MINUTE_MS, 1)
    ]
    counts = {row.minute.timestamp() * 1000: row.events for row in changes if not row.is_late}
    assert counts[(start_ms + 15 * MINUTE_MS) // MINUTE_MS * MINUTE_MS] == 2
    assert sum(counts.values()) == 21


def _assigned(position: int, time_ms: int) -> Event:
    assigned = TopicAssigned(
        topic_id="t", name="persistent://a/b/c", epoch=position, reason="moved"
    )
    return Event(position=position, term=1, shard_id=1, time_ms=time_ms, topic_assigned=assigned)


async def test_an_export_that_was_made_anew_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    history = told_history()
    out = tmp_path / "out"
    export = await history.export(tmp_path / "export", file_rows=1_000)
    once(spark, export, out)
    before = tables_of(spark, out)
    await _cut_elsewhere(export, history)

    with pytest.raises(JobRefused, match="made anew"):
        once(spark, export, out)

    assert tables_of(spark, out) == before


async def _cut_elsewhere(export: Path, history: History) -> None:
    """Export more events, in files of another size: the old end is inside one of them."""
    for path in export.rglob("*.parquet"):
        path.unlink()
    (export / "manifest.json").unlink()
    for log in history.logs.values():
        last = log[-1]
        for _ in range(3):
            more = Event()
            more.CopyFrom(last)
            more.position = log[-1].position + 1
            log.append(more)
    await grow(export, history.logs, file_rows=1_000)


async def test_a_file_that_is_not_what_the_manifest_says_is_refused_by_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    export = await told_history().export(tmp_path / "export")
    path = sorted(export.rglob("*.parquet"))[-1]
    content = bytearray(path.read_bytes())
    content[4:60] = bytes(56)
    path.write_bytes(content)

    with pytest.raises(JobRefused, match=path.name):
        once(spark, export, tmp_path / "out")


async def test_a_folder_of_another_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    export = await told_history().export(tmp_path / "export")
    out = tmp_path / "out"
    out.mkdir()
    (out / "_job.json").write_text('{"job": "stream", "export": "elsewhere"}')
    with pytest.raises(JobRefused, match="elsewhere"):
        once(spark, export, out)

    (out / "_job.json").unlink()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(JobRefused, match="no stream wrote"):
        once(spark, export, out)


async def test_a_folder_of_an_earlier_layout_is_refused_with_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two queries wrote it, each with a table and a checkpoint: nothing there can go on as one."""
    export = await told_history().export(tmp_path / "export")
    out = tmp_path / "out"
    once(spark, export, out)
    mark = json.loads((out / "_job.json").read_text())
    del mark["layout"]
    (out / "_job.json").write_text(json.dumps(mark))
    before = tables_of(spark, out)

    with pytest.raises(JobRefused, match=r"layout 1, .*remove the folder and start again"):
        once(spark, export, out)

    assert tables_of(spark, out) == before


async def test_another_delay_is_refused_with_the_one_to_go_on_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    export = await told_history().export(tmp_path / "export")
    once(spark, export, tmp_path / "out", delay_ms=90_500)

    with pytest.raises(JobRefused, match=r"--delay-s 90\.5:"):
        once(spark, export, tmp_path / "out", delay_ms=91_000)


async def test_a_batch_is_one_job_without_a_join_a_sort_or_a_python_function(
    spark: SparkSession, tmp_path: Path
) -> None:
    export = await told_history().export(tmp_path / "export")
    tables = StreamTables(tmp_path / "out")
    query = start(spark, str(export), tables, StreamOptions(is_once=True))
    query.awaitTermination()
    plan = query._jsq.streamingQuery().lastExecution().executedPlan().toString()
    assert unwanted_in(plan) == []
    assert "Join" not in plan
    assert plan.count("MicroBatchScan") == 1
    assert plan.count("StateStoreSave") == 1
    assert "RocksDB" in spark.conf.get("spark.sql.streaming.stateStore.providerClass")
    assert "HashAggregate" in plan
    assert "SortAggregate" not in plan
    assert len(query.recentProgress) == 1
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))) == 1


def test_rows_are_merged_with_those_that_changed_in_one_task(spark: SparkSession) -> None:
    def rows(*of: tuple[str, int | None, str | None, int]) -> DataFrame:
        counted = spark.createDataFrame(of, "table string, shard_id int, day string, events long")
        minute = f.to_timestamp("day").alias("minute")
        wide = counted.select("table", "shard_id", minute, "events")
        return spark.createDataFrame([], ROWS_SCHEMA).unionByName(wide, allowMissingColumns=True)

    before = rows(("inventory", 3, None, 7), ("changes", None, "2025-11-24", 5))
    changed = rows(("inventory", 3, None, 9), ("changes", None, "2025-11-25", 1))

    after = merged(before, changed)

    found = [(row.part, row.shard_id, row.events) for row in after.collect()]
    assert found == [
        ("changes-2025-11-24", None, 5),
        ("changes-2025-11-25", None, 1),
        ("inventory", 3, 9),
    ]
    assert "Exchange" not in plan_of(after)


@pytest.mark.slow
async def test_a_stream_that_was_killed_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = told_history()
    export = await history.export(tmp_path / "export", file_rows=2)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "pipelines", "stream", str(export), "--out", str(out)]
    command += ["--rows-per-batch", "2", "--every-s", "0.1", "--heap", "600m"]
    command += ["--delay-s", str(PATIENT_MS // 1000)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + KILLED_WITHIN_S
        while not (out / "tables" / "current.json").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline, "no batch was published"
            await asyncio.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    summary = once(spark, export, out, delay_ms=PATIENT_MS)

    assert summary.rows_read == summary.rows_in == history.rows
    fresh = tmp_path / "fresh"
    once(spark, export, fresh, delay_ms=PATIENT_MS)
    assert tables_of(spark, out) == tables_of(spark, fresh)
