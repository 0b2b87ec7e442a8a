"""Generated histories: whole exports, right by the rules of the log, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from nextgen.client.scalable_topics.fold import LAYOUT_EVENTS, fold_events
from nextgen.export.checking.check import check_export
from nextgen.export.format.rows import events_of
from nextgen.harness.history.checks.log_check import check_log
from nextgen.harness.history.checks.segment_check import check_segments
from nextgen.harness.history.log_events import log_event_of
from nextgen.harness.history.log_fold import index_log
from nextgen.kernel.governance.lookup_slo import LookupWindow
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.names import parse_topic
from pipelines.durations import DAY_MS
from pipelines.errors import JobRefused
from pipelines.exports.input import open_export
from pipelines.generate.job import run
from pipelines.generate.lives import unit_history
from pipelines.generate.payloads import events as events_of_narrow
from pipelines.generate.transform import numbered, unit_events
from pipelines.generate.world import STARTS_MS, World
from pipelines.running.summary import Summary
from protos.nextgen.v1.layouts_pb2 import ScalableTopic
from tests.support.spark.plans import plan_of, unwanted_in

WORLD = World(topics=250, days=2, seed=11, shards=2, brokers=3)


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    out = tmp_path_factory.mktemp("generated") / "export"
    return out, run(spark, WORLD, out)


def logged(export: Path) -> Iterator[Any]:
    """Yield all events of an export, by shard and position."""
    for file in open_export(export).files:
        yield from events_of(pq.read_table(export / file.path, partitioning=None))


@pytest.fixture(scope="module")
def events(made: tuple[Path, Summary]) -> list[Any]:
    return list(logged(made[0]))


async def test_a_generated_export_is_whole(made: tuple[Path, Summary]) -> None:
    out, summary = made
    report = await check_export(out)
    assert report.findings == []
    assert report.events == summary.rows_read == summary.rows_in


def test_a_generated_history_breaks_no_rule_of_the_log(events: list[Any]) -> None:
    told = [log_event_of(event) for event in events if event.shard_id > 0]
    assert list(check_log(index_log(told), is_complete=True)) == []


def test_scalable_topics_are_split_by_the_rules(events: list[Any]) -> None:
    told = [log_event_of(event) for event in events if event.shard_id > 0]
    assert list(check_segments(index_log(told))) == []
    splits = [event.layout_changed for event in events if event.HasField("layout_changed")]
    assert {split.epoch for split in splits} == {1, 2}
    layouts: dict[str, ScalableTopic | None] = {}
    for event in events:
        kind = event.WhichOneof("payload")
        if kind in LAYOUT_EVENTS:
            name = getattr(event, kind).name
            layouts[name] = fold_events(layouts.get(name), [event])
    there = [layout for layout in layouts.values() if layout is not None]
    assert there
    assert all(not layout.HasField("operation") for layout in there)
    deepest = max(there, key=lambda layout: layout.epoch)
    created = {each.segment_id: each.created_at_ms for each in deepest.segments}
    assert sorted(created) == [0, 1, 2, 3, 4]
    assert created[0] < created[1] < created[3]


def test_every_object_is_at_home(events: list[Any]) -> None:
    table = WORLD.slot_table
    for event in events:
        kind = event.WhichOneof("payload")
        if kind in ("tenant_created", "namespace_created", "topic_created"):
            payload = getattr(event, kind)
            key = payload.name
            if kind == "topic_created":
                key = parse_topic(payload.name).routing_key
            assert table.shard_for_key(key) == event.shard_id
            own = getattr(payload, f"{kind.partition('_')[0]}_id")
            assert int(own[:4], 16) == slot_of(key)


def test_children_live_within_the_lives_of_their_parents(events: list[Any]) -> None:
    """Shards have clocks of their own, but generated ones agree: times may be compared."""
    born: dict[str, int] = {}
    gone: dict[str, int] = {}
    parents: dict[str, str] = {}
    for event in events:
        kind = event.WhichOneof("payload")
        payload = getattr(event, kind)
        if kind == "namespace_created":
            parents[payload.namespace_id] = payload.tenant_id
        if kind == "topic_created":
            parents[payload.topic_id] = payload.namespace_id
        if kind in ("tenant_created", "namespace_created", "topic_created"):
            born[getattr(payload, f"{kind.partition('_')[0]}_id")] = event.time_ms
        if kind in ("tenant_deleted", "namespace_deleted", "topic_deleted"):
            gone[getattr(payload, f"{kind.partition('_')[0]}_id")] = event.time_ms
    assert gone
    for child, parent in parents.items():
        assert born[parent] < born[child]
        if parent in gone:
            assert gone[child] < gone[parent]


def test_a_history_has_deaths_drains_handovers_and_ends(events: list[Any]) -> None:
    kinds = Counter(event.WhichOneof("payload") for event in events)
    reasons = Counter(
        event.topic_assigned.reason for event in events if event.HasField("topic_assigned")
    )
    assert set(reasons) >= {"first_lookup", "broker_lost", "rebalanced", "drained", "moved"}
    assert kinds["topic_deleted"] > 0
    assert kinds["broker_drain_set"] > 0
    assert kinds["policy_set"] > 0
    assert 5 < (kinds["topic_assigned"] + kinds["topic_unassigned"]) / WORLD.topics < 15


def test_tenants_are_of_very_different_sizes(events: list[Any]) -> None:
    tenants = Counter(
        parse_topic(event.topic_created.name).tenant
        for event in events
        if event.HasField("topic_created")
    )
    assert sum(tenants.values()) == WORLD.topics
    sizes = sorted(tenants.values(), reverse=True)
    assert sizes[0] > 3 * sizes[-1]


def test_load_reports_count_what_the_log_says_a_broker_has(events: list[Any]) -> None:
    owners: dict[str, str] = {}
    held: Counter[str] = Counter()
    compared = 0
    for event in sorted(events, key=lambda one: (_measured_ms(one), one.shard_id, one.position)):
        if event.HasField("topic_assigned") or event.HasField("topic_unassigned"):
            one = event.topic_assigned if event.HasField("topic_assigned") else None
            told = one or event.topic_unassigned
            before = owners.pop(told.name, "")
            held[before] -= 1
            if one is not None:
                owners[one.name] = one.broker_id
                held[one.broker_id] += 1
        elif event.HasField("broker_load_reported"):
            reported = event.broker_load_reported
            assert reported.load.topics == held[reported.broker_id]
            for busy in reported.load.busiest:
                assert owners[busy.name] == reported.broker_id
                assert busy.bytes_in_per_second <= reported.load.bytes_in_per_second * 1.1
            compared += 1
    assert compared > 500


def _measured_ms(event: Any) -> float:
    """Return when what an event says was so: a report counts what was before its measurement."""
    if event.HasField("broker_load_reported"):
        return event.broker_load_reported.load.measured_at_ms - 0.5
    return float(event.time_ms)


def test_recorded_windows_are_judged_as_the_live_meter_judges(events: list[Any]) -> None:
    bad = 0
    for event in events:
        if event.HasField("lookup_window_recorded"):
            told = event.lookup_window_recorded
            window = LookupWindow(
                told.node_id,
                told.process,
                told.began_at_ms,
                told.errors,
                tuple(told.latency_counts),
            )
            assert (told.lookups, told.too_slow) == (window.lookups, window.too_slow)
            assert (told.is_bad, told.why_bad) == (window.is_bad, window.why_bad)
            bad += told.is_bad
    assert bad > 0


def test_times_are_within_the_days_that_were_asked_for(events: list[Any]) -> None:
    times = [event.time_ms for event in events]
    assert min(times) >= STARTS_MS
    assert max(times) < STARTS_MS + WORLD.days * DAY_MS


def test_the_same_seed_gives_the_same_bytes_however_the_work_is_cut(
    spark: SparkSession, made: tuple[Path, Summary], tmp_path: Path
) -> None:
    out, _ = made
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        run(spark, WORLD, tmp_path / "again")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert (tmp_path / "again" / "manifest.json").read_bytes() == (
        out / "manifest.json"
    ).read_bytes()


def test_units_and_events_are_moved_between_tasks_once_each_and_never_through_python(
    spark: SparkSession,
) -> None:
    topics = spark.range(10).selectExpr(
        "id AS topic_no",
        "'persistent://a/b/c' AS name",
        "'0' AS object_id",
        "CAST(id % 2 AS INT) AS shard_id",
        "id AS created_even_ms",
        "id + 86400000 AS ends_even_ms",
        "CAST(NULL AS BIGINT) AS deleted_ms",
        "0 AS partitions",
    )
    sessions = spark.range(10).selectExpr(
        "id AS returns", "CAST(id AS INT) AS broker", "1 AS session"
    )
    told = unit_events(unit_history(topics, sessions, WORLD))
    filed = told.selectExpr(
        "*", "shard_id AS file_shard", "CAST(time_ms / 86400000 AS INT) AS file_day"
    )
    days = spark.range(2).selectExpr(
        "CAST(id % 2 AS INT) AS file_shard", "CAST(id AS INT) AS file_day", "id AS before"
    )
    homes = spark.range(3).selectExpr("CAST(id AS INT) AS broker", "'b' AS broker_id", "1 AS slot")
    whole = events_of_narrow(numbered(filed, days), homes, WORLD)

    plan = plan_of(whole)
    assert unwanted_in(plan) == []
    assert "SortMergeJoin" not in plan
    assert plan.count("Exchange hashpartitioning") == 2


def test_what_no_job_wrote_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(JobRefused, match="no job wrote"):
        run(spark, WORLD, tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "precious"
