"""The job over a run that a real leader recorded, with failovers; and over generated loads."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nextgen.export.stores.local import LocalStore
from nextgen.export.writing.run import export_log
from pipelines.backtest import transform
from pipelines.backtest.job import run
from pipelines.backtest.model import (
    ACTIONS,
    CHANGED,
    DIFFERENCES,
    HOURS,
    RECORDED,
    SAME,
    SCHEMAS,
    TOPICS,
    ChangedPolicy,
    LogFacts,
    Question,
)
from pipelines.backtest.replay import OF_ARGUMENTS, OF_LOG
from pipelines.errors import JobRefused
from pipelines.exports.input import open_export
from pipelines.generate.job import run as generate
from pipelines.generate.world import World
from tests.support.logs.export_logs import FakeLog
from tests.support.spark.auto_scale_run import SHARD_ID, recorded_run
from tests.support.spark.backtest_facts import facts_of_events, log_facts, tables_of
from tests.support.spark.histories import History
from tests.support.spark.plans import plan_of

ASKED = Question(
    ChangedPolicy('{"splitMsgRateInThreshold":40000}', {"acme/orders": '{"maxSegments":3}'}),
    slack_ms=10_000,
)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return recorded_run(tmp_path_factory.mktemp("run") / "shard")


@pytest.fixture(scope="module")
def made(
    spark: SparkSession, events: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """The folder of the job, and its summary."""
    folder = tmp_path_factory.mktemp("backtest")
    export = exported(events, folder / "export")
    summary = run(spark, export, folder / "out", ASKED, report=folder / "page.html")
    return folder, summary.as_dict()


def exported(events: list[Any], folder: Path) -> Path:
    asyncio.run(export_log(FakeLog({SHARD_ID: events}), LocalStore(folder)))
    return folder


def rows(spark: SparkSession, folder: Path, table: str) -> list[dict[str, Any]]:
    found = spark.read.schema(SCHEMAS[table]).parquet(str(folder / "out" / table)).collect()
    return [row.asDict() for row in found]


def test_every_action_of_a_run_with_failovers_is_reproduced(
    events: list[Any], made: tuple[Path, dict[str, Any]]
) -> None:
    _, summary = made
    actions = sum(each.HasField("auto_scale_decided") for each in events)

    assert summary["rows_in"] == summary["rows_read"] == len(events)
    assert (summary["ok"], summary["differences"], summary["topics"]) == (True, 0, 1)
    assert summary["actions"] == summary["actions_reproduced"] == actions


def test_the_job_gives_the_rows_that_the_events_give_without_spark(
    spark: SparkSession, events: list[Any], made: tuple[Path, dict[str, Any]]
) -> None:
    expected = tables_of(facts_of_events(events), ASKED, log_facts(events))

    for table in (ACTIONS, TOPICS, HOURS):
        found = rows(spark, made[0], table)
        assert sorted(map(repr, found)) == sorted(map(repr, expected[table])), table
    assert {each["scenario"] for each in rows(spark, made[0], TOPICS)} == {RECORDED, SAME, CHANGED}


def test_summary_and_page_say_what_was_found(made: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = made
    written = json.loads((folder / "out" / "summary.json").read_text())
    page = (folder / "page.html").read_text()

    assert written["scenarios"] == summary["scenarios"]
    assert summary["scenarios"][CHANGED]["segments_max_of_a_topic"] == 3
    assert (folder / "out" / "hours.csv").read_text().startswith("scenario,hour_ms,segment_ms")
    assert "0 differences" in page
    assert page.count("<svg") == 3
    assert "the changed policy, simulated" in page


def test_facts_pass_through_python_once_and_nothing_else_does(
    spark: SparkSession, made: tuple[Path, dict[str, Any]]
) -> None:
    events = open_export(made[0] / "export").events(spark)
    facts = transform.facts(events, events)
    plan = plan_of(transform.backtested(facts, ASKED, LogFacts({}, {})))

    assert plan.count("ArrowEvalPython") == 1
    assert "NestedLoopJoin" not in plan
    assert "CartesianProduct" not in plan
    assert "Python" not in plan_of(facts)


@pytest.mark.slow
def test_differences_are_findings_with_the_topic_the_place_and_both_actions(
    spark: SparkSession, events: list[Any], tmp_path: Path
) -> None:
    other = copy.deepcopy(events)
    changed = next(each for each in other if each.HasField("auto_scale_decided"))
    changed.auto_scale_decided.reason = "bytesRateIn"
    summary = run(spark, exported(other, tmp_path / "export"), tmp_path / "out", Question())

    assert not summary.is_ok
    assert summary.numbers["differences_by_kind"] == {OF_ARGUMENTS: 1, OF_LOG: 1}
    assert f"{SHARD_ID}:{changed.position}" in summary.findings[0]
    assert '"reason": "bytesRateIn"' in summary.findings[0]
    assert '"reason": "msgRateIn"' in summary.findings[0]
    assert len(rows(spark, tmp_path, DIFFERENCES)) == 2


def test_an_export_without_loads_is_refused_and_leaves_the_folder(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = History(shards=1)
    history.create_tenant("acme")
    export = asyncio.run(history.export(tmp_path / "export"))

    with pytest.raises(JobRefused, match="has no loads of segments"):
        run(spark, export, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_an_export_of_an_older_schema_is_refused_with_its_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    golden = Path(__file__).parent / "golden" / "v9"

    with pytest.raises(JobRefused, match="is of the schema v9, which has no loads of segments"):
        run(spark, golden, tmp_path / "out")


@pytest.mark.slow
def test_generated_loads_are_reproduced_and_the_history_breaks_no_rule(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(topics=20, days=1, seed=7, shards=2, brokers=2, auto_scaled_percent=100)
    generate(spark, world, tmp_path / "export")
    summary = run(spark, tmp_path / "export", tmp_path / "out", ASKED)

    assert summary.is_ok, summary.findings
    assert summary.numbers["topics"] == 20
    assert summary.numbers["actions"] == summary.numbers["actions_reproduced"] > 20
